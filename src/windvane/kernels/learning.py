"""Learn: add an observation to the sums and, by a rank-one step, to what is derived from them.

A memory that only changes weights is `add_observation` with another fade. The other memories have
a file each: `kalman`, `window`, `half_life` and `detect`.
"""

import math

import numpy as np

from windvane._jit import compiled
from windvane._layout import (
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
from windvane.belief import State
from windvane.kernels.belief_block import (
    ESTIMATE_TOLERANCE,
    refresh,
    reset_state,
    solve,
    view_belief,
)
from windvane.kernels.detect import update_cusum
from windvane.kernels.half_life import advance_clock, weigh_age
from windvane.kernels.kalman import filter_observation, follow_filter
from windvane.kernels.linalg import dot, multiply_vector, update_root
from windvane.kernels.noise import add_error
from windvane.kernels.widths import (
    RankOneStep,
    TrackedArms,
    compute_exact_width,
    follow_step,
    measure_arms,
    track_no_arms,
)
from windvane.kernels.window import slide_window
from windvane.types import Floats

LARGEST_CONDITION = 1e13  # trace(S)/λ beyond this would leave too few digits in W⁻¹
NOT_FINITE, TOO_LARGE = -1, -2  # codes with which a kernel refuses its arguments
LEAST_FADE = 0.5  # if older weights fall by more at once, W is inverted instead of updated
LEAST_WEIGHT = 1e-300  # avoids a division by a weight that has underflowed to 0


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
    """Learn one observation, whose arm was chosen at time or round `at`, and estimate θ̂.

    Return 0, or the code of a refusal; then nothing has changed.
    """
    refusal = check_observations(arrays, x.reshape(1, -1))
    if refusal == 0:
        state = view_belief(arrays)
        learn_and_track(arrays, state, x, reward, at, track_no_arms(state))
    return refusal


@compiled
def learn_all(arrays: PolicyArrays, rows: Floats, rewards: Floats, at: Floats) -> None:
    """Learn rows (n, d) that were checked, with rewards (n,) and times (n,), in turn."""
    state = view_belief(arrays)
    for i in range(rewards.size):
        learn_and_track(arrays, state, rows[i], rewards[i], at[i], track_no_arms(state))


@compiled
def learn_and_track(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float, tracked: TrackedArms
) -> None:
    """Learn one observation that was checked, and update the widths of tracked arms."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    is_exact = True  # whether all that is derived followed from the step alone
    if rule.memory == DETECT and update_cusum(arrays, state, x, reward):
        reset_state(arrays, state)
        counts.alarms += 1
        is_exact = False
    if rule.memory == KALMAN:
        step = filter_observation(arrays, state, x, reward)
    else:
        step = add_observation(arrays, state, x, reward, at)
    if arrays.past.shape[0] > 0:
        is_exact = store_observation(arrays, state, x, reward, at) and is_exact
    counts.seen += 1
    has_small_ridge = counts.ridge < rule.least * rule.ridge
    if counts.stale >= rule.refresh or has_small_ridge or not is_exact:
        refresh(arrays, state)
        is_exact = False
    if tracked.squared_widths.size > 0:
        if not is_exact or rule.memory == WINDOW:
            measure_arms(state, tracked)
        elif rule.memory == KALMAN:
            follow_filter(arrays.rules, tracked, step)
        else:
            follow_step(arrays, state, tracked, step)
    if rule.memory != KALMAN:
        solve(arrays, state, state.moment, state.theta, ESTIMATE_TOLERANCE)


@compiled
def add_observation(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> RankOneStep:
    """Add one observation to the sums and, by a rank-one step, to `inverse`, `spread` and `root`.

    W ← fW + w·xxᵀ,  W̃ ← f²W̃ + w²·xxᵀ,  b ← fb + w·xy, each without its ridge
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
    p = np.empty(d)
    multiply_vector(state.inverse, x, p)
    q = p
    c = fade / max(weight, LEAST_WEIGHT) + dot(x, p)
    if rule.twin:
        noise_fade, noise_weight = fade * fade, weight * weight
        for i in range(d):
            for j in range(d):
                state.noise[i, j] = noise_fade * state.noise[i, j] + noise_weight * (x[i] * x[j])
        if rule.style == WIDTH:
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
            state.inverse[i, j] = (state.inverse[i, j] - (p[i] * p[j]) / c) / divisor_fade
    if rule.style == SAMPLE and rule.memory != WINDOW:
        update_root(state.root, fade if rule.twin else math.sqrt(fade), x, weight)
    counts.ridge *= fade
    counts.noise_ridge *= fade * fade if rule.twin else fade
    counts.energy = fade * counts.energy + weight * dot(x, x)
    counts.stale += 1
    return RankOneStep(p, q, c, dot(x, q), fade)


@compiled
def store_observation(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float
) -> bool:
    """Store the observation in place of the oldest; return False if a refresh is necessary."""
    rule, seen, past = arrays.rules[0], arrays.tally[0].seen, arrays.past
    d = rule.dim
    slot = seen % past.shape[0]
    oldest = past[slot].copy()
    past[slot, :d] = x
    past[slot, d] = reward
    if rule.memory == HALF_LIFE:
        past[slot, d + 1] = at
    if rule.memory != WINDOW or seen < rule.window:
        return True
    return slide_window(arrays, state, oldest, slot)


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
