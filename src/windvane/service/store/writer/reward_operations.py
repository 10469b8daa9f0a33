"""Rewards: the operations that write them, their decisions, and the lessons that follow.

Only the writer decides what becomes of a reward, in the order of the log. Two rewards at the same
moment, or a reward at the moment when its wait time ends, therefore have exactly one outcome, and
every replay of the log finds the same one. A batch has the same effect as its operations one by one
in the same order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from sqlalchemy import bindparam, func, select, tuple_, update

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.store.rows import Lesson, RewardRow
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


class LessonDraft(NamedTuple):
    """A lesson that has no id yet."""

    decision: DecisionState
    kind: str
    value: float
    at: int


_SELECT_STATES = """
SELECT decisions.event_id, decisions.id, decisions.at, decisions.round, decisions.features,
    decisions.activated_at IS NOT NULL, EXISTS (
        SELECT * FROM lessons WHERE lessons.decision = decisions.id AND lessons.kind = 'observe'),
    waiting.at
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
    return {event_id: DecisionState(*columns) for event_id, *columns in rows}


_SELECT_EARLY_REWARDS = (
    select(*rewards.c["id", "event_id", "value", "at"])
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
    for reward, event_id, value, at in early_rewards:
        state = states[event_id]
        terms, matched_at = match_times[event_id]
        new_status = state.apply_reward(at, find_terms(transaction, loop, terms))
        updates.append({"reward": reward, "new_status": new_status})
        transaction.counter_changes[loop, status] -= 1
        transaction.counter_changes[loop, new_status] += 1
        if new_status in LESSON_KIND:
            drafts.append(LessonDraft(state, LESSON_KIND[new_status], value, matched_at))
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
    """Write lessons in the given order; their decisions no longer wait for a reward."""
    if not drafts:
        return []
    rows = [(loop, draft.decision.id, draft.kind, draft.value, draft.at) for draft in drafts]
    transaction.insert_many("lessons", ("loop", "decision", "kind", "value", "at"), rows)
    position = transaction.positions[loop]
    inserted = transaction.fetch_all(_SELECT_LAST_LESSONS, (loop, len(rows)))[::-1]
    if [decision for _, decision in inserted] != [draft.decision.id for draft in drafts]:
        raise StoreError("store: the database numbers lessons out of order", "refused")
    closed = [draft.decision.id for draft in drafts if draft.kind != "amend"]
    close_decisions(transaction, loop, closed)
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
            features=state.features or b"",
            previous=previous,
            change=position.change,
        )
        for id_, previous, (state, kind, value, at) in zip(
            ids, [position.lesson, *ids], drafts, strict=False
        )
    ]


_DELETE_WAITING = "DELETE FROM waiting WHERE loop = ? AND decision = ?"


def close_decisions(transaction: Transaction, loop: int, decision_ids: list[int]) -> None:
    """Record that these decisions no longer wait for a reward."""
    transaction.execute_many(_DELETE_WAITING, [(loop, decision) for decision in decision_ids])


MAX_REWARDS_PER_EVENT = 1000  # in the log
REFUSED = "refused"  # status of a reward that the log does not keep, because the event has so many


class MatchResult(NamedTuple):
    """What became of a reward or an activation, and the lessons that follow.

    The status is a field of `Funnel` or `REFUSED`; of an activation: activated, already, late or
    unknown.
    """

    status: str
    lessons: tuple[Lesson, ...]


_SELECT_REQUEST_IDS = select(*rewards.c["event_id", "request_id"]).where(
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

    A reward of the same event with the same request id is a repetition by the client, and is
    learned once. An event keeps `MAX_REWARDS_PER_EVENT` rewards. A further one is refused, unless
    it is a repetition or the first that can be learned; a further repetition is only counted.
    """

    phase = Phase.REWARD
    loop: int
    event_id: str
    value: float
    at: int
    terms: RewardTerms
    request_id: str | None = None

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
            matched.append(_match(put, terms, seen, states))
        room = _RewardRoom(transaction, loop, batch, matched)
        statuses = []
        rows = []
        drafts = []
        for put, status in zip(batch, matched, strict=True):
            status = room.admit(put, status)
            statuses.append(status)
            if status == REFUSED:
                continue
            transaction.counter_changes[loop, status] += 1
            if not room.take(put, status):
                continue
            request_id = None if status == "duplicate" else put.request_id  # the column is unique
            rows.append((loop, put.event_id, request_id, put.value, put.at, status))
            if status in LESSON_KIND:
                state = states[put.event_id]
                drafts.append(LessonDraft(state, LESSON_KIND[status], put.value, put.at))
        transaction.insert_many("rewards", ("loop", *RewardRow._fields[1:]), rows)
        learned = iter(write_lessons(transaction, loop, drafts))
        return [
            MatchResult(status, (next(learned),) if status in LESSON_KIND else ())
            for status in statuses
        ]


def _read_request_ids(
    transaction: Transaction, loop: int, batch: Sequence[PutReward]
) -> set[tuple[str, str | None]]:
    """Read which pairs of event id and request id the log has, of the pairs in a batch."""
    pairs = list({(put.event_id, put.request_id) for put in batch if put.request_id is not None})
    if not pairs:
        return set()
    parameters = {"loop": loop, "pairs": pairs}
    rows = transaction.connection.execute(_SELECT_REQUEST_IDS, parameters)
    return {(row.event_id, row.request_id) for row in rows}


def _match(
    put: PutReward,
    terms: RewardTerms,
    seen: set[tuple[str, str | None]],
    states: dict[str, DecisionState],
) -> str:
    """The status of a reward, a field of `Funnel`; `seen` and the state are for the next one."""
    pair = (put.event_id, put.request_id)
    if pair in seen:
        return "duplicate"
    if put.request_id is not None:
        seen.add(pair)
    if put.event_id not in states:
        return "orphan"
    return states[put.event_id].apply_reward(put.at, terms)


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
        matched: Sequence[str],
    ) -> None:
        crowded = {
            put.event_id for put, status in zip(batch, matched, strict=True) if status != "learned"
        }
        self._room = dict.fromkeys(crowded, MAX_REWARDS_PER_EVENT)
        self._refused: set[tuple[str, str | None]] = set()
        if crowded:
            parameters = {"loop": loop, "events": list(crowded)}
            for event_id, count in transaction.connection.execute(_COUNT_REWARDS, parameters):
                self._room[event_id] -= count

    def admit(self, put: PutReward, status: str) -> str:
        """The status of a reward, or `REFUSED` if its event has no room for it."""
        pair = (put.event_id, put.request_id)
        if status == "duplicate":
            return REFUSED if pair in self._refused else status
        if status == "learned" or self._room[put.event_id] > 0:
            return status
        self._refused.add(pair)
        return REFUSED

    def take(self, put: PutReward, status: str) -> bool:
        """Take the room of a reward; False if there is none and the repetition is only counted."""
        room = self._room.get(put.event_id)
        if room is not None:
            self._room[put.event_id] = room - 1
        return room is None or room > 0 or status != "duplicate"
