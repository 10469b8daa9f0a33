"""Auto-optimisation of a running service: one loop gets better settings, another keeps its own.

The logs are those of the last two weeks. The first loop chooses at random in every second decision
and would earn 0.15 more with little exploration. The second loop explores little and has nothing to
gain.
"""

import time
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from evaluation_helpers import wait_for_end, write_log
from server_process import Nursery, Server
from windvane.service.evaluations.records import EvaluationOutcome, decode_outcome
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.evaluations import list_evaluations
from windvane.service.store.log import Store
from windvane.service.store.rows import EvaluationRow

DAY = 86_400
LOG_DAYS = 13
ROWS = {"wasteful": 1500, "thrifty": 500}
EXPLORATION = {"wasteful": 0.5, "thrifty": 0.02}
PATIENCE_SECONDS = 240.0


class Optimized(NamedTuple):
    """What a run of auto-optimisation left of one loop."""

    row: EvaluationRow
    outcome: EvaluationOutcome
    settings: LoopSettings
    authors: list[str]  # of the settings, the oldest first
    policy: str  # as GET configurations/policy writes it


def wait_for_auto_optimization(server: Server, name: str) -> str:
    """Wait until the evaluation that the service asked for has ended; returns its id."""
    base = f"/loops/{name}/personalizer/evaluations"
    with closing(server.client()) as client:
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            listed = client.call("GET", base).json
            if listed:
                break
            assert time.monotonic() < end
            time.sleep(0.2)
        (evaluation,) = listed
        path = f"{base}/{evaluation['id']}"
        wait_for_end(client, path, PATIENCE_SECONDS)
        return str(evaluation["id"])


@pytest.fixture(scope="module")
def optimized(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Optimized]:
    data = tmp_path_factory.mktemp("promotion") / "data"
    with Store(data) as store:
        for name, rows in ROWS.items():
            write_log(
                store,
                name,
                rows,
                EXPLORATION[name],
                start=int(time.time()) - LOG_DAYS * DAY,
                step=LOG_DAYS * DAY // rows,
                half_life="never",
                is_auto_optimization_enabled=True,
            )
    policies: dict[str, str] = {}
    with Server(nursery, data) as server:
        for name in ROWS:
            wait_for_auto_optimization(server, name)
            with closing(server.client()) as client:
                path = f"/loops/{name}/personalizer/v1.1-preview.3/configurations/policy"
                policies[name] = client.call("GET", path).json["arguments"]
    found: dict[str, Optimized] = {}
    with Store(data) as store:
        for name in ROWS:
            loop = store.find_loop(name)
            assert loop is not None
            (row,) = list_evaluations(store, loop.id, "Auto")
            assert row.outcome is not None
            changes = store.list_settings_changes(loop.id)
            found[name] = Optimized(
                row,
                decode_outcome(row.outcome),
                LoopSettings.from_json(loop.settings),
                [change.by for change in sorted(changes, key=lambda each: each.id)],
                policies[name],
            )
    return found


def find_gain(outcome: EvaluationOutcome, name: str) -> Any:
    return next(policy.result["gain"] for policy in outcome.policies if policy.name == name)


def test_better_settings_are_applied_with_their_evidence(
    optimized: dict[str, Optimized],
) -> None:
    row, outcome, settings, authors, policy = optimized["wasteful"]
    assert (row.status, row.type) == ("OptimalPolicyApplied", "Auto")
    gain = find_gain(outcome, outcome.optimal_policy)
    low, high = gain["interval"]
    assert 0 < low < 0.15 < high  # the true gain of a learner that soon knows the best actions
    assert settings.exploration_percentage == 0.02
    assert "explorationPercentage=0.02" in policy
    assert authors == ["test", "auto-optimise"]
    assert f"{outcome.optimal_policy} (halfLife=" in outcome.evidence
    assert f"is applied: it earns between {low:+.4f} and {high:+.4f} more" in outcome.evidence
    assert f"over {ROWS['wasteful']} decisions" in outcome.evidence


def test_settings_stay_if_nothing_is_better_and_the_refusal_has_its_evidence(
    optimized: dict[str, Optimized],
) -> None:
    row, outcome, settings, authors, policy = optimized["thrifty"]
    assert (row.status, row.type) == ("OnlinePolicyRetained", "Auto")
    assert outcome.optimal_policy == "online"
    candidates = [each for each in outcome.policies if each.name.startswith("Hyper")]
    assert all(each.result["gain"]["interval"][0] <= 0 for each in candidates)
    assert (settings.exploration_percentage, settings.half_life) == (0.02, "never")
    assert "explorationPercentage=0.02" in policy
    assert authors == ["test"]
    assert outcome.evidence == (
        f"none of {len(candidates)} candidates earns more than the loop did with 95 % confidence, "
        f"over {ROWS['thrifty']} decisions"
    )
