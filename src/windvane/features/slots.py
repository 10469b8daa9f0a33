"""The slots of a page: what each may show, and its features.

The features of a slot are a namespace `slot` of the context, with two categories more: `slot.id`
and `slot.index`, the place of the slot from 0 on. A page of one slot without features adds nothing,
so that it is a single decision.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np

from windvane.errors import ArmsError, FeatureError, shorten
from windvane.features.json_reader import FeatureList, JsonObjects
from windvane.features.packed_features import PackedFeatures, pack_features
from windvane.features.request_reader import (
    Features,
    check_list,
    find_places,
    read_offered_action,
)
from windvane.types import Booleans

NAMESPACE = "slot"


class Slot(NamedTuple):
    """One slot of a page."""

    id: str
    features: JsonObjects  # may be empty
    places: Sequence[int]  # of the actions that it may show, in rising order


def read_slots(slots: Sequence[str | Features], ids: list[str]) -> list[Slot]:
    """Read slots, which are ids or objects with an id, `exclude` and features."""
    read = [_read_slot(slot, ids) for slot in check_list("slots", slots)]
    if not read:
        raise ArmsError("rank_slots: there must be at least one slot")
    names = set[str]()
    for slot in read:
        if slot.id in names:
            raise ArmsError(
                f"rank_slots: the ids of slots must be distinct, got {shorten(slot.id)} twice"
            )
        names.add(slot.id)
    if len(read) > len(ids):
        raise ArmsError(
            f"rank_slots: there must be an action for each slot, "
            f"got {len(ids)} for {len(read)} slots"
        )
    return read


def _read_slot(slot: str | Features, ids: list[str]) -> Slot:
    if isinstance(slot, Mapping) and not isinstance(slot.get("id"), str):
        raise FeatureError(
            f"rank_slots: a slot must be a text, or a dict with a text as its id, "
            f"got {shorten(slot)}"
        )
    id_, (features,) = read_offered_action(slot)
    exclude = features.get("exclude", ())
    named = {name: value for name, value in features.items() if name != "exclude"}
    return Slot(id_, [named] if named else [], find_places(ids, exclude))  # type: ignore[arg-type]


def describe_slot(slot: Slot, index: int) -> dict[str, object]:
    """The object that a slot adds to the context; an object inside the features is flattened."""
    named: dict[str, object] = {}
    for features in slot.features:
        for name, value in features.items():
            if type(value) is dict and name[:1] != "_":
                inner = value.items()
                named |= {f"{name}.{each}": own for each, own in inner if each[:1] != "_"}
            else:
                named[name] = value
    return {NAMESPACE: {**named, "id": slot.id, "index": str(index)}}


def pack_slot(slot: Slot, index: int) -> PackedFeatures:
    """Pack what a slot adds to the context; slots that came before are found in a cache."""
    described = describe_slot(slot, index)
    try:
        return _pack_described(_encode(described))
    except (OverflowError, UnicodeEncodeError, TypeError, RecursionError):
        return pack_features(FeatureList(f"slot {slot.id}", [described]))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


@lru_cache(maxsize=1024)
def _pack_described(encoded: bytes) -> PackedFeatures:
    described = _decode(encoded)
    return pack_features(FeatureList(f"slot {described[NAMESPACE]['id']}", [described]))


def append_features(context: PackedFeatures, *slots: PackedFeatures) -> PackedFeatures:
    """The features of a context, and then those of slots."""
    sides = context, *slots
    return PackedFeatures(
        b"".join([side.hashes for side in sides]),
        b"".join([side.numbers for side in sides]),
        b"".join([side.sizes for side in sides]),
        b"".join([side.labels for side in sides]),
        b"".join([side.namespaces for side in sides]),
        b"".join([side.kinds for side in sides]),
        b"".join([side.plain_numbers for side in sides]),
        sum(side.feature_count for side in sides),
    )


def list_allowed(slots: Sequence[Slot], count: int) -> Booleans:
    """Which of all actions each slot may show, (S, K)."""
    allowed = np.zeros((len(slots), count), np.bool_)
    for row, slot in zip(allowed, slots, strict=True):
        row[slot.places] = True
    return allowed
