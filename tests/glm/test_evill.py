"""EVILL: pseudo-rewards with as much noise as a reward of that mean has."""

from pathlib import Path

import numpy as np
import pytest

import naive
import windvane as wv
from game import play_round_by_round
from grid import unit_rows
from windvane import _random
from windvane.errors import SettingError
from windvane.lab import worlds
from windvane.lab.engines.replay import make_policy, replay_generalized
from windvane.lab.studies.plan import make_player

RIDGE, SCALE = 0.7, 0.8


def observed(link: str) -> naive.History:
    """80 observations of a parameter of norm 1.5."""
    random = np.random.default_rng(11)
    xs = random.standard_normal((80, 3))
    means = naive.mean_of(link, xs @ (1.5 * unit_rows(random, 1, 3)[0]))
    ys = random.poisson(means) if link == "poisson" else random.random(80) < means
    return naive.observed(xs, ys.astype(np.float64))


@pytest.mark.parametrize("link", ["logistic", "poisson"])
@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.95)], ids=repr)
def test_a_sample_minimises_the_loss_with_a_random_linear_term(
    link: str, memory: wv.Memory
) -> None:
    """The term is θᵀ(Σ w·√μ'·x·z + √λ·ζ), as SciPy finds the minimum from the same draws."""
    history = observed(link)
    policy = wv.GeneralizedPolicy(3, link, memory, SCALE, RIDGE, seed=9, pseudo="evill")
    policy.learn_many(history.xs, history.ys)
    theta, z = np.empty(3), np.empty(83)
    for t in range(5):
        start = np.uint64(_random.start_round(np.uint64(policy.key), t))
        _random.fill_normals(start, _random.FIRST_FREE_PLACE, z)
        assert policy._kernels.sample_parameter(policy._rules, policy._arrays, start, theta)
        slopes = np.array([naive.slope(link, x @ policy.theta) for x in history.xs])
        pseudo = SCALE * np.sqrt(slopes) * z[:80]
        expected = naive.generalized(link, memory, RIDGE, history, pseudo, SCALE * z[80:])
        np.testing.assert_allclose(theta, expected, rtol=0, atol=1e-6)


def test_samples_spread_as_the_inverse_fisher_information() -> None:
    """Of 4000 samples after many clicks: a²H⁻¹, where constant noise would spread more."""
    random = np.random.default_rng(12)
    xs = np.repeat(np.eye(2), 1500, axis=0)
    ys = (random.random(3000) < np.repeat([0.03, 0.5], 1500)).astype(np.float64)
    policy = wv.GeneralizedPolicy(2, "logistic", wv.keep(), 1.0, 1.0, seed=9, pseudo="evill")
    policy.learn_many(xs, ys)
    thetas = np.empty((4000, 2))
    assert policy._kernels.sample_parameters(policy._rules, policy._arrays, 5, 0, thetas)
    slopes = [naive.slope("logistic", score) for score in policy.theta]
    expected = 1 / (1 + 1500 * np.array(slopes))
    assert thetas.var(axis=0) == pytest.approx(expected, rel=0.12)  # 5 standard errors
    assert 1500 * expected[0] ** 2 > 20 * expected[0]  # what noise 1 in each reward would give


def test_evill_is_saved_and_plays_alike_in_the_lab_and_round_by_round(tmp_path: Path) -> None:
    policy = wv.GeneralizedPolicy(2, "logistic", wv.keep(), seed=1, pseudo="evill")
    policy.learn([1.0, 0.0], 1.0)
    policy.save(tmp_path / "policy.npz")
    loaded = wv.GeneralizedPolicy.load(tmp_path / "policy.npz")
    assert loaded == policy
    assert repr(loaded).endswith("pseudo='evill')")
    world = worlds.world(
        3, 4, 60, worlds.stationary(), worlds.fixed(), worlds.bernoulli("logistic")
    )
    player, draw = make_player({"name": "EVILL"}, world), world.draw(0)
    compiled = replay_generalized(player, draw, 7, np.arange(1, 61))
    by_rounds = play_round_by_round(make_policy(player, 3, 7), 7, draw)
    np.testing.assert_allclose(compiled, by_rounds, rtol=0, atol=1e-9)


def test_a_law_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingError, match="pseudo must be 'normal' or 'evill', got 'coins'"):
        wv.GeneralizedPolicy(2, "logistic", wv.keep(), pseudo="coins")
    with pytest.raises(SettingError, match="pseudo must be 'normal', 'coins' or 'evill'"):
        wv.perturbed_history(1.0, "other")  # type: ignore[arg-type]
