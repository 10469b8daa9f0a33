"""Long runs and large numbers: rounding errors stay small, and features too large are refused."""

import numpy as np
import pytest

import naive
import windvane as wv
from grid import Floats, check_estimate
from windvane.errors import ArmsError, SettingError

ROUNDS = 1_000_000
RECENT = 40_000  # 0.999^40 000 is 4e-18: older weights vanish in double precision


def draw_rank_deficient(random: np.random.Generator, count: int) -> Floats:
    """Draw features (count, 5) that span only two dimensions for 50 000 rows, then two others."""
    xs = np.zeros((count, 5))
    for stretch in range(0, count, 50_000):
        basis = np.linalg.qr(random.standard_normal((5, 2)))[0]
        rows = slice(stretch, min(stretch + 50_000, count))
        xs[rows] = random.standard_normal((rows.stop - rows.start, 2)) @ basis.T
    return xs


@pytest.mark.parametrize(
    "exploration", [wv.optimism(1.0), wv.thompson(1.0)], ids=["optimism", "thompson"]
)
def test_a_million_rank_deficient_observations_agree_with_a_refit(
    exploration: wv.Exploration,
) -> None:
    """At γ = 0.999, to 1e-8, also in directions that have not been seen for long."""
    random = np.random.default_rng(1)
    xs = draw_rank_deficient(random, ROUNDS)
    ys = xs @ np.arange(1.0, 6.0) + random.standard_normal(ROUNDS)
    policy = wv.Policy(5, wv.discount(0.999), exploration, seed=0)
    for batch in np.split(np.arange(ROUNDS), 20):
        policy.learn_many(xs[batch], ys[batch])
        assert np.isfinite(policy._belief.arrays.block).all()
    refit = naive.estimate(policy.memory, 1.0, naive.observed(xs[-RECENT:], ys[-RECENT:]))
    check_estimate(policy, refit, np.eye(5), 1e-8)


@pytest.mark.parametrize("memory", [wv.window(500), wv.restart(700)], ids=repr)
def test_a_hundred_thousand_observations_of_a_short_memory_agree_with_a_refit(
    memory: wv.Memory,
) -> None:
    """The rounding errors of removed observations do not accumulate: 1e-10."""
    random = np.random.default_rng(2)
    xs = draw_rank_deficient(random, 100_000)
    ys = xs @ np.arange(1.0, 6.0) + random.standard_normal(100_000)
    policy = wv.Policy(5, memory, wv.optimism(1.0), seed=0)
    for x, y in zip(xs, ys.tolist(), strict=True):
        policy.learn(policy.choose(x[None, :]), y)
    held = memory.rounds or 100_000 % memory.every
    refit = naive.estimate(wv.keep(), 1.0, naive.observed(xs[-held:], ys[-held:]))
    check_estimate(policy, refit, np.eye(5), 1e-10)


@pytest.mark.parametrize(
    "memory", [wv.keep(), wv.discount(0.999), wv.discount(0.9), wv.window(300)], ids=repr
)
def test_features_of_norm_1000_keep_eight_digits(memory: wv.Memory) -> None:
    """W/λ reaches 1e10, so an error of 1e-16 · 1e10 = 1e-6 is expected; 1e-8 is attained."""
    random = np.random.default_rng(3)
    xs = 1e3 * random.standard_normal((20_000, 5)) / np.sqrt(5)
    ys = xs @ np.arange(1.0, 6.0) / 1e3 + random.standard_normal(20_000)
    policy = wv.Policy(5, memory, wv.optimism(1.0), seed=0)
    policy.learn_many(xs, ys)
    expected = naive.estimate(memory, 1.0, naive.observed(xs, ys))
    np.testing.assert_allclose(
        policy.theta, expected.theta, rtol=0, atol=1e-8 * np.abs(expected.theta).max()
    )
    np.testing.assert_allclose(policy.widths(np.eye(5)), expected.widths(np.eye(5)), rtol=1e-8)


@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.999), wv.window(50)], ids=repr)
@pytest.mark.parametrize("ridge", [1e-6, 1.0, 1e4])
def test_features_that_leave_too_few_digits_are_refused(memory: wv.Memory, ridge: float) -> None:
    """Just below the limit θ̂ has two digits or more; above it an error says what to do."""
    policy = wv.Policy(2, memory, wv.optimism(1.0), ridge=ridge, seed=0)
    size = np.sqrt(1e13 * ridge)
    complaint = r"at most 1e\+13 times the ridge \(.*\), or too few digits are left; scale them"
    with pytest.raises(ArmsError, match=complaint):
        policy.learn([1.001 * size, 0.0], 1.0)
    assert policy.belief.seen == 0
    policy.learn([0.6 * size, 0.3 * size], 1.0)
    expected = naive.estimate(
        memory, ridge, naive.observed(size * np.array([[0.6, 0.3]]), np.ones(1))
    )
    np.testing.assert_allclose(policy.theta, expected.theta, rtol=1e-2)
    with pytest.raises(ArmsError, match=complaint):
        policy.learn([0.9 * size, 0.0], 1.0)
    assert policy.belief.seen == 1


@pytest.mark.parametrize("ridge", [1e-320, 1e-300, 1e-12, 1e12, 1e300])
def test_a_ridge_is_refused_or_gives_finite_estimates(ridge: float) -> None:
    try:
        policy = wv.Policy(2, wv.keep(), wv.optimism(1.0), ridge=ridge, seed=0)
    except SettingError:
        return
    policy.learn(policy.choose(min(1e-3 * ridge**0.5, 1.0) * np.eye(2)), 1.0)
    assert np.isfinite(policy.theta).all()
    assert policy.choose(np.eye(2)).index in (0, 1)


def test_a_discount_follows_a_change_after_100_000_observations() -> None:
    """θ̂ is the weighted mean of both phases, by the geometric sums of their weights."""
    policy = wv.Policy(2, wv.discount(0.99), wv.optimism(1.0), seed=0)
    policy.learn_many(np.tile([1.0, 0.0], (100_000, 1)), np.ones(100_000))
    policy.learn_many(np.tile([1.0, 0.0], (1000, 1)), -np.ones(1000))
    weight = 0.99**1000
    total = (1 - 0.99**101_000) / 0.01
    assert policy.theta[0] == pytest.approx(
        ((total - (1 - weight) / 0.01) - (1 - weight) / 0.01) / (1 + total), rel=1e-9
    )
    assert policy.theta[1] == 0.0
