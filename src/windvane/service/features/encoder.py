"""What a request says about its context and its actions, as one vector an action.

`reading` says what JSON may hold, `hashing` how names and numbers become a vector. An action's id
is one of its categories: actions without features are told apart by it, and a new action starts
where nothing is known yet.
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
from windvane.service.features.hashing import CATEGORY, Bits, Whole, cross, digest, vectors, weigh
from windvane.service.features.json_reader import MOST_NUMBERS, Objects, Side
from windvane.types import Floats

VERSION = 1  # goes up whenever the same features would get other vectors
MOST_CROSSINGS = 2**20  # of one request: some ten milliseconds of work
LARGEST_DIM = 2**16
LONGEST_KEPT = 8192  # bytes of an action that is remembered
ONES = array("q", [1] * (MOST_NUMBERS + 1)).tobytes()  # sizes where there is no array


class Action(Protocol):
    """What can be chosen."""

    @property
    def id(self) -> str: ...

    @property
    def features(self) -> Objects: ...


class Reason(NamedTuple):
    """A feature or a crossing, and what it adds to an estimate."""

    name: str
    contribution: float


class Packed(NamedTuple):
    """A side as compiled code takes it: bytes, ready to be joined with those of other sides."""

    digests: bytes
    numbers: bytes
    sizes: bytes
    features: int


class Catalogue(NamedTuple):
    """Actions as compiled code takes them, one after the other."""

    digests: bytes
    numbers: bytes
    sizes: bytes
    features: tuple[int, ...]


@dataclass(frozen=True)
class Encoder:
    """JSON features to vectors of `dim` numbers, the same in every process, on every machine."""

    dim: int = 128
    version: int = VERSION

    def __post_init__(self) -> None:
        if validation.whole("Encoder", "dim", self.dim, least=2) > LARGEST_DIM:
            raise SettingError(f"Encoder: dim must be at most {LARGEST_DIM}, got {self.dim}")
        if self.version != VERSION:
            raise SettingError(f"Encoder: version must be {VERSION}, got {self.version!r}")

    def encode(self, context: Objects, actions: Sequence[Action] | Catalogue) -> Floats:
        """A row for each action, (K, d), none longer than 1."""
        packed = actions if isinstance(actions, Catalogue) else catalogue(actions)
        return vectors(*arguments(context, packed), self.dim)

    def explain(
        self, theta: npt.ArrayLike, context: Objects, actions: Sequence[Action], index: int
    ) -> list[Reason]:
        """What makes up xᵀθ of one action, the largest contributions first; they sum to it."""
        [parts] = self._contributions(theta, context, [actions[index]], whole=True)
        reasons = [Reason(name, amount) for name, amount in parts.items()]
        return sorted(reasons, key=lambda reason: -abs(reason.contribution))

    def important(
        self, theta: npt.ArrayLike, requests: Iterable[tuple[Objects, Sequence[Action]]]
    ) -> list[Reason]:
        """What tells actions apart in the given requests, the most important first.

        Categories are counted under their common name. It is the mean distance of a contribution
        from its mean over the actions of a request: what all of them share, such as the context
        alone, moves no choice.
        """
        total: defaultdict[str, float] = defaultdict(float)
        count = 0
        for context, actions in requests:
            arms = self._contributions(theta, context, actions, whole=False)
            count += len(arms)
            for name in {name: None for arm in arms for name in arm}:
                amounts = np.array([arm.get(name, 0.0) for arm in arms])
                total[name] += float(np.abs(amounts - amounts.mean()).sum())
        reasons = [Reason(name, amount / count) for name, amount in total.items()]
        return sorted(reasons, key=lambda reason: -reason.contribution)

    def _contributions(
        self, theta: npt.ArrayLike, context: Objects, actions: Sequence[Action], whole: bool
    ) -> list[dict[str, float]]:
        """For each action, what adds how much to xᵀθ, by whole names or without the category."""
        weights = np.asarray(theta, np.float64)  # (d,)
        if weights.shape != (self.dim,):
            raise SettingError(f"Encoder: theta must be {self.dim} numbers, got {weights.shape}")
        packed = arguments(context, catalogue(actions))
        rows = vectors(*packed, self.dim)
        bits, parts, ends = weigh(*packed)
        outer = labels("context", Side("the context", context), whole)
        found = []
        for k, action in enumerate(actions):
            places, amounts = cross(bits, parts, ends[0], ends[k], ends[k + 1], self.dim)
            scale = rows[k, 0] / amounts[0]  # place 0 holds nothing but the constant
            inner = labels("action", described(action.id, action.features), whole)
            names = [crossing(c, a) for a in inner for c in outer]
            sums: defaultdict[str, float] = defaultdict(float)
            for name, share in zip(names, scale * amounts * weights[places], strict=True):
                sums[name] += float(share)
            found.append(dict(sums))
        return found


def catalogue(actions: Sequence[Action]) -> Catalogue:
    """Actions, packed; each of them is remembered."""
    sides = []
    for action in actions:
        try:
            key = written((action.id, action.features))
        except (OverflowError, UnicodeEncodeError, TypeError, RecursionError):
            key = b""  # numbers and names that MessagePack does not know
        if 0 < len(key) <= LONGEST_KEPT:
            sides.append(remembered(key))
        else:
            sides.append(pack(described(action.id, action.features)))
    return Catalogue(
        b"".join([side.digests for side in sides]),
        b"".join([side.numbers for side in sides]),
        b"".join([side.sizes for side in sides]),
        tuple(side.features for side in sides),
    )


def arguments(context: Objects, actions: Catalogue) -> tuple[Bits, Floats, Whole, Whole]:
    """Digests, numbers, sizes and the count of every side, the context first."""
    outer = pack(Side("the context", context))
    crossings = len(outer.numbers) * len(actions.numbers) // 64
    if crossings > MOST_CROSSINGS:
        raise FeatureError(
            f"features: context and actions must have at most {MOST_CROSSINGS} crossings, "
            f"got {crossings}"
        )
    return (
        np.frombuffer(outer.digests + actions.digests, np.uint64),
        np.frombuffer(outer.numbers + actions.numbers, np.float64),
        np.frombuffer(outer.sizes + actions.sizes, np.int64),
        np.array((outer.features, *actions.features), np.int64),
    )


# MessagePack has different bytes for 1, 1.0 and true, which are equal as keys in Python.
written = msgspec.msgpack.Encoder().encode
read_back = msgspec.msgpack.Decoder().decode


@lru_cache(maxsize=4096)
def remembered(key: bytes) -> Packed:
    """An action as it was sent: most come again and again."""
    return pack(described(*read_back(key)))


def described(name: str, objects: Objects) -> Side:
    """The features of an action and, as one more category, its id."""
    side = Side(f"action {name}", objects)
    side.names.append(f"_id={name}")  # no feature can be called so
    side.numbers.append(CATEGORY)
    return side


def pack(side: Side) -> Packed:
    """Names give way to their digests."""
    return Packed(
        b"".join(map(digest, side.names)),
        array("d", side.numbers).tobytes(),
        array("q", side.sizes()).tobytes() if side.arrays else ONES[: 8 * len(side.names)],
        len(side.names),
    )


def labels(who: str, side: Side, whole: bool) -> list[str]:
    """What each part of a side is called where reasons are given; its constant has no name."""
    found = [""]
    for name, size in zip(side.names, side.sizes(), strict=True):
        label = who + name[3:] if name.startswith("_id=") else f"{who}.{name}"
        found += [label if whole else label.partition("=")[0]] * size
    return found


def crossing(context: str, action: str) -> str:
    """What a pair is called."""
    if context and action:
        return f"{context} × {action}"
    return context or action or "constant"
