"""Memories with a rule of their own for what is forgotten: bounds that theory gives them."""

import numpy as np
import pytest

import windvane as wv
from grid import unit_rows
from windvane.errors import SettingError


def test_a_prior_that_fades_stops_at_its_least_share() -> None:
    """Constant contexts leave nothing but the prior in the other directions: λ·max(γⁿ, least)."""
    policy = wv.Policy(3, wv.fading_prior(0.9, 0.02), wv.thompson(1.0), ridge=2.0, seed=1)
    for n in range(1, 3001):
        policy.learn([1.0, 0.0, 0.0], 1.0)
        if n in (1, 20, 36, 37, 38, 500, 3000):
            expected = 2.0 * max(0.9**n, 0.02)
            assert np.linalg.eigvalsh(policy.belief.precision)[0] == pytest.approx(
                expected, rel=1e-9
            )
    assert np.linalg.norm(policy.theta - [1 / 1.004, 0, 0]) < 1e-12  # Σ γ^age = 10, λ is 0.04
    assert np.isfinite(policy.choose(np.eye(3)).features).all()


def test_a_prior_that_fades_is_forgotten_and_one_of_discount_is_not() -> None:
    """Without noise, θ̂ tends to θ under `fading_prior`; the ridge of `discount` shrinks it."""
    theta, xs = np.array([0.5, -1.0]), unit_rows(np.random.default_rng(3), 400, 2)
    shrunk = {}
    for memory in (wv.discount(0.9), wv.fading_prior(0.9, 1e-4)):
        policy = wv.Policy(2, memory, wv.greedy(), seed=1)
        policy.learn_many(xs, xs @ theta)
        shrunk[memory.name] = np.linalg.norm(policy.theta - theta)
    assert shrunk["fading_prior"] < 1e-4 < 0.1 < shrunk["discount"]


@pytest.mark.parametrize("least", [0.0, 1e-5, 1.5])
def test_a_least_share_that_leaves_too_few_digits_is_refused(least: float) -> None:
    with pytest.raises(SettingError, match="fading_prior: least must"):
        wv.fading_prior(0.9, least)


def test_directional_forgetting_keeps_what_is_known_of_other_directions() -> None:
    """A direction seen 100 times, then not in 2000 observations of others, is not forgotten."""
    kept, faded = (
        wv.Policy(2, memory, wv.optimism(1.0), seed=1)
        for memory in (wv.directional(0.9), wv.discount(0.9))
    )
    for policy in (kept, faded):
        policy.learn_many(np.tile([0.0, 1.0], (100, 1)), np.full(100, 0.7))
        before = policy.theta[1], policy.widths([[0.0, 1.0]])
        policy.learn_many(np.tile([1.0, 0.0], (2000, 1)), np.full(2000, 0.2))
        if policy is kept:
            np.testing.assert_allclose(policy.theta[1], before[0], rtol=0, atol=1e-12)
            np.testing.assert_allclose(policy.widths([[0.0, 1.0]]), before[1], rtol=1e-9)
    assert abs(faded.theta[1]) < 1e-9
    assert kept.theta[0] == pytest.approx(0.2, rel=1e-9)  # the prior is forgotten there too


@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_no_eigenvalue_falls_below_the_bound_of_directional_forgetting(ridge: float) -> None:
    """min(λ, ε/(1−γ)), for rows of all lengths, of which the short ones forget nothing."""
    memory, random = wv.directional(0.7, 0.02), np.random.default_rng(4)
    policy = wv.Policy(3, memory, wv.greedy(), ridge=ridge, seed=1)
    least = np.inf
    for length in 10.0 ** random.uniform(-2, 0, 1500):
        policy.learn(length * unit_rows(random, 1, 3)[0], 1.0)
        least = min(least, np.linalg.eigvalsh(policy.belief.precision)[0])
    assert least >= min(ridge, 0.02 / 0.3) * (1 - 1e-9)
    assert least < 5 * min(ridge, 0.02 / 0.3)  # the bound is not far away
