"""The slots of a page: what each may show, and its features.

The features of a slot are a namespace `slot` of the context, with two categories more: `slot.id`
and `slot.index`, the place of the slot from 0 on. A page of one slot without features adds nothing,
so that it is a single decision.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from typing import NamedTuple

import msgspec
import numpy as np

from windvane.errors import ArmsError, FeatureError, shorten
from windvane.features.json_reader import FeatureList, JsonObjects
from windvane.features.packed_features import PackedFeatures, list_places, pack_features
from windvane.features.request_reader import (
    Features,
    check_list,
    find_places,
    read_offered_action,
)
from windvane.types import Booleans, Places

NAMESPACE = "slot"


class Slot(NamedTuple):
    """One slot of a page."""

    id: str
    features: JsonObjects  # may be empty
    places: Sequence[int]  # of the actions that it may show, in rising order


def read_slots(slots: Sequence[str | Features], ids: list[str]) -> list[Slot]:
    """Read slots, which are ids or objects with an id, `exclude` and features."""
    everything = find_places(ids, ())
    read = [
        Slot(slot, (), everything) if type(slot) is str else _read_slot(slot, ids)
        for slot in check_list("slots", slots)
    ]
    if not read:
        raise ArmsError("rank_slots: there must be at least one slot")
    names = [slot.id for slot in read]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArmsError(
            f"rank_slots: the ids of slots must be distinct, got {shorten(twice)} twice"
        )
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
    return Slot(id_, [named] if named else (), find_places(ids, exclude))  # type: ignore[arg-type]


def describe_slot(slot: Slot, index: int) -> dict[str, object]:
    """The object that a slot adds to the context; an object inside the features is flattened."""
    if not slot.features:
        return {NAMESPACE: {"id": slot.id, "index": str(index)}}
    named: dict[str, object] = {}
    for features in slot.features:
        for name, value in features.items():
            if type(value) is dict and name[:1] != "_":
                inner = value.items()
                named |= {f"{name}.{each}": own for each, own in inner if each[:1] != "_"}
            else:
                named[name] = value
    return {NAMESPACE: {**named, "id": slot.id, "index": str(index)}}


class PackedSlots(NamedTuple):
    """What the slots of a page add to the context."""

    single: list[PackedFeatures]  # of each slot alone
    all: PackedFeatures  # of one slot after the other
    ends: Places  # (S + 1,) 0, and where the features of each slot end in `all`


def pack_slots(slots: Sequence[Slot]) -> PackedSlots:
    """Pack what slots add to the context; slots without features come from a cache."""
    if not any(slot.features for slot in slots):
        return _pack_plain_slots(tuple([slot.id for slot in slots]))
    return _join_slots([_pack_slot(slot, index) for index, slot in enumerate(slots)])


@lru_cache(maxsize=256)
def _pack_plain_slots(ids: tuple[str, ...]) -> PackedSlots:
    return _join_slots([_pack_slot(Slot(id_, (), ()), index) for index, id_ in enumerate(ids)])


def _pack_slot(slot: Slot, index: int) -> PackedFeatures:
    """Pack what a slot adds to the context; slots that came before are found in a cache."""
    described = describe_slot(slot, index)
    try:
        return _pack_described(_encode(described))
    except (OverflowError, UnicodeEncodeError, TypeError, RecursionError):
        return pack_features(FeatureList(f"slot {slot.id}", [described]))


def _join_slots(single: list[PackedFeatures]) -> PackedSlots:
    ends = np.cumsum([0, *(slot.feature_count for slot in single)])
    return PackedSlots(single, reduce(append_features, single), ends)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


@lru_cache(maxsize=1024)
def _pack_described(encoded: bytes) -> PackedFeatures:
    described = _decode(encoded)
    return pack_features(FeatureList(f"slot {described[NAMESPACE]['id']}", [described]))


def append_features(context: PackedFeatures, slot: PackedFeatures) -> PackedFeatures:
    """The features of a context, and then those of a slot."""
    return PackedFeatures(
        context.hashes + slot.hashes,
        context.numbers + slot.numbers,
        context.sizes + slot.sizes,
        context.labels + slot.labels,
        context.namespaces + slot.namespaces,
        context.kinds + slot.kinds,
        context.plain_numbers + slot.plain_numbers,
        context.feature_count + slot.feature_count,
    )


def list_allowed(slots: Sequence[Slot], count: int) -> Booleans:
    """Which of all actions each slot may show, (S, K)."""
    allowed = np.ones((len(slots), count), np.bool_)
    for row, slot in zip(allowed, slots, strict=True):
        if len(slot.places) < count:
            row[:] = False
            row[list_places(slot.places)] = True
    return allowed


def describe_contexts(context: JsonObjects, slots: Sequence[Slot]) -> list[JsonObjects]:
    """The context of each slot of a page; a page of one slot without features adds nothing."""
    if len(slots) == 1 and not slots[0].features:
        return [context]
    return [[*context, describe_slot(slot, index)] for index, slot in enumerate(slots)]


def fill_slots(slots: Sequence[Slot], ids: Sequence[str]) -> list[str]:
    """The ids of the first actions with which all slots can be filled; raise ArmsError if none."""
    owners: dict[int, int] = {}  # the slot of each action that is taken

    def find(slot: int, seen: set[int]) -> bool:
        for place in slots[slot].places:
            if place not in seen:
                seen.add(place)
                if place not in owners or find(owners[place], seen):
                    owners[place] = slot
                    return True
        return False

    if not all(find(slot, set()) for slot in range(len(slots))):
        raise ArmsError("rank_slots: the slots exclude so much that they cannot all be filled")
    return [ids[place] for place in sorted(owners, key=lambda place: owners[place])]
