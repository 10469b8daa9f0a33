"""Learn: one observation of a diagonal belief, under every memory that it can have."""

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane.beliefs.diagonal.formulas import (
    PRECISION,
    amend_entries,
    compute_gain,
    learn_entries,
    predict_entries,
)
from windvane.beliefs.diagonal.sparse_weights import (
    LONG_ROWS,
    Weights,
    claim_slots,
    drop_weights,
    fade_weights,
    measure_entries,
)
from windvane.beliefs.full.block import reset_counters
from windvane.beliefs.full.counters import add_error, add_to_cusum, advance_clock, weigh_age
from windvane.beliefs.full.layout import DETECT, HALF_LIFE, NOISE, PolicyArrays
from windvane.types import Floats, Places


@compiled_in_order
def learn(
    arrays: PolicyArrays,
    weights: Weights,
    indices: Places,
    values: Floats,
    reward: float,
    at: float,
) -> None:
    """Learn the entries of one row, whose arm was chosen at time or round `at`.

    All indices are distinct, and there is room for them.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    priors = np.full(values.size, rule.ridge)
    slots = claim_slots(weights, indices)
    if rule.memory == DETECT:
        mean, variance = predict_entries(weights.sums, 0, 1.0, slots, values, priors)
        if add_to_cusum(arrays, reward - mean, variance):
            drop_weights(weights)
            reset_counters(arrays)
            counts.alarms += 1
            slots = claim_slots(weights, indices)
    fade, weight = rule.gamma, 1.0
    if rule.memory == HALF_LIFE:
        fade, weight = advance_clock(arrays, at)
    if rule.unit == NOISE:
        mean, variance = measure_entries(arrays, weights, slots, values)
        add_error(arrays, reward - mean, 1.0 + variance, fade, weight)
    fade_weights(weights, fade)
    fade = weights.fade[0]
    if rule.twin:
        add_squares(weights, slots, values, priors, weight)
    learn_entries(weights.sums, 0, fade, slots, values, priors, reward, weight)
    counts.seen += 1
    weights.counters[LONG_ROWS] += values.size > 1


@compiled_in_order
def add_squares(
    weights: Weights, slots: Places, values: Floats, priors: Floats, weight: float
) -> None:
    """Add an observation to the sums of squared weights: q ← q + w·x²/(S − s·x²)."""
    fade = weights.fade[0]
    variance = predict_entries(weights.sums, 0, fade, slots, values, priors)[1]
    for i in range(slots.size):
        precision = fade * weights.sums[slots[i], 0, PRECISION] + priors[i]
        gain = compute_gain(values[i], precision, variance, weight)
        weights.squares[slots[i]] += weight * gain / (fade * fade)


@compiled_in_order
def amend(
    arrays: PolicyArrays,
    weights: Weights,
    indices: Places,
    values: Floats,
    more: float,
    at: float,
) -> None:
    """Add to the reward of an observation that was learned before; there is room for its row."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    weight = 1.0
    if rule.memory == HALF_LIFE:
        weight = weigh_age(arrays, min(at, counts.clock))
    slots = claim_slots(weights, indices)
    priors = np.full(values.size, rule.ridge)
    amend_entries(weights.sums, 0, weights.fade[0], slots, values, priors, more, weight)
