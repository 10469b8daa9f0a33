"""Rank requests and their answers: event ids, offered actions, explanations."""

from collections.abc import Sequence
from functools import cached_property
from secrets import token_urlsafe

import msgspec
from msgspec.structs import replace

from windvane.errors import FeatureError
from windvane.features.json_reader import FeatureList, JsonObjects
from windvane.features.packed_features import (
    ENTRY_BYTES,
    BoundedCache,
    PackedActions,
    pack_actions,
)
from windvane.features.slots import Slot
from windvane.service.errors import ServiceError
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.schemas import (
    Action,
    ActionExplanation,
    Actions,
    ExplainedRankResponse,
    FeatureScore,
    PageOptions,
    RankOptions,
    SlotRequest,
    Slots,
)

MAX_EVENT_ID_LENGTH = 256
MAX_CACHED_BYTES = 1 << 14  # of JSON
MAX_CACHE_BYTES = 1 << 24  # of all parsed offers that are cached
BYTES_PER_JSON_BYTE = 20  # of parsed and packed actions, about
MAX_EXPLAINED_ACTIONS = 50  # the first ones of a request
MAX_EXPLAINED_FEATURES = 100  # of an action, those that add most
RANDOM_BYTES_PER_EVENT = 9  # a multiple of 3, of which base64 makes whole letters
_decode_slots = msgspec.json.Decoder(Slots).decode
_decode_actions = msgspec.json.Decoder(Actions).decode
_decode_answer = msgspec.json.Decoder(ExplainedRankResponse).decode


def make_event_id(at_us: int) -> str:
    """An event id that nobody can guess, of 25 letters.

    Ids sort by time, which keeps a database index compact.
    """
    return f"{at_us:013x}{token_urlsafe(RANDOM_BYTES_PER_EVENT)}"


def check_event_id(event_id: str) -> None:
    """Refuse an event id that the log cannot hold."""
    if len(event_id) > MAX_EVENT_ID_LENGTH or "\0" in event_id:
        message = f"eventId must have at most {MAX_EVENT_ID_LENGTH} characters, none of them NUL"
        raise ServiceError("event id", message, "eventId")


class OfferedActions:
    """The offered actions of one rank request; their ids are distinct."""

    def __init__(self, actions: Sequence[Action], text: str | None = None) -> None:
        self.text = text  # the JSON that came
        self.actions = actions
        self.text_size = len(text or "")  # characters of the JSON
        self.ids = [action.id for action in actions]
        if len(set(self.ids)) < len(self.ids):
            raise ServiceError("rank", "actions: ids must be distinct", "actions")
        self.ids_json = msgspec.json.encode(self.ids).decode()  # as the log keeps them
        self._all_places = range(len(self.ids))

    @cached_property
    def packed_actions(self) -> PackedActions:
        """The features of the actions, as the encoder takes them."""
        return pack_actions(self.actions)

    def pack(self, context: JsonObjects) -> None:
        """Pack the actions, or refuse them as soon as they are too many for a context."""
        try:
            context_numbers = len(FeatureList("the context", context).numbers)
            self.packed_actions = pack_actions(self.actions, context_numbers)
        except FeatureError as reason:
            raise ServiceError("rank", str(reason), "features") from None

    def places_without(self, excluded: Sequence[str]) -> Sequence[int]:
        if not excluded:
            return self._all_places
        excluded_ids = set(excluded)
        if unknown := sorted(excluded_ids - set(self.ids)):
            message = f"excludedActions: {unknown[0]!r} is not among the actions"
            raise ServiceError("rank", message, "excludedActions")
        places = [place for place, id_ in enumerate(self.ids) if id_ not in excluded_ids]
        if not places:
            raise ServiceError("rank", "actions: all are excluded", "excludedActions")
        return places


def parse_slots(text: bytes) -> list[SlotRequest]:
    """Parse the slots of a page; their ids are distinct."""
    try:
        slots = _decode_slots(text)
    except msgspec.ValidationError as reason:
        raise _move_error(reason, "slots") from None
    ids: set[str] = set()
    for slot in slots:
        if slot.id in ids:
            message = f"slots: ids must be distinct, got {slot.id[:80]!r} twice"
            raise ServiceError("rank", message, "slots")
        if "\0" in slot.id:
            raise ServiceError("rank", "slots: ids must have no NUL", "slots")
        ids.add(slot.id)
    return slots


def find_slots(request: PageOptions, offer: OfferedActions) -> tuple[list[Slot], list[int]]:
    """What each slot of a page may show, and the places of the baselines.

    The baselines differ and none is excluded in its slot, so that all slots can be filled.
    """
    if len(request.slots) > len(offer.ids):
        counts = f"{len(offer.ids)} actions for {len(request.slots)} slots"
        raise ServiceError(
            "rank", f"slots: there must be an action for each, got {counts}", "slots"
        )
    places = {id_: place for place, id_ in enumerate(offer.ids)}
    slots = []
    baselines: list[int] = []
    for slot in request.slots:
        baseline = places.get(slot.baseline_action)
        excluded = set(slot.excluded_actions)
        fault = ""
        if baseline is None:
            fault = "is not among the actions"
        elif slot.baseline_action in excluded:
            fault = "is excluded in this slot"
        elif baseline in baselines:
            fault = "is the baseline of another slot"
        if baseline is None or fault:
            message = f"slot {slot.id[:80]!r}: baselineAction {slot.baseline_action[:80]!r} {fault}"
            raise ServiceError("rank", message, "baselineAction")
        baselines.append(baseline)
        allowed = [place for place, id_ in enumerate(offer.ids) if id_ not in excluded]
        slots.append(Slot(slot.id, slot.features, allowed))
    return slots, baselines


def parse_offer(text: bytes) -> OfferedActions:
    return _offers_by_text[text] if len(text) <= MAX_CACHED_BYTES else _parse(text)


def _parse(text: bytes) -> OfferedActions:
    try:
        return OfferedActions(_decode_actions(text), text.decode(errors="replace"))
    except msgspec.ValidationError as reason:
        raise _move_error(reason, "actions") from None


def _move_error(error: msgspec.ValidationError, name: str) -> msgspec.ValidationError:
    """The error of a list with its place in the request."""
    # msgspec calls the list `$`, or gives no place; in the request it is `$.actions`.
    message, _, place = str(error).partition(" - at `$")
    return msgspec.ValidationError(f"{message} - at `$.{name}{place or '`'}")


def _measure_offer(text: bytes, offer: OfferedActions) -> int:
    return ENTRY_BYTES + BYTES_PER_JSON_BYTE * len(text)


_offers_by_text = BoundedCache(_parse, _measure_offer, MAX_CACHE_BYTES)


def cut_offer(text: str | None, offer_text: str | None) -> tuple[str | None, int | None]:
    """Cut the offered actions out of a request: the rest, and how long it is before the gap.

    The place is None if the text of the actions is not in the request.
    """
    offer_at = -1 if text is None or offer_text is None else text.find(offer_text)
    if text is None or offer_text is None or offer_at < 0:
        return text, None
    return text[:offer_at] + text[offer_at + len(offer_text) :], offer_at


def explain_actions(
    model: LearnerModel, request: RankOptions, offer: OfferedActions
) -> list[ActionExplanation]:
    """Explain the present estimate of each action; empty if the features cannot be read.

    The scores of an action add up to its estimate, unless some were left out.
    """
    explanations = []
    try:
        for place, action in enumerate(offer.actions[:MAX_EXPLAINED_ACTIONS]):
            parts = model.explain(request.context_features, offer.actions, place)
            scores = [
                FeatureScore(part.name, part.amount)
                for part in parts[:MAX_EXPLAINED_FEATURES]
                if part.amount
            ]
            explanations.append(ActionExplanation(action.id, scores))
    except FeatureError:
        return []
    return explanations


def add_explanation(answer: bytes, explanations: list[ActionExplanation]) -> bytes:
    """The answer to a rank request with explanations."""
    return msgspec.json.encode(replace(_decode_answer(answer), inference_explanation=explanations))
