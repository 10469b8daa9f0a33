"""A short form of `make faults`: a few faults of each kind that needs no other program.

The name of a case has the kind of fault, the database, a number that is part of the seed, and how
many faults there are.
"""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.cases import parse_case
from faults.kinds import find_kind, list_kinds, plan_run
from faults.outcome import Outcome
from faults.promises import (
    BELIEF,
    DEGRADED,
    DURABLE,
    ONCE,
    ONE_DECISION,
    SETTINGS,
    check_log,
    check_modes,
)
from faults.stage import Site, Stage
from faults.traffic import LOOPS, AcknowledgedRank, AcknowledgedReward, Visitor
from server_process import Nursery
from store_helpers import make_decision, put_decision, put_reward
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.database import DATABASE_FILE
from windvane.service.store.log import Store
from windvane.service.store.rows import get_answer
from windvane.service.store.writer.loop_operations import PutLoop

CASES = (
    "kill-sqlite-0-10",
    "kill-postgresql-0-5",
    "kill-degraded-sqlite-0-1",
    "stop-sqlite-0-2",
    "settings-sqlite-0-4",
    "settings-postgresql-1-4",
    "cut-postgresql-0-4",
    "full-disk-sqlite-0-1",
    "hostile-sqlite-0-600",
)


@pytest.fixture(scope="module")
def stage(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Stage(tmp_path_factory.mktemp("faults"), nursery) as stage:
        yield stage


@pytest.mark.parametrize("name", CASES)
def test_promises_hold_under_faults(
    stage: Stage, name: str, request: pytest.FixtureRequest
) -> None:
    case = parse_case(name)
    if case.database == "postgresql":
        stage.postgresql = request.getfixturevalue("server")
    outcome = find_kind(list_kinds(), case).run(stage, case)
    assert outcome.violations == []
    assert min(outcome.checks[promise] for promise in (BELIEF, DURABLE, ONE_DECISION)) > 0


def test_broken_promises_are_seen(tmp_path: Path) -> None:
    site = Site(tmp_path / "data", None)
    with Store(site.data) as store:
        ids = {
            name: store.write(PutLoop(name, LoopSettings().to_json(), 0, "test")).id
            for name in LOOPS
        }
        for event in ("kept", "degraded", "twice"):
            store.write(put_decision(ids["plain"], event))
            store.write(put_reward(ids["plain"], event, 0.5, request="r"))
        answer = get_answer(make_decision(ids["plain"], "kept"))
    visitor = Visitor(0, 0, 0, threading.Event())
    visitor.events = [("plain", event) for event in ("kept", "lost", "degraded", "twice")]
    visitor.answers["plain", "kept"] = AcknowledgedRank(answer, 0.0)
    visitor.rewards.append(AcknowledgedReward("plain", "kept", "r", 0.5, 0.0))
    assert count_broken(site, visitor) == {}
    visitor.answers["plain", "lost"] = AcknowledgedRank(answer, 0.0)
    visitor.answers["plain", "twice"] = AcknowledgedRank(answer, 0.0)
    visitor.rewards.append(AcknowledgedReward("plain", "kept", "s", 0.5, 0.0))
    visitor.shares.append(0.123)
    visitor.degraded.add(("plain", "degraded"))
    assert count_broken(site, visitor) == {DURABLE: 4, DEGRADED: 2}
    with sqlite3.connect(site.data / DATABASE_FILE) as connection:
        connection.execute("UPDATE decisions SET round = 7")
        connection.execute(
            "INSERT INTO lessons (loop, decision, kind, value, at) "
            "SELECT loop, decision, kind, value, at FROM lessons WHERE id = 1"
        )
        connection.execute("UPDATE lessons SET kind = 'default' WHERE id = 2")  # 0.5, at once
    connection.close()
    broken = {DURABLE: 4, DEGRADED: 2, ONE_DECISION: 2, ONCE: 3, SETTINGS: 2}
    assert count_broken(site, visitor) == broken
    visitor.modes["plain", "kept"] = "Apprentice"
    outcome = Outcome()
    check_modes(outcome, site, [visitor])
    assert outcome.broken == {SETTINGS: 1}


def count_broken(site: Site, visitor: Visitor) -> dict[str, int]:
    """How often the log breaks each promise."""
    outcome = Outcome()
    check_log(outcome, site, [visitor])
    return dict(outcome.broken)


def test_a_whole_run_has_as_many_faults_as_it_says_on_both_databases(tmp_path: Path) -> None:
    cases = plan_run(list_kinds(kills=130, requests=6000, soak_minutes=0))
    kills = [case for case in cases if case.kind == "kill"]
    assert sum(case.amount for case in kills) == 130
    assert {case.database for case in kills} == {"sqlite", "postgresql"}
    assert sum(case.amount for case in cases if case.kind == "hostile") == 6000
    assert len({case.name for case in cases}) == len(cases)
    assert all(parse_case(case.name) == case for case in cases)
