"""Widths ‖x‖_{V⁻¹} under a large belief, for several arms at once."""

import math

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.blocked_inverse import Span, add_row_products
from windvane.beliefs.full.float32_forms import compute_float32_forms
from windvane.beliefs.full.layout import PolicyArrays
from windvane.beliefs.full.linalg import copy_vector, dot
from windvane.beliefs.full.pending import (
    COUNT,
    RATIO,
    get_fade,
    multiply_by_noise,
    solve_rows,
    view_pending,
)
from windvane.beliefs.full.symmetric_products import compute_quadratic_forms, compute_sparse_forms
from windvane.beliefs.full.widths import bound_width_error
from windvane.types import Floats

PROPENSITY_TOLERANCE = 1e-9  # error of the widths behind propensities, for ‖x‖/√λ = 1


@compiled
def measure_large(arrays: PolicyArrays, arms: Floats, squared_widths: Floats) -> None:
    """Write xᵀQx of every arm to `squared_widths` (K,), the observations that wait included."""
    compute_quadratic_forms(arms, view_belief(arrays).spread, squared_widths)
    add_pending_forms(arrays, arms, squared_widths)


@compiled
def measure_in_float32(
    arrays: PolicyArrays, arms: Floats, longest: float, squared_widths: Floats, errors: Floats
) -> None:
    """Write approximations of xᵀQx and bounds of their errors, (K,); no arm exceeds `longest`.

    The few products of a sparse arm are computed in float64.
    """
    spread = view_belief(arrays).spread
    for k in range(arms.shape[0]):
        errors[k] = 0.0
    dense = compute_sparse_forms(arms, spread, squared_widths)
    if dense.size > 0:
        compute_float32_forms(arms, longest, dense, spread, squared_widths, errors)
    add_pending_forms(arrays, arms, squared_widths)
    pending = view_pending(arrays)
    if pending.spread_images.shape[0] == 0:
        for k in range(errors.size):
            errors[k] /= get_fade(pending)


@compiled
def add_pending_forms(arrays: PolicyArrays, arms: Floats, squared_widths: Floats) -> None:
    """Turn xᵀQ₀x of every arm, (K,), into xᵀQx, by the observations that wait."""
    pending = view_pending(arrays)
    count, fade = int(pending.head[COUNT]), get_fade(pending)
    has_spread = pending.spread_images.shape[0] > 0
    n, d = arms.shape
    along_images, along_spread_images = np.zeros((n, count)), np.zeros((n, count))
    if count > 0:
        span = Span(0, n, 0, count, 0, d)
        add_row_products(arms, pending.images, span, along_images, 0, 1.0)
        if has_spread:
            add_row_products(arms, pending.spread_images, span, along_spread_images, 0, 1.0)
    for k in range(n):
        for m in range(count):
            along_z, along_q = along_images[k, m] / pending.divisors[m], along_spread_images[k, m]
            if has_spread:
                own = (1.0 + pending.squares[m]) * along_z
                squared_widths[k] += along_z * (own - 2.0 * along_q)
            else:
                squared_widths[k] -= along_z * along_z * pending.divisors[m]
        if not has_spread:
            squared_widths[k] /= fade


@compiled
def bound_large_width_error(arrays: PolicyArrays) -> float:
    """The largest relative error of a width √(xᵀQx), whose square follows ridges that have faded.

    From the ridges Λ and Λ̃ of Q to λ on a straight line, with ℓ = λ−Λ, ν = λ−Λ̃, u = W⁻¹x and
    D = W−W̃, the square f = uᵀW̃u changes by f' = (ν−2ℓ)‖u‖² + 2ℓ·uᵀW⁻¹Du. Because of
    0 ≤ D ≤ W−λ, ‖u‖² ≤ f/λ and W ≤ τW̃ (τ = `ratio`), the last product is at most
    ‖u‖/(2√λ)·√((τ−1)f). On the line, λ is replaced by the least ridge, and W̃ and D differ by ν
    and ν−ℓ or less from those at its end.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    simple = bound_width_error(arrays)
    if not rule.fades:
        return simple
    ratio: float = view_pending(arrays).head[RATIO] if rule.twin else 1.0
    if ratio < 1.0:
        return simple
    lag, noise_lag = rule.ridge - counts.ridge, rule.ridge - counts.noise_ridge
    least, noise_least = min(rule.ridge, counts.ridge), min(rule.ridge, counts.noise_ridge)
    widened = (ratio - 1.0) * (1.0 + abs(noise_lag) / noise_least)
    slope = abs(noise_lag - 2.0 * lag) / noise_least
    slope += abs(lag) * math.sqrt(widened / (least * noise_least))
    slope += 2.0 * abs(lag * (noise_lag - lag)) / (least * noise_least)
    return min(simple, math.exp(0.5 * slope) - 1.0)


@compiled
def compute_large_widths(arrays: PolicyArrays, arms: Floats, tolerance: float) -> Floats:
    """‖x‖_{V⁻¹} of every arm, (K,), with an error of at most `tolerance` times ‖x‖/√λ."""
    widths, errors = np.empty(arms.shape[0]), np.empty(arms.shape[0])
    solve_widths(arrays, arms, tolerance, widths, errors)
    return widths


@compiled
def solve_widths(
    arrays: PolicyArrays, arms: Floats, tolerance: float, widths: Floats, errors: Floats
) -> None:
    """Write ‖x‖_{V⁻¹} = √(uᵀW̃u) with W·u = x of every arm, (K,), and bounds of the errors.

    The error is at most ‖x − W·u‖/√λ, because W̃ is not larger than W and W not smaller than λ; up
    to rounding this is `tolerance` times ‖x‖/√λ.
    """
    rule, state, pending = arrays.rules[0], view_belief(arrays), view_pending(arrays)
    n, d = arms.shape
    residuals, solutions, images = np.empty((n, d)), np.zeros((n, d)), np.empty((n, d))
    lags, limits = np.empty(n), np.empty(n)
    for k in range(n):
        copy_vector(arms[k], residuals[k])
        lags[k] = rule.ridge - arrays.tally[0].ridge
        limits[k] = tolerance * math.sqrt(dot(arms[k], arms[k]))
    solve_rows(state, pending, lags, residuals, solutions, residuals[:0], limits)
    if rule.twin:
        multiply_by_noise(arrays, state, solutions, images)
    for k in range(n):
        square = dot(solutions[k], images[k]) if rule.twin else dot(arms[k], solutions[k])
        widths[k] = math.sqrt(max(square, 0.0))
        errors[k] = math.sqrt(dot(residuals[k], residuals[k]) / rule.ridge)
