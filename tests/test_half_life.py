"""The memory `half_life`: the age of the choice sets the weight, not the time of the reward."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
import windvane as wv
from grid import Floats, check_estimate
from windvane.errors import RewardError, SettingError

DAY = 86_400.0
WEEK = wv.half_life(7 * DAY)


def draw_observations(seed: int, count: int, days: float) -> tuple[Floats, Floats, Floats]:
    """Draw features (n, 4), rewards (n,) and times (n,) in seconds, in order of time."""
    random = np.random.default_rng(seed)
    xs, ys = random.standard_normal((count, 4)), random.standard_normal(count)
    return xs, ys, 1.7e9 + days * DAY * np.sort(random.random(count))


@pytest.mark.parametrize("exploration", [wv.optimism(1.0), wv.thompson(0.5)], ids=repr)
@pytest.mark.parametrize("days", [0.01, 3.0, 300.0, 1e5])
def test_rewards_in_any_order_give_the_weighted_refit(
    days: float, exploration: wv.Exploration
) -> None:
    """With times from 15 minutes to thousands of half-lives, to 1e-9."""
    xs, ys, times = draw_observations(1, 200, days)
    order = np.random.default_rng(2).permutation(200)
    policy = wv.Policy(4, WEEK, exploration, ridge=0.7, seed=0)
    for n, i in enumerate(order, 1):
        policy.learn(xs[i], float(ys[i]), at=float(times[i]))
        if n % 20 == 0:
            seen = order[:n]
            history = naive.History(xs[seen], ys[seen], times[seen], 0)
            check_estimate(policy, naive.estimate(WEEK, 0.7, history), np.eye(4))


@given(cut=st.integers(0, 40), seed=st.integers(0, 5))
def test_beliefs_merged_in_either_order_equal_one_that_learned_all(cut: int, seed: int) -> None:
    xs, ys, times = draw_observations(seed, 40, 20.0)
    policies = [wv.Policy(4, WEEK, wv.optimism(1.0), seed=0) for _ in range(3)]
    parts = (slice(None, cut), slice(cut, None), slice(None))
    for policy, part in zip(policies, parts, strict=True):
        policy.learn_many(xs[part], ys[part], at=times[part])
    first, second, whole = (policy.belief for policy in policies)
    for merged in (first.merge(second), second.merge(first)):
        for name in ("gram", "noise_gram", "moment"):
            got, wanted = getattr(merged, name), getattr(whole, name)
            np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)
        assert merged.clock == whole.clock
        assert merged.held == pytest.approx(whole.held, rel=1e-10)


def test_a_late_reward_has_the_weight_of_its_choice() -> None:
    """A choice of four rounds ago has weight ½ under a half-life of four rounds."""
    policy = wv.Policy(1, wv.half_life(4), wv.greedy(), ridge=1.0, seed=0)
    late = policy.choose([[1.0]])
    for _ in range(3):
        policy.choose([[1.0]])
    policy.learn(policy.choose([[1.0]]), 0.0)
    policy.learn(late, 1.0)
    assert policy.belief.precision[0, 0] == pytest.approx(1 + 1 + 0.5)
    assert policy.theta[0] == pytest.approx(0.5 / 2.5)
    assert policy.belief.noise[0, 0] == pytest.approx(1 + 1 + 0.25)


def test_the_radius_uses_the_sum_of_squared_weights() -> None:
    """m = Σ w²: if each round is learned at once, that of a discount with the same rate."""
    promise = wv.confidence(0.05, noise=0.5)
    timed = wv.Policy(2, wv.half_life(5), wv.optimism(promise), seed=0)
    discounted = wv.Policy(2, wv.discount(0.5 ** (1 / 5)), wv.optimism(promise), seed=0)
    random = np.random.default_rng(0)
    for _ in range(60):
        arms = random.standard_normal((5, 2))
        by_age, by_count = timed.choose(arms), discounted.choose(arms)
        assert by_age.index == by_count.index
        timed.learn(by_age, float(arms[0, 0]))
        discounted.learn(by_count, float(arms[0, 0]))
    np.testing.assert_allclose(timed.theta, discounted.theta, rtol=1e-9)


@pytest.mark.parametrize("at", [float("nan"), float("inf"), "now"])
def test_a_time_that_is_not_a_finite_number_is_refused(at: object) -> None:
    policy = wv.Policy(2, WEEK, wv.greedy(), seed=0)
    with pytest.raises(SettingError, match="at must be a finite number"):
        policy.learn([1.0, 0.0], 1.0, at=at)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="at must be 1 times, got 2"):
        policy.learn_many(np.eye(2)[:1], [1.0], at=[1.0, 2.0])
    assert policy.belief.seen == 0


@pytest.mark.parametrize("memory", [wv.keep(), WEEK], ids=repr)
def test_amended_rewards_equal_rewards_learned_at_once(memory: wv.Memory) -> None:
    xs, ys, times = draw_observations(3, 50, 10.0)
    amended, whole = (wv.Policy(4, memory, wv.optimism(1.0), seed=0) for _ in range(2))
    whole.learn_many(xs, ys, at=times)
    amended.learn_many(xs, 0.25 * ys, at=times)
    for x, y, time in zip(xs, ys, times, strict=True):
        amended.amend(x, 0.75 * float(y), at=float(time))
    np.testing.assert_allclose(amended.theta, whole.theta, rtol=1e-10)
    np.testing.assert_allclose(amended.belief.precision, whole.belief.precision, rtol=1e-12)
    with pytest.raises(SettingError, match="amend: only keep and half_life"):
        wv.Policy(4, wv.discount(0.9), wv.greedy()).amend(xs[0], 1.0)
    with pytest.raises(RewardError, match="amend"):
        amended.amend(xs[0], float("nan"))


def test_times_before_the_epoch_are_saved_and_loaded(tmp_path: Path) -> None:
    policy = wv.Policy(2, WEEK, wv.thompson(0.1), seed=0)
    policy.learn([1.0, 0.0], 1.0, at=-5.0)
    policy.save(tmp_path / "old.npz")
    assert wv.Policy.load(tmp_path / "old.npz").belief.clock == -5.0
