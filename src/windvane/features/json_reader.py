"""Read features from JSON into names and numbers.

| JSON | becomes |
|---|---|
| `"time": "morning"` | the category `time=morning` |
| `"at": "2026-11-18T14:05"` | the categories `at:hour=14` and `at:weekday=wednesday` |
| `"sunny": true` | the category `sunny=true`; false is `sunny=false`, and differs from missing |
| `"price": 23` | the number `price` |
| `"vector": [0.1, 0.7]` | the feature `vector`, with one number for each element |
| `"tags": ["new", "red"]` | the categories `tags=new` and `tags=red`, as a set |
| `"weather": {"temp": 23}` | a namespace: the number `weather.temp` |
| `"age": null`, or NaN | the category `age=missing` |
| a name that starts with `_` | nothing |

The objects of a list are merged in order: a later value replaces an earlier one of the same name.
"""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, NoReturn, cast

from windvane.errors import FeatureError
from windvane.features.hashing import CATEGORY_VALUE
from windvane.features.request_reader import WEEKDAYS

MAX_NUMBERS = 4096  # of the context or of one action, counting each element of an array
MAX_FLOAT = sys.float_info.max  # a Python int can be larger

SHORTEST_TIME = len("2026-11-18T14:05")

JsonObjects = Sequence[Mapping[str, object]]


class FeatureList:
    """The features of the context or of one action, as names and numbers."""

    __slots__ = ("array_sizes", "names", "numbers", "owner")

    def __init__(self, owner: str, objects: JsonObjects) -> None:
        self.owner = owner  # "the context" or "action ID", for error messages
        self.names: list[str] = []
        self.numbers: list[float] = []
        self.array_sizes: dict[int, int] = {}  # by index in `names`; other names have one number
        is_single = len(objects) == 1 and type(objects[0]) is dict
        self._read_object(None, objects[0] if is_single else _merge_objects(owner, objects))
        if len(self.numbers) > MAX_NUMBERS:
            _refuse(owner, f"must be at most {MAX_NUMBERS} numbers", str(len(self.numbers)))

    def sizes(self) -> list[int]:
        """The count of numbers of each name."""
        return [self.array_sizes.get(i, 1) for i in range(len(self.names))]

    def _read_object(self, namespace: str | None, features: Mapping[str, object]) -> None:
        """Read an object, or a namespace in it."""
        names, numbers = self.names, self.numbers
        for name, value in features.items():
            if name[:1] == "_":
                continue
            if namespace is not None:
                name = f"{namespace}.{name}"
            if type(value) is str:
                categories = name_categories(name, value)
                names += categories
                numbers += [CATEGORY_VALUE] * len(categories)
            elif value is None or (type(value) is float and value != value):  # NaN
                names.append(f"{name}=missing")
                numbers.append(CATEGORY_VALUE)
            elif type(value) is float or type(value) is int:
                if not -MAX_FLOAT <= value <= MAX_FLOAT:
                    self._refuse(name, "must be a finite number", _format_number(value))
                names.append(name)
                numbers.append(value)
            elif type(value) is bool:
                names.append(f"{name}=true" if value else f"{name}=false")
                numbers.append(CATEGORY_VALUE)
            elif type(value) is list:
                self._read_list(name, value)
            elif type(value) is dict and namespace is None:
                self._read_object(name, value)
            elif type(value) is dict:
                self._refuse(name, "must not be an object, because it is inside a namespace")
            else:
                demand = "must be a string, number, boolean, list, object or null"
                self._refuse(name, demand, type(value).__name__)

    def _read_list(self, name: str, values: list[object]) -> None:
        """Read a list of numbers as one feature, or a list of strings as a set of categories."""
        types = set(map(type, values))
        if types <= {str}:
            categories = dict.fromkeys(values)
            self.names += [f"{name}={category}" for category in categories]
            self.numbers += [CATEGORY_VALUE] * len(categories)
        elif types <= {float, int}:
            for i, number in enumerate(cast(list[float], values)):
                if not -MAX_FLOAT <= number <= MAX_FLOAT:
                    self._refuse(f"{name}[{i}]", "must be a finite number", _format_number(number))
                self.numbers.append(number)
            self.array_sizes[len(self.names)] = len(values)
            self.names.append(name)
        else:
            self._refuse(name, "must hold only numbers or only strings")

    def _refuse(self, name: str, demand: str, got: str = "") -> NoReturn:
        _refuse(self.owner, f"{name[:100]} {demand}", got)


def name_categories(name: str, text: str) -> tuple[str, ...]:
    """Name the category of a text, or the hour and the weekday of a date with a time."""
    if len(text) < SHORTEST_TIME or text[4] != "-" or text[10] not in "T ":
        return (f"{name}={text}",)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return (f"{name}={text}",)
    return f"{name}:hour={time.hour}", f"{name}:weekday={WEEKDAYS[time.weekday()]}"


def _merge_objects(owner: str, objects: JsonObjects) -> dict[str, object]:
    """Merge objects into one; namespaces of the same name are joined."""
    merged: dict[str, object] = {}
    for features in objects:
        if type(features) is not dict:
            _refuse(owner, "must be a list of objects", type(features).__name__)
        merged.update(features)
    if len(merged) == sum(map(len, objects)):
        return merged
    merged.clear()  # some name occurs twice
    for features in objects:
        for name, value in features.items():
            earlier = merged.get(name)
            if type(value) is dict and type(earlier) is dict:
                merged[name] = {**earlier, **value}
            else:
                merged[name] = value
    return merged


def _format_number(number: float) -> str:
    """Format a number that is refused; Python does not format an int of 5000 digits."""
    return str(number) if type(number) is float else "one beyond 1e308"


def _refuse(owner: str, demand: str, got: str = "") -> NoReturn:
    suffix = f", got {got}" if got else ""
    raise FeatureError(f"features of {owner[:100]}: {demand}{suffix}")


class Contribution(NamedTuple):
    """The name of a feature or of a crossing, and what it adds to an estimate."""

    name: str
    amount: float


def label_parts(
    side: str, features: FeatureList, with_category: bool, array_size: int = 0
) -> list[str]:
    """List the label of each part of a side, "context" or "action".

    A single number has two parts: its value and its bin. Arrays of more than `array_size` numbers
    have so many parts, unless it is 0.
    """
    labels, place = [], 0
    for name, length in zip(features.names, features.sizes(), strict=True):
        size = min(length, array_size or length)
        if length == 1 and features.numbers[place] != CATEGORY_VALUE:
            size = 2
        place += length
        label = side + name[3:] if name.startswith("_id=") else f"{side}.{name}"
        labels += [label if with_category else label.partition("=")[0]] * size
    return labels


def name_crossing(context_label: str, action_label: str) -> str:
    """Name the pair of two labels; an empty label stands for the constant of a side."""
    if context_label and action_label:
        return f"{context_label} × {action_label}"
    return context_label or action_label or "constant"
