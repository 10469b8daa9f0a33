"""The memory `window`: each new observation replaces the oldest one, which leaves the sums."""

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.layout import PolicyArrays
from windvane.beliefs.full.linalg import dot, multiply_matrices, multiply_vector
from windvane.types import Floats

LEAST_DIVISOR = 1e-2  # 1 − xᵀPx below this loses too many digits of P
LEAST_ENERGY_SHARE = 1e-6  # of the peak: sums that shrink below this lose too many digits


@compiled
def slide_window(arrays: PolicyArrays, state: State, oldest: Floats, slot: int) -> bool:
    """Remove the oldest observation (d + 1,), x and y, from the sums and from `inverse`.

    Return False if the sums were recomputed and `inverse` must be too: if too few digits would be
    left, and once for every pass through the window, so that rounding errors do not accumulate.
    """
    d = arrays.rules[0].dim
    if remove_observation(arrays, state, oldest[:d], oldest[d]) and slot < arrays.past.shape[0] - 1:
        return True
    sum_window(arrays, state)
    return False


@compiled
def remove_observation(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> bool:
    """Remove an observation by a rank-one step: P' = P + ppᵀ/c with p = Px and c = 1 − xᵀp.

    Return False if too few digits would be left; then nothing is removed.
    """
    d, counts = x.size, arrays.tally[0]
    p = np.empty(d)
    multiply_vector(state.inverse, x, p)
    c = 1.0 - dot(x, p)
    counts.peak = max(counts.peak, counts.energy)
    counts.energy -= dot(x, x)
    least_energy = LEAST_ENERGY_SHARE * counts.peak
    if c < LEAST_DIVISOR or counts.energy + arrays.rules[0].ridge < least_energy:
        return False
    for i in range(d):
        state.moment[i] -= x[i] * reward
        for j in range(d):
            state.gram[i, j] -= x[i] * x[j]
            state.inverse[i, j] += (p[i] * p[j]) / c
    return True


@compiled
def sum_window(arrays: PolicyArrays, state: State) -> None:
    """Recompute the sums from the observations in the window."""
    d, counts = state.moment.size, arrays.tally[0]
    count = arrays.past.shape[0]
    features, columns, rewards = np.empty((count, d)), np.empty((d, count)), np.empty(count)
    for k in range(count):
        rewards[k] = arrays.past[k, d]
        for i in range(d):
            features[k, i] = arrays.past[k, i]
            columns[i, k] = arrays.past[k, i]
    multiply_matrices(columns, features, state.gram)
    multiply_vector(columns, rewards, state.moment)
    counts.energy = 0.0
    for i in range(d):
        counts.energy += state.gram[i, i]
    counts.peak = counts.energy
