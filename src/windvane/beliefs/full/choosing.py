"""Choose: score the arms and choose the best.

Widths read off `spread` have a known error bound. Arms that these widths cannot separate are scored
again, more exactly.
"""

import math
from collections.abc import Callable

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane._random import ANY_ARM_PLACE, FIRST_FREE_PLACE, MIX_PLACE, TIE_PLACE
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.layout import (
    GAP,
    HISTORY,
    KALMAN,
    LARGEST,
    MEAN,
    WIDTH,
    WINDOW,
    PolicyArrays,
)
from windvane.beliefs.full.learning import NOT_FINITE
from windvane.beliefs.full.linalg import dot, multiply_vector
from windvane.beliefs.full.sampling import (
    compute_scale,
    draw_level,
    sample_by_filter,
    sample_from_history,
    sample_from_sums,
    sample_from_window,
    sample_parameter,
)
from windvane.beliefs.full.widths import (
    TrackedArms,
    bound_width_error,
    compute_closer_width,
    compute_exact_width,
    compute_squared_norms,
    measure_arms,
    read_width,
)
from windvane.types import Floats, Records

WIDTH_ROUNDING = 1e-7  # rounding error of a width that is read off `spread`, for ‖x‖/√λ = 1
TIE_MARGIN = 1e-12  # scores closer than this share of the largest absolute score are equal


ChooseKernel = Callable[[PolicyArrays, Floats, int, int], int]


def select_choose(rules: Records) -> ChooseKernel:
    """Return the kernel with which a policy chooses; the others need not be compiled."""
    style, memory = rules["style"][0], rules["memory"][0]
    if style in (MEAN, GAP):
        return choose_by_estimate
    if rules["room"][0] > 0:
        from windvane.beliefs.full.large import choose_by_large_widths

        return choose_by_large_widths
    if style == WIDTH:
        return choose_by_widths
    if memory == KALMAN:
        return choose_by_filter
    if style == HISTORY:
        return choose_by_history
    return choose_by_sample_of_window if memory == WINDOW else choose_by_sample


@compiled
def choose_by_estimate(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̂; return its place, or NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    return choose_along(arrays.rules, arms, view_belief(arrays).theta, start)


@compiled
def choose_by_widths(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̂ + z‖x‖_{V⁻¹}; return its place, or NOT_FINITE."""
    state = view_belief(arrays)
    start = _random.start_round(np.uint64(key), round_)
    norms = compute_squared_norms(arms)
    for k in range(norms.size):
        if not norms[k] <= LARGEST:
            return NOT_FINITE
    offered = TrackedArms(arms, norms, np.empty(norms.size), state.moment[:0])
    measure_arms(state, offered)
    z = draw_level(arrays.rules, compute_scale(arrays), start)
    return choose_by_scores(arrays.rules, score_with_widths(arrays, state, offered, z), start)


@compiled
def choose_by_sample(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̃, with θ̃ drawn from sums; else NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    theta = sample_from_sums(arrays, view_belief(arrays), start)
    return choose_along(arrays.rules, arms, theta, start)


@compiled
def choose_by_sample_of_window(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̃, with θ̃ drawn from a window; else NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    theta = sample_from_window(arrays, view_belief(arrays), start)
    return choose_along(arrays.rules, arms, theta, start)


@compiled
def choose_by_history(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̃, with θ̃ from a perturbed history; else NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    theta = sample_from_history(arrays, view_belief(arrays), start)
    return choose_along(arrays.rules, arms, theta, start)


@compiled
def choose_by_filter(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̃, with θ̃ from a Kalman filter; else NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    theta = sample_by_filter(arrays, view_belief(arrays), compute_scale(arrays), start)
    return choose_along(arrays.rules, arms, theta, start)


@compiled
def choose_along(rules: Records, arms: Floats, direction: Floats, start: np.uint64) -> int:
    """Choose the arm (d,) with the largest xᵀ·direction; return its place, or NOT_FINITE."""
    for k in range(arms.shape[0]):
        if not dot(arms[k], arms[k]) <= LARGEST:
            return NOT_FINITE
    return choose_by_scores(rules, score_linearly(arms, direction), start)


@compiled
def choose_measured(
    arrays: PolicyArrays, state: State, offered: TrackedArms, start: np.uint64
) -> int:
    """Choose one of the arms by any exploration; if it needs widths, their squares must be known.

    A policy calls the kernel of its own exploration instead, because this one compiles them all.
    """
    rule = arrays.rules[0]
    if rule.style == MEAN or rule.style == GAP:
        scores = score_linearly(offered.arms, state.theta)
    elif rule.style == WIDTH:
        z = draw_level(arrays.rules, compute_scale(arrays), start)
        scores = score_with_widths(arrays, state, offered, z)
    else:
        scores = score_linearly(offered.arms, sample_parameter(arrays, state, start))
    return choose_by_scores(arrays.rules, scores, start)


@compiled
def choose_by_scores(rules: Records, scores: Floats, start: np.uint64) -> int:
    """Choose the arm with the best of the scores (K,), or another one by gap or by the floor."""
    rule = rules[0]
    chosen = choose_best(scores, _random.uniform(start, TIE_PLACE))
    if chosen >= 0 and rule.style == GAP:
        chosen = choose_by_gap(scores, chosen, rule.scale, _random.uniform(start, FIRST_FREE_PLACE))
    return mix_uniformly(rules, chosen, scores.size, start) if chosen >= 0 else chosen


@compiled
def score_linearly(arms: Floats, direction: Floats) -> Floats:
    """xᵀ·direction of every arm, (K,)."""
    scores = np.empty(arms.shape[0])
    multiply_vector(arms, direction, scores)
    return scores


@compiled
def score_with_widths(arrays: PolicyArrays, state: State, offered: TrackedArms, z: float) -> Floats:
    """xᵀθ̂ + z‖x‖_{V⁻¹} of every arm that can be the best, −inf for the others, (K,).

    First the widths read off `spread` bound each score. If several arms can be the best, closer
    widths bound theirs. If several are still left, their scores are computed exactly. The width of
    a blank belief is ‖x‖/√λ.
    """
    arms, relative_error = offered.arms, bound_width_error(arrays)
    is_blank = arrays.tally[0].seen == 0 and arrays.tally[0].energy == 0.0
    ridge = arrays.rules[0].ridge
    rounding = WIDTH_ROUNDING / math.sqrt(ridge)
    highest, lowest = np.empty(arms.shape[0]), np.empty(arms.shape[0])
    means = score_linearly(arms, state.theta)
    for k in range(means.size):
        width, error = read_width(arrays, offered, k, relative_error)
        error += rounding * math.sqrt(offered.squared_norms[k])
        highest[k] = means[k] + z * width + abs(z) * error
        lowest[k] = highest[k] - 2.0 * abs(z) * error
    count = drop_beaten_arms(highest, lowest)
    has_closer_widths = relative_error > 0.0 and offered.squared_images.size == 0
    if count > 1 and has_closer_widths and not is_blank:
        for k in range(means.size):
            if highest[k] > -np.inf:
                width, error = compute_closer_width(arrays, state, arms[k])
                highest[k] = means[k] + z * width + abs(z) * error
                lowest[k] = highest[k] - 2.0 * abs(z) * error
        count = drop_beaten_arms(highest, lowest)
    if count > 1:
        for k in range(means.size):
            if highest[k] > -np.inf and is_blank:
                highest[k] = means[k] + z * math.sqrt(offered.squared_norms[k] / ridge)
            elif highest[k] > -np.inf:
                highest[k] = means[k] + z * compute_exact_width(arrays, state, arms[k])
    return highest


@compiled
def drop_beaten_arms(highest: Floats, lowest: Floats) -> int:
    """Set the bounds (K,) of arms that cannot be the best to −inf; return how many are left."""
    bar, count = -np.inf, 0
    for k in range(lowest.size):
        bar = max(bar, lowest[k])
    for k in range(highest.size):
        if highest[k] < bar:
            highest[k] = -np.inf
            lowest[k] = -np.inf
        count += highest[k] > -np.inf
    return count


@compiled
def choose_best(scores: Floats, uniform: float) -> int:
    """The place of the largest score; ties are broken by `uniform`, a draw from (0, 1).

    Return NOT_FINITE if a score is NaN or +inf.
    """
    top = -np.inf
    largest = 0.0
    for k in range(scores.size):
        if math.isnan(scores[k]) or scores[k] == np.inf:
            return NOT_FINITE
        if scores[k] > -np.inf:
            top = max(top, scores[k])
            largest = max(largest, abs(scores[k]))
    least = top - TIE_MARGIN * largest
    ties = 0
    for k in range(scores.size):
        ties += scores[k] >= least
    remaining = int(uniform * ties)
    for k in range(scores.size):
        if scores[k] >= least:
            if remaining == 0:
                return k
            remaining -= 1
    return NOT_FINITE


@compiled
def choose_by_gap(scores: Floats, leader: int, eta: float, uniform: float) -> int:
    """Choose each arm but the leader with probability 1/(K + η·gap), else the leader."""
    for k in range(scores.size):
        if k != leader:
            uniform -= 1.0 / (scores.size + eta * max(scores[leader] - scores[k], 0.0))
            if uniform < 0.0:
                return k
    return leader


@compiled
def mix_uniformly(rules: Records, chosen: int, count: int, start: np.uint64) -> int:
    """Return the chosen arm or, with the probability of the floor and of ε, any of the arms."""
    if _random.uniform(start, MIX_PLACE) < rules[0].mix:
        return int(_random.uniform(start, ANY_ARM_PLACE) * count)
    return chosen
