"""Auto-optimisation: a candidate is applied only if its gain is above 0, and all is in the log."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evaluation_helpers import START, STEP, write_log
from service_helpers import make_service
from store_helpers import SECOND
from windvane.evaluation.estimates.result import Diagnostics, Gain, Interval
from windvane.service.clock import ServiceClock
from windvane.service.evaluations import evaluations as evaluations_module
from windvane.service.evaluations.evaluations import Evaluations, JobResult, optimize_if_due
from windvane.service.evaluations.records import (
    EvaluationOutcome,
    IpsSums,
    Job,
    PolicyOutcome,
    encode,
)
from windvane.service.evaluations.worker import find_optimal
from windvane.service.store.evaluations import MAX_AUTO_EVALUATIONS_PER_LOOP
from windvane.service.store.log import Store

DAY = 86_400 * SECOND


def make_policy(name: str, low: float, **changes: Any) -> PolicyOutcome:
    return PolicyOutcome(
        name=name,
        source="OfflineExperimentation",
        arguments=name,
        total=IpsSums(),
        result={"gain": {"interval": [low, low + 0.1]}},
        changes=changes,
    )


def test_the_optimal_policy_is_the_surest_gain_and_not_the_highest_mean() -> None:
    class Judged:
        def __init__(self, name: str, gain: Gain) -> None:
            self.name, self.gain = name, gain
            self.diagnostics = Diagnostics(900, 1.0, 0.0, 900.0, 1.0, 1.0, 0.0, 0.0, 0.0)

    lucky = Judged("lucky", Gain(0.3, Interval(-0.1, 0.7), "not yet", 900))
    sure = Judged("sure", Gain(0.1, Interval(0.05, 0.15), "better", 0))
    surer = Judged("surer", Gain(0.09, Interval(0.06, 0.12), "better", 0))
    assert find_optimal([lucky]) == "online"  # type: ignore[list-item]
    assert find_optimal([lucky, sure, surer]) == "surer"  # type: ignore[list-item]


@pytest.mark.parametrize("is_better", [True, False])
def test_what_was_found_is_applied_or_refused_with_its_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_better: bool
) -> None:
    jobs: list[Job] = []

    async def find(job: Job, report: object) -> JobResult:
        jobs.append(job)
        optimal = "Hyper2" if is_better else "online"
        policies = [
            make_policy("Hyper1", -0.2, halfLife="7 days"),
            make_policy("Hyper2", 0.05, halfLife="1 day", explorationPercentage=0.1),
        ]
        outcome = EvaluationOutcome(optimal_policy=optimal, policies=policies, rows=30)
        return JobResult(encode(outcome), b"[]")

    monkeypatch.setattr(evaluations_module, "run_child", find)
    with Store(tmp_path / "data") as store:
        settings: dict[str, Any] = {
            "is_auto_optimization_enabled": True,
            "auto_optimization_frequency": "PT1H",
        }
        write_log(store, "home", 30, **settings)

        async def run() -> None:
            service, _ = make_service(store)
            evaluations = Evaluations(service)
            loop = await service.get_loop("home")
            for turn in range(30):
                now = (START + 30 * STEP) * SECOND + turn * DAY // 4
                service.clock = ServiceClock(now)
                is_due = await optimize_if_due(service, evaluations, loop)
                assert is_due == (turn <= 55)
                assert not await optimize_if_due(service, evaluations, loop)  # it runs
                await evaluations._run_all()
                assert not await optimize_if_due(service, evaluations, loop)  # too early
            rows = await evaluations.list_rows("home", "Auto")
            assert len(rows) == MAX_AUTO_EVALUATIONS_PER_LOOP == 24
            status = "OptimalPolicyApplied" if is_better else "OnlinePolicyRetained"
            assert {row.status for row in rows} == {status}
            assert "30 decisions" in (rows[0].outcome or "")
            assert evaluations.ended_counts == {status: 30}
            assert (loop.settings.half_life == "1 day") == is_better

        asyncio.run(run())
        row = store.find_loop("home")
        assert row is not None
        authors = [change.by for change in store.list_settings_changes(row.id)]
        assert ("auto-optimise" in authors) == is_better
    assert jobs[0].contract.until - jobs[0].contract.since == 14 * DAY
    assert jobs[0].contract.optimizes
    assert [job.contract.run for job in jobs] == list(range(1, 31))


def test_a_loop_is_not_due_before_its_start_date(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        write_log(store, "home", 3, auto_optimization_start_date="2099-01-01")

        async def run() -> bool:
            service, _ = make_service(store)
            loop = await service.get_loop("home")
            return await optimize_if_due(service, Evaluations(service), loop)

        assert not asyncio.run(run())
