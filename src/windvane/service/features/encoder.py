"""Encode the context and the actions of a rank request as one vector for each action.

`json_reader` defines which JSON is accepted, `hashing` how names and numbers become a vector. The
id of an action is one of its categories. Actions without features therefore differ by their id, and
the estimate of a new action starts without observations.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.errors import FeatureError, SettingError
from windvane.service.features.hashing import (
    CATEGORY_VALUE,
    Integers,
    UnsignedIntegers,
    cross_parts,
    hash_name,
    hash_rows,
    weigh_parts,
)
from windvane.service.features.json_reader import MAX_NUMBERS, FeatureList, JsonObjects
from windvane.types import Floats

ENCODING_VERSION = 1  # increases whenever the same features would get another vector
MAX_CROSSINGS = 2**20  # of one request: some ten milliseconds of work
MAX_DIM = 2**16
MAX_CACHED_ACTION_BYTES = 8192
CACHED_ACTIONS = 4096
_ONES = array("q", [1] * (MAX_NUMBERS + 1)).tobytes()  # the sizes of features without arrays
BYTES_PER_NUMBER = 8  # of a float64
_BYTES_OF_TWO_NUMBERS = BYTES_PER_NUMBER**2
MAX_CONTRIBUTIONS = 1000  # that are listed one by one
REST = "all smaller contributions"


class Action(Protocol):
    """An action of a rank request."""

    @property
    def id(self) -> str: ...

    @property
    def features(self) -> JsonObjects: ...


class Contribution(NamedTuple):
    """The name of a feature or of a crossing, and what it adds to an estimate."""

    name: str
    amount: float


class PackedFeatures(NamedTuple):
    """The features of the context or of one action, as bytes of the arrays for compiled code."""

    hashes: bytes
    numbers: bytes
    sizes: bytes
    feature_count: int


class PackedActions(NamedTuple):
    """The features of all actions of a request, one action after the other."""

    hashes: bytes
    numbers: bytes
    sizes: bytes
    feature_counts: tuple[int, ...]


@dataclass(frozen=True)
class Encoder:
    """Encodes JSON features as vectors of `dim` numbers, with the same bits on every machine."""

    dim: int = 128
    version: int = ENCODING_VERSION

    def __post_init__(self) -> None:
        if validation.whole("Encoder", "dim", self.dim, least=2) > MAX_DIM:
            raise SettingError(f"Encoder: dim must be at most {MAX_DIM}, got {self.dim}")
        if self.version != ENCODING_VERSION:
            raise SettingError(f"Encoder: version must be {ENCODING_VERSION}, got {self.version!r}")

    def encode(self, context: JsonObjects, actions: Sequence[Action] | PackedActions) -> Floats:
        """Encode a request: one row for each action, (K, d), each of length 1 at most."""
        packed = actions if isinstance(actions, PackedActions) else pack_actions(actions)
        return hash_rows(*_join_sides(context, packed), self.dim)

    def explain(
        self, theta: npt.ArrayLike, context: JsonObjects, actions: Sequence[Action], index: int
    ) -> list[Contribution]:
        """List the contributions to xᵀθ of one action, the largest first; xᵀθ is their sum.

        Beyond `MAX_CONTRIBUTIONS` the smallest are one contribution, named `REST`, at the end.
        """
        table = self._tabulate(theta, context, [actions[index]], with_category=True)
        amounts = table.amounts[:, 0]
        order = np.argsort(-np.abs(amounts), kind="stable")
        contributions = [
            Contribution(table.name_row(int(row)), float(amounts[row]))
            for row in order[:MAX_CONTRIBUTIONS]
        ]
        if len(order) > MAX_CONTRIBUTIONS:
            rest = float(amounts[order[MAX_CONTRIBUTIONS:]].sum())
            contributions.append(Contribution(REST, rest))
        return contributions

    def measure_importance(
        self,
        theta: npt.ArrayLike,
        requests: Iterable[tuple[JsonObjects, Sequence[Action]]],
        max_crossings: int = MAX_CROSSINGS,
    ) -> list[Contribution]:
        """List the features by how much they distinguish the actions of the given requests.

        The importance of a feature is the mean absolute deviation of its contribution from its mean
        over the actions of a request: what all actions share, such as the context alone, affects no
        choice. All categories of a feature count under its name. A request whose crossings would
        exceed `max_crossings`, together with those of the requests before it, is left out.
        """
        total: defaultdict[str, float] = defaultdict(float)
        action_count = 0
        room = max_crossings
        for context, actions in requests:
            crossings = _count_crossings(context, actions)
            if crossings > room:
                continue
            room -= crossings
            table = self._tabulate(theta, context, actions, with_category=False)
            action_count += len(actions)
            means = table.amounts.mean(axis=1, keepdims=True)
            deviations = np.abs(table.amounts - means).sum(axis=1)
            for row, deviation in enumerate(deviations.tolist()):
                total[table.name_row(row)] += deviation
        importances = [Contribution(name, amount / action_count) for name, amount in total.items()]
        return sorted(importances, key=lambda contribution: -contribution.amount)

    def _tabulate(
        self,
        theta: npt.ArrayLike,
        context: JsonObjects,
        actions: Sequence[Action],
        with_category: bool,
    ) -> "_ContributionTable":
        """Sum the contributions to xᵀθ by labels of action and context, for each action."""
        estimate = np.asarray(theta, np.float64)  # (d,)
        if estimate.shape != (self.dim,):
            raise SettingError(f"Encoder: theta must be {self.dim} numbers, got {estimate.shape}")
        sides = _join_sides(context, pack_actions(actions))
        rows = hash_rows(*sides, self.dim)
        part_hashes, weights, ends = weigh_parts(*sides)
        context_numbers: dict[str, int] = {}
        action_numbers: dict[str, int] = {}
        context_places = _number_labels(
            _label_parts("context", FeatureList("the context", context), with_category),
            context_numbers,
        )
        action_places = [
            _number_labels(
                _label_parts("action", _read_action(action.id, action.features), with_category),
                action_numbers,
            )
            for action in actions
        ]
        width = len(context_numbers)
        amounts = np.empty((len(action_numbers) * width, len(actions)))
        for k, places in enumerate(action_places):
            indices, values = cross_parts(
                part_hashes, weights, ends[0], ends[k], ends[k + 1], self.dim
            )
            scale = rows[k, 0] / values[0]  # index 0 holds only the constant
            pairs = (places[:, None] * width + context_places).ravel()
            parts = scale * values * estimate[indices]
            amounts[:, k] = np.bincount(pairs, parts, len(amounts))
        return _ContributionTable(list(context_numbers), list(action_numbers), amounts)


class _ContributionTable(NamedTuple):
    """What each pair of an action's and a context's label contributes to xᵀθ of each action."""

    context_labels: list[str]
    action_labels: list[str]
    amounts: Floats  # (pairs, K), all pairs of the first action label first

    def name_row(self, row: int) -> str:
        """The name of the pair in a row."""
        action, context = divmod(row, len(self.context_labels))
        return _name_crossing(self.context_labels[context], self.action_labels[action])


def _number_labels(labels: list[str], numbers: dict[str, int]) -> Integers:
    """The number of each label; labels without a number get the next ones."""
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64)


def _count_crossings(context: JsonObjects, actions: Sequence[Action]) -> int:
    """How many crossings the context has with all actions, constants included."""
    context_parts = 1 + len(FeatureList("the context", context).numbers)
    packed = pack_actions(actions)
    action_parts = len(actions) + len(packed.numbers) // BYTES_PER_NUMBER
    return context_parts * action_parts


def pack_actions(actions: Sequence[Action]) -> PackedActions:
    """Pack the features of all actions of a request; single actions are cached."""
    packed = []
    for action in actions:
        try:
            key = _encode_key((action.id, action.features))
        except (OverflowError, UnicodeEncodeError, TypeError, RecursionError):
            key = b""  # numbers and names that MessagePack cannot encode
        if 0 < len(key) <= MAX_CACHED_ACTION_BYTES:
            packed.append(pack_cached_action(key))
        else:
            packed.append(_pack_features(_read_action(action.id, action.features)))
    return PackedActions(
        b"".join([features.hashes for features in packed]),
        b"".join([features.numbers for features in packed]),
        b"".join([features.sizes for features in packed]),
        tuple(features.feature_count for features in packed),
    )


def _join_sides(
    context: JsonObjects, actions: PackedActions
) -> tuple[UnsignedIntegers, Floats, Integers, Integers]:
    """Make the arguments of `weigh_parts` and `hash_rows`, with the context first."""
    packed_context = _pack_features(FeatureList("the context", context))
    crossings = len(packed_context.numbers) * len(actions.numbers) // _BYTES_OF_TWO_NUMBERS
    if crossings > MAX_CROSSINGS:
        raise FeatureError(
            f"features: context and actions must have at most {MAX_CROSSINGS} crossings, "
            f"got {crossings}"
        )
    return (
        np.frombuffer(packed_context.hashes + actions.hashes, np.uint64),
        np.frombuffer(packed_context.numbers + actions.numbers, np.float64),
        np.frombuffer(packed_context.sizes + actions.sizes, np.int64),
        np.array((packed_context.feature_count, *actions.feature_counts), np.int64),
    )


# MessagePack encodes 1, 1.0 and true differently; as keys of a dict they would be equal in Python.
_encode_key = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.msgpack.Decoder().decode


@lru_cache(maxsize=CACHED_ACTIONS)
def pack_cached_action(key: bytes) -> PackedFeatures:
    """Pack an encoded action; most actions occur in many requests."""
    return _pack_features(_read_action(*_decode_key(key)))


def _read_action(action_id: str, objects: JsonObjects) -> FeatureList:
    """Read the features of an action, with its id as one more category."""
    features = FeatureList(f"action {action_id}", objects)
    features.names.append(f"_id={action_id}")  # no feature can have this name
    features.numbers.append(CATEGORY_VALUE)
    return features


def _pack_features(features: FeatureList) -> PackedFeatures:
    """Replace names by their hashes, and lists by the bytes of arrays."""
    count = len(features.names)
    return PackedFeatures(
        b"".join(map(hash_name, features.names)),
        array("d", features.numbers).tobytes(),
        array("q", features.sizes()).tobytes() if features.array_sizes else _ONES[: 8 * count],
        count,
    )


def _label_parts(side: str, features: FeatureList, with_category: bool) -> list[str]:
    """List the label of each part of a side; the constant, which is first, has an empty label."""
    labels = [""]
    for name, size in zip(features.names, features.sizes(), strict=True):
        label = side + name[3:] if name.startswith("_id=") else f"{side}.{name}"
        labels += [label if with_category else label.partition("=")[0]] * size
    return labels


def _name_crossing(context_label: str, action_label: str) -> str:
    if context_label and action_label:
        return f"{context_label} × {action_label}"
    return context_label or action_label or "constant"
