"""Learn: add an observation to the sums and, by a rank-one step, to what is derived from them.

A memory that only changes weights is `add_observation` with another fade. Others need more:

- `half_life`: the weight of an observation is 2^(−age/span). Its age is that of its choice, and
  counts from the newest choice that was learned, whose time is the clock.
- `detect`: the CUSUM of squared prediction errors; `detect_shift`: a shift of their mean.
- `window`: each new observation replaces the oldest one, which leaves the sums.
- `parts`: θ is a sum of parts, each of which moves at a speed of its own; see `parts`.
- `directional`: before an observation is added, W fades in its direction.
- `one_pass`: θ̂ is moved by one step of mirror descent, and b is Wθ̂.
- `kalman`: θ moves by θ ← ρθ + N(0, (1−ρ²)I/λ), and a Kalman filter follows θ. Its mean is θ̂, its
  covariance Σ is `inverse`. Both are exact, so they need neither sums nor a refresh.

The noise is estimated from errors of prediction, if the scale of the exploration is a share of it.
The estimate outlives restarts and alarms: they drop what was learned about θ, and the noise is a
property of the rewards.
"""

import math
from collections.abc import Callable

import numpy as np

from windvane._numba.compilation import compiled
from windvane._numba.instructions import view_matrix
from windvane.beliefs import links
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import ESTIMATE_TOLERANCE, refresh, reset, solve, view_belief
from windvane.beliefs.full.layout import (
    DETECT,
    DETECT_SHIFT,
    DIRECTIONAL,
    HALF_LIFE,
    KALMAN,
    LARGEST,
    MOST_LENGTHS,
    NOISE,
    ONE_PASS,
    PARTS,
    WIDTH,
    WINDOW,
    PolicyArrays,
)
from windvane.beliefs.full.linalg import (
    copy_vector,
    dot,
    multiply_matrices,
    multiply_vector,
    update_root,
)
from windvane.beliefs.full.noise import add_error
from windvane.beliefs.full.parts import correct, update_parts
from windvane.beliefs.full.widths import (
    RankOneStep,
    TrackedArms,
    compute_exact_width,
    follow_step,
    measure_arms,
)
from windvane.beliefs.links import IDENTITY, POISSON
from windvane.types import Floats, Records

compute_mean = compiled(links.mean)
compute_slope = compiled(links.derivative)

LARGEST_ERROR = 9.0  # r² is cut here: an outlier counts as three standard deviations


@compiled
def weigh_age(arrays: PolicyArrays, at: float) -> float:
    """The weight of an observation whose arm was chosen at time `at`."""
    weight: float = 0.5 ** ((arrays.tally[0].clock - at) / arrays.rules[0].span)
    return weight


@compiled
def advance_clock(arrays: PolicyArrays, at: float) -> tuple[float, float]:
    """Set the clock for an observation chosen at time `at`.

    Return the factor by which all older weights fall, and the weight of the observation.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    if counts.seen == 0:
        counts.clock = at
    fade = 1.0
    weight = 1.0
    if at >= counts.clock:
        fade = 0.5 ** ((at - counts.clock) / rule.span)
        counts.clock = at
    else:
        weight = weigh_age(arrays, at)
    counts.held = fade * fade * counts.held + weight * weight
    return fade, weight


@compiled
def update_cusum(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> bool:
    """Add the prediction error of an observation to the CUSUM of a full belief."""
    image = np.empty(x.size)  # W⁻¹x
    multiply_vector(state.inverse, x, image)
    return add_to_cusum(arrays, reward - dot(x, state.theta), dot(x, image))


@compiled
def add_to_cusum(arrays: PolicyArrays, error: float, variance: float) -> bool:
    """Add one squared prediction error to the CUSUM C; return whether C exceeds the alarm level.

    `variance` is ‖x‖²_{W⁻¹}.

    r² = (y − xᵀθ̂)² / (σ² + (σ² + λS²)‖x‖²_{W⁻¹}),  C ← max(0, C + min(r², 9) − slack)

    This statistic knows σ and the uncertainty of θ̂, so it can drop a belief. The drift alarm of the
    service is another CUSUM: it estimates the noise from the log and only warns.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    expected = rule.variance + (rule.variance + rule.bias) * variance
    step = min(error * error / expected, LARGEST_ERROR) - rule.slack
    counts.surprise = max(0.0, counts.surprise + step)
    return bool(counts.surprise > rule.alarm)


@compiled
def update_shift(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> bool:
    """Add a prediction error to those of `detect_shift`; return whether their mean has shifted.

    Errors are summed in blocks of 1, 2, 4, …, up to two of each length: if there would be a third,
    the two older ones become a block of twice the length.
    """
    rule, sums = arrays.rules[0], arrays.block[-3 * MOST_LENGTHS :]
    held, newer = sums[:MOST_LENGTHS], sums[MOST_LENGTHS : 2 * MOST_LENGTHS]
    older = sums[2 * MOST_LENGTHS :]
    image = np.empty(x.size)  # W⁻¹x
    multiply_vector(state.inverse, x, image)
    expected = rule.variance + (rule.variance + rule.bias) * dot(x, image)
    block = (reward - dot(x, state.theta)) / math.sqrt(expected)
    for level in range(MOST_LENGTHS):
        pushed, merged, has_room = newer[level], newer[level] + older[level], held[level] < 2.0
        newer[level] = block
        older[level] = pushed if has_room else 0.0
        held[level] = held[level] + 1.0 if has_room else 1.0
        if has_room:
            break
        block = merged
    return has_shift(rule.alarm, held, newer, older)


@compiled
def has_shift(alarm: float, held: Floats, newer: Floats, older: Floats) -> bool:
    """Whether n₁n₂(r̄₁ − r̄₂)²/(2n) reaches log(3/δ) + 1.5·log n for a split between two blocks."""
    count, total, length = 0.0, 0.0, 1.0
    for level in range(MOST_LENGTHS):
        count += held[level] * length
        total += newer[level] + older[level]
        length *= 2.0
    least, recent, recent_sum, length = alarm + 1.5 * math.log(count), 0.0, 0.0, 1.0
    for level in range(MOST_LENGTHS):
        for k in range(int(held[level])):
            recent += length
            recent_sum += newer[level] if k == 0 else older[level]
            early = count - recent
            if early > 0.0:
                gap = (total - recent_sum) / early - recent_sum / recent
                if 0.5 * early * recent / count * gap * gap >= least:
                    return True
        length *= 2.0
    return False


LEAST_DIVISOR = 1e-2  # 1 − xᵀPx below this loses too many digits of P
LEAST_ENERGY_SHARE = 1e-6  # of the peak: sums that shrink below this lose too many digits


@compiled
def slide_window(arrays: PolicyArrays, state: State, oldest: Floats, slot: int) -> bool:
    """Remove the oldest observation (d + 1,), x and y, from the sums and from `inverse`.

    Return False if the sums were recomputed and `inverse` must be too: if too few digits would be
    left, and once for every pass through the window, so that rounding errors do not accumulate.
    """
    d = arrays.rules[0].dim
    if remove_observation(arrays, state, oldest[:d], oldest[d]) and slot < arrays.past.shape[0] - 1:
        return True
    sum_window(arrays, state)
    return False


@compiled
def remove_observation(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> bool:
    """Remove an observation by a rank-one step: P' = P + ppᵀ/c with p = Px and c = 1 − xᵀp.

    Return False if too few digits would be left; then nothing is removed.
    """
    d, counts = x.size, arrays.tally[0]
    p = np.empty(d)
    multiply_vector(state.inverse, x, p)
    c = 1.0 - dot(x, p)
    counts.peak = max(counts.peak, counts.energy)
    counts.energy -= dot(x, x)
    least_energy = LEAST_ENERGY_SHARE * counts.peak
    if c < LEAST_DIVISOR or counts.energy + arrays.rules[0].ridge < least_energy:
        return False
    for i in range(d):
        state.moment[i] -= x[i] * reward
        for j in range(d):
            state.gram[i, j] -= x[i] * x[j]
            state.inverse[i, j] += (p[i] * p[j]) / c
    return True


@compiled
def sum_window(arrays: PolicyArrays, state: State) -> None:
    """Recompute the sums from the observations in the window."""
    d, counts = state.moment.size, arrays.tally[0]
    count = arrays.past.shape[0]
    features, columns, rewards = np.empty((count, d)), np.empty((d, count)), np.empty(count)
    for k in range(count):
        rewards[k] = arrays.past[k, d]
        for i in range(d):
            features[k, i] = arrays.past[k, i]
            columns[i, k] = arrays.past[k, i]
    multiply_matrices(columns, features, state.gram)
    multiply_vector(columns, rewards, state.moment)
    counts.energy = 0.0
    for i in range(d):
        counts.energy += state.gram[i, i]
    counts.peak = counts.energy


@compiled
def filter_observation(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> RankOneStep:
    """Predict one step of θ, then correct mean and covariance by one observation.

    Σ ← ρ²Σ + (1−ρ²)I/λ,  μ ← ρμ;  with p = Σx and c = σ² + xᵀp: μ ← μ + p(y − xᵀμ)/c, Σ ← Σ − ppᵀ/c
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    d, fade = rule.dim, rule.rho * rule.rho
    mean, covariance = state.theta, state.inverse
    for i in range(d):
        mean[i] *= rule.rho
        for j in range(d):
            covariance[i, j] *= fade
        covariance[i, i] += (1.0 - fade) / rule.ridge
    p = np.empty(d)
    error, c = correct(mean, covariance, x, reward, rule.variance, p)
    if rule.unit == NOISE:
        add_error(arrays, error, c / rule.variance, rule.rho, 1.0)
    counts.energy = fade * counts.energy + dot(x, x) / rule.variance
    return RankOneStep(p, p, c, dot(x, p), fade)


@compiled
def follow_filter(rules: Records, tracked: TrackedArms, step: RankOneStep) -> None:
    """Update the squared widths of tracked arms: w² ← ρ²w² + (1−ρ²)‖x‖²/λ − (xᵀp)²/c."""
    rule = rules[0]
    fade, more = rule.rho * rule.rho, (1.0 - rule.rho * rule.rho) / rule.ridge
    for k in range(tracked.squared_widths.size):
        a = dot(tracked.arms[k], step.image)
        square, norm = tracked.squared_widths[k], tracked.squared_norms[k]
        tracked.squared_widths[k] = fade * square + more * norm - a * a / step.divisor


LARGEST_CONDITION = 1e13  # trace(S)/λ beyond this would leave too few digits in W⁻¹
NOT_FINITE, TOO_LARGE = -1, -2  # codes with which a kernel refuses its arguments
LEAST_FADE = 0.5  # if older weights fall by more at once, W is inverted instead of updated
LEAST_SLOPE = 1e-12  # of a link, as the variance of a reward
LEAST_WEIGHT = 1e-300  # avoids a division by a weight that has underflowed to 0


MEMORIES_BESIDE_SUMS = (KALMAN, WINDOW, DETECT, DETECT_SHIFT, ONE_PASS, DIRECTIONAL)

LearnKernel = Callable[[PolicyArrays, Floats, float, float], int]
AmendKernel = Callable[[PolicyArrays, Floats, float, float], None]


def select_learn(rules: Records) -> LearnKernel:
    """Return the kernel with which a policy learns; the most usual ones compile no others."""
    if rules["room"][0] > 0:
        from windvane.beliefs.full.large import learn_into_large_sums

        return learn_into_large_sums
    memory = rules["memory"][0]
    if memory == PARTS:
        return learn_by_parts
    return learn if memory in MEMORIES_BESIDE_SUMS else learn_into_sums


def select_amend(rules: Records) -> AmendKernel:
    """Return the kernel that adds to the reward of a learned observation."""
    if rules["room"][0] > 0:
        from windvane.beliefs.full.large import amend_large

        return amend_large
    return amend


@compiled
def check_observations(arrays: PolicyArrays, rows: Floats) -> int:
    """Return 0 if the rows (n, d) can be learned in turn, else NOT_FINITE or TOO_LARGE."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    energy, fade, unit = counts.energy, rule.gamma, 1.0
    if rule.memory == KALMAN:
        fade, unit = rule.rho * rule.rho, 1.0 / rule.variance
    for i in range(rows.shape[0]):
        square = dot(rows[i], rows[i])
        if not square <= LARGEST:
            return NOT_FINITE
        if rule.link == POISSON:  # the largest μ' inside the ball
            unit = compute_mean(rule.link, rule.ball * math.sqrt(square))
        energy = fade * energy + unit * square
        if energy > LARGEST_CONDITION * (rule.ridge * rule.least_prior):
            return TOO_LARGE
        if rule.memory == WINDOW and counts.seen + i >= rule.window:
            slot = (counts.seen + i) % rule.window
            oldest = rows[i - rule.window] if i >= rule.window else arrays.past[slot]
            energy -= dot(oldest[: rule.dim], oldest[: rule.dim])
    return 0


@compiled
def learn(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Learn one observation under any memory; return as `learn_into_sums` does."""
    refusal = check_observations(arrays, view_matrix(x, 0, 1, x.size))
    if refusal == 0:
        update_belief(arrays, view_belief(arrays), x, reward, at)
    return refusal


@compiled
def learn_into_sums(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Learn one observation, whose arm was chosen at time or round `at`, and estimate θ̂.

    Return 0, or the code of a refusal; then nothing has changed.
    """
    refusal = check_observations(arrays, view_matrix(x, 0, 1, x.size))
    if refusal == 0:
        update_sums(arrays, view_belief(arrays), x, reward, at)
    return refusal


@compiled
def learn_by_parts(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Learn one observation of a sum of parts; return as `learn_into_sums` does."""
    refusal = check_observations(arrays, view_matrix(x, 0, 1, x.size))
    if refusal == 0:
        update_parts(arrays, view_belief(arrays), x, reward, at)
    return refusal


@compiled
def learn_all(arrays: PolicyArrays, rows: Floats, rewards: Floats, at: Floats) -> None:
    """Learn rows (n, d) that were checked, with rewards (n,) and times (n,), in turn."""
    state = view_belief(arrays)
    for i in range(rewards.size):
        update_belief(arrays, state, rows[i], rewards[i], at[i])


@compiled
def learn_and_track(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float, tracked: TrackedArms
) -> None:
    """Learn one observation that was checked, and update the widths of tracked arms."""
    step, is_exact = update_belief(arrays, state, x, reward, at)
    if tracked.squared_widths.size > 0:
        if not is_exact or arrays.rules[0].memory == WINDOW:
            measure_arms(state, tracked)
        elif arrays.rules[0].memory == KALMAN:
            follow_filter(arrays.rules, tracked, step)
        else:
            follow_step(arrays, state, tracked, step)


@compiled
def update_belief(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> tuple[RankOneStep, bool]:
    """Learn one observation under any memory.

    Return its step, and whether all that is derived from the sums followed from this step alone.
    A policy calls the kernel of its own memory instead, because this one compiles them all.
    """
    memory = arrays.rules[0].memory
    if memory == KALMAN:
        return update_filter(arrays, state, x, reward, at)
    if memory == PARTS:
        update_parts(arrays, state, x, reward, at)
        return RankOneStep(state.theta, state.theta, 1.0, 0.0, 1.0), False
    if memory == WINDOW:
        return update_window(arrays, state, x, reward, at)
    if memory in (DETECT, DETECT_SHIFT):
        return update_or_drop_sums(arrays, state, x, reward)
    if memory == ONE_PASS:
        return update_in_one_pass(arrays, state, x, reward, at)
    if memory == DIRECTIONAL:
        return update_along(arrays, state, x, reward, at)
    return update_sums(arrays, state, x, reward, at)


@compiled
def update_filter(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> tuple[RankOneStep, bool]:
    """Learn one observation by a Kalman filter; return as `update_belief` does."""
    step = filter_observation(arrays, state, x, reward)
    store_observation(arrays, x, reward, at)
    arrays.tally[0].seen += 1
    return step, True


@compiled
def update_sums(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> tuple[RankOneStep, bool]:
    """Learn one observation under weights that fade or stay; return as `update_belief` does."""
    step = add_observation(arrays, state, x, reward, at, 1.0)
    store_observation(arrays, x, reward, at)
    return step, finish_update(arrays, state, True)


@compiled
def update_in_one_pass(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> tuple[RankOneStep, bool]:
    """Learn one observation by a step of mirror descent; return as `update_belief` does."""
    weight = descend(arrays, state, x, reward)
    step = add_observation(arrays, state, x, reward, at, weight)
    multiply_vector(state.gram, state.theta, state.moment)
    for i in range(x.size):
        state.moment[i] += arrays.rules[0].ridge * state.theta[i]
    return step, finish_update(arrays, state, True)


@compiled
def descend(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> float:
    """Move θ̂ by one step of mirror descent, as `one_pass` says, and return μ'(xᵀθ̂) there."""
    rule, theta = arrays.rules[0], state.theta
    u = np.empty(x.size)  # W⁻¹x
    multiply_vector(state.inverse, x, u)
    solve(arrays, state, x, u, ESTIMATE_TOLERANCE)
    mean = compute_mean(rule.link, dot(x, theta))
    slope, square = compute_slope(rule.link, mean), dot(x, u)
    if rule.unit == NOISE:  # the variance of a reward is μ' times the dispersion
        variance = max(slope, LEAST_SLOPE) * (1.0 + slope * square)
        add_error(arrays, reward - mean, variance, rule.gamma, 1.0)
    eta = 1.0 if rule.link == IDENTITY else 1.0 + rule.ball
    length = eta * (mean - reward) / (1.0 + eta * slope * square)
    for i in range(x.size):
        theta[i] -= length * u[i]
    shrink = rule.ball / max(math.sqrt(dot(theta, theta)), rule.ball)
    for i in range(x.size):
        theta[i] *= shrink
    return compute_slope(rule.link, compute_mean(rule.link, dot(x, theta)))


@compiled
def update_along(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> tuple[RankOneStep, bool]:
    """Forget in the direction of one observation, then learn it; return as `update_belief` does."""
    forget_along(arrays, state, x)
    step = add_observation(arrays, state, x, reward, at, 1.0)
    finish_update(arrays, state, True)
    return step, False


@compiled
def forget_along(arrays: PolicyArrays, state: State, x: Floats) -> None:
    """Let W fade by γ in the direction of x, and b so that θ̂ stays; P follows W exactly.

    W ← W − (1−γ)·uuᵀ/s,  b ← b − (1−γ)·u·uᵀθ̂/s,  P ← P + (1/γ−1)·xxᵀ/s  with u = Wx, s = xᵀu
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    if dot(x, x) < rule.least_square:
        return
    u = np.empty(x.size)
    multiply_vector(state.gram, x, u)
    for i in range(x.size):
        u[i] += rule.ridge * x[i]
    less, more = (1.0 - rule.along) / dot(x, u), (1.0 / rule.along - 1.0) / dot(x, u)
    pull = less * dot(u, state.theta)
    for i in range(x.size):
        state.moment[i] -= pull * u[i]
        for j in range(x.size):
            state.gram[i, j] -= less * (u[i] * u[j])
            state.inverse[i, j] += more * (x[i] * x[j])
    counts.energy = max(0.0, counts.energy - less * dot(u, u))


@compiled
def update_or_drop_sums(
    arrays: PolicyArrays, state: State, x: Floats, reward: float
) -> tuple[RankOneStep, bool]:
    """Learn one observation after an alarm has dropped all others, if one was raised.

    Return as `update_belief` does.
    """
    if arrays.rules[0].memory == DETECT:
        has_alarm = update_cusum(arrays, state, x, reward)
    else:
        has_alarm = update_shift(arrays, state, x, reward)
    if has_alarm:
        reset(arrays)
        arrays.tally[0].alarms += 1
    step = add_observation(arrays, state, x, reward, 0.0, 1.0)
    store_observation(arrays, x, reward, 0.0)
    return step, finish_update(arrays, state, not has_alarm)


@compiled
def update_window(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> tuple[RankOneStep, bool]:
    """Learn one observation in place of the oldest; return as `update_belief` does."""
    rule, seen, past = arrays.rules[0], arrays.tally[0].seen, arrays.past
    slot = seen % past.shape[0]
    oldest = np.empty(past.shape[1])
    copy_vector(past[slot], oldest)
    step = add_observation(arrays, state, x, reward, at, 1.0)
    store_observation(arrays, x, reward, at)
    is_exact = seen < rule.window or slide_window(arrays, state, oldest, slot)
    return step, finish_update(arrays, state, is_exact)


@compiled
def finish_update(arrays: PolicyArrays, state: State, is_exact: bool) -> bool:
    """Count an observation, refresh `inverse` if it is due, and estimate θ̂.

    Return whether `inverse` followed from the step of the observation alone.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    counts.seen += 1
    has_small_ridge = counts.ridge < rule.least * rule.ridge
    if counts.stale >= rule.refresh or has_small_ridge or not is_exact:
        refresh(arrays, state)
        is_exact = False
    solve(arrays, state, state.moment, state.theta, ESTIMATE_TOLERANCE)
    return is_exact


@compiled
def add_observation(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float, weight: float
) -> RankOneStep:
    """Add one observation to the sums and, by a rank-one step, to `inverse`, `spread` and `root`.

    W ← fW + w·xxᵀ,  W̃ ← f²W̃ + w²·xxᵀ,  b ← fb + w·xy, each without its ridge

    If a refresh is due, it recomputes `inverse` and `spread`, so they stay as they are here.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    d = rule.dim
    fade = rule.gamma
    if rule.memory == HALF_LIFE:
        fade, weight = advance_clock(arrays, at)
    if rule.unit == NOISE and rule.memory != ONE_PASS:
        width = compute_exact_width(arrays, state, x)
        error = reward - dot(x, state.theta)
        add_error(arrays, error, 1.0 + width * width, fade, weight)
    if fade < LEAST_FADE:
        counts.stale = rule.refresh
    divisor_fade = max(fade, LEAST_FADE)
    is_due = counts.stale + 1 >= rule.refresh and rule.memory != WINDOW
    p = np.empty(d)
    multiply_vector(state.inverse, x, p)
    q = p
    c = fade / max(weight, LEAST_WEIGHT) + dot(x, p)
    if rule.twin:
        noise_fade, noise_weight = fade * fade, weight * weight
        for i in range(d):
            for j in range(d):
                state.noise[i, j] = noise_fade * state.noise[i, j] + noise_weight * (x[i] * x[j])
        if rule.style == WIDTH and not is_due:
            q = np.empty(d)
            multiply_vector(state.spread, x, q)
            own = (1.0 + dot(x, q)) / (c * c)
            for i in range(d):
                for j in range(d):
                    state.spread[i, j] += own * (p[i] * p[j]) - (p[i] * q[j] + q[i] * p[j]) / c
    for i in range(d):
        state.moment[i] = fade * state.moment[i] + weight * (x[i] * reward)
        for j in range(d):
            state.gram[i, j] = fade * state.gram[i, j] + weight * (x[i] * x[j])
    if not is_due:
        for i in range(d):
            for j in range(d):
                state.inverse[i, j] = (state.inverse[i, j] - (p[i] * p[j]) / c) / divisor_fade
    if rule.root:
        if rule.twin:
            update_root(state.root, fade, x, weight)
        else:
            update_root(state.root, math.sqrt(fade), x, math.sqrt(weight))
    counts.ridge *= fade
    counts.noise_ridge *= fade * fade if rule.twin else fade
    counts.energy = fade * counts.energy + weight * dot(x, x)
    counts.stale += 1
    return RankOneStep(p, q, c, dot(x, q), fade)


@compiled
def store_observation(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> None:
    """Store the observation in place of the oldest, if past observations are kept."""
    rule, past = arrays.rules[0], arrays.past
    if past.shape[0] > 0:
        slot = arrays.tally[0].seen % past.shape[0]
        copy_vector(x, past[slot, : rule.dim])
        past[slot, rule.dim] = reward
        if rule.memory == HALF_LIFE:
            past[slot, rule.dim + 1] = at


@compiled
def amend(arrays: PolicyArrays, x: Floats, more: float, at: float) -> None:
    """Add to the reward of an observation that was learned before: b ← b + w·x·more."""
    state = view_belief(arrays)
    weight = 1.0
    if arrays.rules[0].memory == HALF_LIFE:
        weight = weigh_age(arrays, min(at, arrays.tally[0].clock))
    for i in range(x.size):
        state.moment[i] += weight * (x[i] * more)
    solve(arrays, state, state.moment, state.theta, ESTIMATE_TOLERANCE)
