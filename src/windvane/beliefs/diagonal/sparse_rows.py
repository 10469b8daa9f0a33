"""Sparse rows: the features of arms of which most are 0, as indices and values."""

from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn, Protocol, Self, cast

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.errors import ArmsError, shorten
from windvane.types import Floats, Places
from windvane.validation import LARGEST


class SparseMatrix(Protocol):
    """What the sparse matrices and arrays of SciPy have in common."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def tocsr(self) -> Any: ...


class SparseRow(NamedTuple):
    """The features of one arm: `values` at `indices`, and 0 elsewhere.

    >>> import windvane as wv
    >>> row = wv.SparseRow(indices=[3, 17], values=[1.0, 0.5])
    >>> policy = wv.Policy(2**20, "keep()", "greedy()", belief="diagonal")
    >>> policy.learn(row, reward=1.0)
    """

    indices: npt.ArrayLike  # (n,)
    values: npt.ArrayLike  # (n,)


class SparseRows(NamedTuple):
    """The features of several arms, one row after the other; row k ends before entry `ends[k]`.

    A SciPy matrix in CSR form has them as `indices`, `data` and `indptr[1:]`.

    >>> import windvane as wv
    >>> wv.SparseRows.from_pairs([([3, 17], [1.0, 0.5]), ([4], [1.0])])
    SparseRows(indices=array([ 3, 17,  4]), values=array([1. , 0.5, 1. ]), ends=array([2, 3]))
    """

    indices: npt.ArrayLike  # (n,)
    values: npt.ArrayLike  # (n,)
    ends: npt.ArrayLike  # (K,)

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]) -> Self:
        """Make rows from a pair of indices and values for each arm."""
        who = "SparseRows"
        rows = [_read_pair(who, indices, values) for indices, values in pairs]
        ends = np.cumsum([indices.size for indices, _ in rows], dtype=np.int64)
        return cls(
            np.concatenate([np.empty(0, np.int64), *(indices for indices, _ in rows)]),
            np.concatenate([np.empty(0), *(values for _, values in rows)]),
            ends,
        )


class CheckedRow(NamedTuple):
    """A row whose indices rise and whose values are finite and not 0."""

    indices: Places  # (n,)
    values: Floats  # (n,)
    size: int  # d

    def to_dense(self) -> Floats:
        """Return the features as a vector, (d,)."""
        features = np.zeros(self.size)
        features[self.indices] = self.values
        return features


class CheckedRows(NamedTuple):
    """Rows as compiled code reads them: each is a CheckedRow."""

    indices: Places  # (n,)
    values: Floats  # (n,)
    ends: Places  # (K,)

    def copy_row(self, k: int, dim: int) -> CheckedRow:
        """Return a copy of row k."""
        part = slice(self.ends[k - 1] if k else 0, self.ends[k])
        return CheckedRow(self.indices[part].copy(), self.values[part].copy(), dim)


Features = npt.ArrayLike | SparseRow | CheckedRow | SparseMatrix
Arms = npt.ArrayLike | SparseRows | CheckedRows | SparseMatrix


def read_arms(who: str, arms: Arms, dim: int) -> CheckedRows:
    """Return arms of any form as checked rows; entries of one index are summed."""
    if isinstance(arms, CheckedRows):
        return arms
    if isinstance(arms, SparseRows):
        indices, values = _read_pair(who, arms.indices, arms.values)
        rows = CheckedRows(indices, values, _read_whole(who, "ends", arms.ends))
    elif hasattr(arms, "tocsr"):
        rows = _read_matrix(who, arms, dim)
    else:
        dense = validation.check_arms(who, arms, dim)
        places, indices = np.nonzero(dense)
        ends = np.cumsum(np.bincount(places, minlength=len(dense)))
        rows = CheckedRows(indices, dense[places, indices], ends)
    if rows.ends.size == 0:
        raise ArmsError(f"{who}: there must be at least one arm, got none")
    return _check_rows(who, "arms", rows, dim)


def read_features(who: str, features: Features, dim: int) -> CheckedRow:
    """Return the features of one arm, of any form, as a checked row."""
    if isinstance(features, CheckedRow):
        return features
    if isinstance(features, SparseRow) or _is_pair(features):
        indices, values = _read_pair(who, *cast(SparseRow, features))
        rows = CheckedRows(indices, values, np.array([indices.size]))
    elif hasattr(features, "tocsr"):
        rows = _read_matrix(who, features, dim)
        if rows.ends.size != 1:
            raise ArmsError(f"{who}: features must be one row, got {rows.ends.size}")
    else:
        dense = validation.check_features(who, features, dim)
        indices = np.flatnonzero(dense)
        rows = CheckedRows(indices, dense[indices], np.array([indices.size]))
    rows = _check_rows(who, "features", rows, dim)
    return CheckedRow(rows.indices, rows.values, dim)


def _is_pair(features: object) -> bool:
    """Tell if features are a pair of indices and values, and not a vector of two numbers."""
    return isinstance(features, tuple) and len(features) == 2 and np.ndim(features[0]) == 1


def _check_rows(who: str, name: str, rows: CheckedRows, dim: int) -> CheckedRows:
    """Return the rows, sorted if necessary, or raise an error that names the bad one."""
    from windvane.beliefs.diagonal import kernels  # imported late: it loads numba

    rows = CheckedRows._make(map(_own_array, rows))
    state, place = kernels.check_rows(*rows, dim)
    if state == kernels.UNSORTED:
        rows = _sort_rows(rows)
        state, place = kernels.check_rows(*rows, dim)
    if state < 0:
        _refuse_rows(who, name, rows, dim, int(place))
    return rows


def _refuse_rows(who: str, name: str, rows: CheckedRows, dim: int, place: int) -> NoReturn:
    row_name = f"arm {place}" if name == "arms" else "the row"
    if (np.diff(rows.ends, prepend=0) < 0).any() or rows.ends[-1] != rows.indices.size:
        raise ArmsError(
            f"{who}: ends of rows must rise to the number of entries, {rows.indices.size}, "
            f"got {np.array2string(rows.ends, threshold=8)}"
        )
    row = rows.copy_row(place, dim)
    if not ((row.indices >= 0) & (row.indices < dim)).all():
        raise ArmsError(
            f"{who}: indices must be from 0 to {dim - 1}; {row_name} has "
            f"{np.array2string(row.indices, threshold=8)}"
        )
    raise ArmsError(
        f"{who}: {name} must be finite, with norm up to {LARGEST**0.5:g}; {row_name} has the "
        f"values {np.array2string(row.values, threshold=8)}"
    )


def _sort_rows(rows: CheckedRows) -> CheckedRows:
    """Sort the entries of each row by index, sum those of one index, and drop those that are 0."""
    places = np.repeat(np.arange(rows.ends.size), np.diff(rows.ends, prepend=0))
    order = np.lexsort((rows.indices, places))
    places, indices, values = places[order], rows.indices[order], rows.values[order]
    is_first = np.ones(indices.size, np.bool_)
    is_first[1:] = (np.diff(places) > 0) | (np.diff(indices) > 0)
    starts = np.flatnonzero(is_first)
    sums = np.add.reduceat(values, starts)
    kept = sums != 0.0
    places, indices = places[starts][kept], indices[starts][kept]
    ends = np.cumsum(np.bincount(places, minlength=rows.ends.size))
    return CheckedRows(indices, sums[kept], ends)


def _read_matrix(who: str, matrix: Any, dim: int) -> CheckedRows:
    """Return the rows of a SciPy sparse matrix or array."""
    try:
        rows = matrix.tocsr()
    except ValueError as reason:
        raise ArmsError(f"{who}: a sparse matrix must have rows: {reason}") from None
    if rows.shape[-1] != dim:
        raise ArmsError(
            f"{who}: arms must have shape (K, {dim}), one row for each arm, got {rows.shape}"
        )
    indices, values = _read_pair(who, rows.indices, rows.data)
    return CheckedRows(indices, values, _read_whole(who, "ends", rows.indptr[1:]))


def _read_pair(who: str, indices: npt.ArrayLike, values: npt.ArrayLike) -> tuple[Places, Floats]:
    places = _read_whole(who, "indices", indices)
    numbers = _read_numbers(who, "values must be numbers", values, "biuf", np.float64)
    if places.size != numbers.size:
        raise ArmsError(
            f"{who}: a row must have one value for each index, got {places.size} indices and "
            f"{numbers.size} values"
        )
    return places, numbers


def _read_whole(who: str, name: str, numbers: npt.ArrayLike) -> Places:
    return _read_numbers(who, f"{name} must be whole numbers", numbers, "iu", np.int64)


def _read_numbers(
    who: str, condition: str, numbers: npt.ArrayLike, kinds: str, dtype: type
) -> npt.NDArray[Any]:
    """Return numbers in one row that compiled code can read, without a copy if possible."""
    try:
        array = np.asarray(numbers)
    except ValueError:
        array = np.empty((0, 0))
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise ArmsError(f"{who}: {condition} in one row, got {shorten(numbers)}")
    return np.ascontiguousarray(array, dtype=dtype)


def _own_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of the only layout that compiled code reads; `np.nonzero` has another one."""
    return array if array.flags.carray else array.copy()
