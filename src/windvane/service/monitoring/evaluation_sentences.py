"""What an evaluation found, in sentences: is it better, by how much, how sure, and what is missing.

The interval of a gain holds at every moment and for all compared policies at once. A policy is
called better or worse, with the confidence of the interval, if the interval does not contain 0.
"""

import math
from collections.abc import Mapping
from typing import Any

from windvane.service.evaluations.contract import CONFIDENCE

MIN_DECIMALS = 3
MAX_DECIMALS = 6
SECONDS_PER_DAY = 86_400.0
NAMES_BY_SOURCE = {
    "Online": "this loop",
    "Baseline": "always the first action",
    "Random": "a random action",
}
WORDS_OF_SETTINGS = {"halfLife": "half-life", "explorationPercentage": "exploration"}
VERDICTS = {"better": "better", "worse": "worse", "not yet": "not known yet"}


def name_policy(source: str, name: str, text: str, changes: Mapping[str, Any] | None) -> str:
    """The name of a policy in plain words; a client's own name of a policy is quoted.

    >>> name_policy("OfflineExperimentation", "Hyper3", "", {"halfLife": "1 day"})
    'half-life 1 day'
    >>> name_policy("Custom", "mine", "halfLife=1 day", {"halfLife": "1 day"})
    '“mine”'
    """
    if source in NAMES_BY_SOURCE:
        return NAMES_BY_SOURCE[source]
    has_own_name = source == "Custom" and name != text
    return f"“{name}”" if has_own_name or not changes else describe_settings(changes)


def describe_settings(settings: Mapping[str, Any]) -> str:
    """The half-life and the exploration in words.

    >>> describe_settings({"halfLife": "1 day", "explorationPercentage": 0.02})
    'half-life 1 day, exploration 2 %'
    """
    return ", ".join(
        f"{WORDS_OF_SETTINGS[name]} {format_setting(name, settings[name])}"
        for name in WORDS_OF_SETTINGS
        if name in settings
    )


def format_setting(name: str, value: object) -> str:
    """The value of a setting in words."""
    if name == "explorationPercentage" and isinstance(value, (int, float)):
        return f"{100 * value:.4g} %"
    return str(value)


def choose_decimals(low: float, high: float) -> int:
    """How many decimals show two digits of half the width of an interval, from 3 to 6.

    >>> choose_decimals(0.01, 0.05), choose_decimals(0.0101, 0.0105)
    (3, 5)
    """
    half = (high - low) / 2
    if not 0 < half < math.inf:
        return MIN_DECIMALS
    return min(max(1 - math.floor(math.log10(half)), MIN_DECIMALS), MAX_DECIMALS)


def format_number(value: float, decimals: int) -> str:
    """A number with a real minus sign, and without one if it is shown as 0.

    >>> format_number(-0.25, 3), format_number(-0.0001, 3)
    ('−0.250', '0.000')
    """
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def describe_value(verb: str, value: float, low: float, high: float) -> str:
    """Say what was earned, or would have been earned.

    >>> describe_value("It earned", 0.4, 0.38, 0.42)
    'It earned 0.400 a decision (0.380 to 0.420).'
    """
    decimals = choose_decimals(low, high)
    shown, least, most = (format_number(each, decimals) for each in (value, low, high))
    return f"{verb} {shown} a decision ({least} to {most})."


def describe_gain(
    name: str, gain: Mapping[str, Any], decisions_per_second: float | None = None
) -> str:
    """Say how much more or less than the loop a policy would have earned, and how sure this is.

    >>> describe_gain("it", {
    ...     "value": 0.031, "interval": [0.012, 0.05], "verdict": "better", "rows_needed": 0})
    'It would have earned 0.031 more a decision (0.012 to 0.050): better with 95 % confidence.'
    """
    low, high = gain["interval"]
    decimals = choose_decimals(low, high)
    is_less = gain["value"] < 0
    numbers = (-gain["value"], -high, -low) if is_less else (gain["value"], low, high)
    shown, least, most = (format_number(each, decimals) for each in numbers)
    sentence = (
        f"{capitalize(name)} would have earned {shown} {'less' if is_less else 'more'} a decision "
        f"({least} to {most}): {VERDICTS[gain['verdict']]}"
    )
    if gain["verdict"] != "not yet":
        return f"{sentence} with {CONFIDENCE}."
    return f"{sentence}. {describe_rows_needed(gain['rows_needed'], decisions_per_second)}"


def describe_rows_needed(rows: int | None, decisions_per_second: float | None) -> str:
    """Say how many more decisions lead to a verdict, if gain and noise stay as they are.

    >>> describe_rows_needed(12_345, 0.1)
    'About 12,000 more decisions are needed: 34 hours at the present rate.'
    >>> describe_rows_needed(None, 0.1)
    'The difference is too close to 0 to say how many more decisions are needed.'
    """
    if rows is None:
        return "The difference is too close to 0 to say how many more decisions are needed."
    rounded = round_to_two_digits(rows)
    sentence = f"About {rounded:,} more {'decision is' if rounded == 1 else 'decisions are'} needed"
    if not decisions_per_second:
        return f"{sentence}."
    return f"{sentence}: {format_duration(rows / decisions_per_second)} at the present rate."


def round_to_two_digits(count: int) -> int:
    """Round a count, which is an estimate, to two digits.

    >>> round_to_two_digits(12_345), round_to_two_digits(7)
    (12000, 7)
    """
    power: int = 10 ** max(len(str(count)) - 2, 0)
    return round(count / power) * power


def format_duration(seconds: float) -> str:
    """A duration in its largest unit of which there are at least two, rounded.

    >>> format_duration(90.0), format_duration(1e5), format_duration(1e10)
    ('2 minutes', '28 hours', 'over 100 years')
    """
    years = seconds / (365.25 * SECONDS_PER_DAY)
    if years > 100:
        return "over 100 years"
    for unit, length in (("year", 365.25), ("day", 1.0), ("hour", 1 / 24), ("minute", 1 / 1440)):
        count = seconds / (length * SECONDS_PER_DAY)
        if count >= 1.5:
            return f"{count:.0f} {unit}s"
    return "1 minute"


def capitalize(text: str) -> str:
    """Begin a sentence with a text."""
    return text[:1].upper() + text[1:]
