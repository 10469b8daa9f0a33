"""Rewards: the operations that write them, their decisions, and the lessons that follow.

Only the writer decides what becomes of a reward, in the order of the log. Two rewards at the same
moment, or a reward at the moment when its wait time ends, therefore have exactly one outcome, and
every replay of the log finds the same one. A batch has the same effect as its operations one by one
in the same order.

A page waits until all its slots have a reward. What follows from the reward of a slot depends on
the reward model that the page was ranked with:

| model     | lessons                                                                            |
|-----------|------------------------------------------------------------------------------------|
| `slot`    | one of each slot, of its first reward; later ones are summed or extra, slot by slot |
| `sum`     | one of the whole page, of the first reward; rewards of other slots are added to it  |
| `cascade` | as `slot`, until a reward other than 0: the slots above it, if they have no reward, |
|           | get 0, those below no lesson, and the page waits no longer                          |
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import msgspec
from sqlalchemy import bindparam, func, select, tuple_, update

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.schemas import SlotReward
from windvane.service.store.rows import (
    WHOLE_PAGE,
    Lesson,
    Page,
    RewardRow,
    decode_page,
    pick_features,
)
from windvane.service.store.schema import rewards
from windvane.service.store.writer.group_commit import Operation, Phase, Transaction, list_marks
from windvane.settings import parse_seconds

LESSON_KIND = {"learned": "observe", "summed": "amend"}  # by status of the reward; others: none


class RewardTerms(NamedTuple):
    """How long a decision waits for its reward, and whether several rewards are added up."""

    wait_us: int
    sums_rewards: bool = False
    change: int = 0  # id of the change of settings that they follow from; 0: they hold anyway


class _StoredTerms(msgspec.Struct, rename="camel"):
    """The settings of a loop, as the log has them, from which the terms follow."""

    reward_wait_time: str
    reward_aggregation: str


_decode_terms = msgspec.json.Decoder(_StoredTerms).decode


def find_terms(transaction: Transaction, loop: int, terms: RewardTerms) -> RewardTerms:
    """The terms of an operation, unless the log has a later change of settings before it."""
    change = transaction.positions[loop].change if terms.change else 0
    if terms.change == change:
        return terms
    ((settings,),) = transaction.fetch_all("SELECT settings FROM loops WHERE id = ?", (loop,))
    stored = _decode_terms(settings)
    wait_us = round(parse_seconds(stored.reward_wait_time) * MICROSECONDS_PER_SECOND)
    return RewardTerms(wait_us, stored.reward_aggregation == "sum", change)


@dataclass(slots=True)
class DecisionState:
    """What a decision expects when a reward arrives; each reward leaves the state for the next."""

    id: int
    at: int
    round: int
    features: bytes | None  # NULL: never learned from
    is_activated: bool
    is_rewarded: bool
    waits_since: int | None  # service time, moved by steps of the clock; None: it does not wait
    slots: bytes | None = None  # of a page
    page: Page | None = None  # the same, decoded
    rewarded: dict[str, float] = field(default_factory=dict)  # first rewards of a page, by slot id

    @property
    def has_expired(self) -> bool:
        """Whether the wait time ended without a reward."""
        return self.features is not None and self.waits_since is None and not self.is_rewarded

    def is_too_late(self, at: int, terms: "RewardTerms") -> bool:
        """Whether the wait time is over at a time."""
        since = self.at if self.waits_since is None else self.waits_since
        return self.has_expired or at > since + terms.wait_us

    def apply_reward(self, at: int, terms: RewardTerms) -> str:
        """Take in a reward that arrived at `at`; returns its status, a field of `Funnel`."""
        if self.features is None:
            return "unlearned"
        if self.is_too_late(at, terms):
            return "late"
        if self.is_rewarded:
            return "summed" if terms.sums_rewards else "extra"
        if not self.is_activated:
            return "held"
        self.waits_since = None
        self.is_rewarded = True
        return "learned"

    def apply_slot_reward(self, page: Page, given: SlotReward, at: int, terms: RewardTerms) -> str:
        """Take in the reward of a slot, or of the whole page if `slot` is empty."""
        slot, value = given.slot_id, given.value
        if self.features is None:
            return "unlearned"
        if self.is_too_late(at, terms):
            return "late"
        is_repeated = slot in self.rewarded or (self.rewarded and not slot)
        if self.is_rewarded or is_repeated:
            can_add = terms.sums_rewards and (is_repeated or page.reward_model == "sum")
            return "summed" if can_add else "extra"
        if not self.is_activated:
            return "held"
        self.note_reward(slot, value)
        if self.is_rewarded:
            self.waits_since = None
        return "learned"

    def note_reward(self, slot: str, value: float) -> None:
        """Remember the first reward of a slot; some rewards complete a page."""
        page = self.page
        assert page is not None
        self.rewarded[slot] = value
        is_click = page.reward_model == "cascade" and value != 0.0
        self.is_rewarded |= not slot or is_click or len(self.rewarded) == len(page.slots)


class LessonDraft(NamedTuple):
    """A lesson that has no id yet."""

    decision: DecisionState
    kind: str
    value: float
    at: int
    slot: int | None = None


class MatchedReward(NamedTuple):
    """What becomes of a reward: its status, the lessons that follow, or why it is invalid."""

    status: str
    drafts: Sequence[LessonDraft] = ()
    fault: str = ""


def find_fault(page: Page | None, slots: Sequence[str]) -> str:
    """Why a decision cannot have rewards of these slots; empty if it can."""
    if page is not None and not slots[0]:
        return "" if page.reward_model == "sum" else "the event has slots, a reward must name one"
    known = [""] if page is None else page.ids
    unknown = next((slot for slot in slots if slot not in known), None)
    return "" if unknown is None else f"the event has no slot {unknown[:80]!r}"


def match_reward(
    state: DecisionState, given: SlotReward, at: int, terms: RewardTerms
) -> MatchedReward:
    """Take in a reward that arrived at a time."""
    page = state.page
    if page is None:
        status = state.apply_reward(at, terms)
        if status not in LESSON_KIND:
            return MatchedReward(status)
        return MatchedReward(status, [LessonDraft(state, LESSON_KIND[status], given.value, at)])
    rewarded = set(state.rewarded)
    status = state.apply_slot_reward(page, given, at, terms)
    if status not in LESSON_KIND:
        return MatchedReward(status)
    if page.reward_model == "sum":
        kind = "amend" if rewarded else "observe"
        return MatchedReward(status, [LessonDraft(state, kind, given.value, at, WHOLE_PAGE)])
    place = page.ids.index(given.slot_id)
    drafts = [LessonDraft(state, LESSON_KIND[status], given.value, at, place)]
    if status == "learned" and page.reward_model == "cascade" and given.value != 0.0:
        unclicked = [above for above in range(place) if page.slots[above].id not in rewarded]
        drafts = [LessonDraft(state, "observe", 0.0, at, above) for above in unclicked] + drafts
    return MatchedReward(status, drafts)


def draft_defaults(state: DecisionState, default: float, at: int) -> list[LessonDraft]:
    """The lessons of a decision whose wait time has ended."""
    page = state.page
    if page is None:
        return [LessonDraft(state, "default", default, at)]
    if page.reward_model == "sum":
        return [] if state.rewarded else [LessonDraft(state, "default", default, at, WHOLE_PAGE)]
    places = [place for place, id_ in enumerate(page.ids) if id_ not in state.rewarded]
    return [LessonDraft(state, "default", default, at, place) for place in places]


_SELECT_STATES = """
SELECT decisions.event_id, decisions.id, decisions.at, decisions.round, decisions.features,
    decisions.activated_at IS NOT NULL, EXISTS (
        SELECT * FROM lessons WHERE lessons.decision = decisions.id AND lessons.kind = 'observe'),
    waiting.at, decisions.slots
FROM decisions
LEFT JOIN waiting ON waiting.loop = decisions.loop AND waiting.decision = decisions.id
WHERE decisions.loop = ? AND decisions.event_id IN
"""


def read_decision_states(
    transaction: Transaction, loop: int, event_ids: Iterable[str]
) -> dict[str, DecisionState]:
    """Read the decisions of some events, by event id; an event without a decision is absent."""
    events = sorted(set(event_ids))
    rows = transaction.fetch_all(f"{_SELECT_STATES}({list_marks(events)})", (loop, *events))
    states = {event_id: DecisionState(*columns) for event_id, *columns in rows}
    read_slot_rewards(transaction, loop, states)
    return states


def read_slot_rewards(
    transaction: Transaction, loop: int, states: Mapping[str, DecisionState]
) -> None:
    """Complete the states of pages, by event id, with the rewards that they have got."""
    pages = {event_id: state for event_id, state in states.items() if state.slots is not None}
    if not pages:
        return
    query = f"""
SELECT event_id, slot, value FROM rewards
WHERE loop = ? AND event_id IN ({list_marks(pages)}) AND status = 'learned' ORDER BY id
"""
    for state in pages.values():
        state.page = decode_page(state.slots or b"")
        state.is_rewarded = False
    for event_id, slot, value in transaction.fetch_all(query, (loop, *pages)):
        pages[event_id].note_reward(slot, value)


_SELECT_EARLY_REWARDS = (
    select(*rewards.c["id", "event_id", "value", "at", "slot"])
    .where(
        rewards.c.loop == bindparam("loop"),
        rewards.c.event_id.in_(bindparam("events", expanding=True)),
        rewards.c.status == bindparam("status"),
    )
    .order_by(rewards.c.id)
)

_UPDATE_STATUS = (
    update(rewards)
    .where(rewards.c.id == bindparam("reward"))
    .values(status=bindparam("new_status"))
)


def match_early_rewards(
    transaction: Transaction,
    loop: int,
    status: str,
    match_times: Mapping[str, tuple[RewardTerms, int]],
) -> dict[str, list[Lesson]]:
    """Match rewards again that came before their decision or before its activation.

    `status` is "orphan" or "held"; `match_times` has the terms and the time of now by event id.
    Returns the lessons by event id.
    """
    if not match_times:
        return {}
    parameters = {"loop": loop, "events": list(match_times), "status": status}
    early_rewards = transaction.connection.execute(_SELECT_EARLY_REWARDS, parameters).all()
    if not early_rewards:
        return {}
    states = read_decision_states(transaction, loop, (row.event_id for row in early_rewards))
    drafts: list[LessonDraft] = []
    updates = []
    for reward, event_id, value, at, slot in early_rewards:
        state = states[event_id]
        terms, matched_at = match_times[event_id]
        matched = MatchedReward("unlearned")
        if not find_fault(state.page, [slot]):
            found = find_terms(transaction, loop, terms)
            matched = match_reward(state, SlotReward(slot, value), at, found)
        new_status = matched.status
        updates.append({"reward": reward, "new_status": new_status})
        transaction.counter_changes[loop, status] -= 1
        transaction.counter_changes[loop, new_status] += 1
        drafts += (draft._replace(at=matched_at) for draft in matched.drafts)
    transaction.connection.execute(_UPDATE_STATUS, updates)
    lessons_by_event: dict[str, list[Lesson]] = {event_id: [] for event_id in states}
    by_decision = {state.id: lessons_by_event[event_id] for event_id, state in states.items()}
    for lesson in write_lessons(transaction, loop, drafts):
        by_decision[lesson.decision].append(lesson)
    return lessons_by_event


_SELECT_LAST_LESSONS = """
SELECT id, decision FROM lessons WHERE loop = ? ORDER BY id DESC LIMIT ?
"""


def write_lessons(
    transaction: Transaction, loop: int, drafts: Sequence[LessonDraft]
) -> list[Lesson]:
    """Write lessons in the given order; decisions that are complete no longer wait for a reward."""
    if not drafts:
        return []
    rows = [(loop, draft.decision.id, *draft[1:]) for draft in drafts]
    transaction.insert_many("lessons", ("loop", "decision", *LessonDraft._fields[1:]), rows)
    position = transaction.positions[loop]
    inserted = transaction.fetch_all(_SELECT_LAST_LESSONS, (loop, len(rows)))[::-1]
    if [decision for _, decision in inserted] != [draft.decision.id for draft in drafts]:
        raise StoreError("store: the database numbers lessons out of order", "refused")
    closed = {
        draft.decision.id: None
        for draft in drafts
        if (draft.kind != "amend" if draft.slot is None else draft.decision.waits_since is None)
    }
    close_decisions(transaction, loop, list(closed))
    ids = [id_ for id_, _ in inserted]
    transaction.positions[loop] = position._replace(lesson=ids[-1])
    return [
        Lesson(
            id=id_,
            decision=state.id,
            kind=kind,
            value=value,
            at=at,
            round=state.round,
            ranked_at=state.at,
            features=pick_features(state.features or b"", slot),
            previous=previous,
            change=position.change,
            slot=slot,
        )
        for id_, previous, (state, kind, value, at, slot) in zip(
            ids, [position.lesson, *ids], drafts, strict=False
        )
    ]


_DELETE_WAITING = "DELETE FROM waiting WHERE loop = ? AND decision = ?"


def close_decisions(transaction: Transaction, loop: int, decision_ids: list[int]) -> None:
    """Record that these decisions no longer wait for a reward."""
    transaction.execute_many(_DELETE_WAITING, [(loop, decision) for decision in decision_ids])


MAX_REWARDS_PER_EVENT = 1000  # in the log
REFUSED = "refused"  # status of a reward that the log does not keep, because the event has so many
INVALID = "invalid"  # status of a reward that the log does not keep, because its slot does not fit


class MatchResult(NamedTuple):
    """What became of a reward or an activation, and the lessons that follow.

    The status is a field of `Funnel`, `REFUSED` or `INVALID`; of an activation: activated, already,
    late or unknown. Of the rewards of several slots, it is that of the first, or `REFUSED` if one
    of them is.
    """

    status: str
    lessons: tuple[Lesson, ...]
    fault: str = ""  # why a reward is invalid


_SELECT_REQUEST_IDS = select(*rewards.c["event_id", "slot", "request_id"]).where(
    rewards.c.loop == bindparam("loop"),
    tuple_(rewards.c.event_id, rewards.c.request_id).in_(bindparam("pairs", expanding=True)),
)

_COUNT_REWARDS = (
    select(rewards.c.event_id, func.count())
    .where(
        rewards.c.loop == bindparam("loop"),
        rewards.c.event_id.in_(bindparam("events", expanding=True)),
    )
    .group_by(rewards.c.event_id)
)


class PutReward(Operation[MatchResult], frozen=True):
    """Write a reward, and learn it if its decision is in the log and waits for a reward.

    With `slots`, these are the rewards of slots of a page instead: all of them are written or none.
    A reward of the same event and slot with the same request id is a repetition by the client, and
    is learned once. An event keeps `MAX_REWARDS_PER_EVENT` rewards. A further one is refused,
    unless it is a repetition or the first that can be learned; a further repetition is only
    counted.
    """

    phase = Phase.REWARD
    loop: int
    event_id: str
    value: float
    at: int
    terms: RewardTerms
    request_id: str | None = None
    slots: tuple[SlotReward, ...] = ()

    @property
    def rewards(self) -> Sequence[SlotReward]:
        return self.slots or [SlotReward("", self.value)]

    @classmethod
    def run_batch(
        cls, transaction: Transaction, batch: Sequence["PutReward"]
    ) -> Sequence[MatchResult]:
        loop = batch[0].loop
        seen = _read_request_ids(transaction, loop, batch)
        states = read_decision_states(transaction, loop, (put.event_id for put in batch))
        matched = []
        for put in batch:
            terms = find_terms(transaction, loop, put.terms)
            matched.append(_match(put, terms, seen, states.get(put.event_id)))
        room = _RewardRoom(transaction, loop, batch, matched)
        statuses: list[str] = []
        counts = []  # of the lessons of each put
        rows = []
        drafts: list[LessonDraft] = []
        for put, outcomes in zip(batch, matched, strict=True):
            statuses.append(outcomes[0].status)
            learned: list[LessonDraft] = []
            for given, outcome in zip(put.rewards, outcomes, strict=False):
                key = (put.event_id, given.slot_id, put.request_id)
                status = room.admit(key, outcome.status)
                if status == REFUSED:
                    statuses[-1] = REFUSED
                if status in (REFUSED, INVALID):
                    continue
                transaction.counter_changes[loop, status] += 1
                if not room.take(put.event_id, status):
                    continue
                # the column is unique
                request_id = None if status == "duplicate" else put.request_id
                rows.append(
                    (loop, put.event_id, request_id, given.value, put.at, status, given.slot_id)
                )
                learned += outcome.drafts
            if len(learned) > 1 and learned[0].slot == WHOLE_PAGE:
                learned = [learned[0]._replace(value=sum(draft.value for draft in learned))]
            counts.append(len(learned))
            drafts += learned
        transaction.insert_many("rewards", ("loop", *RewardRow._fields[1:]), rows)
        lessons = iter(write_lessons(transaction, loop, drafts))
        return [
            MatchResult(status, tuple(islice(lessons, count)), outcomes[0].fault)
            for status, count, outcomes in zip(statuses, counts, matched, strict=True)
        ]


RewardKey = tuple[str, str, str | None]  # event id, slot and request id


def _read_request_ids(
    transaction: Transaction, loop: int, batch: Sequence[PutReward]
) -> set[RewardKey]:
    """Read which keys of rewards the log has, of the pairs of event and request in a batch."""
    pairs = list({(put.event_id, put.request_id) for put in batch if put.request_id is not None})
    if not pairs:
        return set()
    parameters = {"loop": loop, "pairs": pairs}
    rows = transaction.connection.execute(_SELECT_REQUEST_IDS, parameters)
    return {(row.event_id, row.slot, row.request_id) for row in rows}


def _match(
    put: PutReward, terms: RewardTerms, seen: set[RewardKey], state: DecisionState | None
) -> list[MatchedReward]:
    """What becomes of the rewards of a put; `seen` and the state are for the next one."""
    has_slots = put.slots or (state is not None and state.page is not None)
    if state is not None and has_slots:
        fault = find_fault(state.page, [given.slot_id for given in put.rewards])
        if fault:
            return [MatchedReward(INVALID, fault=fault)]
    matched = []
    for given in put.rewards:
        key = (put.event_id, given.slot_id, put.request_id)
        if key in seen:
            matched.append(MatchedReward("duplicate"))
            continue
        if put.request_id is not None:
            seen.add(key)
        if state is None:
            matched.append(MatchedReward("orphan"))
        else:
            matched.append(match_reward(state, given, put.at, terms))
    return matched


class _RewardRoom:
    """How many more rewards the log keeps of each event in a batch.

    The first reward that is learned is always kept, so the counts of events that have no other
    reward in the batch are not read.
    """

    def __init__(
        self,
        transaction: Transaction,
        loop: int,
        batch: Sequence[PutReward],
        matched: Sequence[Sequence[MatchedReward]],
    ) -> None:
        crowded = {
            put.event_id
            for put, outcomes in zip(batch, matched, strict=True)
            if any(each.status != "learned" for each in outcomes)
        }
        self._room = dict.fromkeys(crowded, MAX_REWARDS_PER_EVENT)
        self._refused: set[RewardKey] = set()
        if crowded:
            parameters = {"loop": loop, "events": list(crowded)}
            for event_id, count in transaction.connection.execute(_COUNT_REWARDS, parameters):
                self._room[event_id] -= count

    def admit(self, key: RewardKey, status: str) -> str:
        """The status of a reward, or `REFUSED` if its event has no room for it."""
        if status == "duplicate":
            return REFUSED if key in self._refused else status
        if status in ("learned", INVALID) or self._room[key[0]] > 0:
            return status
        self._refused.add(key)
        return REFUSED

    def take(self, event_id: str, status: str) -> bool:
        """Take the room of a reward; False if there is none and the repetition is only counted."""
        room = self._room.get(event_id)
        if room is not None:
            self._room[event_id] = room - 1
        return room is None or room > 0 or status != "duplicate"
