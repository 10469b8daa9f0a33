"""The operations by which decisions and rewards enter the log and meet there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import and_, bindparam, exists, select, update

from windvane.service.store.group_commit import Operation, Work
from windvane.service.store.reward_matching import (
    TEACHES,
    Draft,
    Known,
    Moment,
    Terms,
    close,
    known,
    settle_again,
    teach,
)
from windvane.service.store.schema import (
    Decision,
    Lesson,
    Reward,
    decisions,
    lessons,
    rewards,
    waiting,
)


class Ranked(NamedTuple):
    """A decision in the log: the answer to give, and what rewards that came before it teach."""

    answer: bytes
    fresh: bool  # False: the event was decided before, and the answer is the one given then
    lessons: tuple[Lesson, ...]


class Activated(NamedTuple):
    """activated, already, late or unknown; and what rewards that were held teach."""

    status: str
    lessons: tuple[Lesson, ...]


class Rewarded(NamedTuple):
    """A reward in the log: its status, a field of `Funnel`, and what it teaches."""

    status: str
    lessons: tuple[Lesson, ...]


class Expired(NamedTuple):
    """How many decisions were closed, and what those of them that were activated teach."""

    closed: int
    lessons: tuple[Lesson, ...]


_ANSWERS = select(*decisions.c["event_id", "answer"]).where(
    decisions.c.loop == bindparam("loop"),
    decisions.c.event_id.in_(bindparam("events", expanding=True)),
)

_WAIT = """
INSERT INTO waiting (loop, decision, at)
SELECT loop, id, at FROM decisions WHERE loop = ? AND event_id = ?
"""


@dataclass(frozen=True, slots=True)
class PutDecision(Operation[Ranked]):
    """Keep a decision. One event is decided once: a second decision yields the first's answer."""

    decision: Decision
    terms: Terms
    is_new: bool = False  # whether its event id was made for it, so that nobody can know it yet

    def place(self) -> tuple[int, int]:
        return (1, self.decision.loop)

    @classmethod
    def run(cls, work: Work, batch: Sequence["PutDecision"]) -> Sequence[Ranked]:
        loop = batch[0].decision.loop
        first: dict[str, PutDecision] = {}
        for put in batch:
            first.setdefault(put.decision.event_id, put)
        named = [event for event, put in first.items() if not put.is_new]
        stored: dict[str, bytes] = {}
        if named:
            found = work.connection.execute(_ANSWERS, {"loop": loop, "events": named})
            stored = {row.event_id: row.answer for row in found}
        fresh = {event: put for event, put in first.items() if event not in stored}
        taught: dict[str, list[Lesson]] = {}
        if fresh:
            _insert(work, loop, [put.decision for put in fresh.values()])
            stored |= {event: put.decision.answer for event, put in fresh.items()}
            moments = {
                e: Moment(put.terms, put.decision.at) for e, put in fresh.items() if not put.is_new
            }
            taught = settle_again(work, loop, "orphan", moments)
        ranked = []
        for put in batch:
            event = put.decision.event_id
            is_fresh = fresh.get(event) is put
            learned = tuple(taught.get(event, ())) if is_fresh else ()
            ranked.append(Ranked(stored[event], is_fresh, learned))
        return ranked


def _insert(work: Work, loop: int, fresh: list[Decision]) -> None:
    """Keep decisions; one that can be learned from waits for its reward from now on."""
    rows = [
        decision._replace(activated_at=None if decision.deferred else decision.at)
        for decision in fresh
    ]
    work.put("decisions", Decision._fields[:-1], [row[:-1] for row in rows])
    work.counts[loop, "ranked"] += len(fresh)
    work.counts[loop, "activated"] += sum(not decision.deferred for decision in fresh)
    wait = [(loop, decision.event_id) for decision in fresh if decision.features is not None]
    work.many(_WAIT, wait)


_ACTIVATE = (
    update(decisions)
    .where(decisions.c.id == bindparam("decision"))
    .values(activated_at=bindparam("now"))
)


@dataclass(frozen=True, slots=True)
class Activate(Operation[Activated]):
    """Let a deferred decision count; rewards that were held for it are learned now."""

    loop: int
    event_id: str
    at: int
    terms: Terms

    def place(self) -> tuple[int, int]:
        return (2, self.loop)

    @classmethod
    def run(cls, work: Work, batch: Sequence["Activate"]) -> Sequence[Activated]:
        loop = batch[0].loop
        theirs = known(work, loop, (one.event_id for one in batch))
        activated: dict[str, Activate] = {}
        statuses = []
        for one in batch:
            decision = theirs.get(one.event_id)
            if decision is None:
                status = "unknown"
            elif decision.activated:
                status = "already"
            elif one.at > decision.at + one.terms.wait or decision.is_over:
                status = "late"
            else:
                status = "activated"
                decision.activated = True
                activated[one.event_id] = one
            statuses.append(status)
        taught: dict[str, list[Lesson]] = {}
        if activated:
            work.counts[loop, "activated"] += len(activated)
            changes = [{"decision": theirs[e].id, "now": a.at} for e, a in activated.items()]
            work.connection.execute(_ACTIVATE, changes)
            moments = {event: Moment(one.terms, one.at) for event, one in activated.items()}
            taught = settle_again(work, loop, "held", moments)
        return [
            Activated(status, tuple(taught.get(one.event_id, ())) if status == "activated" else ())
            for status, one in zip(statuses, batch, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Withdraw(Operation[None]):
    """A decision that took too long and was answered otherwise: nothing is learned of it.

    What was decided for the same event before stays, and so does what has taught already.
    """

    void: Decision
    instead: Decision
    terms: Terms

    def do(self, work: Work) -> None:
        event = and_(decisions.c.loop == self.void.loop, decisions.c.event_id == self.void.event_id)
        taught = exists().where(lessons.c.decision == decisions.c.id)
        found = work.connection.execute(
            select(decisions.c.id, decisions.c.round, taught).where(event)
        ).all()
        if not found:
            PutDecision.run(work, [PutDecision(self.instead, self.terms)])
        ours = [id_ for id_, round_, taught in found if round_ == self.void.round and not taught]
        close(work, self.void.loop, ours)
        names = ("chosen", "probabilities", "features", "degraded", "answer")
        changed = {name: getattr(self.instead, name) for name in names}
        work.connection.execute(update(decisions).where(decisions.c.id.in_(ours)).values(changed))


_SEEN = select(*rewards.c["event_id", "request_id"]).where(
    rewards.c.loop == bindparam("loop"),
    rewards.c.event_id.in_(bindparam("events", expanding=True)),
    rewards.c.request_id.is_not(None),
)


@dataclass(frozen=True, slots=True)
class PutReward(Operation[Rewarded]):
    """Keep a reward, and learn from it if its decision is there and waits for it.

    A reward of the same event with the same request id is a client's second attempt.
    """

    loop: int
    event_id: str
    value: float
    at: int
    terms: Terms
    request_id: str | None = None

    def place(self) -> tuple[int, int]:
        return (3, self.loop)

    @classmethod
    def run(cls, work: Work, batch: Sequence["PutReward"]) -> Sequence[Rewarded]:
        loop = batch[0].loop
        named = list({put.event_id for put in batch if put.request_id is not None})
        asked = {"loop": loop, "events": named}
        seen: set[tuple[str, str | None]] = set()
        if named:
            seen.update(
                (event, request) for event, request in work.connection.execute(_SEEN, asked)
            )
        theirs = known(work, loop, (put.event_id for put in batch))
        statuses, rows, drafts = [], [], []
        for put in batch:
            request = put.request_id
            if (put.event_id, request) in seen:
                status, request = "duplicate", None
            elif put.event_id not in theirs:
                status = "orphan"
            else:
                status = theirs[put.event_id].settle(put.at, put.terms)
            if request is not None:
                seen.add((put.event_id, request))
            work.counts[loop, status] += 1
            statuses.append(status)
            rows.append((loop, put.event_id, request, put.value, put.at, status))
            if status in TEACHES:
                drafts.append(Draft(theirs[put.event_id], TEACHES[status], put.value, put.at))
        work.put("rewards", ("loop", *Reward._fields[1:]), rows)
        taught = iter(teach(work, loop, drafts))
        return [
            Rewarded(status, (next(taught),) if status in TEACHES else ()) for status in statuses
        ]


@dataclass(frozen=True, slots=True)
class Expire(Operation[Expired]):
    """Close the oldest decisions made before a time: what was activated learns the default.

    Looks at `limit` decisions, the oldest by id, and so takes the same time however many wait.
    """

    loop: int
    before: int  # now - wait
    default: float
    at: int
    limit: int = 256

    def do(self, work: Work) -> Expired:
        oldest = (
            select(waiting.c.decision, waiting.c.at)
            .where(waiting.c.loop == self.loop)
            .order_by(waiting.c.decision)
            .limit(self.limit)
            .subquery()
        )
        over = (
            select(*decisions.c["id", "at", "round", "features", "activated_at"])
            .join(oldest, oldest.c.decision == decisions.c.id)
            .where(oldest.c.at < self.before)
            .order_by(decisions.c.id)
        )
        closed = [
            Known(
                row.id, row.at, row.round, row.features, row.activated_at is not None, True, False
            )
            for row in work.connection.execute(over)
        ]
        active = [decision for decision in closed if decision.activated]
        work.counts[self.loop, "default"] += len(active)
        work.counts[self.loop, "unactivated"] += len(closed) - len(active)
        close(work, self.loop, [decision.id for decision in closed if not decision.activated])
        drafts = [Draft(decision, "default", self.default, self.at) for decision in active]
        return Expired(len(closed), tuple(teach(work, self.loop, drafts)))
