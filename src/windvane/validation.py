"""Checks of arguments, made once, where a caller enters the library.

Every check returns the value in the type that the library computes with, or raises an error that
says who checked, what must hold and what came: `discount: gamma must lie in (0, 1), got 1.2`.
"""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from windvane.errors import ArmsError, RewardError, SettingError
from windvane.types import Floats

FLOAT64 = np.dtype(np.float64)
LARGEST = 1e100  # a reward, or the squared norm of an arm, above this counts as not finite
NOT_REAL_KINDS = "cmM"  # of NumPy types: complex numbers, differences of times, times
Kind = TypeVar("Kind")
Item = TypeVar("Item")


def real(who: str, name: str, value: object) -> float:
    """Return a finite number as a float."""
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise SettingError(f"{who}: {name} must be a finite number, got {value!r}")
    return float(value)


def positive(who: str, name: str, value: object) -> float:
    """Return a finite number above 0."""
    number = real(who, name, value)
    if number <= 0:
        raise SettingError(f"{who}: {name} must be above 0, got {value!r}")
    return number


def not_negative(who: str, name: str, value: object) -> float:
    """Return a finite number of at least 0."""
    number = real(who, name, value)
    if number < 0:
        raise SettingError(f"{who}: {name} must be at least 0, got {value!r}")
    return number


def inside(who: str, name: str, value: object) -> float:
    """Return a number strictly between 0 and 1."""
    number = real(who, name, value)
    if not 0 < number < 1:
        raise SettingError(f"{who}: {name} must lie in (0, 1), got {value!r}")
    return number


def share(who: str, name: str, value: object) -> float:
    """Return a number from 0 to 1, both included."""
    number = real(who, name, value)
    if not 0 <= number <= 1:
        raise SettingError(f"{who}: {name} must lie in [0, 1], got {value!r}")
    return number


def whole(who: str, name: str, value: object, least: int = 1) -> int:
    """Return a whole number of at least `least` that fits into 64 bits."""
    fits = isinstance(value, Integral) and not isinstance(value, bool)
    if not fits or not least <= int(cast(int, value)) < 2**63:
        raise SettingError(f"{who}: {name} must be a whole number >= {least}, got {value!r}")
    return int(cast(int, value))


def of_kind(who: str, name: str, value: Kind, kind: type[Kind]) -> Kind:
    """Return a value that is an instance of a class."""
    if not isinstance(value, kind):
        raise SettingError(f"{who}: {name} must be a {kind.__name__}, got {value!r}")
    return value


def suggest(name: object, names: Iterable[str], otherwise: str = "") -> str:
    """The end of an error about an unknown name: the closest of the known ones, if one is close.

    >>> suggest("discuont", ["discount", "window"])
    "; did you mean 'discount'?"
    """
    by_lower_case = {known.lower(): known for known in names}
    matches = get_close_matches(str(name).lower(), by_lower_case, n=1)
    return f"; did you mean {by_lower_case[matches[0]]!r}?" if matches else otherwise


def check_sequence(who: str, name: str, values: Iterable[Item]) -> list[Item]:
    """Return the values as a list."""
    try:
        return list(values)
    except TypeError:
        raise SettingError(f"{who}: {name} must be a sequence, got {values!r}") from None


def check_numbers(who: str, name: str, value: npt.ArrayLike, axes: int) -> Floats:
    """Return a copy of at least one finite number in an array of 1, 2 or 3 axes."""
    array = _read_or_empty(value)
    if array.ndim != axes or array.size == 0 or not np.isfinite(array).all():
        shape = {1: "a row", 2: "rows", 3: "a table of rows"}[axes]
        raise SettingError(
            f"{who}: {name} must be {shape} of finite numbers, at least one"
            + (", and rows of one length" if axes > 1 else "")
        )
    return array


def check_vector(who: str, name: str, value: npt.ArrayLike, size: int) -> Floats:
    """Return a copy of exactly `size` finite numbers."""
    vector = _read_or_empty(value)
    if vector.shape != (size,) or not np.isfinite(vector).all():
        raise ArmsError(f"{who}: {name} must be {size} finite numbers, got {value!r}")
    return vector


def check_arms(who: str, arms: npt.ArrayLike, dim: int | None = None, copy: bool = False) -> Floats:
    """Return arms as rows (K, d) that compiled code can read; without `dim`, d may be any number.

    Without `copy`, the rows may share memory with `arms`. Their numbers are not checked.
    """
    try:
        rows = _to_floats(arms, copy)
    except (TypeError, ValueError) as reason:
        raise ArmsError(f"{who}: arms must be rows of numbers: {reason}") from None
    if rows.ndim != 2 or (dim is not None and rows.shape[1] != dim):
        raise ArmsError(
            f"{who}: arms must have shape (K, {dim or 'd'}), one row for each arm, got {rows.shape}"
        )
    if rows.size == 0:
        raise ArmsError(f"{who}: there must be at least one arm and feature, got {rows.shape}")
    return rows if rows.flags.carray else rows.copy()


def read_rows(arms: npt.ArrayLike, dim: int) -> Floats:
    """Return arms as rows (K, d) that compiled code can read in place, if possible."""
    if (
        type(arms) is np.ndarray
        and arms.dtype is FLOAT64
        and arms.ndim == 2
        and arms.shape[1] == dim
        and arms.shape[0] > 0
        and arms.flags.carray
    ):
        return arms
    return check_arms("choose", arms, dim)


def check_features(who: str, features: npt.ArrayLike, dim: int) -> Floats:
    """Return a copy of the features of one arm, (d,). Their numbers are not checked."""
    try:
        row = _to_floats(features)
    except (TypeError, ValueError) as reason:
        raise ArmsError(f"{who}: features must be numbers: {reason}") from None
    if row.shape != (dim,):
        got = row.shape if row.ndim else repr(features)  # such as an index in place of a choice
        raise ArmsError(f"{who}: features must have shape ({dim},), got {got}")
    return row


def check_finite_arms(rows: Floats, who: str = "choose") -> Floats:
    """Return the same rows (K, d) if every number is finite and no row is too long."""
    if not (np.einsum("kd,kd->k", rows, rows) <= LARGEST).all():
        refuse_arms(rows, who)
    return rows


def refuse_arms(rows: Floats, who: str = "choose") -> NoReturn:
    """Raise an error that names the first arm that cannot be scored."""
    squared_norms = np.einsum("kd,kd->k", rows, rows)
    arm = int(np.argmin(squared_norms <= LARGEST))
    raise ArmsError(
        f"{who}: arms must be finite, with norm up to {LARGEST**0.5:g}; "
        f"arm {arm} is {np.array2string(rows[arm], threshold=8)}"
    )


def check_reward(reward: object, who: str = "learn") -> float:
    """Return a reward as a finite float."""
    is_number = isinstance(reward, Real) or (isinstance(reward, np.ndarray) and reward.ndim == 0)
    value = float(cast(float, reward)) if is_number else math.nan
    if not -LARGEST <= value <= LARGEST:
        bound = f" of at most {LARGEST:g} in size" if math.isfinite(value) else ""
        raise RewardError(f"{who}: the reward must be a finite number{bound}, got {reward!r}")
    return value


def _read_or_empty(value: npt.ArrayLike) -> Floats:
    """Return a copy of the value as float64, or an empty array if it does not hold numbers."""
    try:
        return _to_floats(value)
    except (TypeError, ValueError):
        return np.empty(0)


def _to_floats(value: npt.ArrayLike, copy: bool = True) -> Floats:
    """Return a value as float64, or raise; without `copy`, it may share memory with the value."""
    if isinstance(value, np.ndarray) and value.dtype.kind in NOT_REAL_KINDS:
        raise TypeError(f"{value.dtype} is not a real number")  # NumPy would convert it
    return np.array(value, dtype=np.float64, order="C", copy=copy or None)
