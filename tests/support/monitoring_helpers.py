"""Loops with a played log, for the tests of monitoring."""

from typing import NamedTuple

from windvane.service.loops.loop import Loop
from windvane.service.loops.rank_requests import OfferedActions
from windvane.service.loops.settings import LoopSettings
from windvane.service.monitoring.log_follower import LogFollower
from windvane.service.schemas import Action, RankRequest
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutLoop


class ChangedLoop(NamedTuple):
    """A loop, and when its visitors changed their taste and its log ends, in microseconds."""

    loop: Loop
    change_at: int
    end_at: int


def create_loop(store: Store, settings: LoopSettings) -> Loop:
    """Create the loop `home`."""
    row = store.write(PutLoop("home", settings.to_json(), 0, "test"))
    return Loop(row, store)


def put_one_decision(store: Store, loop: Loop, *names: str) -> None:
    """Write one decision between some actions, with the event id e."""
    request = RankRequest(actions=[Action(name, []) for name in names], event_id="e")
    decision = loop.decide(request, OfferedActions(request.actions))
    store.write(PutDecision(decision, loop.terms))


def follow(loop: Loop) -> LogFollower:
    """A follower that has read the whole log."""
    follower = LogFollower(loop)
    follower.advance(budget=60)
    return follower
