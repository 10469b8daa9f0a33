"""Choose by widths under a large belief: the arms that may be the best are measured together."""

import math

import numpy as np

from windvane import _random
from windvane._jit import compiled
from windvane._layout import LARGEST, PolicyArrays
from windvane.kernels.belief_block import view_belief
from windvane.kernels.choosing import (
    WIDTH_ROUNDING,
    choose_by_scores,
    drop_beaten_arms,
    score_linearly,
)
from windvane.kernels.large_widths import compute_large_widths, measure_large
from windvane.kernels.learning import NOT_FINITE
from windvane.kernels.linalg import copy_vector
from windvane.kernels.sampling import compute_scale, draw_level
from windvane.kernels.widths import bound_width_error, compute_squared_norms
from windvane.types import Floats

CLOSER_TOLERANCE = 2e-3  # error of closer widths, for ‖x‖/√λ = 1
EXACT_TOLERANCE = 1e-10  # error of the widths that decide, for ‖x‖/√λ = 1


@compiled
def choose_by_large_widths(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̂ + z‖x‖_{V⁻¹}; return its place, or NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    norms = compute_squared_norms(arms)
    for k in range(norms.size):
        if not norms[k] <= LARGEST:
            return NOT_FINITE
    z = draw_level(arrays.rules, compute_scale(arrays), start)
    return choose_by_scores(arrays.rules, score_with_large_widths(arrays, arms, norms, z), start)


@compiled
def score_with_large_widths(
    arrays: PolicyArrays, arms: Floats, squared_norms: Floats, z: float
) -> Floats:
    """xᵀθ̂ + z‖x‖_{V⁻¹} of every arm that can be the best, −inf for the others, (K,).

    As in `score_with_widths`, widths of growing accuracy bound the scores until one arm is left.
    """
    relative_error, unit = bound_width_error(arrays), 1.0 / math.sqrt(arrays.rules[0].ridge)
    highest, lowest = np.empty(arms.shape[0]), np.empty(arms.shape[0])
    means = score_linearly(arms, view_belief(arrays).theta)
    squares = np.empty(arms.shape[0])
    measure_large(arrays, arms, squares)
    for k in range(means.size):
        width = math.sqrt(max(squares[k], 0.0))
        error = relative_error * width + WIDTH_ROUNDING * unit * math.sqrt(squared_norms[k])
        highest[k] = means[k] + z * width + abs(z) * error
        lowest[k] = highest[k] - 2.0 * abs(z) * error
    count = drop_beaten_arms(highest, lowest)
    tolerance = CLOSER_TOLERANCE if relative_error > 0.0 else EXACT_TOLERANCE
    while count > 1 and tolerance >= EXACT_TOLERANCE:
        places, rivals = np.empty(count, np.int64), np.empty((count, arms.shape[1]))
        count = 0
        for k in range(means.size):
            if highest[k] > -np.inf:
                places[count] = k
                copy_vector(arms[k], rivals[count])
                count += 1
        widths = compute_large_widths(arrays, rivals, tolerance)
        is_last = tolerance == EXACT_TOLERANCE
        for m in range(count):
            k = places[m]
            error = 0.0 if is_last else 2.0 * tolerance * unit * math.sqrt(squared_norms[k])
            highest[k] = means[k] + z * widths[m] + abs(z) * error
            lowest[k] = highest[k] - 2.0 * abs(z) * error
        if is_last:
            break
        count = drop_beaten_arms(highest, lowest)
        tolerance = EXACT_TOLERANCE
    return highest
