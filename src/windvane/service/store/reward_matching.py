"""What a reward is to its decision, and the lessons that come of it.

The writer alone decides this, in the order of the log: two rewards at once, or a reward at the
moment when its wait ends, have one outcome, and a replay finds it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import and_, bindparam, exists, select, update

from windvane.errors import StoreError
from windvane.service.store.group_commit import Work
from windvane.service.store.schema import Lesson, decisions, lessons, rewards, waiting

TEACHES = {"learned": "observe", "summed": "amend"}  # statuses of rewards, kinds of lessons


class Terms(NamedTuple):
    """For how many microseconds a decision waits, and whether its rewards add up."""

    wait: int
    adds: bool = False


@dataclass(slots=True)
class Known:
    """A decision as its rewards find it, and as they leave it for those after them."""

    id: int
    at: int
    round: int
    features: bytes | None
    activated: bool
    is_open: bool  # waits for its reward
    is_rewarded: bool

    @property
    def is_over(self) -> bool:
        """Whether its wait ended without a reward."""
        return self.features is not None and not (self.is_open or self.is_rewarded)

    def settle(self, at: int, terms: Terms) -> str:
        """What a reward that came at a time is to this decision: a field of `Funnel`."""
        if self.features is None:
            return "unlearned"
        if at > self.at + terms.wait or self.is_over:
            return "late"
        if self.is_rewarded:
            return "summed" if terms.adds else "extra"
        if not self.activated:
            return "held"
        self.is_open, self.is_rewarded = False, True
        return "learned"


class Moment(NamedTuple):
    """When, and on which terms, a decision meets the rewards that missed it."""

    terms: Terms
    at: int


class Draft(NamedTuple):
    """A lesson before it has its id."""

    decision: Known
    kind: str
    value: float
    at: int


_KNOWN = (
    select(
        *decisions.c["event_id", "id", "at", "round", "features"],
        decisions.c.activated_at.is_not(None).label("activated"),
        waiting.c.decision.is_not(None).label("is_open"),
        exists()
        .where(lessons.c.decision == decisions.c.id, lessons.c.kind == "observe")
        .label("is_rewarded"),
    )
    .select_from(
        decisions.outerjoin(
            waiting,
            and_(waiting.c.loop == decisions.c.loop, waiting.c.decision == decisions.c.id),
        )
    )
    .where(
        decisions.c.loop == bindparam("loop"),
        decisions.c.event_id.in_(bindparam("events", expanding=True)),
    )
)


def known(work: Work, loop: int, events: Iterable[str]) -> dict[str, Known]:
    """The decisions of events, by event."""
    asked = {"loop": loop, "events": list(set(events))}
    found: Sequence[Any] = work.connection.execute(_KNOWN, asked).all()
    return {event: Known(*rest) for event, *rest in found}


_MISSED = (
    select(*rewards.c["id", "event_id", "value", "at"])
    .where(
        rewards.c.loop == bindparam("loop"),
        rewards.c.event_id.in_(bindparam("events", expanding=True)),
        rewards.c.status == bindparam("status"),
    )
    .order_by(rewards.c.id)
)

_RESTATE = (
    update(rewards).where(rewards.c.id == bindparam("reward")).values(status=bindparam("became"))
)


def settle_again(
    work: Work, loop: int, status: str, moments: Mapping[str, Moment]
) -> dict[str, list[Lesson]]:
    """Rewards that came before their decision, or before its activation, find it now."""
    if not moments:
        return {}
    asked = {"loop": loop, "events": list(moments), "status": status}
    found = work.connection.execute(_MISSED, asked).all()
    if not found:
        return {}
    theirs = known(work, loop, (event for _, event, _, _ in found))
    drafts: list[Draft] = []
    events: list[str] = []
    changes = []
    for reward, event, value, at in found:
        decision, moment = theirs[event], moments[event]
        became = decision.settle(at, moment.terms)
        changes.append({"reward": reward, "became": became})
        work.counts[loop, status] -= 1
        work.counts[loop, became] += 1
        if became in TEACHES:
            drafts.append(Draft(decision, TEACHES[became], value, moment.at))
            events.append(event)
    work.connection.execute(_RESTATE, changes)
    taught: dict[str, list[Lesson]] = {}
    for event, lesson in zip(events, teach(work, loop, drafts), strict=True):
        taught.setdefault(event, []).append(lesson)
    return taught


_LAST = (
    select(lessons.c.id, lessons.c.decision)
    .where(lessons.c.loop == bindparam("loop"))
    .order_by(lessons.c.id.desc())
    .limit(bindparam("count"))
)


def teach(work: Work, loop: int, drafts: Sequence[Draft]) -> list[Lesson]:
    """Write lessons, in order; their decisions wait no longer."""
    if not drafts:
        return []
    rows = [(loop, known.id, kind, value, at) for known, kind, value, at in drafts]
    work.put("lessons", ("loop", "decision", "kind", "value", "at"), rows)
    last = work.connection.execute(_LAST, {"loop": loop, "count": len(rows)}).all()[::-1]
    if [decision for _, decision in last] != [draft.decision.id for draft in drafts]:
        raise StoreError("store: the database numbers lessons out of order", "refused")
    close(work, loop, [draft.decision.id for draft in drafts if draft.kind != "amend"])
    return [
        Lesson(number, known.id, kind, value, at, known.round, known.at, known.features or b"")
        for (number, _), (known, kind, value, at) in zip(last, drafts, strict=True)
    ]


_CLOSE = "DELETE FROM waiting WHERE loop = ? AND decision = ?"


def close(work: Work, loop: int, decided: list[int]) -> None:
    """These decisions wait no longer."""
    work.many(_CLOSE, [(loop, decision) for decision in decided])
