"""Choose: score the arms, and play the best.

Arms that `spread` and its error bound cannot tell apart are scored again exactly.
"""

import math

import numpy as np

from windvane import stream
from windvane.arrays import Floats, Records
from windvane.belief import State
from windvane.compiling import compiled
from windvane.kernels.learning import LARGEST, NOT_FINITE
from windvane.kernels.sampling import level, sampled, scale_of
from windvane.kernels.solving import dot, parts
from windvane.kernels.widths import (
    Watched,
    exact_width,
    looseness,
    squared_widths,
    width_and_error,
)
from windvane.rules import MEAN, WIDTH

# Places of a round's stream: whether to play any arm at all, which one, which of equals.
MIX, ANY, TIE = 0, 1, 2
ROUNDING = 1e-12  # scores closer than this share of the largest count as equal


@compiled
def linear_scores(arms: Floats, direction: Floats) -> Floats:
    """xᵀ·direction of every arm; NaN for an arm that is not finite or too large to square."""
    scores = np.empty(arms.shape[0])
    for k in range(arms.shape[0]):
        total, size = 0.0, 0.0
        for i in range(arms.shape[1]):
            total += arms[k, i] * direction[i]
            size += arms[k, i] * arms[k, i]
        scores[k] = total if size <= LARGEST else np.nan
    return scores


@compiled
def width_scores(
    rules: Records, tally: Records, state: State, watched: Watched, z: float
) -> Floats:
    """xᵀθ̂ + z‖x‖_{V⁻¹} of every arm that could be the best; the others fall to -inf."""
    arms = watched.arms
    loose, grain = looseness(rules, tally), 1e-7 / math.sqrt(rules[0].ridge)
    scores, highest = linear_scores(arms, state.theta), np.empty(arms.shape[0])
    floor = -np.inf
    for k in range(arms.shape[0]):
        width, error = width_and_error(rules, tally, watched, k, loose)
        margin = abs(z) * (error + grain * math.sqrt(dot(arms[k], arms[k])))
        highest[k] = scores[k] + z * width + margin
        floor = max(floor, highest[k] - 2.0 * margin)
    rivals = 0
    for k in range(arms.shape[0]):
        rivals += highest[k] >= floor
    for k in range(arms.shape[0]):
        if highest[k] < floor:
            scores[k] = -np.inf
        elif rivals > 1:
            scores[k] += z * exact_width(rules, tally, state, arms[k])
    return scores


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
def choose(
    rules: Records,
    tally: Records,
    block: Floats,
    past: Floats,
    arms: Floats,
    key: int,
    round_: int,
) -> int:
    """The arm to play in a round, or NOT_FINITE where the arms hold no finite numbers."""
    state = parts(rules, block)
    start = stream.opening(np.uint64(key), round_)
    squares = squared_widths(arms, state.spread) if rules[0].style == WIDTH else state.moment
    watched = Watched(arms, squares, state.moment[:0])
    return choose_among(rules, tally, state, past, watched, start)


@compiled
def choose_among(
    rules: Records,
    tally: Records,
    state: State,
    past: Floats,
    watched: Watched,
    start: np.uint64,
) -> int:
    """The arm to play, given the squared widths of all arms where the exploration asks for them."""
    rule = rules[0]
    if rule.style == MEAN:
        scores = linear_scores(watched.arms, state.theta)
    elif rule.style == WIDTH:
        z = level(rules, scale_of(rules, tally), start)
        scores = width_scores(rules, tally, state, watched, z)
    else:
        scores = linear_scores(watched.arms, sampled(rules, tally, state, past, start))
    chosen = best(scores, stream.uniform(start, TIE))
    if chosen >= 0 and stream.uniform(start, MIX) < rule.mix:
        chosen = int(stream.uniform(start, ANY) * scores.size)
    return chosen
