"""Widths ‖x‖_{V⁻¹} under a large belief, for several arms at once."""

import math

import numpy as np

from windvane._jit import compiled
from windvane._layout import PolicyArrays
from windvane.kernels.belief_block import view_belief
from windvane.kernels.blocked_inverse import Span, add_row_products
from windvane.kernels.linalg import copy_vector, dot
from windvane.kernels.pending import (
    COUNT,
    get_fade,
    multiply_by_noise,
    solve_rows,
    view_pending,
)
from windvane.kernels.symmetric_products import compute_quadratic_forms
from windvane.types import Floats

PROPENSITY_TOLERANCE = 1e-9  # error of the widths behind propensities, for ‖x‖/√λ = 1


@compiled
def measure_large(arrays: PolicyArrays, arms: Floats, squared_widths: Floats) -> None:
    """Write xᵀQx of every arm to `squared_widths` (K,), the observations that wait included."""
    state, pending = view_belief(arrays), view_pending(arrays)
    count, fade = int(pending.head[COUNT]), get_fade(pending)
    compute_quadratic_forms(arms, state.spread, squared_widths)
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
def compute_large_widths(arrays: PolicyArrays, arms: Floats, tolerance: float) -> Floats:
    """‖x‖_{V⁻¹} = √(uᵀW̃u) with W·u = x of every arm, (K,).

    The error is at most ‖x − W·u‖/√λ, because W̃ is not larger than W and W not smaller than λ; up
    to rounding this is `tolerance` times ‖x‖/√λ.
    """
    rule, state, pending = arrays.rules[0], view_belief(arrays), view_pending(arrays)
    n, d = arms.shape
    residuals, solutions, images = np.empty((n, d)), np.zeros((n, d)), np.empty((n, d))
    lags, limits, widths = np.empty(n), np.empty(n), np.empty(n)
    for k in range(n):
        copy_vector(arms[k], residuals[k])
        lags[k] = rule.ridge - arrays.tally[0].ridge
        limits[k] = tolerance * math.sqrt(dot(arms[k], arms[k]))
    solve_rows(state, pending, lags, residuals, solutions, residuals[:0], limits)
    if not rule.twin:
        for k in range(n):
            widths[k] = math.sqrt(max(dot(arms[k], solutions[k]), 0.0))
        return widths
    multiply_by_noise(arrays, state, solutions, images)
    for k in range(n):
        widths[k] = math.sqrt(max(dot(solutions[k], images[k]), 0.0))
    return widths
