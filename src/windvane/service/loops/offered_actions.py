"""The actions of a request, looked at once: most come again and again, in the same bytes."""

from collections.abc import Sequence
from functools import cached_property, lru_cache

import msgspec

from windvane.service.features.encoder import PackedActions, pack_actions
from windvane.service.schemas import Action, Actions, bad

LONGEST_KEPT = 1 << 14  # bytes; what is made of them takes many times as many
encode_json = msgspec.json.Encoder().encode
read_actions = msgspec.json.Decoder(Actions).decode


class Offer:
    """What can be chosen; every id is there once."""

    def __init__(self, actions: Sequence[Action]) -> None:
        self.actions = actions
        self.ids = [action.id for action in actions]
        if len(set(self.ids)) < len(self.ids):
            raise bad("InvalidRankRequest", "actions: every id must be there once", "actions")
        self.names = encode_json(self.ids).decode()  # as the log keeps them
        self.everyone = list(range(len(self.ids)))

    @cached_property
    def packed(self) -> PackedActions:
        """Their features."""
        return pack_actions(self.actions)

    def without(self, excluded: Sequence[str]) -> list[int]:
        """The places of the actions that are not excluded."""
        if not excluded:
            return self.everyone
        gone = set(excluded)
        if strange := sorted(gone - set(self.ids)):
            message = f"excludedActions: {strange[0]!r} is not among the actions"
            raise bad("InvalidRankRequest", message, "excludedActions")
        places = [k for k, name in enumerate(self.ids) if name not in gone]
        if not places:
            raise bad("InvalidRankRequest", "actions: all are excluded", "excludedActions")
        return places


def offer_of(text: bytes) -> Offer:
    """The actions that a piece of JSON lists."""
    return remembered(text) if len(text) <= LONGEST_KEPT else read(text)


def read(text: bytes) -> Offer:
    """The same, whoever asked before."""
    try:
        return Offer(read_actions(text))
    except msgspec.ValidationError as reason:  # the list itself is `$` for msgspec, or not named
        said, _, place = str(reason).partition(" - at `$")
        raise msgspec.ValidationError(f"{said} - at `$.actions{place or '`'}") from None


remembered = lru_cache(maxsize=256)(read)
