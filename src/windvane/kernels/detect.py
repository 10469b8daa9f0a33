"""The memory `detect`: a CUSUM over prediction errors decides when everything is dropped."""

import numpy as np

from windvane._layout import PolicyArrays
from windvane._numba.compilation import compiled
from windvane.belief import State
from windvane.kernels.linalg import dot, multiply_vector
from windvane.types import Floats

LARGEST_ERROR = 9.0  # r² is cut here: an outlier counts as three standard deviations


@compiled
def update_cusum(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> bool:
    """Add the prediction error of an observation to the CUSUM of a full belief."""
    image = np.empty(x.size)  # W⁻¹x
    multiply_vector(state.inverse, x, image)
    return add_to_cusum(arrays, reward - dot(x, state.theta), dot(x, image))


@compiled
def add_to_cusum(arrays: PolicyArrays, error: float, variance: float) -> bool:
    """Add one squared prediction error to the CUSUM C; return whether C exceeds the alarm level.

    `variance` is ‖x‖²_{W⁻¹}.

    r² = (y − xᵀθ̂)² / (σ² + (σ² + λS²)‖x‖²_{W⁻¹}),  C ← max(0, C + min(r², 9) − slack)

    This statistic knows σ and the uncertainty of θ̂, so it can drop a belief. The drift alarm of the
    service is another CUSUM: it estimates the noise from the log and only warns.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    expected = rule.variance + (rule.variance + rule.bias) * variance
    step = min(error * error / expected, LARGEST_ERROR) - rule.slack
    counts.surprise = max(0.0, counts.surprise + step)
    return bool(counts.surprise > rule.alarm)
