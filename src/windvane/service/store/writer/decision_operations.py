"""The operations that write, activate, withdraw and close decisions, and their offers.

A batch has the same effect as its operations one by one in the same order.

An offer is the actions of rank requests, stored once for each loop and not in every decision. It
records when it was last used, to the hour. No decision is therefore more than an hour newer than
the last use of its offer, and an offer whose last use is more than an hour older than the oldest
decision of its loop belongs to no decision.
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import and_, bindparam, delete, exists, false, func, select, update

from windvane.service.store.rows import (
    IMPORTED,
    DecisionRow,
    Lesson,
    get_answer,
    rebuild_answer,
)
from windvane.service.store.schema import (
    ACTION_IDS,
    DECISIONS_WITH_OFFERS,
    decisions,
    lessons,
    offers,
    waiting,
)
from windvane.service.store.writer.group_commit import Operation, Phase, Transaction, list_marks
from windvane.service.store.writer.reward_operations import (
    DecisionState,
    LessonDraft,
    MatchResult,
    RewardTerms,
    close_decisions,
    draft_defaults,
    find_terms,
    match_early_rewards,
    read_decision_states,
    read_slot_rewards,
    write_lessons,
)


class PutDecisionResult(NamedTuple):
    """Whether the decision is in the log, and the lessons of rewards that arrived before it."""

    # Of the decision that the event had before; empty if this one is new or of another kind.
    answer: bytes
    is_new: bool
    lessons: tuple[Lesson, ...]


class ExpireResult(NamedTuple):
    """How many decisions were closed, and the default lessons of the activated ones."""

    closed: int
    lessons: tuple[Lesson, ...]


_SELECT_ANSWERS = (
    select(
        decisions.c.event_id,
        ACTION_IDS,
        *decisions.c["probabilities", "chosen", "degraded", "slots"],
    )
    .select_from(DECISIONS_WITH_OFFERS)
    .where(
        decisions.c.loop == bindparam("loop"),
        decisions.c.event_id.in_(bindparam("events", expanding=True)),
    )
)

_SELECT_LAST_ID = "SELECT max(id) FROM decisions WHERE loop = ?"

_INSERT_WAITING = """
INSERT INTO waiting (loop, decision, at)
SELECT loop, id, at FROM decisions WHERE loop = ? AND id > ? AND features IS NOT NULL
"""


class PutDecision(Operation[PutDecisionResult], frozen=True):
    """Write a decision. An event has one decision: a second one returns the answer of the first.

    A page and a decision for one action have other answers, so that one of them returns none of the
    other.
    """

    phase = Phase.DECISION
    decision: DecisionRow
    terms: RewardTerms
    has_generated_id: bool = False  # then no stored decision or reward can have this event id

    @property
    def loop_id(self) -> int:
        return self.decision.loop

    @classmethod
    def run_batch(
        cls, transaction: Transaction, batch: Sequence["PutDecision"]
    ) -> Sequence[PutDecisionResult]:
        loop = batch[0].decision.loop
        first: dict[str, PutDecision] = {}
        for put in batch:
            first.setdefault(put.decision.event_id, put)
        client_ids = [event_id for event_id, put in first.items() if not put.has_generated_id]
        answers: dict[str, tuple[bool, bytes]] = {}  # whether it is of a page, and the answer
        if client_ids:
            parameters = {"loop": loop, "events": client_ids}
            rows = transaction.connection.execute(_SELECT_ANSWERS, parameters)
            answers = {
                event_id: (columns[-1] is not None, rebuild_answer(event_id, *columns))
                for event_id, *columns in rows
            }
        new = {event_id: put for event_id, put in first.items() if event_id not in answers}
        lessons_by_event: dict[str, list[Lesson]] = {}
        if new:
            _insert_decisions(transaction, loop, [put.decision for put in new.values()])
            match_times = {
                event_id: (put.terms, put.decision.at)
                for event_id, put in new.items()
                if not put.has_generated_id
            }
            lessons_by_event = match_early_rewards(transaction, loop, "orphan", match_times)
        results = []
        for put in batch:
            event_id = put.decision.event_id
            if new.get(event_id) is put:
                learned = tuple(lessons_by_event.get(event_id, ()))
                results.append(PutDecisionResult(b"", True, learned))
            else:
                if event_id not in answers:  # an earlier operation of this batch is the new one
                    earlier = first[event_id].decision
                    answers[event_id] = (earlier.slots is not None, get_answer(earlier))
                is_page, answer = answers[event_id]
                is_same_kind = is_page == (put.decision.slots is not None)
                results.append(PutDecisionResult(answer if is_same_kind else b"", False, ()))
        return results


def _insert_decisions(transaction: Transaction, loop: int, new: list[DecisionRow]) -> None:
    """Insert decisions; those with features wait for their reward from now on."""
    offer_ids = put_offers(transaction, loop, new)
    rows = [
        (
            *decision[:10],  # all that stands before `actions`
            decision.actions if decision.offer is None else "",
            decision.request,
            offer_ids[decision.offer],
            decision.offer_at,
            decision.slots,
            None if decision.deferred else decision.at,
        )
        for decision in new
    ]
    ((last_id,),) = transaction.fetch_all(_SELECT_LAST_ID, (loop,))
    transaction.insert_many("decisions", DecisionRow._fields[:-1], rows)
    transaction.execute_many(_INSERT_WAITING, [(loop, last_id or 0)])
    own = [decision for decision in new if decision.mode != IMPORTED]
    transaction.counter_changes[loop, "ranked"] += len(own)
    transaction.counter_changes[loop, "activated"] += sum(not each.deferred for each in own)


class ImportedDecision(NamedTuple):
    """A decision that another system made, and its reward."""

    decision: DecisionRow
    reward: float


class PutImportResult(NamedTuple):
    """How many of the decisions are new, and their lessons."""

    new: int
    lessons: tuple[Lesson, ...]


class PutImport(Operation[PutImportResult], frozen=True):
    """Write decisions of another system, and learn their rewards.

    An event that has a decision keeps it, and nothing is learned. No counter of the loop changes:
    the loop has not made these decisions.
    """

    loop: int
    rows: tuple[ImportedDecision, ...]

    def run(self, transaction: Transaction) -> PutImportResult:
        first: dict[str, ImportedDecision] = {}
        for row in self.rows:
            first.setdefault(row.decision.event_id, row)
        for event_id in read_decision_states(transaction, self.loop, first):
            del first[event_id]
        if not first:
            return PutImportResult(0, ())
        _insert_decisions(transaction, self.loop, [row.decision for row in first.values()])
        states = read_decision_states(transaction, self.loop, first)
        drafts = [
            LessonDraft(states[event_id], "observe", row.reward, row.decision.at)
            for event_id, row in first.items()
        ]
        return PutImportResult(len(first), tuple(write_lessons(transaction, self.loop, drafts)))


_UPDATE_ACTIVATED = (
    update(decisions)
    .where(decisions.c.id == bindparam("decision"))
    .values(activated_at=bindparam("now"))
)


class Activate(Operation[MatchResult], frozen=True):
    """Activate a deferred decision, and learn the rewards that were held for it."""

    phase = Phase.ACTIVATION
    loop: int
    event_id: str
    at: int
    terms: RewardTerms

    @classmethod
    def run_batch(
        cls, transaction: Transaction, batch: Sequence["Activate"]
    ) -> Sequence[MatchResult]:
        loop = batch[0].loop
        states = read_decision_states(transaction, loop, (one.event_id for one in batch))
        activated: dict[str, Activate] = {}
        statuses = []
        for activation in batch:
            state = states.get(activation.event_id)
            if state is None:
                status = "unknown"
            elif state.is_activated:
                status = "already"
            elif state.is_too_late(activation.at, find_terms(transaction, loop, activation.terms)):
                status = "late"
            else:
                status = "activated"
                state.is_activated = True
                activated[activation.event_id] = activation
            statuses.append(status)
        lessons_by_event: dict[str, list[Lesson]] = {}
        if activated:
            transaction.counter_changes[loop, "activated"] += len(activated)
            updates = [
                {"decision": states[event_id].id, "now": activation.at}
                for event_id, activation in activated.items()
            ]
            transaction.connection.execute(_UPDATE_ACTIVATED, updates)
            match_times = {
                event_id: (activation.terms, activation.at)
                for event_id, activation in activated.items()
            }
            lessons_by_event = match_early_rewards(transaction, loop, "held", match_times)
        results = []
        for status, activation in zip(statuses, batch, strict=True):
            learned = lessons_by_event.get(activation.event_id, ())
            results.append(MatchResult(status, tuple(learned) if status == "activated" else ()))
        return results


class Withdraw(Operation[None], frozen=True):
    """Replace a decision that was written too late: the client got the answer of `replacement`.

    Nothing is learned from the withdrawn decision. An earlier decision of the same event stays, and
    so does a decision that already has a lesson.
    """

    withdrawn: DecisionRow
    replacement: DecisionRow
    terms: RewardTerms

    @property
    def loop_id(self) -> int:
        return self.withdrawn.loop

    def run(self, transaction: Transaction) -> None:
        loop = self.withdrawn.loop
        has_lesson = exists().where(lessons.c.decision == decisions.c.id).label("has_lesson")
        same_event = and_(decisions.c.loop == loop, decisions.c.event_id == self.withdrawn.event_id)
        rows = transaction.connection.execute(
            select(decisions.c.id, decisions.c.round, has_lesson).where(same_event)
        ).all()
        if not rows:
            PutDecision.run_batch(transaction, [PutDecision(self.replacement, self.terms)])
        ids = [row.id for row in rows if row.round == self.withdrawn.round and not row.has_lesson]
        close_decisions(transaction, loop, ids)
        columns = ("chosen", "probabilities", "features", "degraded", "slots")
        values = {name: getattr(self.replacement, name) for name in columns}
        change = update(decisions).where(decisions.c.id.in_(ids))
        transaction.connection.execute(change.values(values))


class Expire(Operation[ExpireResult], frozen=True):
    """Close the oldest decisions whose wait time has ended; activated ones learn the default.

    At most `limit` decisions are closed at a time. The time of this operation does not depend on
    how many decisions wait.
    """

    loop: int
    before: int  # decisions that wait since an earlier time are closed: now minus the wait time
    default: float
    at: int
    limit: int = 256
    change: int = 0  # id of the change of settings that `before` and `default` follow from

    def run(self, transaction: Transaction) -> ExpireResult:
        transaction.check_change(self.loop, self.change)
        oldest = (
            select(waiting.c.decision, waiting.c.at)
            .where(waiting.c.loop == self.loop, waiting.c.at < self.before)
            .order_by(waiting.c.at, waiting.c.decision)
            .limit(self.limit)
            .subquery()
        )
        query = (
            select(
                *decisions.c["event_id", "id", "at", "round", "features"],
                decisions.c.activated_at.is_not(None),
                false(),
                oldest.c.at,
                decisions.c.slots,
            )
            .join(oldest, oldest.c.decision == decisions.c.id)
            .order_by(decisions.c.id)
        )
        rows: Sequence[Any] = transaction.connection.execute(query).all()
        expired = {event_id: DecisionState(*columns) for event_id, *columns in rows}
        read_slot_rewards(transaction, self.loop, expired)
        activated = [state for state in expired.values() if state.is_activated]
        defaults = [draft_defaults(state, self.default, self.at) for state in activated]
        transaction.counter_changes[self.loop, "default"] += len(list(filter(None, defaults)))
        transaction.counter_changes[self.loop, "unactivated"] += len(expired) - len(activated)
        unrewarded = [each.id for each in expired.values() if not each.is_activated or each.page]
        close_decisions(transaction, self.loop, unrewarded)
        drafts = [*chain.from_iterable(defaults)]
        return ExpireResult(len(expired), tuple(write_lessons(transaction, self.loop, drafts)))


USE_RESOLUTION_US = 3_600_000_000  # an hour
HASH_BYTES = 16

_PUT_OFFER = """
INSERT INTO offers (loop, hash, last_used, ids, actions) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (loop, hash) DO UPDATE SET last_used = excluded.last_used
"""


def put_offers(
    transaction: Transaction, loop: int, new: Sequence[DecisionRow]
) -> dict[str | None, int | None]:
    """Write the offers of new decisions that the log lacks; returns the ids of all, by offer."""
    in_order = sorted(new, key=lambda decision: decision.at)
    last_uses = {each.offer: each for each in in_order if each.offer is not None}
    by_hash = {
        blake2b(offer.encode(), digest_size=HASH_BYTES).digest(): decision
        for offer, decision in last_uses.items()
    }
    stored = _read_offers(transaction, loop, list(by_hash))
    rows = [
        (loop, digest, decision.at, decision.actions, decision.offer)
        for digest, decision in by_hash.items()
        if digest not in stored or stored[digest][1] < decision.at - USE_RESOLUTION_US
    ]
    if rows:
        transaction.execute_many(_PUT_OFFER, rows)
        stored |= _read_offers(transaction, loop, [digest for _, digest, *_ in rows])
    ids: dict[str | None, int | None] = {None: None}
    return ids | {decision.offer: stored[digest][0] for digest, decision in by_hash.items()}


def _read_offers(
    transaction: Transaction, loop: int, hashes: Sequence[bytes]
) -> dict[bytes, tuple[int, int]]:
    if not hashes:
        return {}
    query = f"""
SELECT hash, id, last_used FROM offers WHERE loop = ? AND hash IN ({list_marks(hashes)})
"""
    rows = transaction.fetch_all(query, (loop, *hashes))
    return {bytes(digest): (id_, last_used) for digest, id_, last_used in rows}


def delete_unused_offers(transaction: Transaction, loop: int, limit: int) -> None:
    """Delete offers of a loop that belong to no decision, the longest unused first."""
    oldest = transaction.connection.scalar(
        select(func.min(decisions.c.at)).where(decisions.c.loop == loop)
    )
    unused = select(offers.c.id).where(offers.c.loop == loop)
    if oldest is not None:
        unused = unused.where(offers.c.last_used < oldest - USE_RESOLUTION_US)
    unused = unused.order_by(offers.c.last_used).limit(limit)
    transaction.connection.execute(delete(offers).where(offers.c.id.in_(unused)))
