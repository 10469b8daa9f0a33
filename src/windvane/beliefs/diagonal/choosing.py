"""Choose: score sparse rows by a diagonal belief, in O(entries).

Rows are given as `indices` (n,) and `values` (n,), one row after the other. Row k ends before entry
`ends[k]`.
"""

import math

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled_in_order
from windvane._random import FIRST_FREE_PLACE
from windvane.beliefs.diagonal.learning import Weights, find_slots, read_slots
from windvane.beliefs.full.choosing import choose_by_scores
from windvane.beliefs.full.layout import SAMPLE, WIDTH, PolicyArrays
from windvane.beliefs.full.sampling import compute_scale, draw_level
from windvane.types import Floats, Places
from windvane.validation import LARGEST

# what `check_rows` finds
SOUND = 0  # every row has rising indices and no entry that is 0
UNSORTED = 1  # rows must be sorted, or entries be summed or dropped
BAD_ENDS, BAD_INDEX, BAD_VALUE = -1, -2, -3


@compiled_in_order
def choose(
    arrays: PolicyArrays,
    weights: Weights,
    indices: Places,
    values: Floats,
    ends: Places,
    key: int,
    round_: int,
) -> int:
    """Choose one of the rows in a round; return its place, or NOT_FINITE if a score overflows."""
    start = _random.start_round(np.uint64(key), round_)
    if arrays.rules[0].style == SAMPLE:
        scores = sample_scores(arrays, weights, indices, values, ends, start)
    else:
        means, widths = measure_rows(arrays, weights, indices, values, ends)
        scores = score_with_level(arrays, means, widths, start)
    return choose_by_scores(arrays.rules, scores, start)


@compiled_in_order
def choose_measured(
    arrays: PolicyArrays, means: Floats, widths: Floats, key: int, round_: int
) -> int:
    """Choose as `choose` does, given the means and widths; not for explorations that sample."""
    start = _random.start_round(np.uint64(key), round_)
    return choose_by_scores(arrays.rules, score_with_level(arrays, means, widths, start), start)


@compiled_in_order
def score_with_level(
    arrays: PolicyArrays, means: Floats, widths: Floats, start: np.uint64
) -> Floats:
    """Return mean + Z·width of every row, (K,), or the mean if the exploration needs no widths."""
    if arrays.rules[0].style != WIDTH:
        return means
    z = draw_level(arrays.rules, compute_scale(arrays), start)
    return means + z * widths


@compiled_in_order
def measure_rows(
    arrays: PolicyArrays, weights: Weights, indices: Places, values: Floats, ends: Places
) -> tuple[Floats, Floats]:
    """Return the mean Σ xᵢmᵢ and the width √(Σ xᵢ²W̃ᵢ/Wᵢ²) of every row, (K,) each."""
    means, widths = np.empty(ends.size), np.empty(ends.size)
    weight_means, variances = read_entries(arrays, weights, indices)
    first = 0
    for k in range(ends.size):
        mean, variance = 0.0, 0.0
        for i in range(first, ends[k]):
            mean += values[i] * weight_means[i]
            variance += values[i] * values[i] * variances[i]
        means[k], widths[k] = mean, math.sqrt(variance)
        first = ends[k]
    return means, widths


@compiled_in_order
def read_entries(arrays: PolicyArrays, weights: Weights, indices: Places) -> tuple[Floats, Floats]:
    """Return the mean and the variance of the weight of each entry, (n,) each."""
    slots, means = np.empty(indices.size, np.int64), np.empty(indices.size)
    variances = np.empty(indices.size)
    find_slots(weights, indices, slots)
    read_slots(arrays, weights, slots, means, variances)
    return means, variances


@compiled_in_order
def sample_scores(
    arrays: PolicyArrays,
    weights: Weights,
    indices: Places,
    values: Floats,
    ends: Places,
    start: np.uint64,
) -> Floats:
    """Return Σ xᵢθ̃ᵢ of every row, (K,), with θ̃ᵢ = mᵢ + a·√W̃ᵢ/Wᵢ·zᵢ.

    The draw zᵢ is a hash of the round and the index, so rows that share a weight share its draw.
    """
    parts = split_entries(arrays, weights, indices, values)
    return draw_scores(parts, indices, ends, start)


@compiled_in_order
def sample_many_scores(
    arrays: PolicyArrays,
    weights: Weights,
    indices: Places,
    values: Floats,
    ends: Places,
    start: np.uint64,
    samples: int,
) -> Floats:
    """Return the scores of independent draws, (samples, K)."""
    parts = split_entries(arrays, weights, indices, values)
    scores = np.empty((samples, ends.size))
    for sample in range(samples):
        scores[sample] = draw_scores(parts, indices, ends, _random.draw_word(start, sample))
    return scores


@compiled_in_order
def split_entries(
    arrays: PolicyArrays, weights: Weights, indices: Places, values: Floats
) -> Floats:
    """Return what each entry adds to a score: xᵢmᵢ, and a·xᵢ√W̃ᵢ/Wᵢ for each unit of zᵢ, (n, 2)."""
    scale, parts = compute_scale(arrays), np.empty((indices.size, 2))
    means, variances = read_entries(arrays, weights, indices)
    for i in range(indices.size):
        parts[i, 0] = values[i] * means[i]
        parts[i, 1] = scale * values[i] * math.sqrt(variances[i])
    return parts


@compiled_in_order
def draw_scores(parts: Floats, indices: Places, ends: Places, start: np.uint64) -> Floats:
    """Draw a normal for each weight, and return the scores of all rows, (K,)."""
    scores, draw, first = np.empty(ends.size), np.empty(1), 0
    for k in range(ends.size):
        total = 0.0
        for i in range(first, ends[k]):
            _random.fill_normals(start, FIRST_FREE_PLACE + indices[i], draw)
            total += parts[i, 0] + parts[i, 1] * draw[0]
        scores[k] = total
        first = ends[k]
    return scores


@compiled_in_order
def check_rows(indices: Places, values: Floats, ends: Places, dim: int) -> tuple[int, int]:
    """Return what holds of sparse rows, as a code, and the row for which a check failed."""
    state, first = SOUND, 0
    for k in range(ends.size):
        last = ends[k]
        if last < first or last > indices.size:
            return BAD_ENDS, k
        square = 0.0
        for i in range(first, last):
            if indices[i] < 0 or indices[i] >= dim:
                return BAD_INDEX, k
            if (i > first and indices[i] <= indices[i - 1]) or values[i] == 0.0:
                state = UNSORTED
            square += values[i] * values[i]
        if not square <= LARGEST:
            return BAD_VALUE, k
        first = last
    if first != indices.size:
        return BAD_ENDS, ends.size - 1
    return state, 0
