"""The actions of a rank request; most requests repeat the same bytes, so parsed ones are cached."""

from collections.abc import Sequence
from functools import cached_property, lru_cache

import msgspec

from windvane.features.packed_features import PackedActions, pack_actions
from windvane.service.errors import RankRequestError
from windvane.service.schemas import Action, Actions

MAX_CACHED_BYTES = 1 << 14  # of JSON; an `Offer` takes many times as much memory
CACHED_OFFERS = 256
_encode_json = msgspec.json.Encoder().encode
_decode_actions = msgspec.json.Decoder(Actions).decode


class Offer:
    """The offered actions of one rank request; their ids are distinct."""

    def __init__(self, actions: Sequence[Action], text: str | None = None) -> None:
        self.text = text  # the JSON that came
        self.actions = actions
        self.text_size = len(text or "")  # characters of the JSON
        self.ids = [action.id for action in actions]
        if len(set(self.ids)) < len(self.ids):
            raise RankRequestError("actions: ids must be distinct", "actions")
        self.ids_json = _encode_json(self.ids).decode()  # as the log keeps them
        self._all_places = range(len(self.ids))
        self.last_start = 0  # of this text in the last request that had it

    @cached_property
    def packed_actions(self) -> PackedActions:
        """The features of the actions, as the encoder takes them."""
        return pack_actions(self.actions)

    def places_without(self, excluded: Sequence[str]) -> Sequence[int]:
        """The places of the actions that are not excluded."""
        if not excluded:
            return self._all_places
        excluded_ids = set(excluded)
        if unknown := sorted(excluded_ids - set(self.ids)):
            message = f"excludedActions: {unknown[0]!r} is not among the actions"
            raise RankRequestError(message, "excludedActions")
        places = [place for place, id_ in enumerate(self.ids) if id_ not in excluded_ids]
        if not places:
            raise RankRequestError("actions: all are excluded", "excludedActions")
        return places


def parse_offer(text: bytes) -> Offer:
    """The offer of a JSON list of actions."""
    return _parse_cached(text) if len(text) <= MAX_CACHED_BYTES else _parse(text)


def _parse(text: bytes) -> Offer:
    try:
        return Offer(_decode_actions(text), text.decode(errors="replace"))
    except msgspec.ValidationError as reason:
        # msgspec calls the list `$`, or gives no place; in the request it is `$.actions`.
        message, _, place = str(reason).partition(" - at `$")
        raise msgspec.ValidationError(f"{message} - at `$.actions{place or '`'}") from None


_parse_cached = lru_cache(CACHED_OFFERS)(_parse)
