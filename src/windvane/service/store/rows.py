"""The Python types of the rows of the log; `schema.py` has their tables.

Times are whole microseconds since 1970. The answer of a decision is rendered when it is given, and
rebuilt from its row when it is asked for again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from windvane.errors import StoreError
from windvane.service.schemas import PageResponse, Ranked, RankResponse, ShownAction

IMPORTED = "Imported"  # the mode of decisions that another system made
WHOLE_PAGE = -1  # instead of the place of a slot: the lesson is of all slots together


class LoopRow(NamedTuple):
    """A loop: one kind of decision, with its current settings as JSON."""

    id: int
    name: str
    settings: str
    created: int


class SettingsChange(NamedTuple):
    """An entry of a loop's settings log: the new settings and who gave them."""

    id: int
    at: int
    settings: str  # JSON
    by: str
    lesson: int  # id of the last lesson learned under the previous settings
    previous: int = 0  # id of the change of settings before this one, if the writer adds it


class SlotChoice(NamedTuple):
    """What was chosen for a slot of a page, given the slots before it."""

    id: str
    chosen: int  # place among the offered actions
    probabilities: bytes  # float64, one for each offered action; 0: no candidate
    baseline: int  # place of the action that the client would have shown


class Page(NamedTuple):
    """The slots of a page in their order, and how its rewards are learned."""

    reward_model: str  # "slot", "sum" or "cascade"
    slots: tuple[SlotChoice, ...]

    @property
    def ids(self) -> list[str]:
        return [slot.id for slot in self.slots]

    def degrade(self, action_count: int) -> "Page":
        """The page that shows the baselines."""
        return self._replace(
            slots=tuple(
                slot._replace(
                    chosen=slot.baseline, probabilities=make_certain(slot.baseline, action_count)
                )
                for slot in self.slots
            )
        )


def make_certain(place: int, action_count: int) -> bytes:
    """The probabilities of a choice that is certain."""
    probabilities = np.zeros(action_count)
    probabilities[place] = 1.0
    return probabilities.tobytes()


class DecisionRow(NamedTuple):
    """A rank request and what was decided; the store sets `id` and `activated_at`."""

    loop: int
    event_id: str
    round: int
    at: int
    mode: str
    deferred: bool
    degraded: bool
    chosen: int
    features: bytes | None
    probabilities: bytes
    actions: str
    request: str
    offer: str | None = None  # JSON of the actions, cut out of the request; None: not cut out
    offer_at: int | None = None  # how many characters of the request stand before the offer
    slots: bytes | None = None  # of a page
    activated_at: int | None = None
    id: int = 0

    @property
    def whole_request(self) -> str:
        """The request as the client sent it."""
        return join_request(self.request, self.offer, self.offer_at)


def join_request(request: str, offer: str | None, offer_at: int | None) -> str:
    """Put an offer back into the request from which it was cut out."""
    if offer is None:
        return request
    return f"{request[:offer_at]}{offer}{request[offer_at:]}"


class RewardRow(NamedTuple):
    """A reward as the client sent it; `status` is the name of a reward count of `Funnel`."""

    id: int
    event_id: str
    request_id: str | None
    value: float
    at: int
    status: str
    slot: str  # empty: of all there is


class Lesson(NamedTuple):
    """A change of a loop's belief, with what the policy needs of the decision.

    `kind` is "observe" (the reward of the decision), "default" (the default reward) or "amend" (an
    amount that is added to the reward learned before). The writer adds what the log of the loop
    had before the lesson, so that a server notices if it has missed something.
    """

    id: int
    decision: int
    kind: str
    value: float
    at: int
    round: int
    ranked_at: int
    features: bytes
    previous: int = 0  # id of the lesson before this one
    change: int = 0  # id of the last change of settings before this lesson
    slot: int | None = None  # place on a page, or `WHOLE_PAGE`


class LogPosition(NamedTuple):
    """How far the log of a loop has got."""

    lesson: int = 0  # id of the last lesson
    change: int = 0  # id of the last change of settings
    deleted_lesson: int = 0  # the largest id of a lesson that was deleted
    next_round: int = 0  # the first that no server has taken


class Funnel(NamedTuple):
    """Counts of what became of a loop's decisions and rewards since the loop was created.

    Each reward is counted once, under its current status. Deleted rows stay counted.
    """

    ranked: int = 0  # decisions in the log
    activated: int = 0  # decisions that may be learned from
    unactivated: int = 0  # deferred decisions that were not activated within the wait time
    default: int = 0  # decisions that learned the default reward: none came within the wait time
    learned: int = 0  # rewards: the first of its decision
    summed: int = 0  # rewards: added to the first reward of the decision
    extra: int = 0  # rewards: not the first, and only the earliest counts
    held: int = 0  # rewards: of a deferred decision that is not activated yet
    late: int = 0  # rewards: after the wait time
    orphan: int = 0  # rewards: of an event without a decision, so far
    duplicate: int = 0  # rewards: repeated with the same request id
    unlearned: int = 0  # rewards: of a decision without features


class EvaluationRow(NamedTuple):
    """An evaluation, without its result."""

    id: int
    loop: int
    key: str
    name: str
    type: str
    contract: str  # JSON
    status: str
    created: int
    ended: int | None
    outcome: str | None  # JSON


class Key(NamedTuple):
    """An API key; the log holds only its hash."""

    id: int
    role: str
    hash: str
    created: int
    expires: int | None


decode_action_ids = msgspec.json.Decoder(list[str]).decode  # of a JSON list of action ids
encode_blob = msgspec.msgpack.Encoder().encode
decode_page = msgspec.msgpack.Decoder(Page).decode
_decode_features = msgspec.msgpack.Decoder(list[bytes]).decode


def decode_page_features(features: bytes) -> list[bytes]:
    """The features of the chosen actions of a page, slot by slot."""
    return _decode_features(features)


def pick_features(features: bytes, slot: int | None) -> bytes:
    """The features that a lesson needs, of those of its decision."""
    if slot is None or slot == WHOLE_PAGE:
        return features
    return _decode_features(features)[slot]


def rebuild_answer(
    event_id: str,
    action_ids_json: str,
    probabilities: bytes,
    chosen: int,
    degraded: bool,
    slots: bytes | None = None,
) -> bytes:
    """The answer to the rank request of a decision, from its columns: always the same bytes."""
    try:
        action_ids = decode_action_ids(action_ids_json)
        if slots is not None:
            shown = [_show_slot(slot, action_ids) for slot in decode_page(slots).slots]
            return msgspec.json.encode(PageResponse(shown, event_id, bool(degraded)))
        ranking = [*map(Ranked, action_ids, np.frombuffer(probabilities).tolist())]
        return msgspec.json.encode(RankResponse(ranking, event_id, action_ids[chosen], degraded))
    except (ValueError, IndexError):
        message = f"store: the log holds a damaged decision of the event {event_id!r}"
        raise StoreError(message, "damaged") from None


def get_answer(decision: DecisionRow) -> bytes:
    """The answer to the rank request of a decision."""
    return rebuild_answer(
        decision.event_id,
        decision.actions,
        decision.probabilities,
        decision.chosen,
        decision.degraded,
        decision.slots,
    )


def _show_slot(slot: SlotChoice, action_ids: Sequence[str]) -> ShownAction:
    probability = np.frombuffer(slot.probabilities)[slot.chosen]
    return ShownAction(slot.id, action_ids[slot.chosen], float(probability))
