"""Learn: add an observation to the sums and, by a rank-one step, to what is derived from them.

A memory that only changes weights is `add_observation` with another fade. What
`half_life`, `detect`, `window` and `kalman` need beside it is in `memories`.
"""

import math
from collections.abc import Callable

import numpy as np

from windvane._numba.compilation import compiled
from windvane._numba.matrix_views import view_matrix
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import ESTIMATE_TOLERANCE, refresh, reset_state, solve, view_belief
from windvane.beliefs.full.layout import (
    DETECT,
    HALF_LIFE,
    KALMAN,
    LARGEST,
    NOISE,
    SAMPLE,
    WIDTH,
    WINDOW,
    PolicyArrays,
)
from windvane.beliefs.full.linalg import copy_vector, dot, multiply_vector, update_root
from windvane.beliefs.full.memories import (
    add_error,
    advance_clock,
    filter_observation,
    follow_filter,
    slide_window,
    update_cusum,
    weigh_age,
)
from windvane.beliefs.full.widths import (
    RankOneStep,
    TrackedArms,
    compute_exact_width,
    follow_step,
    measure_arms,
)
from windvane.types import Floats, Records

LARGEST_CONDITION = 1e13  # trace(S)/λ beyond this would leave too few digits in W⁻¹
NOT_FINITE, TOO_LARGE = -1, -2  # codes with which a kernel refuses its arguments
LEAST_FADE = 0.5  # if older weights fall by more at once, W is inverted instead of updated
LEAST_WEIGHT = 1e-300  # avoids a division by a weight that has underflowed to 0


LearnKernel = Callable[[PolicyArrays, Floats, float, float], int]
AmendKernel = Callable[[PolicyArrays, Floats, float, float], None]


def select_learn(rules: Records) -> LearnKernel:
    """Return the kernel with which a policy learns; the others need not be compiled."""
    if rules["room"][0] > 0:
        from windvane.beliefs.full.large import learn_into_large_sums

        return learn_into_large_sums
    kernels = {KALMAN: learn_by_filter, WINDOW: learn_into_window, DETECT: learn_and_detect}
    return kernels.get(int(rules["memory"][0]), learn_into_sums)


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
        energy = fade * energy + unit * square
        if energy > LARGEST_CONDITION * rule.ridge:
            return TOO_LARGE
        if rule.memory == WINDOW and counts.seen + i >= rule.window:
            slot = (counts.seen + i) % rule.window
            oldest = rows[i - rule.window] if i >= rule.window else arrays.past[slot]
            energy -= dot(oldest[: rule.dim], oldest[: rule.dim])
    return 0


@compiled
def learn(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Learn one observation under any memory, for compiled callers; as `learn_into_sums`."""
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
def learn_into_window(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Learn one observation into a window; return as `learn_into_sums` does."""
    refusal = check_observations(arrays, view_matrix(x, 0, 1, x.size))
    if refusal == 0:
        update_window(arrays, view_belief(arrays), x, reward, at)
    return refusal


@compiled
def learn_and_detect(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Learn one observation, which may raise an alarm; return as `learn_into_sums` does."""
    refusal = check_observations(arrays, view_matrix(x, 0, 1, x.size))
    if refusal == 0:
        update_or_drop_sums(arrays, view_belief(arrays), x, reward, at)
    return refusal


@compiled
def learn_by_filter(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Learn one observation by a Kalman filter; return as `learn_into_sums` does."""
    refusal = check_observations(arrays, view_matrix(x, 0, 1, x.size))
    if refusal == 0:
        update_filter(arrays, view_belief(arrays), x, reward, at)
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
    if memory == WINDOW:
        return update_window(arrays, state, x, reward, at)
    if memory == DETECT:
        return update_or_drop_sums(arrays, state, x, reward, at)
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
    step = add_observation(arrays, state, x, reward, at)
    store_observation(arrays, x, reward, at)
    return step, finish_update(arrays, state, True)


@compiled
def update_or_drop_sums(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> tuple[RankOneStep, bool]:
    """Learn one observation after an alarm of `detect` has dropped all others, if one was raised.

    Return as `update_belief` does.
    """
    has_alarm = update_cusum(arrays, state, x, reward)
    if has_alarm:
        reset_state(arrays, state)
        arrays.tally[0].alarms += 1
    step = add_observation(arrays, state, x, reward, at)
    store_observation(arrays, x, reward, at)
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
    step = add_observation(arrays, state, x, reward, at)
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
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> RankOneStep:
    """Add one observation to the sums and, by a rank-one step, to `inverse`, `spread` and `root`.

    W ← fW + w·xxᵀ,  W̃ ← f²W̃ + w²·xxᵀ,  b ← fb + w·xy, each without its ridge

    If a refresh is due, it recomputes `inverse` and `spread`, so they stay as they are here.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    d = rule.dim
    fade, weight = rule.gamma, 1.0
    if rule.memory == HALF_LIFE:
        fade, weight = advance_clock(arrays, at)
    if rule.unit == NOISE:
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
    if rule.style == SAMPLE and rule.memory != WINDOW:
        update_root(state.root, fade if rule.twin else math.sqrt(fade), x, weight)
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
