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
from windvane.types import Floats, Places

LEADERS_AT_ONCE = 4  # arms that are measured together
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
    if count > 1 and relative_error > 0.0:
        bound_leaders(arrays, arms, squared_norms, z, means, highest, lowest)
        count = drop_beaten_arms(highest, lowest)
    if count > 1:
        places, count = np.empty(count, np.int64), 0
        for k in range(means.size):
            if highest[k] > -np.inf:
                places[count] = k
                count += 1
        widths = compute_large_widths(arrays, copy_rows(arms, places), EXACT_TOLERANCE)
        for m in range(count):
            highest[places[m]] = means[places[m]] + z * widths[m]
    return highest


@compiled
def bound_leaders(
    arrays: PolicyArrays,
    arms: Floats,
    squared_norms: Floats,
    z: float,
    means: Floats,
    highest: Floats,
    lowest: Floats,
) -> None:
    """Tighten the bounds (K,) of arms that may be the best, those with the highest bounds first.

    Each of them may show that others cannot be the best, and then these are not measured.
    """
    unit, bar = 1.0 / math.sqrt(arrays.rules[0].ridge), -np.inf
    is_open = np.empty(means.size, np.bool_)
    for k in range(means.size):
        is_open[k] = highest[k] > -np.inf
        bar = max(bar, lowest[k])
    while True:
        places, count = np.empty(LEADERS_AT_ONCE, np.int64), 0
        for _ in range(LEADERS_AT_ONCE):
            leader = -1
            for k in range(means.size):
                is_rival = is_open[k] and highest[k] >= bar
                if is_rival and (leader < 0 or highest[k] > highest[leader]):
                    leader = k
            if leader >= 0:
                is_open[leader] = False
                places[count] = leader
                count += 1
        if count == 0:
            return
        widths = compute_large_widths(arrays, copy_rows(arms, places[:count]), CLOSER_TOLERANCE)
        for m in range(count):
            k = places[m]
            error = abs(z) * (2.0 * CLOSER_TOLERANCE * unit * math.sqrt(squared_norms[k]))
            highest[k] = means[k] + z * widths[m] + error
            lowest[k] = highest[k] - 2.0 * error
            bar = max(bar, lowest[k])


@compiled
def copy_rows(rows: Floats, places: Places) -> Floats:
    """The rows (n, d) at these places."""
    copies = np.empty((places.size, rows.shape[1]))
    for m in range(places.size):
        copy_vector(rows[places[m]], copies[m])
    return copies
