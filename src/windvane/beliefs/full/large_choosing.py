"""Choose by widths under a large belief: the arms that may be the best are measured together."""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.choosing import (
    WIDTH_ROUNDING,
    choose_by_scores,
    drop_beaten_arms,
    score_linearly,
)
from windvane.beliefs.full.large_widths import (
    bound_large_width_error,
    compute_large_widths,
    measure_in_float32,
    measure_large,
    solve_widths,
)
from windvane.beliefs.full.layout import LARGEST, PolicyArrays
from windvane.beliefs.full.learning import NOT_FINITE
from windvane.beliefs.full.linalg import copy_vector
from windvane.beliefs.full.sampling import compute_scale, draw_level
from windvane.beliefs.full.widths import CLOSER_WIDTH_ROUNDING, compute_squared_norms
from windvane.types import Floats, Places

LEADERS_AT_ONCE = 2  # arms that are measured together
LARGEST_SHARE_OF_FLOAT32 = 0.25  # of the other errors of widths, beside which it hardly counts
CLOSER_TOLERANCE = 3e-4  # error of closer widths, for ‖x‖/√λ = 1
EXACT_TOLERANCE = 1e-10  # error of the widths that decide, for ‖x‖/√λ = 1


class Bounds(NamedTuple):
    """Bounds of the scores of all arms; both are −inf for an arm that cannot be the best."""

    means: Floats  # (K,)  xᵀθ̂
    highest: Floats  # (K,)
    lowest: Floats  # (K,)
    z: float


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
    bounds = Bounds(
        score_linearly(arms, view_belief(arrays).theta),
        np.empty(arms.shape[0]),
        np.empty(arms.shape[0]),
        z,
    )
    is_coarse = bound_all(arrays, arms, squared_norms, bounds)
    count = drop_beaten_arms(bounds.highest, bounds.lowest)
    if count > 1 and is_coarse:
        bound_rest(arrays, arms, squared_norms, bounds)
        count = drop_beaten_arms(bounds.highest, bounds.lowest)
    if count > 1 and bound_large_width_error(arrays) > 0.0:
        bound_leaders(arrays, arms, squared_norms, bounds)
        count = drop_beaten_arms(bounds.highest, bounds.lowest)
    if count > 1:
        places = find_places(bounds.highest)
        widths = compute_large_widths(arrays, copy_rows(arms, places), EXACT_TOLERANCE)
        for m in range(count):
            bounds.highest[places[m]] = bounds.means[places[m]] + z * widths[m]
    return bounds.highest


@compiled
def bound_all(arrays: PolicyArrays, arms: Floats, squared_norms: Floats, bounds: Bounds) -> bool:
    """Bound the scores of all arms by widths in float32.

    Return whether float32 contributes so much to the bounds that float64 is worth its time.
    """
    relative_error, unit = bound_large_width_error(arrays), 1.0 / math.sqrt(arrays.rules[0].ridge)
    squares, errors, longest = np.empty(arms.shape[0]), np.empty(arms.shape[0]), 0.0
    coarse, other = 0.0, 0.0
    for k in range(squares.size):
        longest = max(longest, squared_norms[k])
    measure_in_float32(arrays, arms, math.sqrt(longest), squares, errors)
    for k in range(squares.size):
        low = math.sqrt(max(squares[k] - errors[k], 0.0))
        high = math.sqrt(max(squares[k] + errors[k], 0.0))
        error = relative_error * high + WIDTH_ROUNDING * unit * math.sqrt(squared_norms[k])
        set_bounds(bounds, k, 0.5 * (high + low), 0.5 * (high - low) + error)
        coarse += 0.5 * (high - low)
        other += error
    return coarse > LARGEST_SHARE_OF_FLOAT32 * other


@compiled
def bound_rest(arrays: PolicyArrays, arms: Floats, squared_norms: Floats, bounds: Bounds) -> None:
    """Bound the scores of the arms that are left by widths in float64."""
    relative_error, unit = bound_large_width_error(arrays), 1.0 / math.sqrt(arrays.rules[0].ridge)
    places = find_places(bounds.highest)
    squares = np.empty(places.size)
    measure_large(arrays, copy_rows(arms, places), squares)
    for m in range(places.size):
        width, k = math.sqrt(max(squares[m], 0.0)), places[m]
        error = relative_error * width + WIDTH_ROUNDING * unit * math.sqrt(squared_norms[k])
        set_bounds(bounds, k, width, error)


@compiled
def bound_leaders(
    arrays: PolicyArrays, arms: Floats, squared_norms: Floats, bounds: Bounds
) -> None:
    """Tighten the bounds (K,) of arms that may be the best, those with the highest bounds first.

    Each of them may show that others cannot be the best, and then these are not measured.
    """
    means, highest, lowest = bounds.means, bounds.highest, bounds.lowest
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
        widths, errors = np.empty(count), np.empty(count)
        rows = copy_rows(arms, places[:count])
        solve_widths(arrays, rows, CLOSER_TOLERANCE, widths, errors)
        for m in range(count):
            k = places[m]
            rounding = CLOSER_WIDTH_ROUNDING * unit * math.sqrt(squared_norms[k])
            set_bounds(bounds, k, widths[m], 2.0 * errors[m] + rounding)
            bar = max(bar, lowest[k])


@compiled
def set_bounds(bounds: Bounds, k: int, width: float, error: float) -> None:
    """Set the bounds of the score of arm k, given its width and the largest error of the width."""
    bounds.highest[k] = bounds.means[k] + bounds.z * width + abs(bounds.z) * error
    bounds.lowest[k] = bounds.highest[k] - 2.0 * abs(bounds.z) * error


@compiled
def find_places(highest: Floats) -> Places:
    """The places of the arms that are left."""
    places, count = np.empty(highest.size, np.int64), 0
    for k in range(highest.size):
        if highest[k] > -np.inf:
            places[count] = k
            count += 1
    return places[:count]


@compiled
def copy_rows(rows: Floats, places: Places) -> Floats:
    """The rows (n, d) at these places."""
    copies = np.empty((places.size, rows.shape[1]))
    for m in range(places.size):
        copy_vector(rows[places[m]], copies[m])
    return copies
