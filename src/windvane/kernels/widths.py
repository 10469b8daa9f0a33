"""How much is in doubt about each arm: ‖x‖²_{V⁻¹} read off `spread`, exactly, and in step."""

import math
from typing import NamedTuple

import numpy as np

from windvane._jit import compiled
from windvane._layout import PolicyArrays
from windvane.belief import State
from windvane.kernels.belief_block import AMPLE, dot, multiply, solve, times
from windvane.types import Floats, Places


@compiled
def squared_norms(arms: Floats) -> Floats:
    """‖x‖² of every arm."""
    sizes = np.empty(arms.shape[0])
    for k in range(arms.shape[0]):
        sizes[k] = dot(arms[k], arms[k])
    return sizes


@compiled
def squared_widths(arms: Floats, spread: Floats) -> Floats:
    """xᵀQx of every arm, four arms to each pass over the lower half of Q = `spread`."""
    last = arms.shape[0] - 1
    out = np.empty(last + 1)
    for k in range(0, last + 1, 4):
        k1, k2, k3 = min(k + 1, last), min(k + 2, last), min(k + 3, last)
        x0, x1, x2, x3 = arms[k], arms[k1], arms[k2], arms[k3]
        sum0, sum1, sum2, sum3 = 0.0, 0.0, 0.0, 0.0
        for i in range(arms.shape[1]):
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
        out[k], out[k1], out[k2], out[k3] = 2.0 * sum0, 2.0 * sum1, 2.0 * sum2, 2.0 * sum3
    return out


class Watched(NamedTuple):
    """Arms that stay the same from round to round, and what is known of them all the time."""

    arms: Floats  # (K, d)
    sizes: Floats  # (K,)  ‖x‖²
    squares: Floats  # (K,)  xᵀQx for Q = `spread`
    lengths: Floats  # (K,)  ‖Px‖² for P = `inverse`; empty where only the squares are known


@compiled
def nobody(state: State) -> Watched:
    """No arms at all."""
    nothing = state.moment[:0]
    return Watched(state.gram[:0], nothing, nothing, nothing)


@compiled
def look(state: State, watched: Watched) -> None:
    """Read everything afresh."""
    watched.squares[:] = squared_widths(watched.arms, state.spread)
    if watched.lengths.size > 0:
        images = np.empty_like(watched.arms)
        multiply(watched.arms, state.inverse, images)
        for k in range(watched.lengths.size):
            watched.lengths[k] = dot(images[k], images[k])


@compiled
def width_and_error(
    arrays: PolicyArrays, watched: Watched, k: int, loose: float
) -> tuple[float, float]:
    """A width as `spread` has it, and by how much it can be wrong.

    Knowing h = ‖û‖² for û = Px, the noise part is exact, ŵ² = xᵀQx + (λ−Λ̃)h, and only
    ‖u−û‖_W ≤ |λ−Λ|·√(h/λ) is left; else a share of the width, as `looseness` says.
    """
    ridge, counts = arrays.rules[0].ridge, arrays.tally[0]
    if watched.lengths.size == 0 or loose == 0.0:
        width = math.sqrt(max(watched.squares[k], 0.0))
        return width, loose * width
    length = max(watched.lengths[k], 0.0)
    width = math.sqrt(max(watched.squares[k] + (ridge - counts.noise_ridge) * length, 0.0))
    return width, abs(ridge - counts.ridge) * math.sqrt(length / ridge)


@compiled
def looseness(arrays: PolicyArrays) -> float:
    """By what share of itself a width read off `spread` can be wrong.

    For ridges Λ and Λ̃ left in `inverse` and `spread`, û = Px and ŵ² = xᵀQx:
    ‖u−û‖_W ≤ |λ−Λ|·‖û‖/√λ, ‖û‖ ≤ ŵ/√Λ̃, and W̃ for W̃−(λ−Λ̃)I moves ŵ² by at most |λ−Λ̃|·‖û‖².
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    if not rule.fades:
        return 0.0
    lag: float = abs(rule.ridge - counts.ridge) / math.sqrt(rule.ridge * counts.noise_ridge)
    noise_lag: float = abs(rule.ridge - counts.noise_ridge) / counts.noise_ridge
    return lag + 1.0 - math.sqrt(max(1.0 - noise_lag, 0.0))


@compiled
def closer_width(arrays: PolicyArrays, state: State, x: Floats) -> tuple[float, float]:
    """A width from û = Px, and by how much it can be wrong: |λ−Λ|·‖û‖/√λ."""
    ridge, u, image = arrays.rules[0].ridge, np.empty(x.size), np.empty(x.size)
    times(state.inverse, x, u)
    times(state.noise, u, image)
    length = dot(u, u)
    error = abs(ridge - arrays.tally[0].ridge) * math.sqrt(length / ridge)
    rounding = 1e-9 * math.sqrt(dot(x, x) / ridge)
    return math.sqrt(dot(u, image) + ridge * length), error + rounding


@compiled
def all_widths(arrays: PolicyArrays, state: State, arms: Floats) -> Floats:
    """‖x‖_{V⁻¹} of every arm, to a share of 1e-8 at least.

    With p = Px and q = Qx, w² = xᵀq + (λ−Λ̃)‖p‖² − 2(λ−Λ)pᵀq but for the square of (λ−Λ)/Λ;
    where that is not small enough, each width is worked out exactly.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    widths, d = np.empty(arms.shape[0]), arms.shape[1]
    lag, noise_lag = rule.ridge - counts.ridge, rule.ridge - counts.noise_ridge
    share = abs(lag) / counts.ridge if rule.fades else 0.0
    places, p, q = np.empty(d, np.int64), np.empty(d), np.empty(d)
    for k in range(widths.size):
        if 4.0 * share * share > 1e-8:
            widths[k] = exact_width(arrays, state, arms[k])
            continue
        x, count = arms[k], 0
        for i in range(d):  # of features in JSON most are 0
            if x[i] != 0.0:
                places[count] = i
                count += 1
        combine(state.spread, x, places[:count], q)
        square = dot(x, q)
        if share > 1e-9:
            combine(state.inverse, x, places[:count], p)
            square += noise_lag * dot(p, p) - 2.0 * lag * dot(p, q)
        widths[k] = math.sqrt(max(square, 0.0))
    return widths


@compiled
def combine(rows: Floats, x: Floats, places: Places, out: Floats) -> None:
    """Σ x_i·row_i over the places where x is not 0, four rows to each pass over `out`."""
    whole = places.size - places.size % 4
    out[:] = 0.0
    for m in range(0, whole, 4):
        i0, i1, i2, i3 = places[m], places[m + 1], places[m + 2], places[m + 3]
        x0, x1, x2, x3 = x[i0], x[i1], x[i2], x[i3]
        row0, row1, row2, row3 = rows[i0], rows[i1], rows[i2], rows[i3]
        for j in range(out.size):
            out[j] += x0 * row0[j] + x1 * row1[j] + x2 * row2[j] + x3 * row3[j]
    for m in range(whole, places.size):
        own, row = x[places[m]], rows[places[m]]
        for j in range(out.size):
            out[j] += own * row[j]


@compiled
def exact_width(arrays: PolicyArrays, state: State, x: Floats) -> float:
    """‖x‖_{V⁻¹} = √(uᵀW̃u) with W·u = x."""
    u, image = np.empty(x.size), np.empty(x.size)
    times(state.inverse, x, u)
    if arrays.rules[0].rho > 0.0:
        return math.sqrt(max(dot(x, u), 0.0))
    solve(arrays, state, x, u, AMPLE)
    times(state.noise, u, image)
    return math.sqrt(dot(u, image) + arrays.rules[0].ridge * dot(u, u))
