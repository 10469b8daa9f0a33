"""Values by segment, several rewards in one pass, units whose rows depend on each other, lift."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import polars as pl
import pytest

from simulated_log import MemoryLog, simulate_log
from windvane.errors import SettingError
from windvane.evaluation import Evaluation, PolicyRecord, evaluate
from windvane.types import Floats

COLUMNS = {"actions": "0|1"}


def make_frame(rows: int, seed: int = 1, users: int = 40) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    chosen, user = rng.integers(2, size=rows), rng.integers(users, size=rows)
    return pl.DataFrame(
        {
            "action": chosen,
            "click": (rng.random(rows) < 0.3 + 0.4 * chosen).astype(float),
            "margin": 5.0 * rng.random(rows) + chosen,
            "probability": np.full(rows, 0.5),
            "user": [f"u{each}" for each in user],
            "device": [f"d{each % 3}" for each in user],
            "time": 60.0 * np.arange(rows),
        }
    )


def test_a_segment_has_the_values_of_a_log_of_its_rows_alone() -> None:
    frame = make_frame(900).rename({"click": "reward"})
    names = ["logged", "first", "action=1"]
    result = evaluate(
        frame, names, columns=COLUMNS, by="device", reward_model=False, reference="first"
    )
    assert set(result.segments) == {"d0", "d1", "d2"}
    for device, segment in result.segments.items():
        alone = evaluate(
            frame.filter(pl.col("device") == device),
            names,
            columns=COLUMNS,
            reward_model=False,
            level=0.05 / 3,
            reference="first",
        )
        for name in names:
            assert segment[name].value == alone[name].value
            assert segment[name].sequence == alone[name].sequence
            assert segment[name].alpha == 0.05 / 3
        assert segment.compare("action=1") == alone.compare("action=1")
    assert sum(segment.rows for segment in result.segments.values()) == 900
    assert Evaluation.from_json(result.to_json()).to_json() == result.to_json()


def test_a_context_feature_makes_segments_and_learners_learn_from_all_of_them() -> None:
    log = simulate_log(600, seed=2)
    result = evaluate(log, ["learner"], by="device")
    whole = result["learner"].estimates["ips"].value
    parts = [
        (each.rows, each["learner"].estimates["ips"].value) for each in result.segments.values()
    ]
    assert sum(rows * value for rows, value in parts) / 600 == pytest.approx(whole)
    with pytest.raises(SettingError, match="by must be a column or a context feature, got 'town'"):
        evaluate(log, ["learner"], by="town")


def test_rare_segments_are_together() -> None:
    frame = make_frame(1000, users=60).rename({"click": "reward"})
    result = evaluate(frame, ["first"], columns=COLUMNS, by="user")
    counts = frame["user"].value_counts(sort=True)["count"].to_list()
    assert len(result.segments) == 21
    assert list(result.segments)[-1] == "other"
    assert result.segments["other"].rows == 1000 - sum(counts[:20])
    assert result.segments["other"]["first"].alpha == pytest.approx(0.05 / 21)


def test_the_intervals_of_segments_hold_together() -> None:
    """100 logs with 8 segments: the chance that any interval misses its truth is at most 5 %.

    Intervals that hold one by one would miss in 1 − 0.95⁸ = 34 % of the logs.
    """
    rng, missed, runs = np.random.default_rng(11), 0, 100
    truths = np.linspace(0.2, 0.9, 8)
    for _ in range(runs):
        contexts, chosen = rng.integers(8, size=800), rng.integers(2, size=800)
        rewards = (rng.random(800) < np.where(chosen == 1, truths[contexts], 0.5)).astype(float)
        log = MemoryLog(contexts, chosen, np.full((800, 2), 0.5), rewards, 800)
        result = evaluate(log, ["action=a1"], by="device", reward_model=False)
        for name, each in result.segments.items():
            interval = each["action=a1"].estimates["cressie_read"].interval
            assert interval is not None
            if not interval.low <= truths[int(name[1:])] <= interval.high:
                missed += 1
                break
    assert missed <= 0.05 * runs + 2 * np.sqrt(0.05 * 0.95 * runs)
    assert missed > 0  # intervals that are far too wide would be of no use


def test_metrics_have_the_weights_of_the_policies_and_their_own_range() -> None:
    frame = make_frame(800).with_columns(
        margin=pl.when(pl.col("user") == "u0").then(None).otherwise(pl.col("margin"))
    )
    names = ["logged", "action=1", "first"]
    result = evaluate(
        *(frame, names), columns=COLUMNS, rewards=["click", "margin"], reference="first"
    )
    known = frame.drop_nulls("margin")
    weights = 2.0 * known["action"].to_numpy()
    margin = result.metrics["margin"]
    expected = (weights * known["margin"].to_numpy()).mean()
    assert margin["action=1"].estimates["ips"].value == pytest.approx(expected, abs=1e-12)
    assert margin.rows == len(known) < result.rows == 800
    assert "dr" in result["action=1"].estimates
    assert "dr" not in margin["action=1"].estimates  # the model predicts the first reward
    assert margin["action=1"].reward_range.high == known["margin"].max()
    assert result["action=1"].reward_range == (0.0, 1.0)
    difference = (2 * weights - 2) * (known["margin"].to_numpy() - margin["first"].reward_range.low)
    width = sum(margin["first"].reward_range) / 2 - margin["first"].reward_range.low
    expected = (difference - (2 * weights - 2) * width).mean()
    assert margin.compare("action=1").value == pytest.approx(expected)
    assert margin.compare("action=1").verdict == "better"
    click = evaluate(frame, names, columns=COLUMNS | {"reward": "click"}, reference="first")
    assert click.to_json()["policies"] == result.to_json()["policies"]


def test_a_reward_is_no_feature_of_the_context() -> None:
    frame = make_frame(300)
    columns = COLUMNS | {"context": "user;device", "reward": "margin"}
    alone = evaluate(frame, ["learner"], columns=columns)["learner"]
    both = evaluate(
        *(frame, ["learner"]), columns=COLUMNS | {"context": "*"}, rewards=["margin", "click"]
    )
    assert both["learner"].value == alone.value
    assert list(both.metrics) == ["click"]


def compute_cluster_error(influence: np.ndarray, units: np.ndarray, mass: float) -> float:
    sums = [influence[units == unit].sum() for unit in np.unique(units)]
    return float(np.sqrt(len(sums) / (len(sums) - 1) * np.square(sums).sum()) / mass)


def test_errors_over_units_are_those_of_sums_of_influence() -> None:
    rng = np.random.default_rng(3)
    rewards, weights = rng.random(500), 2.0 * rng.integers(2, size=500).astype(np.float64)
    values, chosen, counts = (
        rng.random(500),
        rng.random(500),
        1.0 + rng.integers(3, size=500).astype(np.float64),
    )
    units = rng.integers(30, size=500)
    record = PolicyRecord("policy")
    columns: list[Floats] = [np.arange(500.0), rewards, weights, values, chosen, counts]
    for part in (slice(0, 200), slice(200, 500)):
        record.add(*(column[part] for column in columns), units=units[part])
    estimates, mass = record.summarize().estimates, counts.sum()
    ips = (counts * weights * rewards).sum() / mass
    snips = (counts * weights * rewards).sum() / (counts * weights).sum()
    scores = values + weights * (rewards - chosen)
    dr = (counts * scores).sum() / mass
    expected = {
        "ips": counts * (weights * rewards - ips),
        "snips": counts * weights * (rewards - snips) / ((counts * weights).sum() / mass),
        "dr": counts * (scores - dr),
    }
    for name, influence in expected.items():
        error = compute_cluster_error(influence, units, mass)
        assert estimates[name].error == pytest.approx(error, rel=1e-12)


def test_intervals_over_units_cover_where_those_of_rows_do_not() -> None:
    """Users of 20 rows each with their own taste: the truth is the mean over all users."""
    rng, runs = np.random.default_rng(4), 200
    covered = {"ips": [0, 0], "cressie_read": [0, 0]}
    for _ in range(runs):
        users = np.repeat(np.arange(50), 20)
        taste = rng.choice([0.1, 0.9], size=50)[users]
        weights = 2.0 * rng.integers(2, size=1000).astype(np.float64)
        rewards = (rng.random(1000) < taste).astype(float)
        for place, units in enumerate((None, users)):
            record = PolicyRecord("second")
            record.add(np.arange(1000.0), rewards, weights, units=units)
            for name in covered:
                interval = record.summarize().estimates[name].interval
                assert interval is not None
                covered[name][place] += interval.low <= 0.5 <= interval.high
    for by_rows, by_units in covered.values():
        assert by_rows < 0.8 * runs
        assert 0.9 * runs <= by_units <= 0.99 * runs


def test_a_unit_is_a_column_or_a_feature_and_the_sequence_says_what_it_means() -> None:
    frame = make_frame(400).rename({"click": "reward"})
    result = evaluate(frame, ["first"], columns=COLUMNS, unit="user")
    plain = evaluate(frame, ["first"], columns=COLUMNS)
    assert result["first"].sequence == plain["first"].sequence
    assert result["first"].estimates["ips"].error != plain["first"].estimates["ips"].error
    assert "take the rows of each user together, 40 of them" in result.warnings[-1]
    with pytest.raises(SettingError, match="unit must be a column or a context feature, got 'x'"):
        evaluate(frame, ["first"], columns=COLUMNS, unit="x")


def test_a_lift_is_a_share_of_what_the_other_policy_earns() -> None:
    frame = make_frame(2000).rename({"click": "reward"})
    result = evaluate(*(frame, ["logged", "first", "action=1"]), columns=COLUMNS, reference="first")
    gain = result.compare("action=1")
    assert gain.lift == pytest.approx(gain.value / result["first"].value.value)
    assert result.compare("first", "action=1").lift == pytest.approx(
        -gain.value / (result["first"].value.value + gain.value)
    )
    over_logged = result.compare("action=1", "logged")
    assert over_logged.lift == pytest.approx(over_logged.value / result["logged"].value.value)


def test_the_command_takes_segments_metrics_units_and_own_columns(
    tmp_path: Path, run_here: Callable[..., CompletedProcess[str]]
) -> None:
    frame = make_frame(400).with_columns(p_new=pl.col("action") * 1.0)
    frame.write_csv(tmp_path / "log.csv")
    options = ["--policy", "column=p_new", "--policy", "logged", "--reference", "logged"]
    options += ["--columns", "actions=0|1", "--by", "device", "--unit", "user"]
    done = run_here(
        "evaluate", tmp_path / "log.csv", *options, "--reward", "click", "--reward", "margin"
    )
    for text in ("column=p_new", "device d0", "the metric margin, 400 rows", "lift"):
        assert text in done.stdout
    assert "take the rows of each user together, 40 of them" in done.stderr


def test_a_policy_of_which_only_the_logged_action_is_known_has_segments_too() -> None:
    frame = make_frame(300).with_columns(reward="click", p_new=pl.lit(0.25))
    names = ["first", "column=p_new"]
    result = evaluate(frame, names, columns=COLUMNS, by="device", reference="first")
    assert set(result.segments) == {"d0", "d1", "d2"}
    for segment in result.segments.values():
        low, high = segment.compare("column=p_new").interval
        assert low < segment["column=p_new"].value.value - segment["first"].value.value < high
