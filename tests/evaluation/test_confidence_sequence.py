"""Confidence sequences: the formulas as written, and coverage at every look by simulation."""

import numpy as np
import pytest

from logged_worlds import ACTIONS, LoggedRuns, draw_runs
from naive_estimators import gain_interval, value_interval
from windvane.evaluation.bounded_model import (
    BoundedModel,
    bound_model,
    make_sequence,
    update_with_model,
)
from windvane.evaluation.confidence_sequence import UNIT_RANGE, ConfidenceSequence, RewardRange
from windvane.evaluation.deployment_gate import judge_gain
from windvane.types import Booleans, Floats

RUNS = 600
ROWS = 800
LOOK_EVERY_ROWS = 20
MODEL_BOUND = 3.0  # weights go up to 10, so that some predictions are limited


def draw_rows(n: int, seed: int) -> tuple[Floats, Floats]:
    """Rewards in [0, 1], and weights up to 20, with which X̂ is above 1 at first."""
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(n) < 0.05, 20.0, 0.0)
    weights[:3] = 20.0
    return rng.beta(0.8, 0.8, n), weights


@pytest.mark.parametrize("n", [1, 50, 700])
def test_intervals_match_the_formulas(n: int) -> None:
    rewards, weights = draw_rows(n, seed=n)
    sequence = ConfidenceSequence()
    for part in np.array_split(np.arange(n), 3):
        sequence.update(rewards[part], weights[part])
    expected = value_interval(rewards, weights, UNIT_RANGE, 0.05)
    assert sequence.bound_value(0.05) == pytest.approx(expected, rel=1e-7, abs=1e-7)
    expected = gain_interval(rewards, weights, UNIT_RANGE, 0.05)
    assert sequence.bound_gain(0.05) == pytest.approx(expected, rel=1e-7, abs=1e-7)


def test_equal_coefficients_of_any_size_change_nothing() -> None:
    rewards, weights = draw_rows(500, seed=1)
    plain, scaled = ConfidenceSequence(), ConfidenceSequence()
    plain.update(rewards, weights)
    scaled.update(rewards, weights, np.full(500, 7.0))
    assert scaled.bound_value() == pytest.approx(plain.bound_value(), rel=1e-12)
    assert scaled.bound_gain() == pytest.approx(plain.bound_gain(), rel=1e-12)


def test_a_wider_range_has_the_sums_of_rewards_scaled_to_it() -> None:
    rewards, weights = draw_rows(500, seed=2)
    wide = RewardRange(-3.0, 2.0)
    sequence = ConfidenceSequence()
    sequence.update(rewards, weights)
    sequence.widen(RewardRange(-1.0, 1.0))
    sequence.widen(wide)
    terms = weights * (rewards - wide.low) / wide.width
    assert sequence.sums[0] == pytest.approx(terms.sum(), rel=1e-12)
    guesses = np.minimum(
        1, (0.5 + np.cumsum(weights * rewards) - weights * rewards) / np.arange(1, 501)
    )  # of [0, 1]
    scaled = (guesses - wide.low) / wide.width
    assert sequence.variances[0] == pytest.approx(((terms - scaled) ** 2).sum(), rel=1e-9)
    straight = ConfidenceSequence(wide)
    straight.update(rewards, weights)
    assert sequence.bound_value() == pytest.approx(straight.bound_value(), abs=0.1)
    assert sequence.bound_gain() == pytest.approx(straight.bound_gain(), abs=0.1)


def test_merged_parts_have_the_sums_of_both() -> None:
    rewards, weights = draw_rows(600, seed=4)
    first, second = ConfidenceSequence(), ConfidenceSequence()
    first.update(rewards[:250], weights[:250])
    second.update(rewards[250:], weights[250:])
    sums, variances = first.sums + second.sums, first.variances + second.variances
    first.merge(second)
    assert first.rows == 600
    assert (first.sums == sums).all()
    assert (first.variances == variances).all()


@pytest.fixture(scope="module", params=[False, True], ids=["stationary", "drifting"])
def runs(request: pytest.FixtureRequest) -> LoggedRuns:
    return draw_runs(RUNS, ROWS, seed=7, is_drifting=request.param)


def find_misses(low: Floats, high: Floats, truth: Floats) -> Booleans:
    return (truth < low) | (truth > high)


def make_model(runs: LoggedRuns, part: slice) -> BoundedModel:
    """The model terms of all runs, as `bound_model` computes them for one log."""
    size = runs.rewards[:, part].size
    policy = np.zeros(ACTIONS)
    policy[0] = 1.0
    terms = bound_model(
        runs.predictions[:, part].ravel(),
        np.tile(policy, size),
        runs.probabilities[:, part].ravel(),
        np.arange(0, ACTIONS * size + 1, ACTIONS),
        runs.chosen[:, part].ravel().astype(np.int64),
        UNIT_RANGE,
        MODEL_BOUND,
    )
    return BoundedModel(*(term.reshape(RUNS, -1) for term in terms))


def test_intervals_cover_at_every_look_and_a_normal_interval_does_not(runs: LoggedRuns) -> None:
    plain, robust = ConfidenceSequence(), make_sequence(UNIT_RANGE, MODEL_BOUND)
    truth = np.cumsum(runs.values, axis=1) / np.arange(1, ROWS + 1)
    gain = truth - np.cumsum(runs.logged_values, axis=1) / np.arange(1, ROWS + 1)
    scores = runs.weights * runs.rewards
    means = np.cumsum(scores, axis=1) / np.arange(1, ROWS + 1)
    squares = np.cumsum(scores**2, axis=1) / np.arange(1, ROWS + 1)
    missed = {
        name: np.zeros(RUNS, dtype=bool)
        for name in ("value", "gain", "model value", "model gain", "normal")
    }
    for start in range(0, ROWS, LOOK_EVERY_ROWS):
        part, last = slice(start, start + LOOK_EVERY_ROWS), start + LOOK_EVERY_ROWS - 1
        rewards, weights = runs.rewards[:, part], runs.weights[:, part]
        plain.update(rewards, weights)
        update_with_model(robust, rewards, weights, make_model(runs, part))
        missed["value"] |= find_misses(*plain.bound_value(), truth[:, last])
        missed["gain"] |= find_misses(*plain.bound_gain(), gain[:, last])
        missed["model value"] |= find_misses(*robust.bound_value(), truth[:, last])
        missed["model gain"] |= find_misses(*robust.bound_gain(), gain[:, last])
        if last >= 100:  # even if the normal interval is spared the first looks
            width = 1.96 * np.sqrt((squares - means**2)[:, last] / last)
            missed["normal"] |= np.abs(means[:, last] - truth[:, last]) > width
    shares = {name: float(share.mean()) for name, share in missed.items()}
    assert shares.pop("normal") > 0.15
    assert max(shares.values()) <= 0.05, shares
    low, high = plain.bound_value()
    model_low, model_high = robust.bound_value()
    assert (model_high - model_low).mean() < 0.9 * (high - low).mean()  # the model pays


def test_the_gate_opens_about_when_it_said_it_would() -> None:
    rng = np.random.default_rng(5)
    logged = rng.integers(2, size=400)
    rewards = np.array(rng.random(400) < np.where(logged == 1, 0.5, 0.4), dtype=np.float64)
    weights = (logged == 1) / 0.5
    sequence = ConfidenceSequence()
    predicted: list[float] = []
    for _ in range(200):  # the same decisions again and again: gain and variance stay the same
        sequence.update(rewards, weights)
        gain = judge_gain(sequence, 0.05, alpha=0.05)
        if gain.verdict != "not yet":
            break
        assert gain.rows_needed is not None
        predicted.append(sequence.rows + gain.rows_needed)
    assert gain.verdict == "better"
    assert gain.rows_needed == 0
    assert len(predicted) > 2
    assert predicted == pytest.approx([sequence.rows] * len(predicted), rel=0.15)


def test_no_number_of_rows_is_enough_for_a_gain_of_zero() -> None:
    sequence = ConfidenceSequence()
    sequence.update(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    gain = judge_gain(sequence, 0.0, alpha=0.05)
    assert (gain.verdict, gain.rows_needed) == ("not yet", None)
