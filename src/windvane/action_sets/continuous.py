"""Action sets: actions too many to list, of which the best one for a θ can be found.

| set                     | its actions x                       | the best one for θ              |
|-------------------------|-------------------------------------|---------------------------------|
| `ball(dim, radius)`     | ‖x − c‖ ≤ r                         | c + r·θ/‖θ‖                     |
| `ellipsoid(shape)`      | c + Lu, ‖u‖ ≤ 1, LLᵀ = shape        | c + L·Lᵀθ/‖Lᵀθ‖                 |
| `box(low, high)`        | low ≤ x ≤ high                      | high where θ ≥ 0, else low      |
| `simplex(dim, total)`   | x ≥ 0, Σx = total                   | all on the largest of θ         |
| `polytope(A, b)`        | Ax ≤ b                              | a corner, by linear programming |
| `oracle(function, dim)` | whatever the function may return    | function(θ)                     |

Subsets, paths and assignments are in `combinatorial.py`. Where all of θ is 0, the sets above take
the first axis in its place, so that something is learned.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.errors import ArmsError, SettingError
from windvane.types import Floats


class Best(NamedTuple):
    """The best action of a set: its features, and what it is in the set's own terms."""

    features: Floats  # (d,)
    action: tuple[int, ...] | None = None  # items, edges or columns; None for a point


class ActionSet:
    """Actions of which the best one for a θ can be found; made by the functions below."""

    def __init__(self, dim: int, text: str) -> None:
        self.dim = dim
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def best(self, theta: npt.ArrayLike) -> Best:
        """The action that earns most under θ: argmax ⟨x, θ⟩."""
        return self._best(direction_of(theta, self.dim))

    def _best(self, theta: Floats) -> Best:
        raise NotImplementedError


def direction_of(theta: npt.ArrayLike, dim: int) -> Floats:
    """The θ for which the best action is asked."""
    try:
        direction = np.asarray(theta, dtype=np.float64)
    except (TypeError, ValueError):
        direction = np.empty(0)
    if direction.shape != (dim,) or not np.isfinite(direction).all():
        raise ArmsError(f"best: theta must be {dim} finite numbers, got {theta!r}")
    return direction


def ball(dim: int, radius: float = 1.0, centre: npt.ArrayLike | None = None) -> ActionSet:
    """All points up to `radius` from the centre, which is 0 unless given.

    >>> ball(2).best([3.0, 4.0]).features
    array([0.6, 0.8])
    """
    dim = validation.whole("ball", "dim", dim)
    radius = validation.positive("ball", "radius", radius)
    return Ball(_centre("ball", centre, dim), radius * np.eye(1), f"ball({dim}, {radius!r})")


def ellipsoid(shape: npt.ArrayLike, centre: npt.ArrayLike | None = None) -> ActionSet:
    """The points c + Lu with ‖u‖ ≤ 1 and LLᵀ = shape, which must be positive definite."""
    form = numbers("ellipsoid", "shape", shape, 2)
    try:
        if not np.allclose(form, form.T, rtol=1e-9, atol=0.0):
            raise ValueError
        root: Floats = np.linalg.cholesky(form).astype(np.float64)
    except ValueError:  # a LinAlgError is one too
        raise SettingError(
            "ellipsoid: shape must be a symmetric, positive definite matrix"
        ) from None
    return Ball(_centre("ellipsoid", centre, len(form)), root, f"ellipsoid of dim {len(form)}")


class Ball(ActionSet):
    """c + Lu with ‖u‖ ≤ 1, L a matrix or, as (1, 1), a number."""

    def __init__(self, centre: Floats, root: Floats, text: str) -> None:
        super().__init__(centre.size, text)
        self._centre, self._root = centre, root

    def _best(self, theta: Floats) -> Best:
        if self._root.size == 1:
            return Best(self._centre + self._root[0, 0] * unit(theta))
        return Best(self._centre + self._root @ unit(self._root.T @ unit(theta)))


def box(low: npt.ArrayLike, high: npt.ArrayLike) -> ActionSet:
    """The points between two corners: low ≤ x ≤ high in every coordinate.

    >>> box([0, 0], [1, 2]).best([-1.0, 1.0]).features
    array([0., 2.])
    """
    ends = numbers("box", "low", low, 1), numbers("box", "high", high, 1)
    if ends[0].shape != ends[1].shape or (ends[0] > ends[1]).any():
        raise SettingError("box: low and high must be of one length, low nowhere above high")
    return Box(*ends)


class Box(ActionSet):
    """low ≤ x ≤ high."""

    def __init__(self, low: Floats, high: Floats) -> None:
        super().__init__(low.size, f"box of dim {low.size}")
        self._low, self._high = low, high

    def _best(self, theta: Floats) -> Best:
        return Best(np.where(theta >= 0, self._high, self._low))


def simplex(dim: int, total: float = 1.0) -> ActionSet:
    """Ways to divide a total: x ≥ 0 with Σx = total."""
    dim = validation.whole("simplex", "dim", dim)
    return Simplex(dim, validation.positive("simplex", "total", total))


class Simplex(ActionSet):
    """x ≥ 0, Σx = total."""

    def __init__(self, dim: int, total: float) -> None:
        super().__init__(dim, f"simplex({dim}, {total!r})")
        self._total = total

    def _best(self, theta: Floats) -> Best:
        features = np.zeros(self.dim)
        features[theta.argmax()] = self._total
        return Best(features)


def polytope(A: npt.ArrayLike, b: npt.ArrayLike) -> ActionSet:
    """The points with Ax ≤ b, of which there must be some, and none beyond all bounds.

    >>> polytope([[1, 2], [2, 1], [-1, 0], [0, -1]], [3, 3, 0, 0]).best([1.0, 1.0]).features
    array([1., 1.])
    """
    rows, limits = numbers("polytope", "A", A, 2), numbers("polytope", "b", b, 1)
    if len(rows) != len(limits):
        raise SettingError(f"polytope: b must have {len(rows)} numbers, got {len(limits)}")
    lengths = np.linalg.norm(rows, axis=1)
    scales = np.where(lengths > 0, lengths, 1.0)  # or a solver takes tiny rows for none
    rows, limits = rows / scales[:, None], limits / scales
    if _programme(np.zeros(rows.shape[1]), rows, limits) is None:
        raise SettingError("polytope: no point satisfies Ax <= b")
    if not _bounded(rows):
        raise SettingError("polytope: Ax <= b must be bounded, but leaves a way to infinity")
    return Polytope(rows, limits)


class Polytope(ActionSet):
    """Ax ≤ b, to the tolerance of the solver, 1e-7."""

    def __init__(self, rows: Floats, limits: Floats) -> None:
        super().__init__(rows.shape[1], f"polytope of dim {rows.shape[1]}, {len(rows)} limits")
        self._rows, self._limits = rows, limits

    def _best(self, theta: Floats) -> Best:
        corner = _programme(unit(theta), self._rows, self._limits)
        if corner is None:
            raise ArmsError(f"choose: the solver found no best point of a {self!r}")
        return Best(corner)


def oracle(function: Callable[[Floats], npt.ArrayLike], dim: int) -> ActionSet:
    """Any set for which `function(theta)` returns the features of the best action, (d,)."""
    if not callable(function):
        raise SettingError(f"oracle: function must be callable, got {function!r}")
    return Oracle(function, validation.whole("oracle", "dim", dim))


class Oracle(ActionSet):
    """Whatever a function finds; what it returns is checked."""

    def __init__(self, function: Callable[[Floats], npt.ArrayLike], dim: int) -> None:
        super().__init__(dim, f"oracle({getattr(function, '__name__', function)}, {dim})")
        self._function = function

    def _best(self, theta: Floats) -> Best:
        found = self._function(theta)
        try:
            features = np.array(found, dtype=np.float64)
        except (TypeError, ValueError):
            features = np.empty(0)
        if features.shape != (self.dim,) or not np.isfinite(features).all():
            raise ArmsError(f"{self!r}: it must return {self.dim} finite numbers, got {found!r}")
        return Best(features)


def numbers(who: str, name: str, value: npt.ArrayLike, axes: int) -> Floats:
    """Finite numbers, at least one, in an array of so many axes; copied."""
    try:
        array = np.array(value, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.ndim != axes or array.size == 0 or not np.isfinite(array).all():
        kind = {1: "a row", 2: "rows", 3: "a table of rows"}[axes]
        raise SettingError(f"{who}: {name} must be {kind} of finite numbers, at least one")
    return array


def unit(vector: Floats) -> Floats:
    """The vector at length 1; the first axis in place of 0."""
    largest = np.abs(vector).max()
    if largest == 0.0:
        return np.eye(1, vector.size).ravel()
    scaled = vector / largest  # or squares of small numbers would vanish
    direction: Floats = scaled / np.sqrt(scaled @ scaled)
    return direction


def _centre(who: str, centre: npt.ArrayLike | None, dim: int) -> Floats:
    if centre is None:
        return np.zeros(dim)
    point = numbers(who, "centre", centre, 1)
    if point.size != dim:
        raise SettingError(f"{who}: centre must have {dim} numbers, got {point.size}")
    return point


def _programme(direction: Floats, rows: Floats, limits: Floats) -> Floats | None:
    """A point with Ax ≤ b that lies furthest in a direction, or None where there is none."""
    from scipy.optimize import linprog  # here, because it takes a while to load

    found = linprog(-direction, rows, limits, bounds=(None, None), method="highs")
    return np.array(found.x, dtype=np.float64) if found.status == 0 else None


def _bounded(rows: Floats) -> bool:
    """Whether Ax ≤ 0 only at x = 0: A has full rank, and Aᵀy = 0 for some y > 0 (Stiemke)."""
    from scipy.optimize import linprog

    sides = rows[rows.any(axis=1)]
    if len(sides) == 0 or np.linalg.matrix_rank(sides) < rows.shape[1]:
        return False
    none, zero = np.zeros(len(sides)), np.zeros(rows.shape[1])
    found = linprog(none, A_eq=sides.T, b_eq=zero, bounds=(1.0, None), method="highs")
    return bool(found.status == 0)
