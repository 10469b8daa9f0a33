"""Read and pack the offered actions of a Python program.

Most actions occur in many requests. An action whose features are texts, numbers and booleans of
Python itself is therefore found in a cache before anything else is read: one of texts only by its
names and texts, any other by its encoded form.
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec

from windvane.features.packing import (
    CACHED_ACTIONS,
    MAX_CACHED_ACTION_BYTES,
    PackedActions,
    PackedFeatures,
    pack_features,
    read_action,
)
from windvane.learner.request_reader import (
    PLAIN_NAMES,
    PLAIN_TYPES,
    Features,
    OfferedAction,
    read_offered_action,
)

# MessagePack encodes 1, 1.0 and true differently; as keys of a dict they would be equal in Python.
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_join_texts = "".join


def read_offer(actions: Sequence[str | Features]) -> tuple[list[str], PackedActions]:
    """Return the ids of actions and their packed features."""
    ids: list[str] = []
    packed: list[PackedFeatures] = []
    for action in actions:
        id_, features = _read_and_pack(action)
        ids.append(id_)
        packed.append(features)
    return ids, PackedActions(packed)


def _read_and_pack(action: str | Features) -> tuple[str, PackedFeatures]:
    """Return the id of an action and its features."""
    if type(action) is dict:
        names, values = tuple(action), tuple(action.values())
        try:  # joining is the fastest way to learn whether all of them are texts
            size = len(_join_texts(names)) + len(_join_texts(values))
        except TypeError:
            return _read_and_pack_any(action)
        if size <= MAX_CACHED_ACTION_BYTES:
            return _pack_cached_texts(names, values)
    return _read_and_pack_any(action)


@lru_cache(maxsize=CACHED_ACTIONS)
def _pack_cached_texts(
    names: tuple[str, ...], values: tuple[str, ...]
) -> tuple[str, PackedFeatures]:
    return _pack(read_offered_action(dict(zip(names, values, strict=True))))


def _read_and_pack_any(action: str | Features) -> tuple[str, PackedFeatures]:
    """Return the id of an action and its features, which may be numbers and arrays."""
    if type(action) is str or (
        type(action) is dict
        and PLAIN_TYPES.issuperset(map(type, action.values()))
        and PLAIN_NAMES.issuperset(map(type, action))
    ):
        try:
            key = _encode(action)
        except (OverflowError, UnicodeEncodeError):  # what MessagePack cannot encode
            key = b""
        if 0 < len(key) <= MAX_CACHED_ACTION_BYTES:
            return _pack_cached(key)
    return _pack(read_offered_action(action))


@lru_cache(maxsize=CACHED_ACTIONS)
def _pack_cached(key: bytes) -> tuple[str, PackedFeatures]:
    return _pack(read_offered_action(_decode(key)))


def _pack(action: OfferedAction) -> tuple[str, PackedFeatures]:
    return action.id, pack_features(read_action(action.id, action.features))
