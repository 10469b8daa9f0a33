"""Which features of the context are crossed with which features of an action.

A namespace is an object inside the context or inside an action: `{"user": {"age": 30}}` has the
namespace `user`. Features outside any object belong to no namespace. The text of crossings lists
pairs, a namespace of the context before one of the action: `user*article, device*article`. The
word `context` stands for the whole context, and `action` for the whole action.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from windvane.errors import SettingError, shorten
from windvane.features import ALL_CROSSINGS
from windvane.types import Places, UnsignedIntegers

NONE = "none"
MAX_PAIRS = 8


class Crossing(NamedTuple):
    """A pair of namespaces that are crossed, as hashes; None stands for the whole side."""

    context: np.uint64 | None
    action: np.uint64 | None


@lru_cache(maxsize=256)
def parse_crossings(text: str) -> tuple[Crossing, ...]:
    """Parse a text such as "user*article, device*action"; "none" has no crossings.

    >>> parse_crossings("context*action")
    (Crossing(context=None, action=None),)
    """
    if text.strip() == NONE:
        return ()
    crossings = []
    for pair in text.split(","):
        context, star, action = (word.strip() for word in pair.partition("*"))
        if not (context and star and action) or "*" in action:
            raise SettingError(
                f"crossings: a pair must be a namespace of the context, * and one of the action, "
                f"such as {ALL_CROSSINGS}, got {shorten(pair.strip())}"
            )
        crossings.append(
            Crossing(
                None if context == "context" else hash_namespace(context),
                None if action == "action" else hash_namespace(action),
            )
        )
    if len(crossings) > MAX_PAIRS:
        raise SettingError(f"crossings: at most {MAX_PAIRS} pairs, got {len(crossings)}")
    return tuple(crossings)


def hash_namespace(name: str) -> np.uint64:
    """The hash of a namespace."""
    from windvane.features.hashing import hash_name  # imported late: it loads the compiler

    return np.uint64(np.frombuffer(hash_name(name), np.uint64)[0])


def name_namespace(feature: str) -> str:
    """The namespace of a feature's name, or an empty text.

    >>> name_namespace("user.age"), name_namespace("site=example.org")
    ('user', '')
    """
    namespace, dot, _ = feature.partition("=")[0].partition(".")
    return namespace if dot else ""


def build_masks(
    crossings: tuple[Crossing, ...], namespaces: UnsignedIntegers, context_features: int
) -> Places:
    """Return for each feature in which crossings it takes part, one bit each.

    `namespaces` has the hash of the namespace of each feature, those of the context first.
    """
    masks = np.zeros(len(namespaces), np.int64)
    for bit, (context, action) in enumerate(crossings):
        for side, namespace in (
            (slice(0, context_features), context),
            (slice(context_features, None), action),
        ):
            takes_part = True if namespace is None else namespaces[side] == namespace
            masks[side] |= np.where(takes_part, 1 << bit, 0)
    return masks
