"""Read a request of a Python program: contexts and actions as dicts, with values of NumPy."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple, TypeVar

import numpy as np

from windvane.errors import ArmsError, FeatureError, shorten
from windvane.features.json_reader import WEEKDAYS
from windvane.types import Places

Features = Mapping[str, object]
PLAIN_NAMES = frozenset((str,))
PLAIN_TYPES = frozenset((str, float, int, bool))  # of values that JSON has as they are
Item = TypeVar("Item")
_FIRST_PLACES = np.arange(1024)
_LISTS = (tuple, list)


class OfferedAction(NamedTuple):
    """An action of a request, in the form in which its features are packed."""

    id: str
    features: Sequence[Features]


def check_list(name: str, values: Iterable[Item]) -> list[Item]:
    """Return the values as a list; a text and a dict would be a list of other things than meant."""
    if type(values) is list:
        return values.copy()
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise FeatureError(f"rank: {name} must be a list, got {shorten(values)}")
    return list(np.atleast_1d(values) if isinstance(values, np.ndarray) else values)


def read_context(context: Features | Sequence[Features]) -> list[dict[str, object]]:
    """Read a context as a list of objects."""
    if type(context) is dict or isinstance(context, Mapping):
        return [_to_json(context)]
    if isinstance(context, str | bytes) or not isinstance(context, Iterable):
        raise FeatureError(
            f"rank: the context must be a dict or a list of dicts, got {shorten(context)}"
        )
    return [_to_json(features) for features in check_list("context", context)]


def read_offered_action(action: str | Features) -> OfferedAction:
    """Read one action of a request."""
    if isinstance(action, str):
        return OfferedAction(str.__str__(action), [{}])
    is_object = type(action) is dict or isinstance(action, Mapping)
    if not is_object or not isinstance(action.get("id"), str):
        raise FeatureError(
            "rank: an action must be a text, or a dict with a text as its id, "
            f"got {shorten(action)}"
        )
    features = _to_json(action)
    del features["id"]
    return OfferedAction(str.__str__(action["id"]), [features])


def _to_json(features: Features) -> dict[str, object]:
    """Replace values of NumPy, tuples, times and texts of other classes by what JSON has."""
    if type(features) is dict:
        if PLAIN_NAMES.issuperset(map(type, features)) and PLAIN_TYPES.issuperset(
            map(type, features.values())
        ):
            return features.copy()
    elif not isinstance(features, Mapping):
        raise FeatureError(f"rank: features must be a dict, got {shorten(features)}")
    converted: dict[str, object] = {}
    for name, value in features.items():
        if type(value) not in PLAIN_TYPES:
            if isinstance(value, Mapping):  # a namespace, in which no other can be
                value = {_to_name(inner): _to_json_value(each) for inner, each in value.items()}
            value = _to_json_value(value)
        converted[_to_name(name)] = value
    return converted


def _to_name(name: object) -> str:
    """Return a name as a text; a member of an enumeration of texts is its text."""
    return str.__str__(name) if isinstance(name, str) else shorten(name, str)


def _to_json_value(value: object) -> object:
    if isinstance(value, list | tuple):
        if all(type(each) in PLAIN_TYPES for each in value):
            return list(value)
        return [_to_json_scalar(each) for each in value]
    return _to_json_scalar(value)


def _to_json_scalar(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        value = (value.astype("M8[us]") if value.dtype == "M8[ns]" else value).tolist()
    if isinstance(value, datetime):
        return value.isoformat() if value == value else None  # NaT of pandas is not itself
    if isinstance(value, date):
        return WEEKDAYS[value.weekday()]
    if isinstance(value, Decimal):
        return math.nan if value.is_nan() else float(value)  # a signaling NaN cannot be converted
    return str.__str__(value) if isinstance(value, str) else value


def find_places(ids: list[str], exclude: Sequence[str]) -> Sequence[int]:
    """The places of the actions that are not excluded; a range if there are none."""
    if not ids:
        raise ArmsError("rank: there must be at least one action")
    if type(exclude) in _LISTS and not exclude and len(set(ids)) == len(ids):
        return range(len(ids))
    places: dict[str, int] = {}
    for place, id_ in enumerate(ids):
        if places.setdefault(id_, place) != place:
            raise ArmsError(f"rank: the ids of actions must be distinct, got {shorten(id_)} twice")
    excluded = set[str]()
    for id_ in [exclude] if isinstance(exclude, str) else check_list("exclude", exclude):
        if not isinstance(id_, str) or id_ not in places:
            raise ArmsError(f"rank: {shorten(id_)} is excluded, but it is not among the actions")
        excluded.add(id_)
    if len(excluded) == len(ids):
        raise ArmsError("rank: all actions are excluded")
    return [place for id_, place in places.items() if id_ not in excluded]


def list_places(places: Sequence[int]) -> Places:
    """Return places as an array, which callers must not change."""
    if isinstance(places, range) and places.start == 0 and places.step == 1:
        count = places.stop
        return _FIRST_PLACES[:count] if count <= len(_FIRST_PLACES) else np.arange(count)
    return np.array(places, np.int64)
