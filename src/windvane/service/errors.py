"""Errors of the service's own rules, and sentences about values that a request must not have.

None of the errors knows HTTP; `api/requests.py` renders them.
"""

import re

import msgspec

from windvane.errors import WindvaneError

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


class ServiceError(WindvaneError):
    """A request that breaks a rule of the service; `reason` says which one.

    `target` names the field at fault, if any.

    | reason | |
    |---|---|
    | unknown loop | no loop has this name |
    | loop exists | a loop of this name exists already |
    | loop name | a name that cannot be part of a URL |
    | settings | settings that a loop cannot take over |
    | rank | a rank request without a possible choice |
    | reward | a request id outside its bounds |
    | event id | an event id that the log cannot hold |
    | unknown event | no decision has this event id |
    | too many | more requests of one kind than the service takes; later it takes more |
    | contract | what is to be evaluated breaks a rule |
    | policy | a policy cannot be read, or a loop cannot run it |
    | duplicate | two policies have one name |
    | no logs | no decision was made in this time |
    | too many logs | more decisions than one evaluation may read |
    | full | the loop has as many evaluations as the log keeps |
    | unknown | no evaluation has this id |
    | no settings | the evaluation has no policy of this name that a loop can run |
    | not ended | the evaluation has no result |
    | not better | the policy is not better than the present settings with confidence |
    """

    def __init__(
        self, reason: str, message: str, target: str | None = None, retry_after_seconds: int = 60
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.target = target
        self.retry_after_seconds = retry_after_seconds  # if the service takes no more for now


def find_invalid_place(error: msgspec.ValidationError) -> str:
    """The place of an invalid value, such as "actions[0].id"; empty if it is the whole value."""
    return _split(error)[1]


def describe_invalid_value(error: msgspec.ValidationError, whole: str = "the body") -> str:
    """Say which value is invalid, what must hold, and what came if msgspec says so.

    msgspec writes "Expected `float` <= 1.0 - at `$.value`". A client reads "value must be at most
    1.0". `whole` is the subject of the sentence if no part of the value is at fault, but all of it.

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
