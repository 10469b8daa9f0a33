"""Checks made once, at the edge: who, what must hold, what came."""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TypeVar, cast

from windvane.errors import SettingError

Kind = TypeVar("Kind")


def real(who: str, name: str, value: object) -> float:
    """A finite number, as a float."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise SettingError(f"{who}: {name} must be a finite number, got {value!r}")
    return float(value)


def positive(who: str, name: str, value: object) -> float:
    """A finite number above 0."""
    number = real(who, name, value)
    if number <= 0:
        raise SettingError(f"{who}: {name} must be above 0, got {value!r}")
    return number


def not_negative(who: str, name: str, value: object) -> float:
    """A finite number of at least 0."""
    number = real(who, name, value)
    if number < 0:
        raise SettingError(f"{who}: {name} must be at least 0, got {value!r}")
    return number


def inside(who: str, name: str, value: object) -> float:
    """A number strictly between 0 and 1."""
    number = real(who, name, value)
    if not 0 < number < 1:
        raise SettingError(f"{who}: {name} must lie in (0, 1), got {value!r}")
    return number


def share(who: str, name: str, value: object) -> float:
    """A number from 0 to 1, both included."""
    number = real(who, name, value)
    if not 0 <= number <= 1:
        raise SettingError(f"{who}: {name} must lie in [0, 1], got {value!r}")
    return number


def whole(who: str, name: str, value: object, least: int = 1) -> int:
    """A whole number of at least `least` that fits into 64 bits."""
    fits = isinstance(value, Integral) and not isinstance(value, bool)
    if not fits or not least <= int(cast(int, value)) < 2**63:
        raise SettingError(f"{who}: {name} must be a whole number >= {least}, got {value!r}")
    return int(cast(int, value))


def of_kind(who: str, name: str, value: Kind, kind: type[Kind]) -> Kind:
    """A value of the given class."""
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
