"""The value with fading weights: the formula as written, and coverage under drift."""

import numpy as np
import pytest

from naive_estimators import recent_interval
from windvane.evaluation.estimates.confidence_sequence import ConfidenceSequence
from windvane.evaluation.estimates.estimators import RewardRange
from windvane.evaluation.estimates.recent_value import RecentSums


def test_value_and_interval_match_the_formulas() -> None:
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(30.0, 400))
    rewards, weights = rng.beta(1, 2, 400), np.where(rng.random(400) < 0.3, 1 / 0.3, 0.0)
    sums = RecentSums(half_life=3000.0)
    for part in np.array_split(np.arange(400), 5):
        sums.update(times[part], rewards[part], weights[part])
    fading = 2 ** ((times - times[-1]) / 3000.0)
    assert float(sums.estimate_value()) == pytest.approx(
        (fading * weights * rewards).sum() / (fading * weights).sum(), rel=1e-9
    )
    expected = recent_interval(times, rewards, weights, 3000.0, 0.05)
    # the bound of the rest of the series of ψ makes the interval a little wider
    assert sums.bound_value(0.05) == pytest.approx(expected, abs=2e-4)
    assert sums.bound_value(0.05)[0] <= expected[0]
    assert sums.bound_value(0.05)[1] >= expected[1]


def test_parts_merge_and_a_wider_range_has_the_same_estimate() -> None:
    rng = np.random.default_rng(2)
    times = np.arange(300.0)
    rewards, weights = rng.random(300), rng.uniform(0, 2, 300)
    whole, early, late = (RecentSums(half_life=60.0) for _ in range(3))
    whole.update(times, rewards, weights)
    early.update(times[:120], rewards[:120], weights[:120])
    late.update(times[120:], rewards[120:], weights[120:])
    late.merge(early)  # in any order
    assert late.at == whole.at
    assert late.mass == pytest.approx(whole.mass, rel=1e-12)
    assert float(late.estimate_value()) == pytest.approx(float(whole.estimate_value()), rel=1e-12)
    assert late.bound_value() == pytest.approx(whole.bound_value(), abs=0.01)  # X̂ starts anew
    value = float(whole.estimate_value())
    whole.widen(RewardRange(-1.0, 3.0))
    assert float(whole.estimate_value()) == pytest.approx(value, rel=1e-12)
    straight = RecentSums(60.0, RewardRange(-1.0, 3.0))
    straight.update(times, rewards, weights)
    assert whole.sums == pytest.approx(straight.sums, rel=1e-12)
    assert whole.bound_value() == pytest.approx(straight.bound_value(), abs=0.05)


def test_the_interval_covers_the_recent_value_where_that_of_all_time_does_not() -> None:
    rng = np.random.default_rng(3)
    runs, n, half_life = 200, 8000, 800.0
    times = np.arange(float(n))
    values = np.where(times < 6000, 0.2, 0.7)  # of the policy; the others always earn 0.4
    is_chosen = rng.random((runs, n)) < 0.5
    rewards = (rng.random((runs, n)) < np.where(is_chosen, values, 0.4)).astype(np.float64)
    weights = is_chosen / 0.5
    fading = 2 ** ((times - times[-1]) / half_life)
    truth = (fading * values).sum() / fading.sum()
    recent, all_time = RecentSums(half_life), ConfidenceSequence()
    for part in np.array_split(np.arange(n), 40):
        recent.update(times[part], rewards[:, part], weights[:, part])
        all_time.update(rewards[:, part], weights[:, part])
    low, high = recent.bound_value(0.05)
    assert ((truth < low) | (truth > high)).mean() <= 0.05
    assert (high - low).mean() < 0.25
    low, high = all_time.bound_value(0.05)
    assert ((truth < low) | (truth > high)).mean() > 0.95
