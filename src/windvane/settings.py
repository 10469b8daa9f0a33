"""The settings of a learner as clients write them: defaults, half-lives and other durations.

A duration is a text in ISO 8601, a clock, or a number and a unit. This module loads no NumPy, so
that a command line shows the defaults at once.
"""

import re
from decimal import Decimal
from typing import NamedTuple

from windvane.errors import SettingError, shorten

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
