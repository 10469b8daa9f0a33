"""Upper bounds of many scores in float32, made tighter only as far as that pays."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane._jit import compiled

Singles = npt.NDArray[np.float32]

RUNG = 4  # eigenvectors at a time
CHUNK = 1024  # arms at a time, so that their columns stay in the cache
FEW = 0.03  # the share of arms in doubt up to which another rung does not pay


class Ladder(NamedTuple):
    """Eigenvectors v of Q in the order in which they bound w² = xᵀQx best.

    After r of them, w² is bounded by Σ λ(xᵀv)² + rest·(‖x‖² − Σ(xᵀv)²), from above for a sign of 1
    and from below for −1.
    """

    basis: Singles  # (m, m)  an eigenvector a row, and zeros up to whole rungs
    values: Singles  # (m,)    λ
    rests: Singles  # (m/RUNG + 1,)
    sign: float
    loss: float  # the error that rounding leaves in a squared width, for ‖x‖ = 1
    slope: float  # all other errors, for ‖x‖ = 1
    tiny: float  # errors for ‖x‖ = 0


@compiled
def climb(ladder: Ladder, rung: int, table: Singles, begin: int, sums: Singles, size: int) -> None:
    """Add four more products of every arm to Σ λ(xᵀv)² and Σ(xᵀv)², the first rows of `sums`."""
    i, last, stop = RUNG * rung, table.shape[0] - 1, begin + size
    b, values = ladder.basis, ladder.values
    s0, s1, s2, s3 = sums[2, :size], sums[3, :size], sums[4, :size], sums[5, :size]
    for k in range(size):
        s0[k], s1[k], s2[k], s3[k] = 0.0, 0.0, 0.0, 0.0
    for j in range(0, b.shape[1], 2):  # two columns to each pass over the sums
        a0, a1, b0, b1 = b[i, j], b[i, j + 1], b[i + 1, j], b[i + 1, j + 1]
        c0, c1, d0, d1 = b[i + 2, j], b[i + 2, j + 1], b[i + 3, j], b[i + 3, j + 1]
        left, right = table[min(j, last), begin:stop], table[min(j + 1, last), begin:stop]
        for k in range(size):
            x, y = left[k], right[k]
            s0[k] += a0 * x + a1 * y
            s1[k] += b0 * x + b1 * y
            s2[k] += c0 * x + c1 * y
            s3[k] += d0 * x + d1 * y
    v0, v1, v2, v3 = values[i], values[i + 1], values[i + 2], values[i + 3]
    weighed, held = sums[0, :size], sums[1, :size]
    for k in range(size):
        q0, q1, q2, q3 = s0[k] * s0[k], s1[k] * s1[k], s2[k] * s2[k], s3[k] * s3[k]
        weighed[k] += v0 * q0 + v1 * q1 + v2 * q2 + v3 * q3
        held[k] += q0 + q1 + q2 + q3


@compiled
def bound(
    ladder: Ladder, rung: int, norms: Singles, means: Singles, sums: Singles, upper: Singles
) -> None:
    """The upper bounds that so many rungs give."""
    sign, slope, tiny = np.float32(ladder.sign), np.float32(ladder.slope), np.float32(ladder.tiny)
    rest, nothing = ladder.rests[rung], np.float32(0.0)
    whole = rest + sign * np.float32(ladder.loss)
    weighed, held = sums[0, : upper.size], sums[1, : upper.size]
    for k in range(upper.size):
        square = weighed[k] + whole * norms[k] * norms[k] - rest * held[k]
        width = np.sqrt(max(square, nothing))
        upper[k] = means[k] + sign * width + slope * norms[k] + tiny


@compiled
def upper_bounds(
    ladder: Ladder, table: Singles, norms: Singles, means: Singles, begin: int, least: float
) -> Singles:
    """xᵀθ̂ ± w from above for the arms from `begin` on, so close that few reach `least`."""
    upper, bar = np.empty_like(means), np.float32(least)
    sums, last = np.empty((2 + RUNG, CHUNK), np.float32), ladder.rests.size - 1
    for low in range(0, means.size, CHUNK):
        high = min(low + CHUNK, means.size)
        sums[:2] = 0.0
        for rung in range(last + 1):
            bound(ladder, rung, norms[low:high], means[low:high], sums, upper[low:high])
            doubtful = 0
            for k in range(low, high):
                doubtful += upper[k] >= bar
            if doubtful <= FEW * (high - low) or rung == last:
                break
            climb(ladder, rung, table, begin + low, sums, high - low)
    return upper
