"""The best path through a graph whose edges have gains."""

import numpy as np

from windvane._numba.compilation import compiled
from windvane.types import Floats, Places


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
