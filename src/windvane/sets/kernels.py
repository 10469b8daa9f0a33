"""The compiled code of action sets: upper bounds of many scores, and the best path.

The bounds are in float32, tightened only while this saves time. An eigenvector of Q costs one
product with every arm and tightens the bound of its width. Four eigenvectors at a time are a rung.
"""

from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane.types import Floats, Places, Singles

EIGENVECTORS_PER_RUNG = 4  # `add_rung` is written out for this number
ARMS_PER_CHUNK = 1024  # so that the columns of a chunk stay in the cache
LEAST_SHARE_FOR_FIRST_RUNG = 0.1  # of the arms of a chunk: if fewer reach the bar, stop
LEAST_SHARE_FOR_RUNG = 0.03  # the same after the first rung


class Ladder(NamedTuple):
    """Eigenvectors v of Q in the order in which they bound w² = xᵀQx best.

    After some of them, w² is bounded by Σ λ(xᵀv)² + rest·(‖x‖² − Σ(xᵀv)²): from above if the sign
    is 1, from below if it is −1.
    """

    basis: Singles  # (m, m)  one eigenvector a row, padded with zeros to whole rungs
    values: Singles  # (m,)    eigenvalues λ
    rests: Singles  # (m / EIGENVECTORS_PER_RUNG + 1,)  `rest` after each rung
    sign: float
    loss: float  # rounding error of a squared width, for ‖x‖ = 1
    slope: float  # all other errors, for ‖x‖ = 1
    tiny: float  # errors for ‖x‖ = 0


@compiled
def add_rung(
    ladder: Ladder, rung: int, table: Singles, begin: int, sums: Singles, size: int
) -> None:
    """Add four more products of every arm to Σ λ(xᵀv)² and Σ(xᵀv)², the first rows of `sums`.

    `table` (d, K) holds the arms in columns; `sums` is (2 + EIGENVECTORS_PER_RUNG, chunk).
    """
    i, last, stop = EIGENVECTORS_PER_RUNG * rung, table.shape[0] - 1, begin + size
    b, values = ladder.basis, ladder.values
    s0, s1, s2, s3 = sums[2, :size], sums[3, :size], sums[4, :size], sums[5, :size]
    for k in range(size):
        s0[k], s1[k], s2[k], s3[k] = 0.0, 0.0, 0.0, 0.0
    for j in range(0, b.shape[1], 4):  # each pass over the sums adds four columns
        a0, a1, a2, a3 = b[i, j], b[i, j + 1], b[i, j + 2], b[i, j + 3]
        b0, b1, b2, b3 = b[i + 1, j], b[i + 1, j + 1], b[i + 1, j + 2], b[i + 1, j + 3]
        c0, c1, c2, c3 = b[i + 2, j], b[i + 2, j + 1], b[i + 2, j + 2], b[i + 2, j + 3]
        d0, d1, d2, d3 = b[i + 3, j], b[i + 3, j + 1], b[i + 3, j + 2], b[i + 3, j + 3]
        x0, x1 = table[min(j, last), begin:stop], table[min(j + 1, last), begin:stop]
        x2, x3 = table[min(j + 2, last), begin:stop], table[min(j + 3, last), begin:stop]
        for k in range(size):
            x, y, z, w = x0[k], x1[k], x2[k], x3[k]
            s0[k] += a0 * x + a1 * y + a2 * z + a3 * w
            s1[k] += b0 * x + b1 * y + b2 * z + b3 * w
            s2[k] += c0 * x + c1 * y + c2 * z + c3 * w
            s3[k] += d0 * x + d1 * y + d2 * z + d3 * w
    v0, v1, v2, v3 = values[i], values[i + 1], values[i + 2], values[i + 3]
    weighted, plain = sums[0, :size], sums[1, :size]
    for k in range(size):
        q0, q1, q2, q3 = s0[k] * s0[k], s1[k] * s1[k], s2[k] * s2[k], s3[k] * s3[k]
        weighted[k] += v0 * q0 + v1 * q1 + v2 * q2 + v3 * q3
        plain[k] += q0 + q1 + q2 + q3


@compiled
def bound_scores(
    ladder: Ladder, rung: int, norms: Singles, means: Singles, sums: Singles, upper: Singles
) -> None:
    """Write the upper bounds of scores after `rung` rungs to `upper` (chunk,)."""
    sign, slope, tiny = np.float32(ladder.sign), np.float32(ladder.slope), np.float32(ladder.tiny)
    rest, zero = ladder.rests[rung], np.float32(0.0)
    whole = rest + sign * np.float32(ladder.loss)
    weighted, plain = sums[0, : upper.size], sums[1, : upper.size]
    for k in range(upper.size):
        square = weighted[k] + whole * norms[k] * norms[k] - rest * plain[k]
        width = np.sqrt(max(square, zero))
        upper[k] = means[k] + sign * width + slope * norms[k] + tiny


@compiled
def compute_means(theta: Singles, table: Singles, begin: int, means: Singles) -> None:
    """Write xᵀθ of the arms from `begin` on to `means` (chunk,); `theta` is (d,)."""
    size, last = means.size, theta.size - 1
    for k in range(size):
        means[k] = 0.0
    for j in range(0, theta.size, 4):  # each pass over the means adds four columns
        j1, j2, j3, zero = min(j + 1, last), min(j + 2, last), min(j + 3, last), np.float32(0.0)
        a0, a1 = theta[j], theta[j1] if j + 1 <= last else zero
        a2, a3 = theta[j2] if j + 2 <= last else zero, theta[j3] if j + 3 <= last else zero
        x0, x1 = table[j, begin : begin + size], table[j1, begin : begin + size]
        x2, x3 = table[j2, begin : begin + size], table[j3, begin : begin + size]
        for k in range(size):
            means[k] += a0 * x0[k] + a1 * x1[k] + a2 * x2[k] + a3 * x3[k]


@compiled
def compute_upper_bounds(
    ladder: Ladder, table: Singles, norms: Singles, theta: Singles, begin: int, least: float
) -> Singles:
    """Upper bounds of xᵀθ ± w for the arms from `begin` on, (K,), so tight that few reach `least`.

    `norms` (K,) belong to these arms; `table` (d, all arms) holds arms in columns. The columns of
    a chunk are read from memory once, for the means, and stay in the cache for the eigenvectors.
    """
    upper, bar = np.empty_like(norms), np.float32(least)
    sums = np.empty((2 + EIGENVECTORS_PER_RUNG, ARMS_PER_CHUNK), np.float32)
    means = np.empty(ARMS_PER_CHUNK, np.float32)
    last = ladder.rests.size - 1
    for low in range(0, norms.size, ARMS_PER_CHUNK):
        high = min(low + ARMS_PER_CHUNK, norms.size)
        sums[:2] = 0.0
        compute_means(theta, table, begin + low, means[: high - low])
        for rung in range(last + 1):
            bound_scores(ladder, rung, norms[low:high], means[: high - low], sums, upper[low:high])
            reaching = 0
            for k in range(low, high):
                reaching += upper[k] >= bar
            least_share = LEAST_SHARE_FOR_RUNG if rung > 0 else LEAST_SHARE_FOR_FIRST_RUNG
            if reaching <= least_share * (high - low) or rung == last:
                break
            add_rung(ladder, rung, table, begin + low, sums, high - low)
    return upper


@compiled
def relax_edges(
    tails: Places, heads: Places, gains: Floats, sweeps: int, best: Floats, last: Places
) -> bool:
    """Find the largest gain of a walk from node 0 to each node (Bellman-Ford).

    best(v) = max over edges u → v of best(u) + gain; last(v) is the edge that attains it.
    Return False if another sweep could gain more.
    """
    best[:] = -np.inf
    last[:] = -1
    best[0] = 0.0
    for _ in range(sweeps):
        is_settled = True
        for e in range(tails.size):
            total = best[tails[e]] + gains[e]
            if total > best[heads[e]]:
                best[heads[e]] = total
                last[heads[e]] = e
                is_settled = False
        if is_settled:
            return True
    return False


@compiled
def trace_back(tails: Places, last: Places, path: Places) -> int:
    """Write the edges from the last node back to node 0 to `path`, and return their number.

    Return -1 if the edges form a cycle.
    """
    node = last.size - 1
    count = 0
    while node != 0:
        if count == path.size:
            return -1
        path[count] = last[node]
        node = tails[path[count]]
        count += 1
    return count


@compiled
def find_best_path(tails: Places, heads: Places, gains: Floats, nodes: int, sweeps: int) -> Places:
    """Return the edges of the best path from node 0 to the last node, in walking order.

    One sweep is enough if the edges are in topological order. Else `sweeps` must be the number of
    nodes, and if a cycle has a positive gain, all gains are cut to at most 0.
    """
    best, last = np.empty(nodes), np.empty(nodes, np.int64)
    path = np.empty(nodes - 1, np.int64)
    count = -1
    if relax_edges(tails, heads, gains, sweeps, best, last) or sweeps == 1:
        count = trace_back(tails, last, path)
    if count < 0:
        relax_edges(tails, heads, np.minimum(gains, 0.0), nodes, best, last)
        count = trace_back(tails, last, path)
    return path[:count][::-1].copy()
