"""The best path through a graph, edge after edge."""

import numpy as np
import numpy.typing as npt

from windvane._jit import compiled
from windvane.types import Floats

Whole = npt.NDArray[np.int64]


@compiled
def spread_out(
    tails: Whole, heads: Whole, gains: Floats, sweeps: int, best: Floats, last: Whole
) -> bool:
    """The most that a walk from node 0 gains up to each node, and the edge by which it gets there.

    best(v) = max over edges u → v of best(u) + gain;  False where more sweeps would gain more.
    """
    best[:], last[:] = -np.inf, -1
    best[0] = 0.0
    for _ in range(sweeps):
        settled = True
        for e in range(tails.size):
            total = best[tails[e]] + gains[e]
            if total > best[heads[e]]:
                best[heads[e]], last[heads[e]], settled = total, e, False
        if settled:
            return True
    return False


@compiled
def traced_back(tails: Whole, last: Whole, path: Whole) -> int:
    """Fill in the edges from the last node back to node 0 and count them; -1 if they go round."""
    node, count = last.size - 1, 0
    while node != 0:
        if count == path.size:
            return -1
        path[count] = last[node]
        node = tails[path[count]]
        count += 1
    return count


@compiled
def best_path(tails: Whole, heads: Whole, gains: Floats, nodes: int, sweeps: int) -> Whole:
    """The edges of the best path from node 0 to the last node, in the order they are walked.

    One sweep is enough where every edge stands behind all edges that lead to it. Else `sweeps`
    must be the number of nodes, and where a round trip would pay, no edge counts more than 0.
    """
    best, last = np.empty(nodes), np.empty(nodes, np.int64)
    path = np.empty(nodes - 1, np.int64)
    count = -1
    if spread_out(tails, heads, gains, sweeps, best, last) or sweeps == 1:
        count = traced_back(tails, last, path)
    if count < 0:
        spread_out(tails, heads, np.minimum(gains, 0.0), nodes, best, last)
        count = traced_back(tails, last, path)
    return path[:count][::-1].copy()
