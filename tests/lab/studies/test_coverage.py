"""The study of coverage: sequences hold at every look under every drift, other intervals do not."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from windvane import lab
from windvane.errors import SettingError
from windvane.lab import cli
from windvane.lab.studies.coverage import summarize
from windvane.lab.studies.coverage_runs import (
    ESTIMATORS,
    GAIN_SEQUENCE,
    MODEL_SEQUENCE,
    SEQUENCE,
)

ERRORS = 3.0  # standard errors of a share that chance may take


@pytest.fixture(scope="module")
def result() -> lab.Coverage:
    return lab.coverage(replications=60, horizon=1000, looks=8, seed=4)


def test_sequences_cover_at_every_look_under_every_drift(result: lab.Coverage) -> None:
    sequences = result.summary.filter(
        pl.col("estimator").is_in([SEQUENCE, MODEL_SEQUENCE, GAIN_SEQUENCE])
    )
    assert sequences["drift"].n_unique() == 5
    lowest = sequences["every look"] + ERRORS * sequences["standard error"]
    assert (lowest >= 0.95).all()
    assert max(sequences["width"].to_list()) < 0.7  # an interval of all rewards also covers


def test_a_gaussian_interval_that_is_read_often_fails(result: lab.Coverage) -> None:
    """At the last look alone it is nearly right."""
    for name in ("IPS", "SNIPS", "DR", "SNDR"):
        rows = result.summary.filter(estimator=name)
        shares, errors = rows["every look"].to_numpy(), rows["standard error"].to_numpy()
        assert (shares < 0.9).all()
        if name in ("IPS", "SNIPS"):
            assert (shares + ERRORS * errors < 0.9).all()
        assert 0.85 < rows["last look"].to_numpy().mean() < 0.97


def test_an_estimate_is_unbiased_unless_it_trusts_its_model(result: lab.Coverage) -> None:
    """Replications are independent; the drifts and policies of a replication share their noise."""
    errors = (
        result.intervals.filter(look=1000)
        .group_by("estimator", "replication")
        .agg(error=(pl.col("value") - pl.col("truth")).mean())
    )
    mean, spread = pl.col("error").mean(), pl.col("error").std()
    table = errors.group_by("estimator").agg(z=mean / spread * pl.len().sqrt())
    z = dict(table.iter_rows())
    assert abs(z["IPS"]) < ERRORS
    assert abs(z["DR"]) < ERRORS
    trusting = result.summary.filter(estimator="DM")  # the biases of two policies may cancel
    assert (trusting["last look"] + ERRORS * trusting["standard error"] < 0.9).all(), trusting


def test_the_summary_counts_the_intervals(result: lab.Coverage) -> None:
    covered = result.intervals.with_columns(
        covered=(pl.col("low") <= pl.col("truth")) & (pl.col("truth") <= pl.col("high"))
    )
    runs = covered.group_by("drift", "estimator", "replication", "policy").agg(
        every=pl.col("covered").all(), last=pl.col("covered").sort_by("look").last()
    )
    expected = runs.group_by("drift", "estimator").agg(pl.mean("every"), pl.mean("last"))
    joined = result.summary.join(expected, on=["drift", "estimator"])
    assert joined.height == result.summary.height == 5 * len(ESTIMATORS)
    np.testing.assert_allclose(joined["every look"], joined["every"])
    np.testing.assert_allclose(joined["last look"], joined["last"])


def test_a_row_of_the_summary_by_hand() -> None:
    """Two replications, one policy, two looks: (truth, value, low, high)."""
    numbers = np.full((len(ESTIMATORS), 2, 1, 2, 4), np.nan)
    numbers[0, 0, 0] = [[0.5, 0.4, 0.3, 0.6], [0.5, 0.6, 0.5, 0.7]]  # covered, covered
    numbers[0, 1, 0] = [[0.5, 0.2, 0.1, 0.4], [0.5, 0.6, 0.4, 0.8]]  # missed, covered
    row, empty = summarize("still", numbers)[:2]
    assert row == pytest.approx(
        {
            "drift": "still",
            "estimator": ESTIMATORS[0],
            "every look": 0.5,
            "standard error": 0.5,
            "last look": 1.0,
            "width": 0.3,
            "bias": 0.1,
            "rms error": 0.1,
        }
    )
    assert empty["every look"] == empty["last look"] == 0  # no interval is a miss
    assert empty["bias"] is None


def test_command_and_library_give_the_same_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drifts = ["walk(5.0)", "stationary()"]
    out = tmp_path / "out"
    cli.coverage(
        3, 200, 3, 2, drifts, "fresh()", "D-RandLinUCB", 0.5, 2, 0.1, seed=9, out=out, as_json=True
    )
    printed = json.loads(capsys.readouterr().out)
    expected = lab.coverage(
        *(3, 200, 3, 2, drifts),
        actions="fresh()",
        policy="D-RandLinUCB",
        floor=0.5,
        looks=2,
        alpha=0.1,
        seed=9,
    )
    assert lab.load(out) == expected
    assert printed["pictures"] == [str(out / "coverage.png"), str(out / "coverage.pdf")]
    assert printed["results"] == expected.summary.to_dicts()
    assert list(printed["worlds"]) == drifts
    assert (printed["policy"], printed["alpha"]) == ("D-RandLinUCB", 0.1)
    assert expected != lab.coverage(3, 200, 3, 2, drifts, seed=9)


def test_mistakes_are_refused_in_one_sentence() -> None:
    with pytest.raises(SettingError, match="horizon must be a whole number >= 100, got 50"):
        lab.coverage(horizon=50)
    with pytest.raises(SettingError, match="coverage: floor must be above 0, got 0"):
        lab.coverage(floor=0)
    with pytest.raises(SettingError, match="coverage: at least one drift must be given"):
        lab.coverage(drifts=[])
    with pytest.raises(SettingError, match=r"actions must be fixed\(\) or fresh\(\), got 'ball"):
        lab.coverage(actions="ball()")
    with pytest.raises(SettingError, match="alpha must lie in"):
        lab.coverage(alpha=1.0)
    with pytest.raises(SettingError, match="log_decisions: the exploration must be randomized"):
        lab.coverage(1, 100, policy="D-LinTS")
