"""Beliefs of large dimensions, whose matrices change only once for several observations."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import naive
import windvane as wv
from grid import (
    EXPLORATIONS,
    MEMORIES,
    SAMPLED,
    Floats,
    check_estimate,
    contents,
    make_inversions_rare,
    unit_rows,
)
from windvane import _random, sets
from windvane.beliefs.full import layout, propensities
from windvane.beliefs.full.belief import settle
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.choosing import compute_scale, draw_level
from windvane.beliefs.full.large import bound_width, correct_width

DIM = 131  # above LARGE, and a multiple of no block
EXPLORATION_BY_NOISE = wv.randomized(wv.half_normal(wv.posterior(0.5)))
PAIRS = [  # all memories with three explorations, and one memory with all that draw no θ̃
    *itertools.product(MEMORIES, [wv.optimism(0.8), wv.greedy(), EXPLORATION_BY_NOISE]),
    *((wv.discount(0.3), e) for e in EXPLORATIONS if e not in SAMPLED),
]
every_kind_of_row = pytest.mark.parametrize("share", [1.0, 0.05], ids=["dense", "sparse"])


def make_rows(random: np.random.Generator, count: int, share: float = 1.0) -> Floats:
    """Rows (count, DIM) of which the given share of numbers is not 0."""
    rows = unit_rows(random, count, DIM)
    return np.where(random.random(rows.shape) < share, rows, 0.0)


def test_small_dimensions_and_other_pairs_let_nothing_wait() -> None:
    for dim, memory, exploration in [
        (layout.LARGE, wv.discount(0.9), wv.optimism(1.0)),
        (DIM, wv.window(50), wv.optimism(1.0)),
        (DIM, wv.kalman(0.01, 0.5), wv.optimism(1.0)),
        (DIM, wv.discount(0.9), wv.thompson(1.0)),
    ]:
        policy = wv.Policy(dim, memory, exploration, seed=0)
        assert not policy.is_large
        assert policy._belief.arrays.block.size == layout.block_size(policy._belief.arrays.rules)
    assert wv.Policy(DIM, wv.discount(0.9), wv.optimism(1.0), seed=0).is_large


@pytest.mark.parametrize(
    ("dim", "most_faded"), [(128, 0.025), (129, 0.05039), (200, 0.07813), (256, 0.1), (512, 0.1)]
)
def test_the_ridge_of_a_large_belief_fades_further_between_inversions(
    dim: int, most_faded: float
) -> None:
    """Nearly as far as it may, in log, and half of that to each side of λ."""
    policy = wv.Policy(dim, seed=0)
    rule, step = policy._belief.arrays.rules[0], -np.log(policy.memory.gamma)
    assert most_faded - 1.1 * step < rule["refresh"] * step <= most_faded
    assert rule["lead"] == pytest.approx(np.exp(0.5 * rule["refresh"] * step), rel=1e-12)


@every_kind_of_row
@pytest.mark.parametrize(("memory", "exploration"), PAIRS, ids=repr)
def test_a_large_belief_is_that_of_the_formulas(
    memory: wv.Memory, exploration: wv.Exploration, share: float
) -> None:
    """The estimate, the sums and all widths, after every number of waiting observations.

    A memory whose matrices do not wait is compared, too.
    """
    random = np.random.default_rng(5)
    policy = wv.Policy(DIM, memory, exploration, ridge=0.3, seed=1)
    xs, ys, arms = make_rows(random, 60, share), random.standard_normal(60), make_rows(random, 6)
    for t in range(60):
        policy.learn(policy.choose(xs[t : t + 1]), ys[t])
        history = naive.History(xs[: t + 1], ys[: t + 1], np.arange(t + 1), t)
        if t % 5 != 0 and t < 55:
            continue
        now = naive.estimate(memory, 0.3, history)
        check_estimate(policy, now, arms)
        np.testing.assert_allclose(policy.belief.precision, now.W, rtol=0, atol=1e-11)
        np.testing.assert_allclose(policy.belief.noise, now.W_noise, rtol=0, atol=1e-11)
        if policy.exploration.law is None or not policy.is_large:
            continue
        means, widths = arms @ now.theta, now.widths(arms)
        expected = propensities.compute_exact_propensities(policy._belief.arrays, means, widths)
        np.testing.assert_allclose(policy.propensities(arms), expected, rtol=0, atol=1e-7)
        settled = view_belief(settle(policy._belief.arrays))
        counts = policy._belief.arrays.tally[0]
        inverse = np.linalg.inv(now.W + (counts["ridge"] - 0.3) * np.eye(DIM))
        noise = now.W_noise + (counts["noise_ridge"] - 0.3) * np.eye(DIM)
        spread = inverse @ noise @ inverse if policy._belief.arrays.rules["twin"][0] else inverse
        np.testing.assert_allclose(settled.inverse, inverse, rtol=0, atol=1e-10)
        np.testing.assert_allclose(settled.spread, spread, rtol=0, atol=1e-10)


@every_kind_of_row
@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.97), wv.half_life(20.0)], ids=repr)
def test_the_noise_of_a_large_belief_is_that_of_the_formulas(
    memory: wv.Memory, share: float
) -> None:
    random = np.random.default_rng(6)
    exploration = wv.randomized(wv.half_normal(wv.posterior(0.5)))
    policy = wv.Policy(DIM, memory, exploration, ridge=0.05, seed=1)
    xs, ys = make_rows(random, 30, share), random.standard_normal(30)
    for t in range(30):
        policy.learn(policy.choose(xs[t : t + 1]), ys[t])
    expected = naive.noise(memory, 0.05, naive.observed(xs, ys))
    assert policy.estimated_noise == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("is_lagging", [False, True], ids=["", "rare inversions"])
@pytest.mark.parametrize("single", [False, True], ids=["", "single"])
@pytest.mark.parametrize("gamma", [1.0, 0.98, 0.999])
@pytest.mark.parametrize(
    "exploration", [wv.optimism(1.0), wv.optimism(30.0), wv.randomized(wv.normal(2.0))], ids=repr
)
def test_the_best_of_many_arms_is_played(
    exploration: wv.Exploration, gamma: float, single: bool, is_lagging: bool
) -> None:
    """By the exact widths of all arms, of which many are nearly equal and some sparse."""
    memory = wv.keep() if gamma == 1.0 else wv.discount(gamma, single)
    policy = wv.Policy(DIM, memory, exploration, seed=3)
    if is_lagging and gamma < 1.0:
        make_inversions_rare(policy)
    random = np.random.default_rng(17)
    theta, running = random.standard_normal(DIM), naive.Running(memory, 1.0, DIM)
    for t in range(60):
        arms = make_rows(random, 21, 0.05 if t % 3 == 0 else 1.0)
        if t % 3 == 1:
            arms = make_rows(random, 1) + 0.01 * arms
        now = running.estimate()
        widths = np.sqrt(np.einsum("kd,kd->k", arms @ now.V_inverse, arms))
        start = np.uint64(_random.start_round(np.uint64(policy.key), t))
        z = draw_level(policy._belief.arrays.rules, compute_scale(policy._belief.arrays), start)
        scores = arms @ now.theta + z * widths
        chances = policy.propensities(arms)
        choice, again = policy.choose_with_propensities(arms)
        assert again.tobytes() == chances.tobytes()
        assert scores[choice.index] >= scores.max() - 1e-9 * (1 + abs(z))
        reward = float(arms[choice.index] @ theta + random.standard_normal())
        policy.learn(choice, reward)
        running.learn(arms[choice.index], reward)


def test_ties_of_a_large_belief_are_broken_at_random() -> None:
    policy = wv.Policy(DIM, wv.discount(0.99), wv.optimism(1.0), seed=0)
    rows = make_rows(np.random.default_rng(1), 20)
    policy.learn_many(rows, np.ones(20))
    played = [policy.choose(np.repeat(rows[:1], 5, axis=0)).index for _ in range(1000)]
    assert np.bincount(played, minlength=5).min() > 130


@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.99), wv.half_life(9.0)], ids=repr)
def test_reading_saving_and_learning_at_once_change_no_bit(
    memory: wv.Memory, tmp_path: Path
) -> None:
    random = np.random.default_rng(2)
    one, other, many = (
        wv.Policy(DIM, memory, wv.randomized(wv.half_normal(1.0)), seed=4) for _ in range(3)
    )
    rows, rewards, arms = make_rows(random, 50), random.random(50), make_rows(random, 5)
    for t in range(50):
        one.learn(rows[t], rewards[t], at=float(t))
        other.learn(rows[t], rewards[t], at=float(t))
        assert other.belief.seen == t + 1
        other.widths(arms)
        other.propensities(arms)
        other.save(tmp_path / "policy.npz")
        other = wv.Policy.load(tmp_path / "policy.npz")
    many.learn_many(rows, rewards, at=np.arange(50.0))
    assert contents(one, tmp_path) == contents(other, tmp_path) == contents(many, tmp_path)
    assert one == other == many


def test_a_belief_can_be_given_amended_and_restarted() -> None:
    """Each of these meets observations that wait."""
    random = np.random.default_rng(4)
    rows, rewards = make_rows(random, 30), random.random(30)
    policy, other = (wv.Policy(DIM, wv.keep(), wv.optimism(1.0), seed=4) for _ in range(2))
    policy.learn_many(rows, rewards)
    other.learn_many(rows[:11], rewards[:11] - 0.5)
    for t in range(11):
        other.amend(rows[t], 0.5)
    other.belief = other.belief.merge(replace(policy.belief, seen=0))
    history = naive.observed(np.vstack([rows[:11], rows]), np.append(rewards[:11], rewards))
    expected = naive.estimate(wv.keep(), 1.0, history)
    np.testing.assert_allclose(other.theta, expected.theta, rtol=0, atol=1e-9)
    other.learn(rows[0], 1.0)
    assert other.belief.seen == 12


def test_prepared_arms_meet_a_large_belief() -> None:
    random = np.random.default_rng(8)
    rows = make_rows(random, 5000)
    plain, prepared = (
        wv.Policy(DIM, wv.discount(0.99), wv.optimism(0.5), seed=4) for _ in range(2)
    )
    arms = sets.finite(rows)
    for _ in range(12):
        choices = plain.choose(rows), prepared.choose(arms)
        assert choices[0].index == choices[1].index
        for policy, choice in zip((plain, prepared), choices, strict=True):
            policy.learn(choice, float(rows[choice.index, 0]))
    assert plain.theta.tobytes() == prepared.theta.tobytes()


@pytest.mark.parametrize(
    "memory",
    [wv.discount(0.98), wv.discount(0.999), wv.discount(0.98, single=True), wv.half_life(300.0)],
    ids=repr,
)
def test_corrected_widths_keep_to_their_bound(memory: wv.Memory) -> None:
    """However far the ridges have faded, and for the arms whose widths change most with them."""
    random = np.random.default_rng(12)
    policy = wv.Policy(DIM, memory, wv.optimism(1.0), ridge=0.5, seed=3)
    if not memory.kind.is_timed:
        make_inversions_rare(policy)
    errors = []
    for t in range(200):
        policy.learn(make_rows(random, 1)[0], 1.0, at=float(t))
        if t % 23 != 22:
            continue
        settled = settle(policy._belief.arrays)
        state, exact = view_belief(settled), policy.belief.covariance
        if memory.single:
            exact = policy.belief.solve(np.eye(DIM))
        vectors = np.linalg.eig(np.linalg.solve(exact, state.spread))[1].real.T
        for x in np.vstack([make_rows(random, 20), vectors]):
            p, q = state.inverse @ x, state.spread @ x
            width, bound = correct_width(settled, float(x @ q), p, q)
            error = abs(width - np.sqrt(x @ exact @ x))
            assert error <= bound + 1e-9
            coarse_width, coarse_bound = bound_width(settled, float(x @ q), float(x @ p))
            assert abs(coarse_width - np.sqrt(x @ exact @ x)) <= coarse_bound + 1e-9
            errors.append(bound / width)
    assert np.median(errors) < 0.2
