"""Sentences about values that a request must not have, from the errors of msgspec.

msgspec writes "Expected `float` <= 1.0 - at `$.value`". A client reads "value must be at most 1.0".
"""

import re

import msgspec

_PLACE = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<place>[^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.+)`")
_OTHER_TYPE = re.compile(r"Expected `(.+)`, got `(.+)`")
_LENGTH = re.compile(r"Expected `(.+)` of length (<=|>=) (\d+)")
_BOUND = re.compile(r"Expected `.+` (<=|>=|<|>) (\S+)")
_COMPARISONS = {"<=": "at most", ">=": "at least", "<": "less than", ">": "more than"}
_PLURALS = {"character": "characters", "entry": "entries"}
_TYPES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def find_invalid_place(error: msgspec.ValidationError) -> str:
    """The place of an invalid value, such as "actions[0].id"; empty if it is the whole value."""
    return _split(error)[1]


def describe_invalid_value(error: msgspec.ValidationError, whole: str = "the body") -> str:
    """Say which value is invalid, what must hold, and what came if msgspec says so.

    `whole` is the subject of the sentence if no part of the value is at fault, but all of it.

    >>> describe_invalid_value(msgspec.ValidationError("Expected `float` <= 1.0 - at `$.value`"))
    'value must be at most 1.0'
    """
    problem, place = _split(error)
    subject = place or whole
    if match := _MISSING.fullmatch(problem):
        return f"{_join(place, match[1])} is missing"
    if match := _UNKNOWN.fullmatch(problem):
        return f"{_join(place, match[1])} is not a known name"
    if match := _OTHER_TYPE.fullmatch(problem):
        return f"{subject} must be {_name_types(match[1])}, got {_name_types(match[2])}"
    if match := _LENGTH.fullmatch(problem):
        unit = "character" if match[1].startswith("str") else "entry"
        count = f"1 {unit}" if match[3] == "1" else f"{match[3]} {_PLURALS[unit]}"
        return f"{subject} must have {_COMPARISONS[match[2]]} {count}"
    if match := _BOUND.fullmatch(problem):
        return f"{subject} must be {_COMPARISONS[match[1]]} {match[2]}"
    return f"{subject}: {problem}"


def _split(error: msgspec.ValidationError) -> tuple[str, str]:
    """The problem as msgspec names it, and its place without the leading `$.`."""
    match = _PLACE.fullmatch(str(error))
    assert match is not None  # the pattern takes every text
    return match["problem"], match["place"] or ""


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _name_types(types: str) -> str:
    """Types of msgspec in words: "str | null" is "a string or null"."""
    return " or ".join(_TYPES.get(name, name) for name in types.split(" | "))
