"""The numbers of the package vw-estimators, from the same rows."""

import math

import numpy as np
import pytest
from estimators.bandits import cressieread, cs, ips, snips

from windvane.evaluation.estimates.confidence_sequence import ConfidenceSequence
from windvane.evaluation.estimates.estimators import (
    CressieReadSums,
    RewardRange,
    ValueSums,
    WeightRange,
    bound_cressie_read,
    estimate_cressie_read,
    estimate_values,
)
from windvane.types import Floats


def draw_rows(
    n: int, largest_weight: float, rewards: RewardRange, seed: int
) -> tuple[Floats, Floats]:
    """Rewards, and weights π/p with p = 1/largest_weight for the actions that π chooses."""
    rng = np.random.default_rng(seed)
    weights = np.where(rng.random(n) < 1 / largest_weight, largest_weight, 0.0)
    weights = np.where(rng.random(n) < 0.3, rng.uniform(0.2, 1.8, n), weights)
    drawn = rng.beta(0.5, 1.5, n) * (rng.random(n) < 0.6)
    return rewards.low + rewards.width * drawn, weights


@pytest.mark.parametrize("high", [6.0, 40.0, math.inf])
@pytest.mark.parametrize("rewards", [RewardRange(0.0, 1.0), RewardRange(-1.0, 2.0)])
@pytest.mark.parametrize("n", [3, 200, 5000])
def test_estimates_and_cressie_read_interval_match(
    n: int, rewards: RewardRange, high: float
) -> None:
    r, w = draw_rows(n, 5.0, rewards, seed=n)
    peers = [ips.Estimator(), snips.Estimator(), cressieread.Estimator(0, high)]
    interval = cressieread.Interval(0, high, rewards.low, rewards.high)
    for reward, weight in zip(r.tolist(), w.tolist(), strict=True):
        for peer in [*peers, interval]:
            peer.add_example(1.0, reward, weight)
    sums = ValueSums.from_rows(r, w)
    chosen = CressieReadSums.from_value_sums(sums)
    found = [
        float(estimate_values("ips", sums).value),
        float(estimate_values("snips", sums).value),
        estimate_cressie_read(chosen, WeightRange(0, high)),
    ]
    assert found == pytest.approx([peer.get() for peer in peers], rel=1e-9, abs=1e-9)
    for alpha in (0.05, 0.01):
        found_interval = bound_cressie_read(chosen, rewards, WeightRange(0, high), alpha)
        assert found_interval == pytest.approx(interval.get(alpha), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("rewards", [RewardRange(0.0, 1.0), RewardRange(-1.0, 2.0)])
@pytest.mark.parametrize("n", [30, 300, 5000])
def test_confidence_sequences_match(n: int, rewards: RewardRange) -> None:
    rng = np.random.default_rng(n)
    w = rng.uniform(0.2, 1.8, n)  # vw-estimators does not limit X̂ to 1: keep it below 1
    r = rewards.low + rewards.width * rng.beta(1.5, 2.0, n)
    peer = cs.Interval(rewards.low, rewards.high)
    for reward, weight in zip(r.tolist(), w.tolist(), strict=True):
        peer.add_example(1.0, reward, weight)
    sequence = ConfidenceSequence(rewards)
    for part in np.array_split(np.arange(n), 7):
        sequence.update(r[part], w[part])
    for alpha in (0.05, 0.01):
        assert sequence.bound_value(alpha) == pytest.approx(peer.get(alpha), rel=1e-9, abs=1e-9)
