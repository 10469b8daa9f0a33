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
