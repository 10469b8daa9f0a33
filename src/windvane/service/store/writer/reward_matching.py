"""Matching rewards with their decisions, and writing the lessons that follow.

Only the writer decides what becomes of a reward, in the order of the log. Two rewards at the same
moment, or a reward at the moment when its wait time ends, therefore have exactly one outcome, and
every replay of the log finds the same one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import bindparam, select, update

from windvane.errors import StoreError
from windvane.service.store.rows import Lesson
from windvane.service.store.schema import rewards
from windvane.service.store.writer.group_commit import Transaction, list_marks

LESSON_KIND = {"learned": "observe", "summed": "amend"}  # by status of the reward; others: none


class RewardTerms(NamedTuple):
    """How long a decision waits for its reward, and whether several rewards are added up."""

    wait_us: int
    sums_rewards: bool = False


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


class MatchTime(NamedTuple):
    """The terms and the time at which rewards that arrived too early are matched again."""

    terms: RewardTerms
    at: int


class LessonDraft(NamedTuple):
    """A lesson that has no id yet."""

    decision: DecisionState
    kind: str
    value: float
    at: int


_SELECT_STATES = """
SELECT decisions.event_id, decisions.id, decisions.at, decisions.round, decisions.features,
    decisions.activated_at, waiting.at, EXISTS (
        SELECT * FROM lessons WHERE lessons.decision = decisions.id AND lessons.kind = 'observe')
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
    return {
        event_id: DecisionState(
            id=id_,
            at=at,
            round=round_,
            features=features,
            is_activated=activated_at is not None,
            is_rewarded=bool(is_rewarded),
            waits_since=waits_since,
        )
        for event_id, id_, at, round_, features, activated_at, waits_since, is_rewarded in rows
    }


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
    transaction: Transaction, loop: int, status: str, match_times: Mapping[str, MatchTime]
) -> dict[str, list[Lesson]]:
    """Match rewards again that came before their decision or before its activation.

    `status` is "orphan" or "held", `match_times` is by event id. Returns the lessons by event id.
    """
    if not match_times:
        return {}
    parameters = {"loop": loop, "events": list(match_times), "status": status}
    early_rewards = transaction.connection.execute(_SELECT_EARLY_REWARDS, parameters).all()
    if not early_rewards:
        return {}
    states = read_decision_states(transaction, loop, (row.event_id for row in early_rewards))
    drafts: list[LessonDraft] = []
    draft_events: list[str] = []
    updates = []
    for reward, event_id, value, at in early_rewards:
        state = states[event_id]
        match_time = match_times[event_id]
        new_status = state.apply_reward(at, match_time.terms)
        updates.append({"reward": reward, "new_status": new_status})
        transaction.counter_changes[loop, status] -= 1
        transaction.counter_changes[loop, new_status] += 1
        if new_status in LESSON_KIND:
            drafts.append(LessonDraft(state, LESSON_KIND[new_status], value, match_time.at))
            draft_events.append(event_id)
    transaction.connection.execute(_UPDATE_STATUS, updates)
    lessons_by_event: dict[str, list[Lesson]] = {}
    for event_id, lesson in zip(
        draft_events, write_lessons(transaction, loop, drafts), strict=True
    ):
        lessons_by_event.setdefault(event_id, []).append(lesson)
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
    close_decisions(
        transaction, loop, [draft.decision.id for draft in drafts if draft.kind != "amend"]
    )
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
