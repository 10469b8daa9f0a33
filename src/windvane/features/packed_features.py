"""The features of a request as arrays for compiled code: hashes of names, numbers and sizes.

A side is the context or one action. The id of an action is one of its categories. Actions without
features therefore differ by their id, and the estimate of a new action starts without observations.
`json_reader` defines which JSON is accepted, `hashing` how names and numbers become a vector.
"""

import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol, TypeVar, cast

import msgspec
import numpy as np

from windvane import validation
from windvane.errors import FeatureError, SettingError
from windvane.features.crossings import name_namespace
from windvane.features.hashing import CATEGORY_VALUE, hash_name, hash_rows
from windvane.features.json_reader import MAX_NUMBERS, FeatureList, JsonObjects, name_categories
from windvane.features.request_reader import (
    PLAIN_NAMES,
    PLAIN_TYPES,
    Features,
    OfferedAction,
    read_offered_action,
)
from windvane.types import Floats, Places, UnsignedIntegers

MAX_DIM = 2**16  # of the vectors of an encoder
MAX_CROSSINGS = 2**20  # of one request: some ten milliseconds of work
MAX_CACHED_ACTION_BYTES = 8192
CACHED_ACTIONS = 4096
MAX_CACHE_BYTES = 1 << 24  # of all packed actions that are cached
ENTRY_BYTES = 1024  # of an entry of a cache beside its arrays, about
_FIRST_PLACES = np.arange(1024)
_ONES = array("q", [1] * (MAX_NUMBERS + 1)).tobytes()  # the sizes of features without arrays
_CATEGORIES = array("d", [CATEGORY_VALUE] * MAX_NUMBERS).tobytes()
BYTES_PER_NUMBER = 8  # of a float64
CATEGORY, NUMBER, ARRAY = 0, 1, 2  # kinds of features; an array of one number is a number
_HIGH_HALF, _LOW_HALF = 0xFFFFFFFF << 32, 0xFFFFFFFF
_BYTES_OF_TWO_NUMBERS = BYTES_PER_NUMBER**2


class Action(Protocol):
    """An action of a rank request."""

    @property
    def id(self) -> str: ...

    @property
    def features(self) -> JsonObjects: ...


class PackedFeatures(NamedTuple):
    """The features of the context or of one action, as bytes of the arrays for compiled code."""

    hashes: bytes
    numbers: bytes
    sizes: bytes
    labels: bytes  # by feature: high half of the field's hash, low half of the name's
    namespaces: bytes  # hashes, by feature
    kinds: bytes  # by feature: CATEGORY, NUMBER or ARRAY
    plain_numbers: bytes  # the numbers without those that stand for categories
    feature_count: int


class PackedActions:
    """The features of all actions of a request, one action after the other."""

    def __init__(self, single: Sequence[PackedFeatures]) -> None:
        self.single = tuple(single)  # the features of each action alone
        columns = [*zip(*single, strict=True)] or [()] * len(PackedFeatures._fields)
        _, numbers, sizes, labels, _, _, _, counts = columns
        self.numbers = b"".join(numbers)
        self.sizes = b"".join(sizes)
        self.labels = b"".join(labels)
        self.feature_counts = array("q", counts).tobytes()

    @cached_property
    def hashes(self) -> bytes:
        """The plain hashes, which few learners need."""
        return b"".join([features.hashes for features in self.single])

    @cached_property
    def namespaces(self) -> bytes:
        """The hashes of the namespaces, which few learners need."""
        return b"".join([features.namespaces for features in self.single])


Built = TypeVar("Built")


class BoundedCache(dict[bytes, Built]):
    """What is built from keys; the oldest entries are dropped if all together are too large."""

    def __init__(
        self,
        build: Callable[[bytes], Built],
        measure: Callable[[bytes, Built], int],
        max_bytes: int,
    ) -> None:
        """`measure` says how many bytes a key and what is built from it take, about."""
        self._build, self._measure, self._max_bytes = build, measure, max_bytes
        self._lock = threading.Lock()
        self.size_bytes = 0

    def __missing__(self, key: bytes) -> Built:
        built = self._build(key)
        with self._lock:
            if key not in self:
                self[key] = built
                self.size_bytes += self._measure(key, built)
            while self.size_bytes > self._max_bytes:
                oldest = next(iter(self))
                self.size_bytes -= self._measure(oldest, self.pop(oldest))
        return built


def list_places(places: Sequence[int]) -> Places:
    """Return places as an array, which callers must not change."""
    if isinstance(places, range) and places.start == 0 and places.step == 1:
        count = places.stop
        return _FIRST_PLACES[:count] if count <= len(_FIRST_PLACES) else np.arange(count)
    return np.array(places, np.int64)


def pack_actions(actions: Sequence[Action], context_numbers: int = 0) -> PackedActions:
    """Pack the features of all actions of a request; single actions are cached.

    Packing ends as soon as the actions have too many crossings with so many numbers of a context.
    """
    packed = []
    count = 0
    for action in actions:
        try:
            key = _encode_key((action.id, action.features))
        except (OverflowError, UnicodeEncodeError, TypeError, RecursionError):
            key = b""  # numbers and names that MessagePack cannot encode
        if 0 < len(key) <= MAX_CACHED_ACTION_BYTES:
            packed.append(packed_actions_by_key[key])
        else:
            packed.append(pack_features(read_action(action.id, action.features)))
        count += len(packed[-1].numbers) // BYTES_PER_NUMBER
        check_crossings(context_numbers * count)
    return PackedActions(packed)


def check_crossings(crossings: int) -> None:
    """Refuse a request with too many crossings."""
    if crossings > MAX_CROSSINGS:
        raise FeatureError(
            f"features: context and actions must have at most {MAX_CROSSINGS} crossings, "
            f"got {crossings}"
        )


def join_sides(
    context: JsonObjects, actions: PackedActions
) -> tuple[UnsignedIntegers, Floats, Places, Places]:
    """Make the arguments of `weigh_parts` and `hash_rows`, with the context first."""
    packed_context = pack_features(FeatureList("the context", context))
    check_crossings(len(packed_context.numbers) * len(actions.numbers) // _BYTES_OF_TWO_NUMBERS)
    return (
        np.frombuffer(packed_context.hashes + actions.hashes, np.uint64),
        np.frombuffer(packed_context.numbers + actions.numbers, np.float64),
        np.frombuffer(packed_context.sizes + actions.sizes, np.int64),
        join_feature_counts(packed_context, actions),
    )


def join_feature_counts(context: PackedFeatures, actions: PackedActions) -> Places:
    """The feature counts of all sides, with the context first."""
    context_count = context.feature_count.to_bytes(BYTES_PER_NUMBER, sys.byteorder)
    return np.frombuffer(bytearray(context_count + actions.feature_counts), np.int64)


# MessagePack encodes 1, 1.0 and true differently; as keys of a dict they would be equal in Python.
_encode_key = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.msgpack.Decoder().decode


def _pack_key(key: bytes) -> PackedFeatures:
    """Pack an encoded action."""
    return pack_features(read_action(*_decode_key(key)))


def _measure_packed(key: bytes, packed: PackedFeatures) -> int:
    return ENTRY_BYTES + len(key) + sum(map(len, packed[:-1]))


# Most actions occur in many requests.
packed_actions_by_key = BoundedCache(_pack_key, _measure_packed, MAX_CACHE_BYTES)


def read_action(action_id: str, objects: JsonObjects) -> FeatureList:
    """Read the features of an action, with its id as one more category."""
    features = FeatureList(f"action {action_id}", objects)
    features.names.append(f"_id={action_id}")  # no feature can have this name
    features.numbers.append(CATEGORY_VALUE)
    return features


def pack_features(features: FeatureList) -> PackedFeatures:
    """Replace names by their hashes, and lists by the bytes of arrays."""
    names = features.names
    return pack_field_features(features)._replace(
        hashes=b"".join(map(hash_name, names)),
        namespaces=b"".join(map(_hash_namespace, names)),
    )


def pack_field_features(features: FeatureList) -> PackedFeatures:
    """Pack features without plain hashes and namespaces, which few learners need."""
    names, numbers = features.names, features.numbers
    if features.array_sizes:
        sizes = array("q", features.sizes()).tobytes()
        kinds = _find_kinds(features)
    else:
        sizes = _ONES[: BYTES_PER_NUMBER * len(names)]
        kinds = bytes([number != CATEGORY_VALUE for number in numbers])
    return PackedFeatures(
        b"",
        array("d", numbers).tobytes(),
        sizes,
        b"".join(map(_hash_label, names)),
        b"",
        kinds,
        array("d", [number for number in numbers if number != CATEGORY_VALUE]).tobytes(),
        len(names),
    )


def pack_texts(names: Iterable[str], texts: Iterable[str]) -> PackedFeatures:
    """Pack an object of texts only, as `pack_field_features` does."""
    labels = b"".join(map(_hash_text_label, names, texts))
    size = len(labels)
    return PackedFeatures(
        *(b"", _CATEGORIES[:size], _ONES[:size], labels, b""),
        *(bytes(size // BYTES_PER_NUMBER), b"", size // BYTES_PER_NUMBER),
    )


def _find_kinds(features: FeatureList) -> bytes:
    """Find the kinds of features, some of which are arrays."""
    kinds = []
    place = 0
    for size in features.sizes():
        if size != 1:
            kinds.append(ARRAY)
        else:
            kinds.append(NUMBER if features.numbers[place] != CATEGORY_VALUE else CATEGORY)
        place += size
    return bytes(kinds)


@lru_cache(maxsize=2**14)
def _hash_namespace(feature: str) -> bytes:
    """Hash the namespace of a feature's name."""
    return hash_name(name_namespace(feature))


@lru_cache(maxsize=2**14)
def _hash_text_label(name: str, text: str) -> bytes:
    """Hash the categories of a text, or nothing if its name begins with an underscore."""
    return b"" if name[:1] == "_" else b"".join(map(_hash_label, name_categories(name, text)))


@lru_cache(maxsize=2**14)
def _hash_label(feature: str) -> bytes:
    """Hash a name; the high half of the bits is the hash of the name without its category."""
    name = int.from_bytes(hash_name(feature), sys.byteorder)
    field = int.from_bytes(hash_name(feature.partition("=")[0]), sys.byteorder)
    return (field & _HIGH_HALF | name & _LOW_HALF).to_bytes(BYTES_PER_NUMBER, sys.byteorder)


@dataclass(frozen=True)
class Encoder:
    """Encodes JSON features as vectors of `dim` numbers, with the same bits on every machine."""

    dim: int = 128

    def __post_init__(self) -> None:
        if validation.whole("Encoder", "dim", self.dim, least=2) > MAX_DIM:
            raise SettingError(f"Encoder: dim must be at most {MAX_DIM}, got {self.dim}")

    def encode(self, context: JsonObjects, actions: Sequence[Action] | PackedActions) -> Floats:
        """Encode a request: one row for each action, (K, d), each of length 1 at most."""
        packed = actions if isinstance(actions, PackedActions) else pack_actions(actions)
        return hash_rows(*join_sides(context, packed), self.dim)


_ONLY_DICTS, _ONLY_TEXTS = {dict}, {str}


class PackedOffer(NamedTuple):
    """The actions of one request."""

    ids: list[str]
    actions: PackedActions
    features: list[Features]  # of each action; they may be shared with other requests


def read_offer(actions: Sequence[str | int | Features]) -> PackedOffer:
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


def _find_texts(actions: Sequence[str | int | Features]) -> list[_PackedAction] | None:
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


def _read_and_pack(action: str | int | Features) -> _PackedAction:
    """Read and pack an action with features of any kind."""
    if type(action) is str or (
        type(action) is dict
        and PLAIN_TYPES.issuperset(map(type, action.values()))
        and PLAIN_NAMES.issuperset(map(type, action))
    ):
        try:
            key = _encode_key(action)
        except (OverflowError, UnicodeEncodeError):  # what MessagePack cannot encode
            key = b""
        if 0 < len(key) <= MAX_CACHED_ACTION_BYTES:
            return _pack_cached(key)
    return _pack(read_offered_action(action))


@lru_cache(maxsize=CACHED_ACTIONS)
def _pack_cached(key: bytes) -> _PackedAction:
    return _pack(read_offered_action(_decode_key(key)))


def _pack(action: OfferedAction) -> _PackedAction:
    packed = pack_features(read_action(action.id, action.features))
    return _PackedAction(action.id, packed, action.features[0])
