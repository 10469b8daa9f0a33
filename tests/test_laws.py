"""Statistical tests of all random draws, which a wrong distribution fails.

A p-value below 1e-4 is a failure. Seeds are fixed, so a test that passes once passes always.
"""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

import naive
import windvane as wv
from grid import LAWS, Floats, every_law, unit_rows
from statistical_tests import (
    DRAWS,
    LEAST_P_VALUE,
    assert_mean_and_covariance,
    assert_normal,
    list_starts,
)
from windvane import _random
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.choosing import compute_scale, draw_level, sample_parameter
from windvane.laws import Confidence, Law, anytime

FADING = [wv.keep(), wv.discount(0.9), wv.window(15), wv.restart(30)]
FADING += [
    wv.half_life(9.0),
    wv.discount(0.9, single=True),
    wv.kalman(0.95, 0.8),
    wv.detect(0.1, alarm=5.0),
]
fading = pytest.mark.parametrize("memory", FADING, ids=repr)


def make_policy(memory: wv.Memory, exploration: wv.Exploration) -> tuple[wv.Policy, naive.History]:
    """A policy that learned 40 observations of four features, and these observations."""
    random = np.random.default_rng(11)
    xs = unit_rows(random, 40, 4)
    ys = random.random(40)
    policy = wv.Policy(4, memory, exploration, ridge=1.5, seed=17)
    for x, y in zip(xs, ys, strict=True):
        policy.learn(policy.choose(x[None, :]), float(y))
    return policy, naive.observed(xs, ys)


def sample_parameters(policy: wv.Policy, count: int = DRAWS) -> Floats:
    """Draw θ̃ in many rounds, (count, d)."""
    state = view_belief(policy._belief.arrays)
    return np.array(
        [
            sample_parameter(policy._belief.arrays, state, start)
            for start in list_starts(policy.key, count)
        ]
    )


@fading
def test_thompson_samples_are_normal_with_the_covariance_of_the_belief(memory: wv.Memory) -> None:
    """θ̃ ~ N(θ̂, a²V⁻¹)."""
    policy, history = make_policy(memory, wv.thompson(0.7))
    now = naive.estimate(memory, 1.5, history)
    assert_normal(sample_parameters(policy), now.theta, 0.49 * now.V_inverse)


@fading
def test_perturbed_history_samples_have_the_distribution_of_thompson(memory: wv.Memory) -> None:
    """Normal pseudo-rewards, with √λ·ζ for the ridge, also give N(θ̂, a²V⁻¹)."""
    policy, history = make_policy(memory, wv.perturbed_history(0.7))
    now = naive.estimate(memory, 1.5, history)
    perturbed = sample_parameters(policy)
    assert_normal(perturbed, now.theta, 0.49 * now.V_inverse)
    thompson = sample_parameters(make_policy(memory, wv.thompson(0.7))[0])
    for direction in np.vstack([np.eye(4), np.ones(4)]):
        assert stats.ks_2samp(perturbed @ direction, thompson @ direction).pvalue > LEAST_P_VALUE


@pytest.mark.parametrize("memory", [m for m in FADING if m.name != "kalman"], ids=repr)
@pytest.mark.parametrize("coins", [1, 4, 64])
def test_coins_give_the_mean_and_covariance_of_linphe(memory: wv.Memory, coins: int) -> None:
    """θ̃ = W⁻¹Σw·x(y + Bin(a, ½))/(a+1): mean W⁻¹Σw·x(y + a/2)/(a+1), variance a/4."""
    policy, history = make_policy(memory, wv.perturbed_history(coins, "coins"))
    now, w = naive.estimate(memory, 1.5, history), naive.weights(memory, history, 1.5)
    wx = w[:, None] * history.xs
    mean = np.linalg.solve(now.W, wx.T @ (history.ys + coins / 2)) / (coins + 1)
    half = np.linalg.solve(now.W, wx.T) * np.sqrt(coins / 4) / (coins + 1)
    assert_mean_and_covariance(sample_parameters(policy), mean, half @ half.T)


@fading
def test_thompson_perturbs_arms_with_the_correlation_of_their_features(memory: wv.Memory) -> None:
    """corr(Z_i, Z_j) = x_iᵀV⁻¹x_j/(w_i·w_j), tested after Fisher's transformation."""
    policy, history = make_policy(memory, wv.thompson(0.7))
    now = naive.estimate(memory, 1.5, history)
    arms = unit_rows(np.random.default_rng(2), 6, 4)
    widths = now.widths(arms)
    expected = arms @ now.V_inverse @ arms.T / np.outer(widths, widths)
    perturbations = (sample_parameters(policy) - now.theta) @ arms.T
    actual = np.asarray(np.corrcoef(perturbations.T))
    above = np.triu_indices(6, 1)
    far = (np.arctanh(actual[above]) - np.arctanh(expected[above])) * np.sqrt(DRAWS - 3)
    assert np.abs(far).max() < stats.norm.isf(LEAST_P_VALUE / (2 * len(far)))
    assert np.abs(expected[above]).max() < 0.98


@pytest.mark.parametrize("memory", FADING[:3], ids=repr)
@every_law
def test_a_randomized_width_perturbs_all_arms_of_a_round_by_one_level(
    memory: wv.Memory, law: Law
) -> None:
    """The chosen arm has the largest xᵀθ̂ + Z‖x‖_{V⁻¹} for the one Z of the round."""
    policy, history = make_policy(memory, wv.randomized(law))
    now, scale = naive.estimate(memory, 1.5, history), naive.scale(law.scale, memory, 1.5, history)
    random = np.random.default_rng(3)
    played = set()
    for arms in random.standard_normal((1500, 6, 4)):
        start = np.uint64(_random.start_round(np.uint64(policy.key), policy.round))
        z = draw_level(policy._belief.arrays.rules, scale, start)
        totals = arms @ now.theta + z * now.widths(arms)
        index = policy.choose(arms).index
        assert totals[index] >= totals.max() - 1e-12
        played.add(index)
    assert len(played) == 6


def test_only_thompson_chooses_a_worse_arm_of_equal_width() -> None:
    """With equal widths one Z raises all scores by the same amount; a sampled θ̃ does not."""
    xs, ys = np.tile(np.eye(3), (5, 1)), np.tile([0.1, 0.2, 0.3], 5)
    plays = {}
    for exploration in (wv.randomized(wv.normal(5.0)), wv.thompson(5.0)):
        policy = wv.Policy(3, wv.discount(0.95), exploration, seed=1)
        policy.belief = wv.Belief(
            policy.memory, 1.0, 15, 4.0 * np.eye(3), 3.0 * np.eye(3), xs.T @ ys
        )
        arms = np.eye(3)
        played = [policy.choose(arms).index for _ in range(3000)]
        plays[exploration.name] = np.bincount(played, minlength=3)
    assert plays["randomized"].tolist() == [0, 0, 3000]
    assert plays["thompson"].min() > 800


@every_law
def test_the_level_of_a_round_has_the_distribution_of_its_law(law: Law) -> None:
    """Kolmogorov-Smirnov for the normal laws, chi-square for the points of the grid."""
    policy = wv.Policy(1, wv.keep(), wv.randomized(law), seed=8)
    levels = np.array(
        [draw_level(policy._belief.arrays.rules, 2.0, s) for s in list_starts(policy.key)]
    )
    if law.name == "normal":
        assert stats.kstest(levels, stats.norm(scale=2.0).cdf).pvalue > LEAST_P_VALUE
    elif law.name == "half_normal":
        assert stats.kstest(levels, stats.halfnorm(scale=2.0).cdf).pvalue > LEAST_P_VALUE
    else:
        points, chances = naive.grid_points(law)
        places = np.rint(levels / 2.0 * (law.points - 1)).astype(int)
        np.testing.assert_allclose(levels, 2.0 * points[places], rtol=1e-15)
        counts = np.bincount(places, minlength=law.points)
        assert stats.chisquare(counts, DRAWS * chances).pvalue > LEAST_P_VALUE


def test_the_grid_contains_every_law() -> None:
    assert {law.name for law in LAWS} == {"normal", "half_normal", "grid"}


def test_uniforms_are_uniform_and_independent() -> None:
    """Kolmogorov-Smirnov for each place of a round, chi-square for pairs of places and rounds."""
    places = np.array([[_random.uniform(s, i) for i in range(5)] for s in list_starts(99)])
    assert places.min() > 0.0
    assert places.max() < 1.0
    for i in range(5):
        assert stats.kstest(places[:, i], stats.uniform.cdf).pvalue > LEAST_P_VALUE
        for j in range(i):
            assert measure_evenness(places[:, i], places[:, j]) > LEAST_P_VALUE
        for lag in (1, 2, 64):
            assert measure_evenness(places[lag:, i], places[:-lag, i]) > LEAST_P_VALUE


def test_neighbouring_keys_give_independent_draws() -> None:
    columns = [
        np.array([_random.uniform(s, 3) for s in list_starts(key)]) for key in (0, 1, 2, 1 << 62)
    ]
    for i in range(4):
        for j in range(i):
            assert measure_evenness(columns[i], columns[j]) > LEAST_P_VALUE


def measure_evenness(left: Floats, right: Floats) -> float:
    """The p-value of a chi-square test that pairs are uniform on 12 by 12 fields."""
    counts = np.histogram2d(left, right, bins=12, range=[[0, 1], [0, 1]])[0]
    return float(stats.chisquare(counts.ravel()).pvalue)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_normals_are_normal_and_uncorrelated(size: int) -> None:
    """Within a round, and between consecutive rounds."""
    drawn = np.empty((DRAWS, size))
    for row, start in zip(drawn, list_starts(5), strict=True):
        _random.fill_normals(start, 3, row)
    for column in drawn.T:
        assert stats.kstest(column, stats.norm.cdf).pvalue > LEAST_P_VALUE
    assert_normal(drawn, np.zeros(size), np.eye(size))
    lagged = np.sum(drawn[1:] * drawn[:-1], axis=0) / np.sqrt(DRAWS - 1)
    assert stats.chi2.sf(np.sum(lagged**2), size) > LEAST_P_VALUE


PROMISES = [
    wv.confidence(0.05, noise=0.5, theta_norm=1.3, arm_norm=1.1),
    wv.confidence(0.05, noise=0.5, theta_norm=1.3, arm_norm=1.1, horizon=200),
    wv.confidence(0.05, noise=0.5, theta_norm=1.3, arm_norm=1.1, anytime=True),
]


@pytest.mark.parametrize("promise", PROMISES, ids=repr)
@pytest.mark.parametrize("memory", [*FADING, wv.restart_at([50])], ids=repr)
def test_the_radius_equals_its_formula(memory: wv.Memory, promise: Confidence) -> None:
    """β_n with the sum of squared weights of the memory, to twelve digits, for all n to 90."""
    random = np.random.default_rng(4)
    xs, ys = random.standard_normal((90, 3)), random.standard_normal(90)
    policy = wv.Policy(3, memory, wv.optimism(2.5 * promise), ridge=0.7, seed=0)
    for n in range(1, 91):
        policy.learn(policy.choose(xs[n - 1 : n]), float(ys[n - 1]))
        expected = 2.5 * naive.radius(memory, 0.7, naive.observed(xs[:n], ys[:n]), promise)
        assert compute_scale(policy._belief.arrays) == pytest.approx(expected, rel=1e-12)


class World(NamedTuple):
    """A world in which the coverage of a radius is measured, in many runs at once."""

    memory: wv.Memory
    thetas: Floats  # (T, d) θ*, the same in every run
    rounds: int
    runs: int
    noise: float
    ridge: float


def measure_excess(world: World, promise: Confidence, seed: int) -> Floats:
    """‖θ̂ − θ̄‖_V / β_n after every round of every run, (T, runs).

    θ̄ = W⁻¹(Σ w·xxᵀθ*_l + λθ*_t), which is θ* if θ* never changes.
    """
    random = np.random.default_rng(seed)
    d, runs, gamma = world.thetas.shape[1], world.runs, world.memory.gamma
    policy = wv.Policy(d, world.memory, wv.optimism(promise), ridge=world.ridge, seed=0)
    ridge = world.ridge * np.eye(d)
    S, S_noise = np.zeros((runs, d, d)), np.zeros((runs, d, d))
    b, carried = np.zeros((runs, d)), np.zeros((runs, d))
    steps: list[tuple[Floats, Floats, Floats]] = []
    ratios = np.empty((world.rounds, runs))
    for t in range(world.rounds):
        theta = world.thetas[t]
        x = unit_rows(random, runs, d)
        y = x @ theta + world.noise * random.standard_normal(runs)
        square = x[:, :, None] * x[:, None, :]
        S, S_noise = gamma * S + square, gamma**2 * S_noise + square
        b, carried = gamma * b + x * y[:, None], gamma * carried + square @ theta
        if world.memory.name == "window":
            steps.append((square, x * y[:, None], square @ theta))
            if len(steps) > world.memory.rounds:
                old = steps.pop(0)
                S, S_noise, b = S - old[0], S_noise - old[0], b - old[1]
                carried = carried - old[2]
        W, W_noise = S + ridge, S_noise + ridge
        gap = b - (carried + world.ridge * theta)  # W(θ̂ − θ̄)
        solved = np.linalg.solve(W, gap[:, :, None])
        image = W @ solved
        norm = np.einsum("rdi,rdi->r", image, np.linalg.solve(W_noise, image))
        policy._belief.arrays.tally["seen"] = t + 1
        ratios[t] = np.sqrt(norm) / compute_scale(policy._belief.arrays)
    return ratios


def stay(dim: int, rounds: int) -> Floats:
    """θ* of norm 1 that never changes, (T, d)."""
    return np.tile(np.ones(dim) / np.sqrt(dim), (rounds, 1))


def turn(dim: int, rounds: int) -> Floats:
    """θ* of norm 1 that rotates in every round and changes its sign half way, (T, d)."""
    angle = np.arange(rounds) / 25
    thetas = np.zeros((rounds, dim))
    thetas[:, 0], thetas[:, 1] = np.cos(angle), np.sin(angle)
    thetas[rounds // 2 :] *= -1
    return thetas


def is_plausible(misses: int, runs: int, chance: float) -> bool:
    """Whether this many misses are plausible if each has at most this chance."""
    return bool(stats.binom.sf(misses - 1, runs, chance) > LEAST_P_VALUE)


@pytest.mark.parametrize("thetas", [stay(2, 150), turn(2, 150)], ids=["still", "turning"])
@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.9), wv.window(20)], ids=repr)
def test_the_radius_covers_at_any_fixed_round(memory: wv.Memory, thetas: Floats) -> None:
    """P(‖θ̂ − θ̄‖_V > β_n) ≤ δ for any fixed n; δ = 0.3, so that some runs miss."""
    promise = wv.confidence(0.3, noise=1.0, theta_norm=1.0)
    world = World(memory, thetas, 150, 2000, 1.0, 0.2)
    missed = (measure_excess(world, promise, 1) > 1.0).sum(axis=1)
    assert is_plausible(int(missed[[0, 4, 19, 74, 149]].max()), world.runs, promise.delta)
    assert missed.max() > 0


@pytest.mark.parametrize("thetas", [stay(1, 1000) * 0, turn(2, 1000)], ids=["1d", "turning"])
@pytest.mark.parametrize("when", ["horizon", "anytime"])
def test_horizon_and_anytime_cover_all_rounds_at_once(when: str, thetas: Floats) -> None:
    """P(‖θ̂ − θ̄‖_V > β_n for some n ≤ 1000) ≤ δ = 0.05 under a discount of 0.9."""
    norm = float(np.abs(thetas).max())
    promise = (
        wv.confidence(0.05, theta_norm=norm, horizon=1000)
        if when == "horizon"
        else wv.confidence(0.05, theta_norm=norm, anytime=True)
    )
    world = World(wv.discount(0.9), thetas, 1000, 1000, 1.0, 1.0)
    crossed = (measure_excess(world, promise, 2) > 1.0).any(axis=0)
    assert is_plausible(int(crossed.sum()), world.runs, 0.05)


def test_the_radius_of_a_fixed_round_does_not_cover_all_rounds() -> None:
    """At d = 1, γ = 0.9, δ = 0.05 and θ* = 0, 62 % of the runs exceed it within 1000 rounds."""
    world = World(wv.discount(0.9), np.zeros((1000, 1)), 1000, 2000, 1.0, 1.0)
    crossed = (measure_excess(world, wv.confidence(0.05, theta_norm=0.0), 3) > 1.0).any(axis=0)
    assert crossed.mean() == pytest.approx(0.62, abs=4 * np.sqrt(0.62 * 0.38 / world.runs))


def test_the_error_probabilities_of_anytime_sum_to_less_than_delta() -> None:
    """δ_n = δ/(2n(1+ln n)²); an integral bounds the sum beyond n = 100 000."""
    n = np.arange(1, 100_001)
    spent = np.array([anytime(0.05, int(k)) for k in n])
    np.testing.assert_allclose(spent, 0.05 / (2 * n * (1 + np.log(n)) ** 2), rtol=1e-13)
    assert spent.sum() + 0.05 / (2 * (1 + np.log(n[-1]))) < 0.05
