"""Short ways to write decisions and rewards into a store."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from sqlalchemy import func, select

from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.store.admin_operations import PutLoop
from windvane.service.store.decision_operations import PutDecision, PutReward
from windvane.service.store.group_commit import Operation, Work
from windvane.service.store.log import Store
from windvane.service.store.reward_matching import Terms
from windvane.service.store.schema import Decision, Funnel, decisions, lessons, rewards

SECOND = MICROSECONDS_PER_SECOND  # in times of the log
TERMS = Terms(wait=600 * SECOND)
SUMS = Terms(wait=600 * SECOND, adds=True)


def new_loop(store: Store, name: str = "home") -> int:
    return store.submit(PutLoop(name, '{"dim": 2}', 0, "test")).result(20).id


def decision(loop: int, event: str, at: int = 0, deferred: bool = False) -> Decision:
    number = sum(event.encode())
    return Decision(
        loop=loop,
        event_id=event,
        round=number,
        at=at,
        mode="Online",
        deferred=deferred,
        degraded=False,
        chosen=1,
        features=np.array([1.0, number / 7]).tobytes(),
        probabilities=np.array([0.1, 0.9]).tobytes(),
        actions='["a", "b"]',
        answer=f'{{"eventId": "{event}"}}'.encode(),
        request='{"contextFeatures": ["é"]}',
    )


def rank(
    loop: int, event: str, at: int = 0, deferred: bool = False, terms: Terms = TERMS
) -> PutDecision:
    return PutDecision(decision(loop, event, at, deferred), terms)


def reward(
    loop: int, event: str, value: float = 1.0, at: int = SECOND, request: str | None = None
) -> PutReward:
    return PutReward(loop, event, value, at, TERMS, request)


def summed(loop: int, event: str, value: float, at: int = SECOND) -> PutReward:
    return PutReward(loop, event, value, at, SUMS)


class Hold(Operation[None]):
    """Keeps the writer busy until it is let go."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.let_go = threading.Event()

    def do(self, work: Work) -> None:
        self.held.set()
        self.let_go.wait(20)


@contextmanager
def held(store: Store) -> Iterator[None]:
    """The writer is busy meanwhile, and takes all that came in one group afterwards."""
    hold = Hold()
    store.submit(hold)
    assert hold.held.wait(20)
    try:
        yield
    finally:
        hold.let_go.set()


class Fail(Operation[None]):
    """Breaks a rule of the database, half-way."""

    def __init__(self, loop: int) -> None:
        self.loop = loop

    def do(self, work: Work) -> None:
        work.counts[self.loop, "ranked"] += 100
        work.connection.execute(lessons.insert(), {"loop": self.loop, "decision": None})


def recounted(store: Store, loop: int) -> Funnel:
    """The funnel from the rows themselves; what was closed without a lesson is not to be seen."""
    ranked = select(func.count(), func.count(decisions.c.activated_at))
    learned = select(lessons.c.kind, func.count()).group_by(lessons.c.kind)
    kept = select(rewards.c.status, func.count()).group_by(rewards.c.status)
    with store._reading.connect() as connection:
        total, activated = connection.execute(ranked.where(decisions.c.loop == loop)).one()
        found = connection.execute(learned.where(lessons.c.loop == loop)).all()
        kinds: Counter[str] = Counter(dict(found))
        found = connection.execute(kept.where(rewards.c.loop == loop)).all()
        statuses: dict[str, int] = dict(found)
    assert kinds["observe"] == statuses.get("learned", 0)
    assert kinds["amend"] == statuses.get("summed", 0)
    return Funnel(ranked=total, activated=activated, default=kinds["default"], **statuses)
