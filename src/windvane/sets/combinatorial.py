"""Combinatorial action sets: subsets of items, paths through a graph, assignments.

An action is a choice of parts. Its features are the sum of the features of its parts, x = Σ f, so
that its mean reward ⟨x, θ⟩ is the sum of the scores ⟨f, θ⟩ of its parts.

| set                            | the best action for θ, argmax Σ ⟨f, θ⟩                       |
|--------------------------------|--------------------------------------------------------------|
| `subsets(items, size)`         | the `size` items with the largest scores                     |
| `paths(edges, source, target)` | the path with the largest score (Bellman and Ford)           |
| `assignments(pairs)`           | the heaviest matching of every row to a column of its own    |
"""

from collections.abc import Iterable, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from numbers import Integral
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.errors import SettingError, shorten
from windvane.sets.base import ActionSet, Best
from windvane.types import Floats, Places


class Parts(NamedTuple):
    """The parts of which actions are made; without features, every part is an axis of its own."""

    number: int  # of parts
    features: Floats | None  # (parts, d)

    @property
    def dim(self) -> int:
        """d, the number of features of an action."""
        return self.number if self.features is None else int(self.features.shape[1])

    def score(self, theta: Floats) -> Floats:
        """Return ⟨f, θ⟩ of each part, (parts,)."""
        return theta if self.features is None else self.features @ theta

    def sum(self, parts: Places) -> Floats:
        """Return the features of an action made of these parts, (d,)."""
        if self.features is not None:
            total: Floats = self.features[parts].sum(axis=0)
            return total
        features = np.zeros(self.number)
        features[parts] = 1.0
        return features


def subsets(items: npt.ArrayLike, size: int) -> ActionSet:
    """Return the ways to choose exactly `size` of the items, given as rows of features (n, d).

    >>> subsets([[1, 0], [0, 1], [1, 1]], 2).best([1.0, 0.5])
    Best(features=array([2., 1.]), action=(0, 2))
    """
    rows = validation.check_numbers("subsets", "items", items, 2)
    if validation.whole("subsets", "size", size) > len(rows):
        raise SettingError(f"subsets: size must be at most {len(rows)}, got {size}")
    parts = Parts(len(rows), rows)
    text = f"subsets of {size} of {len(rows)} items"
    return ActionSet(parts.dim, text, partial(_find_subset, parts, int(size)))


def _find_subset(parts: Parts, size: int, theta: Floats) -> Best:
    """Find the best subset; the action is its indices in rising order."""
    items = np.sort(np.argpartition(parts.score(theta), -size)[-size:])
    return Best(parts.sum(items), tuple(items.tolist()))


def paths(
    edges: Sequence[tuple[int, int]] | Places,
    source: int,
    target: int,
    features: npt.ArrayLike | None = None,
) -> ActionSet:
    """Return the paths along directed edges (from, to) between nodes, which are whole numbers.

    `features` has one row for each edge; without it, every edge is an axis of its own. The best
    path is exact for any θ if the edges form no cycle. With cycles, scores are treated as costs: if
    a cycle has a positive score, all scores are clipped to at most 0.

    >>> paths([(0, 1), (1, 2), (0, 2)], source=0, target=2).best([-1.0, -1.0, -3.0])
    Best(features=array([1., 1., 0.]), action=(0, 1))
    """
    try:
        pairs = np.array(edges)
    except ValueError:
        pairs = np.empty(0)
    if pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise SettingError("paths: edges must be pairs of whole numbers (from, to), at least one")
    rows = None if features is None else validation.check_numbers("paths", "features", features, 2)
    if rows is not None and len(rows) != len(pairs):
        raise SettingError(f"paths: features must have {len(pairs)} rows, got {len(rows)}")
    start = _check_node("source", source)
    end = _check_node("target", target)
    if start == end:
        raise SettingError(f"paths: source and target must differ, got {source} twice")
    parts, graph = Parts(len(pairs), rows), _build_graph(pairs.astype(np.int64), start, end)
    text = f"paths from {start} to {end} along {len(pairs)} edges"
    return ActionSet(parts.dim, text, partial(_find_path, parts, graph))


def _check_node(name: str, node: object) -> int:
    if isinstance(node, bool) or not isinstance(node, Integral) or abs(int(node)) >= 2**63:
        raise SettingError(
            f"paths: {name} must be a whole number, as in the edges, got {shorten(node)}"
        )
    return int(node)


class Graph(NamedTuple):
    """The edges on some path from source to target, in the order in which they are searched."""

    edges: Places  # (n,) indices of the edges
    tails: Places  # (n,) places of nodes in the order of the search
    heads: Places  # (n,)
    nodes: int
    sweeps: int


def _build_graph(edges: Places, source: int, target: int) -> Graph:
    useful = _select_edges_between(edges.tolist(), source, target)
    order, sweeps = _order_nodes(edges[useful].tolist(), source, target)
    position = {node: i for i, node in enumerate(order)}
    useful.sort(key=lambda e: position[int(edges[e, 0])])
    tails, heads = (np.array([position[int(node)] for node in ends]) for ends in edges[useful].T)
    return Graph(np.array(useful, dtype=np.int64), tails, heads, len(order), sweeps)


def _find_path(parts: Parts, graph: Graph, theta: Floats) -> Best:
    """Find the best path; the action is the indices of its edges in walking order."""
    from windvane.sets.kernels import find_best_path  # imported late: it loads numba

    scores = parts.score(theta)[graph.edges]
    steps = find_best_path(graph.tails, graph.heads, scores, graph.nodes, graph.sweeps)
    edges = graph.edges[steps]
    return Best(parts.sum(edges), tuple(edges.tolist()))


def assignments(pairs: npt.ArrayLike | tuple[int, int]) -> ActionSet:
    """Return the ways to give each of n rows a column of its own out of m ≥ n columns.

    `pairs` holds the features of each pair, (n, m, d). A tuple of sizes (n, m) instead makes every
    pair an axis of its own, with d = n·m, row by row.

    >>> assignments((2, 2)).best([5.0, 1.0, 4.0, 3.0])
    Best(features=array([1., 0., 0., 1.]), action=(0, 1))
    """
    if isinstance(pairs, tuple) and len(pairs) == 2 and np.ndim(pairs) == 1:
        rows, columns = (validation.whole("assignments", "a size", size) for size in pairs)
        features = None
    else:
        try:
            table = validation.check_numbers("assignments", "pairs", pairs, 3)
        except SettingError:
            raise SettingError(
                "assignments: pairs must be finite features (n, m, d), or a tuple of sizes (n, m)"
            ) from None
        rows, columns = table.shape[:2]
        features = table.reshape(rows * columns, -1)
    if rows > columns:
        raise SettingError(f"assignments: {rows} rows need as many columns, got {columns}")
    parts, text = Parts(rows * columns, features), f"assignments of {rows} rows to {columns}"
    return ActionSet(parts.dim, text, partial(_find_assignment, parts, (rows, columns)))


def _find_assignment(parts: Parts, shape: tuple[int, int], theta: Floats) -> Best:
    """Find the best assignment; the action is the columns, row by row."""
    from scipy.optimize import linear_sum_assignment  # imported late: it is slow to load

    rows, columns = linear_sum_assignment(parts.score(theta).reshape(shape), maximize=True)
    return Best(parts.sum(rows * shape[1] + columns), tuple(columns.tolist()))


def _select_edges_between(edges: list[list[int]], source: int, target: int) -> list[int]:
    """Return the indices of the edges that lie on a walk from the source to the target."""
    inner = {e: (u, v) for e, (u, v) in enumerate(edges) if u not in (v, target) and v != source}
    after = _find_reachable_nodes(inner.values(), source)
    before = _find_reachable_nodes(((v, u) for u, v in inner.values()), target)
    if target not in after:
        raise SettingError(f"paths: no path leads from {source} to {target}")
    return [e for e, (u, v) in inner.items() if u in after and v in before]


def _find_reachable_nodes(edges: Iterable[tuple[int, int]], start: int) -> set[int]:
    """Return the nodes to which edges lead from the start, the start included."""
    successors: dict[int, list[int]] = {}
    for u, v in edges:
        successors.setdefault(u, []).append(v)
    reachable = {start}
    queue = [start]
    while queue:
        new = set(successors.get(queue.pop(), ())) - reachable
        reachable |= new
        queue.extend(new)
    return reachable


def _order_nodes(edges: list[list[int]], source: int, target: int) -> tuple[list[int], int]:
    """Return the nodes in the order of the search, and how often it must sweep over the edges.

    Without a cycle, nodes are in topological order and one sweep is enough.
    """
    predecessors: dict[int, set[int]] = {}
    for u, v in edges:
        predecessors.setdefault(v, set()).add(u)
    inner = sorted({node for edge in edges for node in edge} - {source, target})
    try:
        order = list(TopologicalSorter(predecessors).static_order())
    except CycleError:
        return [source, *inner, target], len(inner) + 2
    return order, 1
