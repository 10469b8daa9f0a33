"""The study of coverage: what each estimator says at each look, and how often that holds."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import windvane as wv
from windvane import lab
from windvane.errors import SettingError
from windvane.evaluation import ActionModel, PolicyRecord
from windvane.lab import cli, worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.replay import log_decisions
from windvane.lab.studies.coverage import (
    ESTIMATORS,
    GAIN_SEQUENCE,
    MODEL_SEQUENCE,
    SEQUENCE,
    TRUTH,
    VALUE,
    JudgedLog,
    estimate_at_looks,
    judge_policies,
    space_looks,
    summarize,
)
from windvane.types import Floats

ERRORS = 3.0  # standard errors of a share that chance may take
ROUNDS = 300
FLOOR = 0.25
LOOKS = space_looks(100, ROUNDS, 3)
RECORD_NAMES = {
    "IPS": "ips",
    "SNIPS": "snips",
    "DM": "dm",
    "DR": "dr",
    "SNDR": "sndr",
    "Cressie-Read": "cressie_read",
}


@pytest.fixture(scope="module")
def result() -> lab.Coverage:
    return lab.coverage(replications=40, horizon=600, looks=8, seed=4)


def test_sequences_cover_at_every_look_under_every_drift(result: lab.Coverage) -> None:
    sequences = result.summary.filter(
        pl.col("estimator").is_in([SEQUENCE, MODEL_SEQUENCE, GAIN_SEQUENCE])
    )
    assert sequences["world"].n_unique() == 5
    lowest = sequences["every look"] + ERRORS * sequences["standard error"]
    assert (lowest >= 0.95).all()
    assert max(sequences["width"].to_list()) < 0.8  # an interval of all rewards also covers


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
        result.intervals.filter(look=600)
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
    runs = covered.group_by("world", "estimator", "replication", "policy").agg(
        every=pl.col("covered").all(), last=pl.col("covered").sort_by("look").last()
    )
    expected = runs.group_by("world", "estimator").agg(pl.mean("every"), pl.mean("last"))
    joined = result.summary.join(expected, on=["world", "estimator"])
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
            "world": "still",
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
    assert printed["pictures"] == [str(out / f"coverage.{kind}") for kind in ("png", "pdf", "svg")]
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


@pytest.fixture(scope="module")
def judged() -> list[JudgedLog]:
    place = worlds.world(4, 5, ROUNDS, worlds.rotation(3.0), reward=worlds.bernoulli())
    player = Player("player", wv.discount(0.98), wv.randomized(wv.half_normal(2.0)), floor=FLOOR)
    draws = [place.draw(seed) for seed in (1, 2)]
    return [JudgedLog(log_decisions(player, draw, 7), judge_policies(draw)) for draw in draws]


@pytest.fixture(scope="module")
def numbers(judged: list[JudgedLog]) -> Floats:
    return estimate_at_looks(judged, LOOKS, 5 / FLOOR, 0.05)


@pytest.mark.parametrize("with_model", [True, False])
def test_estimates_are_those_of_a_record(
    judged: list[JudgedLog], numbers: Floats, with_model: bool
) -> None:
    for r, (log, policies) in enumerate(judged):
        for p, policy in enumerate(policies):
            for place, look in enumerate(LOOKS):
                part = slice(0, int(look))
                rows = np.arange(look), log.chosen[part]
                record = PolicyRecord(
                    "policy",
                    reward_range=(0, 1),
                    weight_range=(0, 5 / FLOOR),
                )
                actions = ActionModel(
                    log.predictions[part].ravel(),
                    policy[part].ravel(),
                    log.probabilities[part].ravel(),
                    5 * np.arange(look + 1),
                    log.chosen[part],
                )
                record.add(
                    np.arange(float(look)),
                    log.rewards[part],
                    policy[rows] / log.probabilities[rows],
                    (policy * log.predictions)[part].sum(axis=1),
                    log.predictions[rows],
                    action_model=actions if with_model else None,
                )
                result = record.summarize()
                found = dict(zip(ESTIMATORS, numbers[:, r, p, place, VALUE:], strict=True))
                for title, name in RECORD_NAMES.items():
                    estimate = result.estimates[name]
                    assert estimate.interval is not None
                    expected = estimate.value, *estimate.interval
                    assert found[title] == pytest.approx(expected, rel=1e-9), title
                sequence = MODEL_SEQUENCE if with_model else SEQUENCE
                assert found[sequence][1:] == pytest.approx(result.sequence, rel=1e-9)
                if with_model:
                    ends = result.gain.interval
                    assert found[GAIN_SEQUENCE][1:] == pytest.approx(ends, rel=1e-9)


def test_the_truth_is_the_mean_of_the_true_values_so_far(
    judged: list[JudgedLog], numbers: Floats
) -> None:
    log, policies = judged[1]
    look = int(LOOKS[1])
    for p, policy in enumerate(policies):
        values = [policy[t] @ log.means[t] for t in range(look)]
        logged = [log.probabilities[t] @ log.means[t] for t in range(look)]
        truth = dict(zip(ESTIMATORS, numbers[:, 1, p, 1, TRUTH], strict=True))
        assert truth["IPS"] == truth[SEQUENCE] == pytest.approx(np.mean(values))
        assert truth[GAIN_SEQUENCE] == pytest.approx(np.mean(values) - np.mean(logged))


def test_the_judged_policies_are_distributions(judged: list[JudgedLog]) -> None:
    for log, (first, at_random, best) in judged:
        assert (first[:, 0] == 1).all()
        assert (at_random == 0.2).all()
        assert (best.sum(axis=1) == 1).all()
        assert best[0].argmax() == log.means[0].argmax()
