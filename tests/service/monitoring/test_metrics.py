"""Metrics: every family of /metrics is in the list, and a scrape keeps to its budget."""

from collections.abc import Callable
from copy import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sqlalchemy import Executable

from monitoring_helpers import ChangedLoop, put_one_decision
from windvane.errors import StoreError
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import LoopSettings
from windvane.service.monitoring import metrics
from windvane.service.monitoring.log_follower import LogFollowers
from windvane.service.monitoring.metrics import Metrics, list_metrics
from windvane.service.sharing.servers import LogSharing
from windvane.service.store.log import LogReader, Store
from windvane.service.store.writer.loop_operations import PutLoop

EVALUATIONS: Any = SimpleNamespace(running_count=1, ended_counts={"Succeeded": 2})


def stub_service(loop: Loop) -> Any:
    failures = SimpleNamespace(counts={"PutReward": 1})
    writer = SimpleNamespace(waiting_count=0, commit_count=0, failures=failures)
    return SimpleNamespace(
        loops={"home": loop},
        writer=writer,
        degraded_reason=None,
        clock=loop.clock,
        store=loop.store,
        sharing=LogSharing(),
        is_leader=True,
    )


def test_every_family_of_the_output_is_listed_with_its_meaning(changed: ChangedLoop) -> None:
    output = Metrics(stub_service(changed.loop), EVALUATIONS).render().decode()
    families = [line.split()[2:4] for line in output.splitlines() if line.startswith("# TYPE ")]
    assert [[info.name, info.kind] for info in list_metrics()] == families
    assert len(families) == 28
    for info in list_metrics():
        assert f"# HELP {info.name} {info.meaning}\n" in output


def test_requests_of_unknown_loops_share_one_label(changed: ChangedLoop) -> None:
    metrics_ = Metrics(stub_service(changed.loop), EVALUATIONS)
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


def read_samples(text: str) -> dict[str, float]:
    """The value of each sample, by its name and labels."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


@pytest.mark.parametrize(("budget", "values"), [(0.0, []), (60.0, [1.0])])
def test_a_scrape_takes_no_longer_than_its_budget(
    changed: ChangedLoop, monkeypatch: pytest.MonkeyPatch, budget: float, values: list[float]
) -> None:
    monkeypatch.setattr(metrics, "SCRAPE_BUDGET_SECONDS", budget)
    samples = read_samples(render_loops(stub_service(changed.loop))())
    assert [samples[name] for name in samples if "drift_alarms" in name] == values
    assert samples['windvane_decisions_total{loop="home"}'] > 0


def test_the_times_of_requests_are_counted_by_bucket(changed: ChangedLoop) -> None:
    metrics_ = Metrics(stub_service(changed.loop), EVALUATIONS)
    for seconds in (0.0001, 0.0005, 0.0006, 0.3, 4.0, 7.0, 7.5):
        metrics_.count("rank", "home", 201, seconds)
    samples = read_samples(metrics_.render().decode())
    for bound, count in (("0.0005", 2), ("0.001", 3), ("0.5", 4), ("5.0", 5), ("+Inf", 7)):
        name = f'windvane_request_seconds_bucket{{le="{bound}",loop="home",operation="rank"}}'
        assert samples[name] == count
    total = samples['windvane_request_seconds_sum{loop="home",operation="rank"}']
    assert total == pytest.approx(18.8012)


def render_loops(service: Any, followers: LogFollowers | None = None) -> Callable[[], str]:
    """A function that scrapes the metrics of the loops alone."""
    registry = CollectorRegistry()
    registry.register(metrics.LoopCollector(service, followers or LogFollowers()))
    return lambda: generate_latest(registry).decode()


def count_queries(store: LogReader, work: Callable[[], object]) -> int:
    """How many queries some work runs."""
    count = 0
    fetch_all = store.fetch_all

    def count_query(query: Executable) -> Any:
        nonlocal count
        count += 1
        return fetch_all(query)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "fetch_all", count_query)
        work()
    return count


def test_loops_at_rest_cost_one_query_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "SCRAPE_BUDGET_SECONDS", 60.0)  # the first scrape may compile
    with Store(tmp_path) as store:
        loops = {}
        for k in range(30):
            row = store.write(PutLoop(f"loop-{k}", LoopSettings().to_json(), 0, "test"))
            loops[row.name] = Loop(row, store)
        put_one_decision(store, loops["loop-7"], "tea", "soup")
        writer = SimpleNamespace(waiting_count=0, commit_count=0)
        clock = loops["loop-0"].clock
        service: Any = SimpleNamespace(loops=loops, writer=writer, clock=clock, store=store)
        render = render_loops(service)
        first = count_queries(store, render)
        assert first <= 2 + 5  # of all loops, and of the only one with a decision
        assert count_queries(store, render) == 1
        before = render()
        put_one_decision(store, loops["loop-8"], "tea", "soup")
        assert count_queries(store, render) <= 2 + 5
        after = read_samples(render())
        assert after['windvane_decisions_total{loop="loop-8"}'] == 1.0
        assert read_samples(before)['windvane_decisions_total{loop="loop-8"}'] == 0.0


def test_a_loop_that_waited_longest_comes_first(
    changed: ChangedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (copy(changed.loop) for _ in range(2))
    first.name, second.name = "first", "second"
    service = stub_service(changed.loop)
    service.loops = {"first": first, "second": second}
    followers, visits = LogFollowers(), []

    def visit(loop: Loop, budget: float, count: int) -> Any:
        visits.append(loop.name)
        monkeypatch.setattr(metrics, "SCRAPE_BUDGET_SECONDS", -1.0)  # nothing is left
        raise StoreError("busy", "locked")

    monkeypatch.setattr(followers, "follow", visit)
    render = render_loops(service, followers)
    for _ in range(2):
        monkeypatch.setattr(metrics, "SCRAPE_BUDGET_SECONDS", 60.0)
        render()
    assert visits == ["first", "second"]
