"""Settings: checks of single values; defaults of a learner, its half-lives and other durations.

A duration is a text in ISO 8601, a clock, or a number and a unit. This module loads no NumPy, so
that a command line shows the defaults at once, and a client needs none.
"""

import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from numbers import Integral, Real
from typing import NamedTuple, TypeVar, cast

from windvane.errors import SettingError, shorten

Kind = TypeVar("Kind")
Item = TypeVar("Item")

AUTO = "auto"  # the half-life that the learner finds by itself
EXPLORATION = 0.01  # the share of decisions that are uniformly random
MAX_ARRAY_SIZE = 4096

MAX_SECONDS = 10 * 366 * 86_400
SECONDS_PER_UNIT = {
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86_400.0,
    "week": 604_800.0,
}
ISO_8601 = re.compile(
    r"P(?:(?P<days>\d+(?:\.\d+)?)D)?(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?"
    r"(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)
CLOCK = re.compile(
    r"(?:(?P<days>\d+)\.)?(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d(?:\.\d+)?)", re.ASCII
)
UNITS = {unit[0]: unit for unit in SECONDS_PER_UNIT}
NUMBER_AND_UNIT = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?:(?P<unit>second|minute|hour|day|week|round)s?|"
    r"(?P<letter>[smhdw]))",
    re.ASCII,
)


def real(who: str, name: str, value: object) -> float:
    """Return a finite number as a float."""
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, bool) or not math.isfinite(to_float(value)):
        raise SettingError(f"{who}: {name} must be a finite number, got {shorten(value)}")
    return to_float(value)


def to_float(value: object) -> float:
    """Return a real number as a float: NaN if it is none, infinity if it is too large."""
    try:
        return float(cast(float, value)) if isinstance(value, Real | Decimal) else math.nan
    except OverflowError:
        return math.inf
    except ValueError:  # a signaling NaN
        return math.nan


def _make_check(must: str, holds: Callable[[float], bool]) -> Callable[[str, str, object], float]:
    """Make a check that returns a finite number for which something holds."""

    def check(who: str, name: str, value: object) -> float:
        number = real(who, name, value)
        if not holds(number):
            raise SettingError(f"{who}: {name} must {must}, got {shorten(value)}")
        return number

    return check


positive = _make_check("be above 0", lambda number: number > 0)
not_negative = _make_check("be at least 0", lambda number: number >= 0)
inside = _make_check("lie in (0, 1)", lambda number: 0 < number < 1)
share = _make_check("lie in [0, 1]", lambda number: 0 <= number <= 1)


def whole(who: str, name: str, value: object, least: int = 1) -> int:
    """Return a whole number of at least `least` that fits into 64 bits."""
    fits = isinstance(value, Integral) and not isinstance(value, bool)
    if not fits or not least <= int(cast(int, value)) < 2**63:
        raise SettingError(f"{who}: {name} must be a whole number >= {least}, got {shorten(value)}")
    return int(cast(int, value))


def of_kind(who: str, name: str, value: Kind, kind: type[Kind]) -> Kind:
    """Return a value that is an instance of a class."""
    if not isinstance(value, kind):
        raise SettingError(f"{who}: {name} must be a {kind.__name__}, got {shorten(value)}")
    return value


def check_sequence(who: str, name: str, values: Iterable[Item]) -> list[Item]:
    """Return the values as a list."""
    try:
        return list(values)
    except TypeError:
        raise SettingError(f"{who}: {name} must be a sequence, got {shorten(values)}") from None


class HalfLife(NamedTuple):
    """A half-life, counted in rounds or in seconds."""

    length: float
    in_rounds: bool


def parse_seconds(text: str) -> float:
    """Seconds of a duration such as "PT10M", "P7D", "00:10:00", "7 days" or "7d", in any case.

    >>> parse_seconds("2d"), parse_seconds("12 h"), parse_seconds("30m")
    (172800.0, 43200.0, 1800.0)
    """
    stripped = text.strip()
    for pattern in (ISO_8601, CLOCK):
        match = pattern.fullmatch(stripped.upper())
        if match and any(match.groupdict().values()):
            return _check_length(
                text,
                sum(
                    float(value or 0) * SECONDS_PER_UNIT[name[:-1]]
                    for name, value in match.groupdict().items()
                ),
            )
    match = NUMBER_AND_UNIT.fullmatch(stripped.lower())
    unit = match and (match["unit"] or UNITS[match["letter"]])
    if match and unit in SECONDS_PER_UNIT:
        return _check_length(text, float(match["number"]) * SECONDS_PER_UNIT[unit])
    raise SettingError(
        f"settings: {shorten(text)} must be a duration such as PT10M, 00:10:00 or 7 days"
    )


def parse_half_life(text: str) -> HalfLife | None:
    """A half-life such as "7 days" or "500 rounds", in any case; None if the text is "never"."""
    stripped = text.strip().lower()
    if stripped == "never":
        return None
    match = NUMBER_AND_UNIT.fullmatch(stripped)
    if match and match["unit"] == "round":
        return HalfLife(float(match["number"]), in_rounds=True)
    return HalfLife(parse_seconds(text), in_rounds=False)


def format_half_life(seconds: float) -> str:
    """Write a half-life in its largest whole unit, as `parse_half_life` reads it.

    >>> format_half_life(21600.0), format_half_life(90.0), format_half_life(float("inf"))
    ('6 hours', '90 seconds', 'never')
    """
    if seconds == float("inf"):
        return "never"
    for unit in ("day", "hour", "minute"):
        count, rest = divmod(seconds, SECONDS_PER_UNIT[unit])
        if count and not rest:
            return f"{count:.0f} {unit}{'' if count == 1 else 's'}"
    return f"{Decimal(repr(seconds)):f} seconds".replace(".0 ", " ")


def _check_length(text: str, seconds: float) -> float:
    if not 0 < seconds <= MAX_SECONDS:
        raise SettingError(
            f"settings: a duration must lie within (0, 10 years], got {shorten(text)}"
        )
    return seconds
