"""Metrics: every family of /metrics is in the list, and a scrape keeps to its budget."""

from types import SimpleNamespace
from typing import Any

import pytest

from monitoring_helpers import ChangedLoop
from windvane.service.loops.loop import Loop
from windvane.service.monitoring import metrics
from windvane.service.monitoring.log_follower import LogFollowers
from windvane.service.monitoring.metrics import LoopCollector, Metrics, list_metrics

OUTPUT_NAMES = [
    ("windvane_request_seconds", "histogram"),
    ("windvane_requests_total", "counter"),
    ("windvane_degraded", "gauge"),
    ("windvane_writes_waiting", "gauge"),
    ("windvane_commits_total", "counter"),
    ("windvane_clock_offset_seconds", "gauge"),
    ("windvane_decisions_total", "counter"),
    ("windvane_rewards", "gauge"),
    ("windvane_join_ratio", "gauge"),
    ("windvane_model_age_seconds", "gauge"),
    ("windvane_exploration_share", "gauge"),
    ("windvane_apprentice_agreement", "gauge"),
    ("windvane_prediction_error", "gauge"),
    ("windvane_parameter_norm", "gauge"),
    ("windvane_parameter_movement", "gauge"),
    ("windvane_drift_alarms", "gauge"),
]


def stub_service(loop: Loop) -> Any:
    writer = SimpleNamespace(waiting_count=0, commit_count=0)
    return SimpleNamespace(loops={"home": loop}, writer=writer, degraded=None, clock=loop.clock)


def test_every_family_of_the_output_is_listed_with_its_meaning(changed: ChangedLoop) -> None:
    output = Metrics(stub_service(changed.loop)).render().decode()
    families = [line.split()[2:4] for line in output.splitlines() if line.startswith("# TYPE ")]
    assert [tuple(family) for family in families] == OUTPUT_NAMES
    assert [(info.name, info.kind) for info in list_metrics()] == OUTPUT_NAMES
    for info in list_metrics():
        assert f"# HELP {info.name} {info.meaning}\n" in output


def test_requests_of_unknown_loops_share_one_label(changed: ChangedLoop) -> None:
    metrics_ = Metrics(stub_service(changed.loop))
    metrics_.count("rank", "home", 201, 0.001)
    metrics_.count("rank", "invented", 404, 0.001)
    metrics_.count("rank", "another", 404, 0.001)
    metrics_.count("other", None, 200, 0.001)
    output = metrics_.render().decode()
    assert 'windvane_requests_total{loop="home",operation="rank",status="201"} 1.0' in output
    assert 'windvane_requests_total{loop="",operation="rank",status="404"} 2.0' in output
    assert 'windvane_requests_total{loop="",operation="other",status="200"} 1.0' in output
    assert 'windvane_request_seconds_count{loop="",operation="rank"} 2.0' in output
    assert 'operation="other"' not in output.split("# TYPE windvane_requests_total")[0]


@pytest.mark.parametrize(("budget", "values"), [(0.0, []), (60.0, [1.0])])
def test_a_scrape_takes_no_longer_than_its_budget(
    changed: ChangedLoop, monkeypatch: pytest.MonkeyPatch, budget: float, values: list[float]
) -> None:
    monkeypatch.setattr(metrics, "BUDGET_SECONDS", budget)
    families = LoopCollector(stub_service(changed.loop), LogFollowers()).collect()
    samples = {family.name: [one.value for one in family.samples] for family in families}
    assert samples["windvane_drift_alarms"] == values
