"""Continuous action sets: every action is a point.

| set                     | its actions x                    | the best action for θ           |
|-------------------------|----------------------------------|---------------------------------|
| `ball(dim, radius)`     | ‖x − c‖ ≤ r                      | c + r·θ/‖θ‖                     |
| `ellipsoid(shape)`      | c + Lu, ‖u‖ ≤ 1, LLᵀ = shape     | c + L·Lᵀθ/‖Lᵀθ‖                 |
| `box(low, high)`        | low ≤ x ≤ high                   | high if θ ≥ 0, else low         |
| `simplex(dim, total)`   | x ≥ 0, Σx = total                | the total on the largest θ      |
| `polytope(A, b)`        | Ax ≤ b                           | a corner, by linear programming |
| `oracle(function, dim)` | all that the function can return | function(θ)                     |

If θ is 0, every action is equally good. Balls, ellipsoids and polytopes then return their best
action for the first axis, so that the policy learns something.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.errors import ArmsError, SettingError, shorten
from windvane.sets.base import ActionSet, Best, normalize
from windvane.types import Floats


def ball(dim: int, radius: float = 1.0, centre: npt.ArrayLike | None = None) -> ActionSet:
    """Return the set of all points up to `radius` from the centre, which is 0 by default.

    >>> ball(2).best([3.0, 4.0]).features
    array([0.6, 0.8])
    """
    dim = validation.whole("ball", "dim", dim)
    radius = validation.positive("ball", "radius", radius)
    find_best = partial(_find_on_ball, _check_centre("ball", centre, dim), radius * np.eye(1))
    return ActionSet(dim, f"ball({dim}, {radius!r})", find_best)


def ellipsoid(shape: npt.ArrayLike, centre: npt.ArrayLike | None = None) -> ActionSet:
    """Return the points c + Lu with ‖u‖ ≤ 1 and LLᵀ = shape, a positive definite matrix.

    >>> ellipsoid([[4.0, 0.0], [0.0, 1.0]]).best([1.0, 0.0]).features
    array([2., 0.])
    """
    matrix = validation.check_numbers("ellipsoid", "shape", shape, 2)
    try:
        if not np.allclose(matrix, matrix.T, rtol=1e-9, atol=0.0):
            raise ValueError
        root: Floats = np.linalg.cholesky(matrix).astype(np.float64)
    except ValueError:  # LinAlgError is a ValueError
        raise SettingError(
            "ellipsoid: shape must be a symmetric, positive definite matrix"
        ) from None
    dim = len(matrix)
    find_best = partial(_find_on_ball, _check_centre("ellipsoid", centre, dim), root)
    return ActionSet(dim, f"ellipsoid of dim {dim}", find_best)


def _find_on_ball(centre: Floats, root: Floats, theta: Floats) -> Best:
    """Find the best of the points c + Lu with ‖u‖ ≤ 1; a (1, 1) matrix L stands for a number."""
    if root.size == 1:
        return Best(centre + root[0, 0] * normalize(theta))
    return Best(centre + root @ normalize(root.T @ normalize(theta)))


def box(low: npt.ArrayLike, high: npt.ArrayLike) -> ActionSet:
    """Return the points between two corners: low ≤ x ≤ high in every coordinate.

    >>> box([0, 0], [1, 2]).best([-1.0, 1.0]).features
    array([0., 2.])
    """
    lowest = validation.check_numbers("box", "low", low, 1)
    highest = validation.check_numbers("box", "high", high, 1)
    if lowest.shape != highest.shape or (lowest > highest).any():
        raise SettingError("box: low and high must have one length, and low must not exceed high")
    find_best = partial(_find_corner, lowest, highest)
    return ActionSet(lowest.size, f"box of dim {lowest.size}", find_best)


def _find_corner(low: Floats, high: Floats, theta: Floats) -> Best:
    return Best(np.where(theta >= 0, high, low))


def simplex(dim: int, total: float = 1.0) -> ActionSet:
    """Return the ways to divide a total among `dim` parts: x ≥ 0 with Σx = total.

    >>> simplex(3, total=10.0).best([0.1, 0.7, 0.2]).features
    array([ 0., 10.,  0.])
    """
    dim = validation.whole("simplex", "dim", dim)
    total = validation.positive("simplex", "total", total)
    return ActionSet(dim, f"simplex({dim}, {total!r})", partial(_find_largest_part, total))


def _find_largest_part(total: float, theta: Floats) -> Best:
    features = np.zeros(theta.size)
    features[theta.argmax()] = total
    return Best(features)


def polytope(A: npt.ArrayLike, b: npt.ArrayLike) -> ActionSet:
    """Return the points with Ax ≤ b, which must be a bounded set with at least one point.

    >>> polytope([[1, 2], [2, 1], [-1, 0], [0, -1]], [3, 3, 0, 0]).best([1.0, 1.0]).features
    array([1., 1.])
    """
    rows = validation.check_numbers("polytope", "A", A, 2)
    limits = validation.check_numbers("polytope", "b", b, 1)
    if len(rows) != len(limits):
        raise SettingError(f"polytope: b must have {len(rows)} numbers, got {len(limits)}")
    lengths = np.linalg.norm(rows, axis=1)
    scales = np.where(lengths > 0, lengths, 1.0)  # the solver takes tiny rows for 0
    rows, limits = rows / scales[:, None], limits / scales
    if _maximize(np.zeros(rows.shape[1]), rows, limits) is None:
        raise SettingError("polytope: no point satisfies Ax <= b")
    if not _is_bounded(rows):
        raise SettingError("polytope: Ax <= b must be bounded, but it extends to infinity")
    text = f"polytope of dim {rows.shape[1]}, {len(rows)} limits"
    return ActionSet(rows.shape[1], text, partial(_find_vertex, rows, limits, text))


def _find_vertex(rows: Floats, limits: Floats, text: str, theta: Floats) -> Best:
    """Find the best point with Ax ≤ b, up to the solver's tolerance of 1e-7."""
    corner = _maximize(normalize(theta), rows, limits)
    if corner is None:
        raise ArmsError(f"choose: the solver found no best point of a {text}")
    return Best(corner)


def oracle(function: Callable[[Floats], npt.ArrayLike], dim: int) -> ActionSet:
    """Return a set for which `function(theta)` computes the features of the best action, (d,).

    >>> import numpy as np
    >>> oracle(np.sign, dim=2).best([-0.5, 3.0]).features
    array([-1.,  1.])
    """
    if not callable(function):
        raise SettingError(f"oracle: function must be callable, got {shorten(function)}")
    dim = validation.whole("oracle", "dim", dim)
    text = f"oracle({getattr(function, '__name__', function)}, {dim})"
    return ActionSet(dim, text, partial(_ask_oracle, function, text, dim))


def _ask_oracle(
    function: Callable[[Floats], npt.ArrayLike], text: str, dim: int, theta: Floats
) -> Best:
    return Best(validation.check_vector(text, "the result of the function", function(theta), dim))


def _check_centre(who: str, centre: npt.ArrayLike | None, dim: int) -> Floats:
    if centre is None:
        return np.zeros(dim)
    point = validation.check_numbers(who, "centre", centre, 1)
    if point.size != dim:
        raise SettingError(f"{who}: centre must have {dim} numbers, got {point.size}")
    return point


def _maximize(direction: Floats, rows: Floats, limits: Floats) -> Floats | None:
    """Return a point with Ax ≤ b and the largest ⟨x, direction⟩, or None if there is none."""
    from scipy.optimize import linprog  # imported late, because it is slow to load

    result = linprog(-direction, rows, limits, bounds=(None, None), method="highs")
    return np.array(result.x, dtype=np.float64) if result.status == 0 else None


def _is_bounded(rows: Floats) -> bool:
    """Tell if Ax ≤ 0 holds only at x = 0: A has full rank, and Aᵀy = 0 for a y > 0 (Stiemke)."""
    from scipy.optimize import linprog

    sides = rows[rows.any(axis=1)]
    if len(sides) == 0 or np.linalg.matrix_rank(sides) < rows.shape[1]:
        return False
    costs = np.zeros(len(sides))
    zero = np.zeros(rows.shape[1])
    result = linprog(costs, A_eq=sides.T, b_eq=zero, bounds=(1.0, None), method="highs")
    return bool(result.status == 0)
