"""The uncertainty of weights and rows under a diagonal belief.

If the memory fades and is not single, W̃ = λ + q has the squared weights of observations, and the
variance of a weight is W̃/W². Else W̃ is W, and the variance is 1/W.
"""

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane.beliefs.diagonal.formulas import MOMENT, PRECISION
from windvane.beliefs.diagonal.sparse_weights import Weights
from windvane.beliefs.diagonal.weight_table import ABSENT
from windvane.beliefs.full.layout import PolicyArrays
from windvane.types import Floats, Places


@compiled_in_order
def read_slots(
    arrays: PolicyArrays, weights: Weights, slots: Places, means: Floats, variances: Floats
) -> None:
    """Fill in the mean b/W and the variance W̃/W² of the weight in each slot, (n,) each.

    Variances are in units of the noise. One loop reads all slots, because a call for each of them
    would count references to every array.
    """
    rule, sums, squares, fade = arrays.rules[0], weights.sums, weights.squares, weights.fade[0]
    ridge, twin = rule.ridge, rule.twin
    for i in range(slots.size):
        slot = slots[i]
        if slot == ABSENT:
            means[i], variances[i] = 0.0, 1.0 / ridge
            continue
        variance = 1.0 / (fade * sums[slot, 0, PRECISION] + ridge)
        means[i] = fade * sums[slot, 0, MOMENT] * variance
        if twin:
            variance *= (fade * fade * squares[slot] + ridge) * variance
        variances[i] = variance


@compiled_in_order
def measure_entries(
    arrays: PolicyArrays, weights: Weights, slots: Places, values: Floats
) -> tuple[float, float]:
    """Return the mean Σ xᵢmᵢ and the variance Σ xᵢ²W̃ᵢ/Wᵢ² of a row."""
    means, variances = np.empty(slots.size), np.empty(slots.size)
    read_slots(arrays, weights, slots, means, variances)
    mean, variance = 0.0, 0.0
    for i in range(slots.size):
        mean += values[i] * means[i]
        variance += values[i] * values[i] * variances[i]
    return mean, variance
