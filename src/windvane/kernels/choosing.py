"""Choose: score the arms, and play the best.

Arms that `spread` and its error bound cannot tell apart are scored again exactly.
"""

import math

import numpy as np

from windvane import _random
from windvane._jit import compiled
from windvane._layout import GAP, LARGEST, MEAN, WIDTH, PolicyArrays
from windvane.belief import State
from windvane.kernels.belief_block import parts, times
from windvane.kernels.learning import NOT_FINITE
from windvane.kernels.sampling import DRAWS, level, sampled, scale_of
from windvane.kernels.widths import (
    Watched,
    closer_width,
    exact_width,
    look,
    looseness,
    squared_norms,
    width_and_error,
)
from windvane.types import Floats, Records

# Places of a round's stream: whether to play any arm at all, which one, which of equals.
MIX, ANY, TIE = 0, 1, 2
ROUGH = 1e-7  # relative error that rounding may leave in a squared width, rooted
ROUNDING = 1e-12  # scores closer than this share of the largest count as equal


@compiled
def linear_scores(arms: Floats, direction: Floats) -> Floats:
    """xᵀ·direction of every arm."""
    scores = np.empty(arms.shape[0])
    times(arms, direction, scores)
    return scores


@compiled
def rivals(highest: Floats, lowest: Floats) -> int:
    """Drop the arms that cannot be the best to -inf, and count the others."""
    floor, count = lowest.max(), 0
    for k in range(highest.size):
        if highest[k] < floor:
            highest[k], lowest[k] = -np.inf, -np.inf
        count += highest[k] > -np.inf
    return count


@compiled
def width_scores(arrays: PolicyArrays, state: State, watched: Watched, z: float) -> Floats:
    """xᵀθ̂ + z‖x‖_{V⁻¹} of every arm that could be the best; the others fall to -inf.

    Arms that the widths read off `spread` leave in doubt are looked at more closely, and those
    that are still in doubt are scored exactly.
    """
    arms, loose = watched.arms, looseness(arrays)
    grain = ROUGH / math.sqrt(arrays.rules[0].ridge)
    highest, lowest = np.empty((2, arms.shape[0]))
    means = linear_scores(arms, state.theta)
    for k in range(means.size):
        width, error = width_and_error(arrays, watched, k, loose)
        error += grain * math.sqrt(watched.sizes[k])
        highest[k] = means[k] + z * width + abs(z) * error
        lowest[k] = highest[k] - 2.0 * abs(z) * error
    doubtful = rivals(highest, lowest)
    if doubtful > 1 and loose > 0.0 and watched.lengths.size == 0:
        for k in range(means.size):
            if highest[k] > -np.inf:
                width, error = closer_width(arrays, state, arms[k])
                highest[k] = means[k] + z * width + abs(z) * error
                lowest[k] = highest[k] - 2.0 * abs(z) * error
        doubtful = rivals(highest, lowest)
    if doubtful > 1:
        for k in range(means.size):
            if highest[k] > -np.inf:
                highest[k] = means[k] + z * exact_width(arrays, state, arms[k])
    return highest


@compiled
def best(scores: Floats, chance: float) -> int:
    """The place of the largest score, equals drawn by lot; NOT_FINITE where one is no number."""
    top, largest = -np.inf, 0.0
    for k in range(scores.size):
        if math.isnan(scores[k]) or scores[k] == np.inf:
            return NOT_FINITE
        if scores[k] > -np.inf:
            top, largest = max(top, scores[k]), max(largest, abs(scores[k]))
    least = top - ROUNDING * largest
    equals = 0
    for k in range(scores.size):
        equals += scores[k] >= least
    left = int(chance * equals)
    for k in range(scores.size):
        if scores[k] >= least:
            if left == 0:
                return k
            left -= 1
    return NOT_FINITE


@compiled
def by_gap(scores: Floats, leader: int, eta: float, chance: float) -> int:
    """Each arm k but the leader with probability 1/(K + η·gap), and the leader with the rest."""
    for k in range(scores.size):
        if k != leader:
            chance -= 1.0 / (scores.size + eta * max(scores[leader] - scores[k], 0.0))
            if chance < 0.0:
                return k
    return leader


@compiled
def choose(
    arrays: PolicyArrays,
    arms: Floats,
    key: int,
    round_: int,
) -> int:
    """The arm to play in a round, or NOT_FINITE where the arms hold no finite numbers."""
    state = parts(arrays)
    start = _random.opening(np.uint64(key), round_)
    watched = Watched(arms, squared_norms(arms), np.empty(arms.shape[0]), state.moment[:0])
    for k in range(arms.shape[0]):
        if not watched.sizes[k] <= LARGEST:
            return NOT_FINITE
    if arrays.rules[0].style == WIDTH:
        look(state, watched)
    return choose_among(arrays, state, watched, start)


@compiled
def choose_among(
    arrays: PolicyArrays,
    state: State,
    watched: Watched,
    start: np.uint64,
) -> int:
    """The arm to play, given the squared widths of all arms where the exploration asks for them."""
    rule = arrays.rules[0]
    if rule.style == MEAN or rule.style == GAP:
        scores = linear_scores(watched.arms, state.theta)
    elif rule.style == WIDTH:
        z = level(arrays.rules, scale_of(arrays), start)
        scores = width_scores(arrays, state, watched, z)
    else:
        scores = linear_scores(watched.arms, sampled(arrays, state, start))
    chosen = best(scores, _random.uniform(start, TIE))
    if chosen >= 0 and rule.style == GAP:
        chosen = by_gap(scores, chosen, rule.scale, _random.uniform(start, DRAWS))
    return or_any(arrays.rules, chosen, scores.size, start) if chosen >= 0 else chosen


@compiled
def or_any(rules: Records, chosen: int, count: int, start: np.uint64) -> int:
    """The chosen arm or, with the chance of the floor, any of so many."""
    if _random.uniform(start, MIX) < rules[0].mix:
        return int(_random.uniform(start, ANY) * count)
    return chosen
