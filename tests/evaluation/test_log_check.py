"""`check`: findings of logs with known faults, and the law of its z-tests."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from log_writers import Decisions, simulate_decisions, write_dsjson, write_export
from windvane import cli
from windvane.evaluation.log_batch import BadRow, LogBatch
from windvane.evaluation.log_check import (
    CheckReport,
    DriftCheck,
    EventIdCheck,
    Finding,
    ProbabilityCheck,
    check,
)


def make_batch(decisions: Decisions, **changes: Any) -> LogBatch:
    count = len(decisions.times)
    batch = LogBatch(
        event_ids=decisions.event_ids,
        times=decisions.times,
        rewards=decisions.rewards,
        chosen=decisions.chosen,
        starts=np.arange(0, 3 * count + 1, 3),
        probabilities=decisions.probabilities.reshape(-1),
        is_eligible=np.ones(3 * count, np.bool_),
        multiplicities=np.ones(count),
        is_defaulted=np.zeros(count, np.bool_),
        is_degraded=np.zeros(count, np.bool_),
        lines=np.arange(count),
        source="memory",
        read_features=None,
    )
    return batch._replace(**changes)


class MemoryLog:
    """A log of given batches."""

    description = "a log in memory"
    bad_rows: tuple[BadRow, ...] = ()
    bad_row_count = 0
    has_times = True
    notes: Mapping[str, int] = MappingProxyType({})

    def __init__(self, *batches: LogBatch, is_fitted: bool = False) -> None:
        self.batches = batches
        self.has_fitted_probabilities = is_fitted

    def iterate_batches(self) -> Iterator[LogBatch]:
        yield from self.batches


def find(report: CheckReport, name: str) -> Finding:
    (finding,) = (each for each in report.findings if each.name == name)
    return finding


def test_a_log_without_faults_has_no_finding_but_ok() -> None:
    report = check(MemoryLog(make_batch(simulate_decisions(5000))))
    assert {finding.level for finding in report.findings} == {"ok"}
    assert report.is_usable
    assert (report.decisions, report.since) == (5000, 1_700_000_000.0)
    assert json.loads(json.dumps(report.to_json()))["isUsable"] is True


def test_z_has_the_normal_law_and_finds_wrong_probabilities() -> None:
    """Of 300 logs the z have mean 0 and variance 1, within 4 standard errors of each."""
    uniform, calibration, first = [], [], []
    for seed in range(300):
        each = ProbabilityCheck(is_fitted=False)
        for part in range(2):
            each.add(make_batch(simulate_decisions(100, seed=1000 * part + seed)))
        uniform.append(each.uniform.z)
        calibration.append(each.calibration.z)
        first.append(each.first.z)
    for z in np.array([uniform, calibration, first]):
        assert abs(z.mean()) < 4 / np.sqrt(300)
        assert abs((z**2).mean() - 1) < 4 * np.sqrt(2 / 300)
    decisions = simulate_decisions(3000)
    tilted = np.tile([0.5, 0.25, 0.25], 3000)
    report = check(MemoryLog(make_batch(decisions, probabilities=tilted)))
    assert find(report, "first action").level == "failure"
    assert "less often than" in find(report, "first action").sentence
    flat = 0.5 * decisions.probabilities + 0.5 / 3
    report = check(MemoryLog(make_batch(decisions, probabilities=flat.reshape(-1))))
    assert find(report, "calibration").level == "failure"
    assert "more often than" in find(report, "calibration").sentence
    steep = decisions.probabilities**2 / (decisions.probabilities**2).sum(axis=1, keepdims=True)
    report = check(MemoryLog(make_batch(decisions, probabilities=steep.reshape(-1))))
    assert find(report, "mean weight").level == "failure"
    assert not report.is_usable


def test_only_the_chosen_probability_is_enough_for_the_mean_weight() -> None:
    decisions = simulate_decisions(3000)
    chosen = np.full((3000, 3), np.nan)
    rows = np.arange(3000)
    chosen[rows, decisions.chosen] = decisions.chosen_probabilities
    report = check(MemoryLog(make_batch(decisions, probabilities=chosen.reshape(-1))))
    assert abs(find(report, "mean weight").numbers["z"]) < 3
    chosen[rows, decisions.chosen] *= 1.2
    wrong = np.minimum(chosen, 1.0).reshape(-1)
    report = check(MemoryLog(make_batch(decisions, probabilities=wrong)))
    assert find(report, "mean weight").level == "failure"


def test_support_counts_actions_that_could_not_be_chosen() -> None:
    decisions = simulate_decisions(1000)
    one_hot = np.zeros((1000, 3))
    one_hot[np.arange(1000), decisions.chosen] = 1.0
    report = check(MemoryLog(make_batch(decisions, probabilities=one_hot.reshape(-1))))
    assert find(report, "support").level == "failure"
    assert find(report, "support").numbers["impossible"] == pytest.approx(2 / 3)
    excluded = make_batch(
        decisions, probabilities=one_hot.reshape(-1), is_eligible=one_hot.reshape(-1) > 0
    )
    assert find(check(MemoryLog(excluded)), "support").level == "ok"


def test_faults_of_rewards_clock_and_ids() -> None:
    decisions = simulate_decisions(1000)
    rewards = np.where(np.arange(1000) % 2 == 0, np.nan, decisions.rewards)
    times = decisions.times.copy()
    times[500] -= 3600
    ids = ["same" if i % 50 == 0 else str(i) for i in range(1000)]
    degraded = np.arange(1000) < 20
    batch = make_batch(decisions, rewards=rewards, times=times, event_ids=ids, is_degraded=degraded)
    report = check(MemoryLog(batch))
    assert find(report, "orphans").numbers["decisionsWithoutReward"] == 500
    assert find(report, "orphans").level == "warning"
    assert find(report, "clock").numbers["backwardSteps"] == 1
    assert find(report, "clock").numbers["largestBackwardSeconds"] == 3540
    assert find(report, "event ids").numbers["repeated"] == 19
    assert find(report, "event ids").level == "failure"
    assert find(report, "degraded").level == "warning"
    same = make_batch(decisions, rewards=np.ones(1000))
    assert "all rewards are 1" in find(check(MemoryLog(same)), "rewards").sentence


def test_the_memory_of_event_ids_is_bounded() -> None:
    each = EventIdCheck(max_remembered=10)
    each.add(make_batch(simulate_decisions(100)))
    each.add(make_batch(simulate_decisions(100)))
    (finding,) = each.find()
    assert finding.numbers["repeated"] == 10
    assert "compared with the first 10 ids only" in finding.sentence


def test_drift_is_found_and_constant_rewards_are_not_drift() -> None:
    """For rewards of 0 or 1 the chance is that of the χ² test of a table of counts."""
    decisions = simulate_decisions(2048)
    each = DriftCheck(is_fitted=False)
    each.add(make_batch(decisions))
    clicks = decisions.rewards.reshape(8, 256).sum(axis=1)
    expected = chi2_contingency(np.array([clicks, 256 - clicks]), correction=False).pvalue
    assert each.find()[0].numbers["chance"] == pytest.approx(expected, rel=1e-9)
    decisions = simulate_decisions(40_000)
    rng = np.random.default_rng(3)
    moving = (rng.random(40_000) < np.linspace(0.2, 0.3, 40_000)).astype(np.float64)
    batches = [
        make_batch(
            Decisions._make(column[first : first + 700] for column in decisions),
            rewards=moving[first : first + 700],
        )
        for first in range(0, 40_000, 700)
    ]
    report = check(MemoryLog(*batches))
    finding = find(report, "drift: reward")
    assert finding.level == "warning"
    assert 0.19 < finding.numbers["lowest"] < 0.22 < 0.28 < finding.numbers["highest"] < 0.31
    assert find(report, "drift: share of the first action").level == "ok"


def test_the_command_prints_a_table_and_its_exit_code_tells_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["windvane", "check", *words])
        with pytest.raises(SystemExit) as raised:
            cli.main()
        out, err = capsys.readouterr()
        code = raised.value.code
        assert isinstance(code, int)
        return code, out, err

    good = tmp_path / "good.parquet"
    write_export(good, simulate_decisions(500))
    code, out, err = run(str(good))
    assert (code, err) == (0, "")
    assert "all 500 decisions can be used" in out
    bad = tmp_path / "bad.json"
    write_dsjson(bad, simulate_decisions(20))
    bad.write_text(bad.read_text().replace('"Timestamp"', '"Time"', 5))
    code, out, err = run(str(bad), "--json")
    assert code == 1
    report = json.loads(out)
    assert report["isUsable"] is False
    assert report["badRows"][0]["line"] == 1
    assert run(str(bad))[2].startswith(f"windvane: bad row {bad}:1: Timestamp must be")
    code, _, err = run(str(bad), "--strict")
    assert code == 2
    assert err.startswith(f"windvane: {bad}:1: Timestamp must be a time")
    assert err.count("\n") == 1
    assert run(str(good), "--columns", "action")[0] == 2
    assert run(str(tmp_path / "missing.csv"))[0] == 2
