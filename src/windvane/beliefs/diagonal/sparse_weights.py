"""The weights of a diagonal belief: only those with data have a slot, found by a hash table.

Slots are numbered in the order in which their weights were first learned. A belief therefore takes
as much memory as the weights that it has learned, whatever the dimension is.

If the memory fades and is not single, W̃ = λ + q has the squared weights of observations, and the
variance of a weight is W̃/W². Else W̃ is W, and the variance is 1/W.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane._random import scramble
from windvane.beliefs.diagonal.formulas import MOMENT, PRECISION, scale_sums
from windvane.beliefs.diagonal.weight_table import ABSENT, EMPTY, claim_key, find_key
from windvane.beliefs.full.layout import PolicyArrays
from windvane.types import Floats, Places, UnsignedIntegers

WEIGHTS, LONG_ROWS = 0, 1  # counters: weights with a slot, learned rows with several entries
LEAST_FADE = 1e-50  # below this factor the sums are scaled back


class Weights(NamedTuple):
    """The weights that have data, as compiled code sees them."""

    keys: UnsignedIntegers  # (places,) the hash table: the key of a weight, or EMPTY
    slots: Places  # (places,) the slot of each key
    indices: Places  # (room,) by slot: the index of the weight
    sums: Floats  # (room, 1, 2) by slot: p/f and b/f, as `beliefs.diagonal.formulas` has them
    squares: Floats  # (room,) by slot: sums of squared weights over f²; empty if not kept
    fade: Floats  # (1,) f, the factor by which `sums` have faded
    counters: Places  # (2,)


@compiled_in_order
def make_weight_key(index: int) -> np.uint64:
    """Return the key of a weight, which no other weight has and which is never EMPTY."""
    return scramble(np.uint64(index) + np.uint64(1))  # one-to-one, and only 0 becomes 0


@compiled_in_order
def find_slots(weights: Weights, indices: Places, slots: Places) -> None:
    """Fill `slots` with the slots of some weights; ABSENT stands for a weight without data."""
    for i in range(indices.size):
        place = find_key(weights.keys, make_weight_key(indices[i]))
        slots[i] = weights.slots[place] if place != ABSENT else ABSENT


@compiled_in_order
def claim_slots(weights: Weights, indices: Places) -> Places:
    """Return the slots of some weights, which get one if they have none; there must be room."""
    slots = np.empty(indices.size, np.int64)
    for i in range(indices.size):
        place, is_new = claim_key(weights.keys, make_weight_key(indices[i]))
        if is_new:
            slot = weights.counters[WEIGHTS]
            weights.slots[place] = slot
            weights.indices[slot] = indices[i]
            weights.sums[slot] = 0.0
            if weights.squares.size > 0:
                weights.squares[slot] = 0.0
            weights.counters[WEIGHTS] += 1
        slots[i] = weights.slots[place]
    return slots


@compiled_in_order
def index_slots(weights: Weights) -> None:
    """Fill the hash table, which must be empty, from the indices of the slots."""
    for slot in range(weights.counters[WEIGHTS]):
        place, _ = claim_key(weights.keys, make_weight_key(weights.indices[slot]))
        weights.slots[place] = slot


@compiled_in_order
def fade_weights(weights: Weights, factor: float) -> None:
    """Let all weights fade by a factor.

    Sums are scaled back before their scale becomes too large, by a power of two, so that no digit
    changes.
    """
    weights.fade[0] *= factor
    if weights.fade[0] < LEAST_FADE:
        rest, exponent = math.frexp(weights.fade[0])
        back = 2.0**exponent if rest > 0.0 else 0.0
        weights.fade[0] = rest if rest > 0.0 else 1.0
        size = weights.counters[WEIGHTS]
        scale_sums(weights.sums[:size], 0, back)
        for slot in range(min(size, weights.squares.size)):
            weights.squares[slot] *= back * back


@compiled_in_order
def drop_weights(weights: Weights) -> None:
    """Drop everything that was learned."""
    weights.keys[:] = EMPTY
    weights.fade[0] = 1.0
    weights.counters[:] = 0


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
