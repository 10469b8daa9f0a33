"""The uncertainty of arms: widths ‖x‖_{V⁻¹}, read off `spread`, bounded, exact, or tracked."""

import math
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import COMPARISON_TOLERANCE, read_ridge, solve
from windvane.beliefs.full.layout import PolicyArrays
from windvane.beliefs.full.linalg import combine_rows, dot, fill, multiply_matrices, multiply_vector
from windvane.types import Floats

WIDTH_TOLERANCE = 1e-8  # relative error of the widths behind propensities
ROWS_IN_CACHE = 128  # of `spread`
NEGLIGIBLE_LAG = 1e-9  # |λ−Λ|/Λ up to which a width needs no correction for the ridge
CLOSER_WIDTH_ROUNDING = 1e-9  # rounding error of a width from Px, for ‖x‖/√λ = 1


class TrackedArms(NamedTuple):
    """Arms and their squared widths; if arms stay the same, these follow every observation."""

    arms: Floats  # (K, d)
    squared_norms: Floats  # (K,)  ‖x‖²
    squared_widths: Floats  # (K,)  xᵀQx for Q = `spread`
    squared_images: Floats  # (K,)  ‖Px‖² for P = `inverse`; empty if they are not tracked


class RankOneStep(NamedTuple):
    """An observation's step: P' = (P − ppᵀ/c)/f and Q' = Q − (pqᵀ + qpᵀ)/c + (1+s)ppᵀ/c²."""

    image: Floats  # (d,)  p = Px
    spread_image: Floats  # (d,)  q = Qx
    divisor: float  # c: f/w + xᵀp for an observation of weight w, σ² + xᵀp in a Kalman filter
    square: float  # s = xᵀq
    fade: float  # f, the factor by which older weights fall


@compiled
def compute_squared_norms(arms: Floats) -> Floats:
    """‖x‖² of every arm, (K,)."""
    squares = np.empty(arms.shape[0])
    for k in range(arms.shape[0]):
        squares[k] = dot(arms[k], arms[k])
    return squares


@compiled
def compute_squared_widths(arms: Floats, spread: Floats, out: Floats) -> None:
    """Write xᵀQx of every arm to `out` (K,), Q = `spread`; a pass over half of Q serves four.

    Some rows of Q at a time are used for all arms, because a large Q does not fit into the cache.
    """
    last, d = arms.shape[0] - 1, arms.shape[1]
    fill(out, 0.0)
    for top in range(0, d, ROWS_IN_CACHE):
        bottom = min(top + ROWS_IN_CACHE, d)
        for k in range(0, last + 1, 4):
            k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
            x0, x1, x2, x3 = arms[k], arms[k1], arms[k2], arms[k3]
            sum0, sum1, sum2, sum3 = 0.0, 0.0, 0.0, 0.0
            for i in range(top, bottom):
                row, own = spread[i], 0.5 * spread[i, i]
                part0, part1, part2, part3 = own * x0[i], own * x1[i], own * x2[i], own * x3[i]
                for j in range(i):
                    part0 += row[j] * x0[j]
                    part1 += row[j] * x1[j]
                    part2 += row[j] * x2[j]
                    part3 += row[j] * x3[j]
                sum0 += x0[i] * part0
                sum1 += x1[i] * part1
                sum2 += x2[i] * part2
                sum3 += x3[i] * part3
            s0, s1, s2, s3 = out[k], out[k1], out[k2], out[k3]  # an arm may be there twice
            out[k], out[k1] = s0 + 2.0 * sum0, s1 + 2.0 * sum1
            out[k2], out[k3] = s2 + 2.0 * sum2, s3 + 2.0 * sum3


@compiled
def track_no_arms(state: State) -> TrackedArms:
    """Return an empty set of tracked arms."""
    nothing = state.moment[:0]
    return TrackedArms(state.gram[:0], nothing, nothing, nothing)


@compiled
def measure_arms(state: State, tracked: TrackedArms) -> None:
    """Compute the squared widths and, if they are tracked, the squared images from the belief."""
    compute_squared_widths(tracked.arms, state.spread, tracked.squared_widths)
    if tracked.squared_images.size > 0:
        images = np.empty(tracked.arms.shape)
        multiply_matrices(tracked.arms, state.inverse, images)
        for k in range(tracked.squared_images.size):
            tracked.squared_images[k] = dot(images[k], images[k])


@compiled
def follow_step(
    arrays: PolicyArrays, state: State, tracked: TrackedArms, step: RankOneStep
) -> None:
    """Update the squares of tracked arms by a rank-one step, in O(Kd).

    w² ← w² − 2ab/c + (1+s)a²/c² and, for h = ‖Px‖², h ← (h − 2a·xᵀPp/c + a²‖p‖²/c²)/f²,
    with a = xᵀp and b = xᵀq. If W̃ is W, w² ← (w² − a²/c)/f, and h is needed only if f < 1.
    """
    rule, fade, c = arrays.rules[0], step.fade, step.divisor
    squared_widths, squared_images = tracked.squared_widths, tracked.squared_images
    if not rule.fades:
        for k in range(squared_widths.size):
            a = dot(tracked.arms[k], step.image)
            squared_widths[k] -= a * a / c
        return
    own = dot(step.image, step.image) / c
    image = np.empty(step.image.size)
    multiply_vector(state.inverse, step.image, image)
    for i in range(image.size):
        image[i] = fade * image[i] + own * step.image[i]  # Pp for the P before the step
    for k in range(squared_widths.size):
        x = tracked.arms[k]
        a, b, r = dot(x, step.image) / c, dot(x, step.spread_image), dot(x, image)
        if rule.twin:
            squared_widths[k] += a * ((1.0 + step.square) * a - 2.0 * b)
        else:
            squared_widths[k] = (squared_widths[k] - a * a * c) / fade
        squared_images[k] = (squared_images[k] + a * (a * own * c - 2.0 * r)) / (fade * fade)


@compiled
def bound_width_error(arrays: PolicyArrays) -> float:
    """The largest relative error of a width that is read off `spread`.

    For the ridges Λ and Λ̃ in `inverse` and `spread`, û = Px and ŵ² = xᵀQx:
    ‖u−û‖_W ≤ |λ−Λ|·‖û‖/√λ, ‖û‖ ≤ ŵ/√Λ̃, and replacing W̃−(λ−Λ̃)I by W̃ changes ŵ² by at most
    |λ−Λ̃|·‖û‖².
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    if not rule.fades:
        return 0.0
    ridge = read_ridge(arrays)
    lag: float = abs(ridge - counts.ridge) / math.sqrt(ridge * counts.noise_ridge)
    noise_lag: float = abs(ridge - counts.noise_ridge) / counts.noise_ridge
    return lag + 1.0 - math.sqrt(max(1.0 - noise_lag, 0.0))


@compiled
def read_width(
    arrays: PolicyArrays, tracked: TrackedArms, k: int, relative_error: float
) -> tuple[float, float]:
    """The width of arm k from its tracked squares, and the largest error of this width.

    If h = ‖û‖² for û = Px is tracked, the noise part is exact, ŵ² = xᵀQx + (λ−Λ̃)h, and the error is
    ‖u−û‖_W ≤ |λ−Λ|·√(h/λ). Else it is `relative_error`, from `bound_width_error`, times the width.
    """
    ridge, counts = read_ridge(arrays), arrays.tally[0]
    if tracked.squared_images.size == 0 or relative_error == 0.0:
        width = math.sqrt(max(tracked.squared_widths[k], 0.0))
        return width, relative_error * width
    h = max(tracked.squared_images[k], 0.0)
    width = math.sqrt(max(tracked.squared_widths[k] + (ridge - counts.noise_ridge) * h, 0.0))
    return width, abs(ridge - counts.ridge) * math.sqrt(h / ridge)


@compiled
def compute_closer_width(arrays: PolicyArrays, state: State, x: Floats) -> tuple[float, float]:
    """The width of x from û = Px, and the largest error of this width: |λ−Λ|·‖û‖/√λ."""
    ridge = read_ridge(arrays)
    u, image = np.empty(x.size), np.empty(x.size)
    multiply_vector(state.inverse, x, u)
    multiply_vector(state.noise, u, image)
    length = dot(u, u)
    error = abs(ridge - arrays.tally[0].ridge) * math.sqrt(length / ridge)
    rounding = CLOSER_WIDTH_ROUNDING * math.sqrt(dot(x, x) / ridge)
    return math.sqrt(dot(u, image) + ridge * length), error + rounding


@compiled
def compute_exact_width(arrays: PolicyArrays, state: State, x: Floats) -> float:
    """‖x‖_{V⁻¹} = √(uᵀW̃u) with W·u = x; in a Kalman filter √(xᵀΣx)."""
    u, image = np.empty(x.size), np.empty(x.size)
    multiply_vector(state.inverse, x, u)
    if arrays.rules[0].filter:
        return math.sqrt(max(dot(x, u), 0.0))
    solve(arrays, state, x, u, COMPARISON_TOLERANCE)
    multiply_vector(state.noise, u, image)
    return math.sqrt(dot(u, image) + read_ridge(arrays) * dot(u, u))


@compiled
def compute_widths(arrays: PolicyArrays, state: State, arms: Floats) -> Floats:
    """‖x‖_{V⁻¹} of every arm, (K,), to a relative error of WIDTH_TOLERANCE or less.

    With p = Px and q = Qx, w² = xᵀq + (λ−Λ̃)‖p‖² − 2(λ−Λ)pᵀq, up to the square of (λ−Λ)/Λ. If this
    square is too large, each width is computed exactly.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    widths, d = np.empty(arms.shape[0]), arms.shape[1]
    ridge = read_ridge(arrays)
    lag, noise_lag = ridge - counts.ridge, ridge - counts.noise_ridge
    relative_lag = abs(lag) / counts.ridge if rule.fades else 0.0
    places, p, q = np.empty(d, np.int64), np.empty(d), np.empty(d)
    for k in range(widths.size):
        if 4.0 * relative_lag * relative_lag > WIDTH_TOLERANCE:
            widths[k] = compute_exact_width(arrays, state, arms[k])
            continue
        x, count = arms[k], 0
        for i in range(d):  # most features of a JSON request are 0
            if x[i] != 0.0:
                places[count] = i
                count += 1
        combine_rows(state.spread, x, places[:count], q)
        square = dot(x, q)
        if relative_lag > NEGLIGIBLE_LAG:
            combine_rows(state.inverse, x, places[:count], p)
            square += noise_lag * dot(p, p) - 2.0 * lag * dot(p, q)
        widths[k] = math.sqrt(max(square, 0.0))
    return widths
