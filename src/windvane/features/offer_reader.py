"""Read and pack the offered actions of a Python program.

Most actions occur in many requests. An action whose features are texts, numbers and booleans of
Python itself is therefore found in a cache before anything else is read: one of texts only by its
names and texts, any other by its encoded form.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec

from windvane.features.packed_features import (
    CACHED_ACTIONS,
    MAX_CACHED_ACTION_BYTES,
    PackedActions,
    PackedFeatures,
    pack_features,
    read_action,
)
from windvane.features.request_reader import (
    PLAIN_NAMES,
    PLAIN_TYPES,
    Features,
    OfferedAction,
    read_offered_action,
)

# MessagePack encodes 1, 1.0 and true differently; as keys of a dict they would be equal in Python.
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_ONLY_DICTS, _ONLY_TEXTS = {dict}, {str}


class PackedOffer(NamedTuple):
    """The actions of one request."""

    ids: list[str]
    actions: PackedActions
    features: list[Features]  # of each action; they may be shared with other requests


def read_offer(actions: Sequence[str | Features]) -> PackedOffer:
    """Read and pack the actions of a request."""
    offered = _find_texts(actions) or [_read_and_pack(action) for action in actions]
    return PackedOffer(
        [each.id for each in offered],
        PackedActions([each.packed for each in offered]),
        [each.features for each in offered],
    )


class _PackedAction(NamedTuple):
    """An offered action, read and packed."""

    id: str
    packed: PackedFeatures
    features: Features


def _find_texts(actions: Sequence[str | Features]) -> list[_PackedAction] | None:
    """Return actions whose features are all texts, or None if some are not.

    A text of another class counts as the equal text of Python.
    """
    if set(map(type, actions)) != _ONLY_DICTS:
        return None
    dicts = cast(Sequence[dict[str, str]], actions)
    if set(map(type, dicts[0].values())) != _ONLY_TEXTS:
        return None
    try:
        return [*map(_pack_cached_texts, map(tuple, dicts), map(tuple, map(dict.values, dicts)))]
    except (TypeError, _TooLongError):  # the other actions differ from the first one
        return None


@lru_cache(maxsize=CACHED_ACTIONS)
def _pack_cached_texts(names: tuple[str, ...], texts: tuple[str, ...]) -> _PackedAction:
    """Read and pack an action; raise TypeError if some feature is no text."""
    if len("".join(names)) + len("".join(texts)) > MAX_CACHED_ACTION_BYTES:
        raise _TooLongError
    return _pack(read_offered_action(dict(zip(names, texts, strict=True))))


class _TooLongError(Exception):
    """An action is too long for the cache."""


def _read_and_pack(action: str | Features) -> _PackedAction:
    """Read and pack an action with features of any kind."""
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
def _pack_cached(key: bytes) -> _PackedAction:
    return _pack(read_offered_action(_decode(key)))


def _pack(action: OfferedAction) -> _PackedAction:
    packed = pack_features(read_action(action.id, action.features))
    return _PackedAction(action.id, packed, action.features[0])
