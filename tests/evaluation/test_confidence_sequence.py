"""Confidence sequences: the formulas as written, and coverage at every look by simulation."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from logged_worlds import ACTIONS, LoggedRuns, draw_runs
from naive_estimators import gain_interval, log_wealth_by_integral, value_interval
from windvane.evaluation.estimates.confidence_sequence import (
    ABOVE,
    BELOW,
    HIGH,
    LOW,
    MODEL_BOUNDS,
    ActionModel,
    BoundedModel,
    ConfidenceSequence,
    SideModel,
    bound_model,
    bound_value,
    compute_log_wealth,
    find_boundary,
    judge_gain,
    log_wealth,
    make_sequence,
    update_with_model,
)
from windvane.evaluation.estimates.estimators import UNIT_RANGE, RewardRange
from windvane.types import Booleans, Floats

RUNS = 600
ROWS = 800
LOOK_EVERY_ROWS = 20


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


def make_models(runs: LoggedRuns, part: slice) -> list[BoundedModel]:
    """The model terms of all runs for every bound, as `bound_model` computes them for one log."""
    size = runs.rewards[:, part].size
    policy = np.zeros(ACTIONS)
    policy[0] = 1.0
    actions = ActionModel(
        runs.predictions[:, part].ravel(),
        np.tile(policy, size),
        runs.probabilities[:, part].ravel(),
        np.arange(0, ACTIONS * size + 1, ACTIONS),
        runs.chosen[:, part].ravel().astype(np.int64),
    )
    models = []
    for bound in MODEL_BOUNDS:
        sides = bound_model(actions, UNIT_RANGE, bound)
        models.append(
            BoundedModel(*(SideModel(*(term.reshape(RUNS, -1) for term in side)) for side in sides))
        )
    return models


class Watched:
    """Confidence sequences that are looked at again and again, and whether they ever missed."""

    def __init__(self, bounds: tuple[float, ...] = ()) -> None:
        self.plain = ConfidenceSequence()
        self.with_model = [make_sequence(UNIT_RANGE, bound) for bound in bounds]
        self.missed_value = np.zeros(RUNS, dtype=bool)
        self.missed_gain = np.zeros(RUNS, dtype=bool)

    def update(
        self,
        rewards: Floats,
        weights: Floats,
        models: Sequence[BoundedModel] = (),
        coefficients: Floats | None = None,
    ) -> None:
        self.plain.update(rewards, weights, coefficients)
        for sequence, model in zip(self.with_model, models, strict=True):
            update_with_model(sequence, rewards, weights, model, coefficients)

    def look(self, value: Floats, gain: Floats) -> None:
        """Remember the runs whose intervals do not contain the true value or gain.

        An end of an interval is the mean at which the wealth of its side is 2/α.
        """
        self.missed_value |= self.rejects(LOW, value) | self.rejects(HIGH, 1 - value)
        self.missed_gain |= self.rejects(ABOVE, gain) | self.rejects(BELOW, -gain)

    def rejects(self, side: int, mean: Floats) -> Booleans:
        wealth = compute_log_wealth([self.plain, *self.with_model], side, mean)
        return np.asarray(wealth >= np.log(2 / 0.05))

    def find_width(self) -> float:
        low, high = bound_value([self.plain, *self.with_model])
        return float((high - low).mean())


def test_intervals_cover_at_every_look_and_wrong_ones_do_not(runs: LoggedRuns) -> None:
    plain = Watched()
    robust, weighted, unlimited = (Watched(MODEL_BOUNDS) for _ in range(3))
    counts = np.arange(1, ROWS + 1)
    before = np.cumsum(runs.rewards, axis=1) - runs.rewards
    coefficients = 0.1 + 0.9 * before / counts  # depend on earlier rewards only, as in a replay
    gains = runs.values - runs.logged_values
    value, gain = np.cumsum(runs.values, axis=1) / counts, np.cumsum(gains, axis=1) / counts
    mass = np.cumsum(coefficients, axis=1)
    weighted_value = np.cumsum(coefficients * runs.values, axis=1) / mass
    weighted_gain = np.cumsum(coefficients * gains, axis=1) / mass
    scores = runs.weights * runs.rewards
    means = np.cumsum(scores, axis=1) / counts
    squares = np.cumsum(scores**2, axis=1) / counts
    missed_normal = np.zeros(RUNS, dtype=bool)
    for start in range(0, ROWS, LOOK_EVERY_ROWS):
        part, last = slice(start, start + LOOK_EVERY_ROWS), start + LOOK_EVERY_ROWS - 1
        rewards, weights = runs.rewards[:, part], runs.weights[:, part]
        models = make_models(runs, part)
        plain.update(rewards, weights)
        robust.update(rewards, weights, models)
        weighted.update(rewards, weights, models, coefficients[:, part])
        predicted = runs.predictions[:, part, 0]  # not limited by k/w, unlike q of the chosen one
        wrong = [
            BoundedModel(
                model.rewards._replace(value=predicted),
                model.complements._replace(value=1 - predicted),
            )
            for model in models
        ]
        unlimited.update(rewards, weights, wrong)
        for watched in (plain, robust, unlimited):
            watched.look(value[:, last], gain[:, last])
        weighted.look(weighted_value[:, last], weighted_gain[:, last])
        if last >= 100:  # even if the normal interval is spared the first looks
            width = 1.96 * np.sqrt((squares - means**2)[:, last] / last)
            missed_normal |= np.abs(means[:, last] - value[:, last]) > width
    for watched in (plain, robust, weighted):
        assert watched.missed_value.mean() <= 0.05
        assert watched.missed_gain.mean() <= 0.05
    assert missed_normal.mean() > 0.15
    assert unlimited.missed_value.mean() > 0.15
    assert unlimited.missed_gain.mean() > 0.15
    assert robust.find_width() < 0.9 * plain.find_width()  # the model pays


def test_the_gate_opens_about_when_it_said_it_would() -> None:
    rng = np.random.default_rng(5)
    logged = rng.integers(2, size=400)
    rewards = np.array(rng.random(400) < np.where(logged == 1, 0.5, 0.4), dtype=np.float64)
    weights = (logged == 1) / 0.5
    sequence = ConfidenceSequence()
    predicted: list[float] = []
    for _ in range(200):  # the same decisions again and again: gain and variance stay the same
        sequence.update(rewards, weights)
        gain = judge_gain([sequence], 0.05, alpha=0.05)
        if gain.verdict != "not yet":
            break
        if gain.rows_needed is not None:  # at most ten times as many as there are
            assert gain.rows_needed <= 10 * sequence.rows
            predicted.append(sequence.rows + gain.rows_needed)
    assert gain.verdict == "better"
    assert gain.rows_needed == 0
    assert len(predicted) > 2
    assert predicted == pytest.approx([sequence.rows] * len(predicted), rel=0.15)


def test_no_number_of_rows_is_enough_for_a_gain_of_zero() -> None:
    sequence = ConfidenceSequence()
    sequence.update(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    gain = judge_gain([sequence], 0.0, alpha=0.05)
    assert (gain.verdict, gain.rows_needed) == ("not yet", None)


@pytest.mark.parametrize("variance", [0.0, 0.3, 20.0, 3e3, 1e6, 1e9])
@pytest.mark.parametrize("deviations", [0.0, 0.5, 3.0, 30.0])
def test_wealth_is_the_integral_of_the_mixture(variance: float, deviations: float) -> None:
    s = deviations * math.sqrt(variance + 1)
    expected = log_wealth_by_integral(variance)(s)
    assert float(log_wealth(s, variance)) == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_the_boundary_solves_its_equation_for_every_variance() -> None:
    variance = 10.0 ** np.linspace(-6, 12, 200)
    for alpha in (0.3, 0.025, 1e-6):
        boundary = find_boundary(variance, alpha)
        assert log_wealth(boundary, variance) == pytest.approx(-math.log(alpha), abs=1e-6)
        assert (np.diff(boundary) > 0).all()
        # the law of the iterated logarithm is a lower limit, and √(V log V) the order
        assert (boundary > np.sqrt(2 * variance * math.log(1 / alpha))).all()
        assert (
            boundary < 3 * np.sqrt((variance + 20) * (np.log(variance + 3) - math.log(alpha)))
        ).all()
