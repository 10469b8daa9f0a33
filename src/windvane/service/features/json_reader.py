"""Features as JSON, read into names and numbers.

| JSON | becomes |
|---|---|
| `"time": "morning"` | the category `time=morning` |
| `"sunny": true` | the category `sunny=true`; false is `sunny=false`, which missing is not |
| `"price": 23` | the number `price` |
| `"vector": [0.1, 0.7]` | the feature `vector`, with a number in each place |
| `"tags": ["new", "red"]` | the categories `tags=new` and `tags=red`, a set |
| `"weather": {"temp": 23}` | a namespace: the number `weather.temp` |
| `null`, or a name that starts with `_` | nothing |

Objects of a list are merged in order: a later value takes the place of an earlier one.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn, cast

from windvane.errors import FeatureError
from windvane.service.features.hashing import CATEGORY

MOST_NUMBERS = 4096  # of the context or of one action: features, and elements of arrays
LARGEST = sys.float_info.max  # an int can be larger

Objects = Sequence[Mapping[str, object]]


class Side:
    """The features of the context or of one action."""

    __slots__ = ("arrays", "names", "numbers", "who")

    def __init__(self, who: str, objects: Objects) -> None:
        self.who = who
        self.names: list[str] = []
        self.numbers: list[float] = []
        self.arrays: dict[int, int] = {}  # place among the names -> how many numbers it has
        alone = len(objects) == 1 and type(objects[0]) is dict
        self._read(None, objects[0] if alone else merged(who, objects))
        if len(self.numbers) > MOST_NUMBERS:
            refuse(who, f"must be at most {MOST_NUMBERS} numbers", str(len(self.numbers)))

    def sizes(self) -> list[int]:
        """How many numbers belong to each name."""
        return [self.arrays.get(i, 1) for i in range(len(self.names))]

    def _read(self, space: str | None, features: Mapping[str, object]) -> None:
        """Read an object, or a namespace in it."""
        names, numbers = self.names, self.numbers
        for name, value in features.items():
            if name[:1] == "_":
                continue
            if space is not None:
                name = f"{space}.{name}"
            if type(value) is str:
                names.append(f"{name}={value}")
                numbers.append(CATEGORY)
            elif type(value) is float or type(value) is int:
                if not -LARGEST <= value <= LARGEST:
                    self._refuse(name, "must be a finite number", shown(value))
                names.append(name)
                numbers.append(value)
            elif type(value) is bool:
                names.append(f"{name}=true" if value else f"{name}=false")
                numbers.append(CATEGORY)
            elif type(value) is list:
                self._read_list(name, value)
            elif type(value) is dict and space is None:
                self._read(name, value)
            elif type(value) is dict:
                self._refuse(name, "must not be an object, being in a namespace already")
            elif value is not None:
                demand = "must be a string, number, boolean, list, object or null"
                self._refuse(name, demand, kind(value))

    def _read_list(self, name: str, values: list[object]) -> None:
        """Read numbers as one feature with many, strings as a set of categories."""
        kinds = set(map(type, values))
        if kinds <= {str}:
            categories = dict.fromkeys(values)
            self.names += [f"{name}={category}" for category in categories]
            self.numbers += [CATEGORY] * len(categories)
        elif kinds <= {float, int}:
            for i, number in enumerate(cast(list[float], values)):
                if not -LARGEST <= number <= LARGEST:
                    self._refuse(f"{name}[{i}]", "must be a finite number", shown(number))
                self.numbers.append(number)
            self.arrays[len(self.names)] = len(values)
            self.names.append(name)
        else:
            self._refuse(name, "must hold nothing but numbers, or nothing but strings")

    def _refuse(self, name: str, demand: str, got: str = "") -> NoReturn:
        refuse(self.who, f"{name[:100]} {demand}", got)


def merged(who: str, objects: Objects) -> dict[str, object]:
    """One object out of several; namespaces of the same name are joined."""
    whole: dict[str, object] = {}
    for features in objects:
        if type(features) is not dict:
            refuse(who, "must be a list of objects", kind(features))
        whole.update(features)
    if len(whole) == sum(map(len, objects)):
        return whole
    whole.clear()  # some name comes twice
    for features in objects:
        for name, value in features.items():
            known = whole.get(name)
            if type(value) is dict and type(known) is dict:
                whole[name] = {**known, **value}
            else:
                whole[name] = value
    return whole


def shown(number: float) -> str:
    """A number that is refused; Python writes no int of 5000 digits."""
    return str(number) if type(number) is float else "one beyond 1e308"


def kind(value: object) -> str:
    return type(value).__name__


def refuse(who: str, demand: str, got: str = "") -> NoReturn:
    """Say in one sentence what is wrong, and where."""
    came = f", got {got}" if got else ""
    raise FeatureError(f"features of {who[:100]}: {demand}{came}")
