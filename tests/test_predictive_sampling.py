"""Predictive sampling under `kalman`: the law of what future rewards could reveal."""

from typing import cast

import numpy as np
import pytest

import naive
import windvane as wv
from windvane import _random
from windvane.beliefs.full.choosing import choose_parameter
from windvane.errors import SettingError

Floats = naive.Floats
HISTORY = np.random.default_rng(2).standard_normal((12, 3)), np.random.default_rng(3).random(12)


def revealed(memory: wv.Memory, mean: Floats, covariance: Floats, steps: int) -> Floats:
    """Var(E[θ | Y]) by brute force: Y has `steps` later rounds, each with all d coordinates.

    θ has the given law now; Y_k = θ_k + N(0, σ²I) with θ_k = ρθ_{k−1} + N(0, (1−ρ²)I), k = 1, …
    The covariances of all Y with each other and with θ are written out, and conditioned on.
    """
    d, rho = len(mean), memory.rho
    ahead = np.arange(1, steps + 1)
    moved = np.array(
        [[rho ** abs(i - j) - rho ** (i + j) for j in ahead] for i in ahead]
    )  # Σ of the steps that two rounds share, times (1−ρ²), in units of I
    powers = rho ** ahead.astype(float)
    own = np.kron(np.outer(powers, powers), covariance) + np.kron(moved, np.eye(d))
    cross = np.kron(powers, covariance)
    seen = own + memory.noise**2 * np.eye(len(own))
    return np.asarray(cross @ np.linalg.solve(seen, cross.T))


def learn(memory: wv.Memory, exploration: wv.Exploration) -> wv.Policy:
    policy = wv.Policy(3, memory, exploration, seed=4)
    policy.learn_many(*HISTORY)
    return policy


def predict(memory: wv.Memory) -> tuple[Floats, Floats]:
    """The mean and covariance of the parameter of the next reward."""
    mean, covariance = naive.kalman(memory, 1.0, *HISTORY)
    return memory.rho * mean, memory.rho**2 * covariance + (1 - memory.rho**2) * np.eye(3)


def draw_root(policy: wv.Policy) -> tuple[Floats, Floats]:
    """The mean ρμ and the matrix that turns z into θ̃ − ρμ, from d rounds with known z."""
    draws, normals = np.empty((3, 3)), np.empty((3, 3))
    for t in range(3):
        start = np.uint64(_random.start_round(np.uint64(policy.key), t))
        _random.fill_normals(start, _random.FIRST_FREE_PLACE, normals[t])
        draws[t] = choose_parameter(policy._belief.arrays, policy.key, t)
    mean = policy.memory.rho * policy.theta
    return mean, cast(Floats, np.linalg.solve(normals, draws - mean).T)


@pytest.mark.parametrize("memory", [wv.kalman(0.9, 0.5), wv.kalman(0.5, 0.3), wv.kalman(0.8, 2.0)])
def test_samples_have_the_law_of_what_two_hundred_rounds_would_reveal(memory: wv.Memory) -> None:
    policy = learn(memory, wv.thompson(0.7, predictive=True))
    mean, covariance = predict(memory)
    got_mean, root = draw_root(policy)
    np.testing.assert_allclose(got_mean, mean, rtol=0, atol=1e-12)
    expected = 0.7**2 * revealed(memory, mean, covariance, 200)
    np.testing.assert_allclose(root @ root.T, expected, rtol=0, atol=1e-10)
    assert np.trace(expected) < 0.49 * np.trace(covariance)  # less than Thompson sampling has


def test_a_parameter_that_hardly_moves_is_sampled_as_by_thompson() -> None:
    memory = wv.kalman(1 - 1e-9, 0.5)
    root = draw_root(learn(memory, wv.thompson(1.0, predictive=True)))[1]
    np.testing.assert_allclose(root @ root.T, predict(memory)[1], rtol=1e-3)


def test_predictive_sampling_has_propensities_and_survives_saving(tmp_path: object) -> None:
    policy = learn(wv.kalman(0.9, 0.5), wv.thompson(1.0, predictive=True))
    assert policy.propensities(np.eye(3), samples=500).sum() == pytest.approx(1.0)
    path = f"{tmp_path}/policy.npz"
    policy.save(path)
    assert wv.Policy.load(path) == policy
    assert wv.Policy.load(path).exploration.predictive


@pytest.mark.parametrize("belief", ["full", "diagonal"])
def test_other_memories_are_refused(belief: str) -> None:
    with pytest.raises(SettingError, match=r"predictive=True\) needs the memory kalman"):
        wv.Policy(3, wv.discount(0.9), wv.thompson(1.0, predictive=True), belief=belief)
