"""Action sets made of parts: subsets of items, paths through a graph, assignments.

An action is a choice of parts, its features are the sum of theirs: x = Σ f, so that its reward
⟨x, θ⟩ is the sum of what its parts earn.

| set                            | the best action for θ, argmax Σ ⟨f, θ⟩                       |
|--------------------------------|--------------------------------------------------------------|
| `subsets(items, size)`         | the `size` items with the largest ⟨f, θ⟩                     |
| `paths(edges, source, target)` | the longest path, edge after edge (Bellman and Ford)         |
| `assignments(pairs)`           | the heaviest matching of every row to a column of its own    |
"""

from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from numbers import Integral

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.action_sets.continuous import ActionSet, Best, numbers
from windvane.errors import SettingError
from windvane.types import Floats

Whole = npt.NDArray[np.int64]


class Parts(ActionSet):
    """Sums of parts; without features, every part is an axis of its own."""

    def __init__(self, count: int, features: Floats | None, text: str) -> None:
        super().__init__(count if features is None else features.shape[1], text)
        self._features = features  # (parts, d)

    def _gains(self, theta: Floats) -> Floats:
        """What each part earns: ⟨f, θ⟩."""
        return theta if self._features is None else self._features @ theta

    def _sum(self, parts: Whole) -> Floats:
        if self._features is not None:
            total: Floats = self._features[parts].sum(axis=0)
            return total
        features = np.zeros(self.dim)
        features[parts] = 1.0
        return features


def subsets(items: npt.ArrayLike, size: int) -> ActionSet:
    """Exactly `size` of the items, which are given as rows of features (n, d).

    >>> subsets([[1, 0], [0, 1], [1, 1]], 2).best([1.0, 0.5])
    Best(features=array([2., 1.]), action=(0, 2))
    """
    rows = numbers("subsets", "items", items, 2)
    if validation.whole("subsets", "size", size) > len(rows):
        raise SettingError(f"subsets: size must be at most {len(rows)}, got {size}")
    return Subsets(rows, int(size))


class Subsets(Parts):
    """`size` items of n; the action is their indices, in rising order."""

    def __init__(self, items: Floats, size: int) -> None:
        super().__init__(len(items), items, f"subsets of {size} of {len(items)} items")
        self._size = size

    def _best(self, theta: Floats) -> Best:
        gains = self._gains(theta)
        chosen = np.sort(np.argpartition(gains, -self._size)[-self._size :])
        return Best(self._sum(chosen), tuple(chosen.tolist()))


def paths(
    edges: Sequence[tuple[int, int]] | Whole,
    source: int,
    target: int,
    features: npt.ArrayLike | None = None,
) -> ActionSet:
    """Paths along directed edges (from, to) between nodes that are whole numbers.

    `features` holds a row for each edge; without them every edge is an axis of its own. Exact for
    any θ where no edges lead round in a circle. Where they do, edges are meant to cost: if θ makes
    a round trip pay, no edge counts more than 0, and the path found is the best under that.

    >>> paths([(0, 1), (1, 2), (0, 2)], source=0, target=2).best([-1.0, -1.0, -3.0])
    Best(features=array([1., 1., 0.]), action=(0, 1))
    """
    try:
        pairs = np.array(edges)
    except ValueError:
        pairs = np.empty(0)
    if pairs.dtype.kind not in "iu" or pairs.ndim != 2 or pairs.shape[1] != 2:
        raise SettingError("paths: edges must be pairs of whole numbers (from, to), at least one")
    rows = None if features is None else numbers("paths", "features", features, 2)
    if rows is not None and len(rows) != len(pairs):
        raise SettingError(f"paths: features must have {len(pairs)} rows, got {len(rows)}")
    start, end = _node("source", source), _node("target", target)
    if start == end:
        raise SettingError(f"paths: source and target must differ, got {source} twice")
    return Paths(pairs.astype(np.int64), start, end, rows)


def _node(name: str, node: object) -> int:
    if isinstance(node, bool) or not isinstance(node, Integral) or abs(int(node)) >= 2**63:
        raise SettingError(f"paths: {name} must be a whole number, as in the edges, got {node!r}")
    return int(node)


class Paths(Parts):
    """Paths from source to target; the action is the indices of the edges, as they are walked."""

    def __init__(self, edges: Whole, source: int, target: int, features: Floats | None) -> None:
        super().__init__(
            len(edges), features, f"paths from {source} to {target} along {len(edges)} edges"
        )
        useful = _between(edges.tolist(), source, target)
        order, self._sweeps = _order(edges[useful].tolist(), source, target)
        place = {node: i for i, node in enumerate(order)}
        useful.sort(key=lambda e: place[int(edges[e, 0])])
        self._edges = np.array(useful, dtype=np.int64)
        self._tails, self._heads = (
            np.array([place[int(node)] for node in ends]) for ends in edges[useful].T
        )
        self._nodes = len(order)

    def _best(self, theta: Floats) -> Best:
        from windvane.kernels.best_path import best_path

        gains = self._gains(theta)[self._edges]
        walked = best_path(self._tails, self._heads, gains, self._nodes, self._sweeps)
        chosen = self._edges[walked]
        return Best(self._sum(chosen), tuple(chosen.tolist()))


def assignments(pairs: npt.ArrayLike | tuple[int, int]) -> ActionSet:
    """Each of n rows with a column of its own out of m ≥ n, given as features (n, m, d).

    Two sizes (n, m) in their place make every pair an axis of its own, d = n·m in rows.

    >>> assignments((2, 2)).best([5.0, 1.0, 4.0, 3.0])
    Best(features=array([1., 0., 0., 1.]), action=(0, 1))
    """
    if isinstance(pairs, tuple) and len(pairs) == 2 and np.ndim(pairs) == 1:
        rows, columns = (validation.whole("assignments", "a size", size) for size in pairs)
        features = None
    else:
        try:
            table = numbers("assignments", "pairs", pairs, 3)
        except SettingError:
            raise SettingError(
                "assignments: pairs must be finite features (n, m, d), or a tuple of sizes (n, m)"
            ) from None
        rows, columns = table.shape[:2]
        features = table.reshape(rows * columns, -1)
    if rows > columns:
        raise SettingError(f"assignments: {rows} rows need as many columns, got {columns}")
    return Assignments(rows, columns, features)


class Assignments(Parts):
    """A column for each row; the action is those columns, row by row."""

    def __init__(self, rows: int, columns: int, features: Floats | None) -> None:
        super().__init__(rows * columns, features, f"assignments of {rows} rows to {columns}")
        self._shape = rows, columns

    def _best(self, theta: Floats) -> Best:
        from scipy.optimize import linear_sum_assignment  # here, because it takes a while to load

        gains = self._gains(theta).reshape(self._shape)
        rows, columns = linear_sum_assignment(gains, maximize=True)
        return Best(self._sum(rows * self._shape[1] + columns), tuple(columns.tolist()))


def _between(edges: list[list[int]], source: int, target: int) -> list[int]:
    """The edges by which one can come from the source and go on to the target."""
    inner = {e: (u, v) for e, (u, v) in enumerate(edges) if u not in (v, target) and v != source}
    after = _reached(inner.values(), source)
    before = _reached(((v, u) for u, v in inner.values()), target)
    if target not in after:
        raise SettingError(f"paths: no path leads from {source} to {target}")
    return [e for e, (u, v) in inner.items() if u in after and v in before]


def _reached(edges: Iterable[tuple[int, int]], start: int) -> set[int]:
    """The nodes to which edges lead from the start."""
    following: dict[int, list[int]] = {}
    for u, v in edges:
        following.setdefault(u, []).append(v)
    found, waiting = {start}, [start]
    while waiting:
        new = set(following.get(waiting.pop(), ())) - found
        found |= new
        waiting.extend(new)
    return found


def _order(edges: list[list[int]], source: int, target: int) -> tuple[list[int], int]:
    """Nodes from source to target, along the edges if that can be, and the sweeps they ask for."""
    leading: dict[int, set[int]] = {}
    for u, v in edges:
        leading.setdefault(v, set()).add(u)
    inner = sorted({node for edge in edges for node in edge} - {source, target})
    try:
        order = list(TopologicalSorter(leading).static_order())
    except CycleError:
        return [source, *inner, target], len(inner) + 2
    return order, 1
