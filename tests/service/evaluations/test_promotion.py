"""Auto-optimisation of a running service: one loop gets better settings, another keeps its own.

The logs are those of the last two weeks. Both loops never forget. In the first one tastes turn
round twice, so that a shorter half-life would have earned more. In the second one nothing changes,
and there is nothing to gain.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from evaluation_helpers import MEAN_REWARDS, wait_for_end, write_log
from server_process import Nursery, Server
from windvane.service.evaluations.records import EvaluationOutcome, decode_outcome
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.evaluations import list_evaluations
from windvane.service.store.log import Store
from windvane.service.store.rows import EvaluationRow

DAY = 86_400
LOG_DAYS = 13
ROWS = {"stale": 3500, "still": 600}
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
    phone, desktop = MEAN_REWARDS.values()
    turned = dict(zip(MEAN_REWARDS, (desktop, phone), strict=True))

    def find_means(row: int) -> Mapping[str, Sequence[float]]:
        return turned if ROWS["stale"] // 3 <= row < 2 * ROWS["stale"] // 3 else MEAN_REWARDS

    with Store(data) as store:
        for name, rows in ROWS.items():
            write_log(
                store,
                name,
                rows,
                0.3,
                start=int(time.time()) - LOG_DAYS * DAY,
                step=LOG_DAYS * DAY // rows,
                half_life="never",
                find_means=find_means if name == "stale" else lambda row: MEAN_REWARDS,
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
    row, outcome, settings, authors, policy = optimized["stale"]
    assert (row.status, row.type) == ("OptimalPolicyApplied", "Auto")
    gain = find_gain(outcome, outcome.optimal_policy)
    low, high = gain["interval"]
    assert 0 < low < high
    assert settings.exploration_percentage == 0.3  # no log can tell
    assert settings.half_life != "never"
    assert f"halfLife={settings.half_life}" in policy
    assert authors == ["test", "auto-optimise"]
    assert f"{outcome.optimal_policy} (halfLife=" in outcome.evidence
    assert f"is applied: it earns between {low:.4f} and {high:.4f} more" in outcome.evidence
    assert f"over {ROWS['stale']} decisions" in outcome.evidence


def test_settings_stay_if_nothing_is_better_and_the_refusal_has_its_evidence(
    optimized: dict[str, Optimized],
) -> None:
    row, outcome, settings, authors, policy = optimized["still"]
    assert (row.status, row.type) == ("OnlinePolicyRetained", "Auto")
    assert outcome.optimal_policy == "online"
    candidates = [each for each in outcome.policies if each.name.startswith("Hyper")]
    assert all(each.result["gain"]["interval"][0] <= 0 for each in candidates)
    assert (settings.exploration_percentage, settings.half_life) == (0.3, "never")
    assert "halfLife=never" in policy
    assert authors == ["test"]
    assert outcome.evidence == (
        f"keep what you have: none of {len(candidates)} candidates earns more than the present "
        f"settings with 95 % confidence, over {ROWS['still']} decisions"
    )
