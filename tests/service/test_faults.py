"""A short form of `make faults`: a few faults of each kind that needs no other program.

The name of a case has the kind of fault, the database, a number that is part of the seed, and how
many faults there are.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.cases import parse_case
from faults.kinds import find_kind, list_kinds, plan_run
from faults.promises import BELIEF, DURABLE, ONE_DECISION
from faults.stage import Stage
from server_process import Nursery

CASES = (
    "kill-sqlite-0-15",
    "kill-postgresql-0-6",
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


def test_a_whole_run_has_as_many_faults_as_it_says_on_both_databases(tmp_path: Path) -> None:
    cases = plan_run(list_kinds(kills=130, requests=6000, soak_minutes=0))
    kills = [case for case in cases if case.kind == "kill"]
    assert sum(case.amount for case in kills) == 130
    assert {case.database for case in kills} == {"sqlite", "postgresql"}
    assert sum(case.amount for case in cases if case.kind == "hostile") == 6000
    assert len({case.name for case in cases}) == len(cases)
    assert all(parse_case(case.name) == case for case in cases)
