"""Choose: score sparse rows by a diagonal belief, in O(entries).

Rows are given as `indices` (n,) and `values` (n,), one row after the other. Row k ends before entry
`ends[k]`.
"""

import math

import numpy as np

from windvane import _random
from windvane._jit import compiled_in_order
from windvane._layout import SAMPLE, WIDTH, PolicyArrays
from windvane.kernels.choosing import choose_by_scores
from windvane.kernels.diagonal import MOMENT, PRECISION, predict_entries
from windvane.kernels.round_draws import FIRST_FREE_PLACE
from windvane.kernels.sampling import compute_scale, draw_level
from windvane.kernels.sparse_weights import Weights, find_slots
from windvane.kernels.weight_table import ABSENT
from windvane.types import Floats, Places


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
    rule, fade = arrays.rules[0], weights.fade[0]
    means, widths = np.empty(ends.size), np.empty(ends.size)
    slots, priors = np.empty(indices.size, np.int64), np.full(indices.size, rule.ridge)
    find_slots(weights, indices, slots)
    first = 0
    for k in range(ends.size):
        last = ends[k]
        own, x = slots[first:last], values[first:last]
        means[k], variance = predict_entries(weights.sums, 0, fade, own, x, priors[first:last])
        if rule.twin:
            variance = 0.0
            for i in range(x.size):
                deviation = x[i] * compute_deviation(arrays, weights, own[i])
                variance += deviation * deviation
        widths[k] = math.sqrt(variance)
        first = last
    return means, widths


@compiled_in_order
def compute_deviation(arrays: PolicyArrays, weights: Weights, slot: int) -> float:
    """Return the standard deviation of a weight in units of the noise, √W̃/W with W̃ = λ + Σ w²."""
    rule, fade = arrays.rules[0], weights.fade[0]
    if slot == ABSENT:
        return 1.0 / math.sqrt(rule.ridge)
    precision: float = fade * weights.sums[slot, 0, PRECISION] + rule.ridge
    if not rule.twin:
        return 1.0 / math.sqrt(precision)
    return math.sqrt(fade * fade * weights.squares[slot] + rule.ridge) / precision


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
    rule, fade, scale = arrays.rules[0], weights.fade[0], arrays.rules[0].scale
    scores, draw = np.empty(ends.size), np.empty(1)
    slots = np.empty(indices.size, np.int64)
    find_slots(weights, indices, slots)
    first = 0
    for k in range(ends.size):
        total = 0.0
        for i in range(first, ends[k]):
            slot, mean = slots[i], 0.0
            if slot != ABSENT:
                precision = fade * weights.sums[slot, 0, PRECISION] + rule.ridge
                mean = fade * weights.sums[slot, 0, MOMENT] / precision
            _random.fill_normals(start, FIRST_FREE_PLACE + indices[i], draw)
            total += values[i] * (mean + scale * compute_deviation(arrays, weights, slot) * draw[0])
        scores[k] = total
        first = ends[k]
    return scores


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
    scores = np.empty((samples, ends.size))
    for sample in range(samples):
        own_start = _random.draw_word(start, sample)
        scores[sample] = sample_scores(arrays, weights, indices, values, ends, own_start)
    return scores
