"""Read a request of a Python program: contexts and actions as dicts, or as rows of a table.

Values of NumPy and tables of pandas, polars and pyarrow are known by their methods, so that the
client of the service needs none of these packages.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

from windvane.errors import ArmsError, FeatureError, shorten

Features = Mapping[str, object]
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
PLAIN_NAMES = frozenset((str,))
PLAIN_TYPES = frozenset((str, float, int, bool))  # of values that JSON has as they are
Item = TypeVar("Item")
_LISTS = (tuple, list)


class OfferedAction(NamedTuple):
    """An action of a request, in the form in which its features are packed."""

    id: str
    features: Sequence[Features]


def check_list(name: str, values: Iterable[Item]) -> list[Item]:
    """Return the values as a list; a text and a dict would be a list of other things than meant.

    The values of a table are its rows.
    """
    if type(values) is list:
        return values.copy()
    if is_table(values):
        return list(iterate_rows(values))
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise FeatureError(f"rank: {name} must be a list, got {shorten(values)}")
    return [values.item()] if getattr(values, "ndim", 1) == 0 else list(values)  # type: ignore[attr-defined]


def is_table(value: object) -> bool:
    """Whether a value is a table of pandas, polars or pyarrow."""
    return hasattr(value, "columns") and hasattr(value, "shape")


def iterate_rows(table: Any) -> Iterator[Any]:
    """Iterate over the rows of a table as dicts."""
    if hasattr(table, "iter_rows"):  # of polars
        return iter(table.iter_rows(named=True))
    if hasattr(table, "to_pylist"):  # of pyarrow
        return iter(table.to_pylist())
    names = [*table.columns]
    if len(set(names)) < len(names):
        raise FeatureError(f"rank: the columns of a table must have distinct names, got {names}")
    columns = [table[name].tolist() for name in names]
    return (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def read_context(context: Features | Sequence[Features]) -> list[dict[str, object]]:
    """Read a context as a list of objects."""
    row = _find_mapping(context)
    if row is not None:
        return [_to_json(row)]
    if isinstance(context, str | bytes) or not isinstance(context, Iterable) or is_table(context):
        raise FeatureError(
            f"rank: the context must be a dict or a list of dicts, got {shorten(context)}"
        )
    objects: list[Any] = check_list("context", context)
    return [_to_json(features) for features in objects]


def read_offered_action(action: str | int | Features) -> OfferedAction:
    """Read one action of a request."""
    row = _find_mapping(action) or {"id": action}
    id_ = _read_id(row.get("id"))
    if id_ is None:
        raise FeatureError(
            "rank: an action must be a text or a whole number, or a dict with one as its id, "
            f"got {shorten(action)}"
        )
    features = _to_json(row)
    del features["id"]
    return OfferedAction(id_, [features])


def _read_id(value: object) -> str | None:
    """Return the id of an action as a text; it may be a whole number."""
    if isinstance(value, Integral) and not isinstance(value, bool) and abs(int(value)) < 2**64:
        return str(int(value))
    return str.__str__(value) if isinstance(value, str) else None


def _find_mapping(features: Any) -> Mapping[Any, object] | None:
    """Return a dict, or a row of pandas as a dict: a Series, or a tuple with names."""
    if type(features) is dict or isinstance(features, Mapping):
        return features
    if hasattr(features, "_asdict"):
        named: dict[str, object] = features._asdict()
        if type(features).__name__ == "Pandas":  # of `itertuples`
            named.pop("Index", None)
        return named
    is_series = hasattr(features, "to_dict") and not is_table(features)
    return features.to_dict() if is_series else None


def _to_json(features: Features) -> dict[str, object]:
    """Replace values of NumPy, tuples, times and texts of other classes by what JSON has."""
    if (
        type(features) is dict
        and PLAIN_NAMES.issuperset(map(type, features))
        and PLAIN_TYPES.issuperset(map(type, features.values()))
    ):
        return features.copy()
    row = _find_mapping(features)
    if row is None:
        raise FeatureError(f"rank: features must be a dict, got {shorten(features)}")
    converted: dict[str, object] = {}
    for name, value in row.items():
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
    if hasattr(value, "tolist"):  # of NumPy
        is_nano = getattr(value, "dtype", None) == "M8[ns]"  # which are not times of Python
        value = (value.astype("M8[us]") if is_nano else value).tolist()  # type: ignore[attr-defined]
    if isinstance(value, datetime):
        return value.isoformat() if value == value else None  # NaT of pandas is not itself
    if isinstance(value, date):
        return WEEKDAYS[value.weekday()]
    if type(value).__name__ == "NAType":  # of pandas
        return None
    if isinstance(value, Decimal):
        return math.nan if value.is_nan() else float(value)  # a signaling NaN cannot be converted
    return str.__str__(value) if isinstance(value, str) else value


def find_places(ids: list[str], exclude: Sequence[str | int]) -> Sequence[int]:
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
    for given in [exclude] if isinstance(exclude, str) else check_list("exclude", exclude):
        known = _read_id(given)
        if known is None or known not in places:
            raise ArmsError(f"rank: {shorten(given)} is excluded, but it is not among the actions")
        excluded.add(known)
    if len(excluded) == len(ids):
        raise ArmsError("rank: all actions are excluded")
    return [place for id_, place in places.items() if id_ not in excluded]
