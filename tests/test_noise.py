"""The estimated noise: its formula, its law, and what does not change it."""

import re

import numpy as np
import pytest

import naive
import windvane as wv
from grid import ARMS, MEMORIES, REWARDS, Floats, every_memory, make_inversions_rare, unit_rows
from windvane.beliefs.full.choosing import compute_scale
from windvane.errors import SettingError

BY_WIDTH = wv.randomized(wv.half_normal(wv.posterior(0.5)))
BY_SAMPLE = wv.thompson(wv.posterior(0.5))
both_styles = pytest.mark.parametrize("exploration", [BY_WIDTH, BY_SAMPLE], ids=repr)


def play(policy: wv.Policy, rounds: int) -> naive.History:
    """Choose and learn in turn; return what was learned."""
    xs = []
    for t in range(policy.round, rounds):
        choice = policy.choose(ARMS[t])
        policy.learn(choice, REWARDS[t])
        xs.append(choice.features)
    return naive.observed(np.array(xs), REWARDS[:rounds])


@every_memory
@both_styles
def test_the_noise_equals_its_formula(memory: wv.Memory, exploration: wv.Exploration) -> None:
    """σ̂² = (2·0.25 + Σ w·e²/S)/(2 + Σ w), to 1e-9, each e and S from a refit."""
    for rounds in (1, 7, 60, 130):
        policy = wv.Policy(3, memory, exploration, ridge=0.8, seed=5)
        expected = naive.noise(memory, 0.8, play(policy, rounds))
        assert policy.estimated_noise == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("memory", [wv.discount(0.9), wv.discount(0.999, single=True)], ids=repr)
def test_the_noise_is_exact_also_between_two_inversions(memory: wv.Memory) -> None:
    policy = make_inversions_rare(wv.Policy(3, memory, BY_WIDTH, seed=5))
    expected = naive.noise(memory, 1.0, play(policy, 100))
    assert policy.estimated_noise == pytest.approx(expected, rel=1e-9)


def test_a_late_reward_counts_by_the_age_of_its_choice() -> None:
    """Under a half-life of 10 the error of a choice that is 20 older has a weight of ¼."""
    policy = wv.Policy(1, wv.half_life(10.0), BY_WIDTH, ridge=2.0, seed=5)
    policy.learn([1.0], 3.0, at=20.0)
    policy.learn([1.0], 5.0, at=0.0)
    theta, variance = 3.0 / (2 + 1), (2 + 1) / (2 + 1) ** 2
    total = 3.0**2 / (1 + 1 / 2) + 0.25 * (5.0 - theta) ** 2 / (1 + variance)
    expected = ((2 * 0.25 + total) / (2 + 1.25)) ** 0.5
    assert policy.estimated_noise == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "memory", [wv.keep(), wv.discount(0.8), wv.half_life(4.0), wv.window(9)], ids=repr
)
@pytest.mark.parametrize("noise", [0.05, 3.0])
def test_the_errors_have_the_variance_of_the_noise(memory: wv.Memory, noise: float) -> None:
    """E e²/S = σ², whatever is in memory, if y = xᵀθ + N(0, σ²) and θ ~ N(0, σ²I/λ).

    The mean over at least 400·5 weights has a standard error of 3 % or less; S is 1.3 or more.
    """
    random, sums = np.random.default_rng(12), np.zeros(2)
    for _ in range(400):
        theta = noise / 1.5**0.5 * random.standard_normal(6)
        xs = 1.5 * unit_rows(random, 40, 6)
        policy = wv.Policy(6, memory, BY_WIDTH, ridge=1.5, seed=0)
        policy.learn_many(xs, xs @ theta + noise * random.standard_normal(40), at=np.arange(40.0))
        sums += policy.belief.squared_errors, policy.belief.error_weight
    assert sums[0] / sums[1] == pytest.approx(noise**2, rel=0.1)


@pytest.mark.parametrize("noise", [0.1, 0.4, 7.0])
def test_the_estimate_finds_the_noise(noise: float) -> None:
    """After 5000 rewards the standard error of σ̂ is 1 %; 5 % is allowed."""
    random = np.random.default_rng(3)
    xs = unit_rows(random, 5000, 4)
    policy = wv.Policy(4, wv.keep(), BY_SAMPLE, seed=1)
    policy.learn_many(xs, xs @ [0.5, -0.2, 0.1, 0.4] + noise * random.standard_normal(5000))
    assert policy.estimated_noise == pytest.approx(noise, rel=0.05)


def test_a_faded_estimate_follows_the_noise() -> None:
    """Of 0.2, then 1: a discounted estimate finds the second, to three of its standard errors."""
    random = np.random.default_rng(4)
    xs = unit_rows(random, 3000, 3)
    noise: Floats = np.where(np.arange(3000) < 2000, 0.2, 1.0) * random.standard_normal(3000)
    policy = wv.Policy(3, wv.discount(0.99), BY_WIDTH, seed=1)
    policy.learn_many(xs, noise)
    assert policy.estimated_noise == pytest.approx(1.0, rel=0.15)


def test_a_policy_that_has_learned_nothing_expects_a_half() -> None:
    assert wv.Policy(3, wv.keep(), BY_WIDTH).estimated_noise == 0.5


def test_a_policy_without_a_posterior_scale_estimates_no_noise() -> None:
    policy = wv.Policy(2, wv.keep(), wv.thompson(0.5), seed=1)
    policy.learn([1.0, 0.0], 9.0)
    complaint = "only if its exploration has a scale such as posterior(0.5), got thompson(0.5)"
    with pytest.raises(SettingError, match=re.escape(complaint)):
        _ = policy.estimated_noise
    assert (policy.belief.squared_errors, policy.belief.error_weight) == (0.0, 0.0)


@pytest.mark.parametrize("law", ["half_normal(posterior(0.5))", "half_normal(0.5)"])
def test_an_adaptive_policy_has_the_noise_of_the_base_that_leads(law: str) -> None:
    """Noise of 0.2 around a fixed θ: the estimate is within a tenth, and that of a policy alone."""
    adaptive = wv.PredictiveMemory(3, f"randomized({law})", longest=100, seed=1)
    random = np.random.default_rng(9)
    xs = random.normal(size=(600, 3))
    rewards = xs @ [0.5, -0.2, 0.1] + 0.2 * random.normal(size=600)
    adaptive.learn_many(xs, rewards)
    if "posterior" not in law:
        with pytest.raises(SettingError, match="only if its exploration has a scale"):
            _ = adaptive.estimated_noise
        return
    alone = wv.Policy(3, adaptive.memory, f"randomized({law})", ridge=1.0, seed=1)
    alone.learn_many(xs, rewards)
    assert adaptive.estimated_noise == pytest.approx(alone.estimated_noise, rel=1e-9)
    assert adaptive.estimated_noise == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize("memory", [wv.restart(20), wv.restart_at([20])], ids=repr)
def test_a_restart_keeps_the_noise(memory: wv.Memory) -> None:
    policy = wv.Policy(3, memory, BY_SAMPLE, seed=5)
    play(policy, 20)
    before = policy.estimated_noise
    assert before != 0.5
    foreseen = policy.propensities(ARMS[20])
    policy.choose(ARMS[20])
    assert policy.belief.seen == 0
    assert policy.estimated_noise == before
    assert foreseen.sum() == pytest.approx(1.0)


def test_an_alarm_keeps_the_noise_and_counts_the_error_of_the_blank_belief() -> None:
    policy = wv.Policy(1, wv.detect(0.1, alarm=4.0), BY_WIDTH, seed=5)
    policy.learn_many(np.ones((20, 1)), np.ones(20))
    before = policy.belief.squared_errors
    policy.learn([1.0], -3.0)
    assert policy.alarms == 1
    assert policy.belief.squared_errors == pytest.approx(before + 9.0 / 2.0, rel=1e-12)


def test_merged_beliefs_have_the_errors_of_both() -> None:
    """The older ones fade as its sums do, and a policy takes over the estimate."""
    old, new = (wv.Policy(3, wv.discount(0.9), BY_WIDTH, seed=seed) for seed in (1, 2))
    old.learn_many(ARMS[:10, 0], REWARDS[:10])
    new.learn_many(ARMS[10:16, 0], REWARDS[10:16])
    merged = old.belief.merge(new.belief)
    fade = 0.9**6
    errors = fade * old.belief.squared_errors + new.belief.squared_errors
    weight = fade * old.belief.error_weight + new.belief.error_weight
    assert merged.squared_errors == pytest.approx(errors, rel=1e-12)
    assert merged.error_weight == pytest.approx(weight, rel=1e-12)
    old.belief = merged
    assert old.estimated_noise == pytest.approx(((0.5 + errors) / (2 + weight)) ** 0.5, rel=1e-12)


def test_an_amended_reward_leaves_the_noise() -> None:
    policy = wv.Policy(3, wv.keep(), BY_WIDTH, seed=1)
    policy.learn(ARMS[0, 0], 1.0)
    before = policy.estimated_noise
    policy.amend(ARMS[0, 0], 5.0)
    assert policy.estimated_noise == before


@pytest.mark.parametrize("memory", [m for m in MEMORIES if not m.kind.is_filter], ids=repr)
def test_a_posterior_scale_is_a_number_that_follows_the_noise(memory: wv.Memory) -> None:
    """optimism(posterior(1.5)) plays as optimism(1.5·σ̂) with the σ̂ of the round."""
    policy = wv.Policy(3, memory, wv.optimism(wv.posterior(1.5)), seed=1)
    for t in range(60):
        means, widths = ARMS[t] @ policy.theta, policy.widths(ARMS[t])
        if memory.name.startswith("restart") and policy.round == policy._next_restart:
            means, widths = 0.0 * means, np.linalg.norm(ARMS[t], axis=1)
        choice = policy.choose(ARMS[t])
        scores = means + 1.5 * policy.estimated_noise * widths
        assert scores[choice.index] >= scores.max() - 1e-9
        policy.learn(choice, REWARDS[t])


def test_the_noise_of_a_kalman_filter_counts_in_units_of_its_own() -> None:
    """With σ̂ = σ the scale of posterior(1) is 1, because the covariance contains σ²."""
    policy = wv.Policy(2, wv.kalman(0.9999, 0.2), wv.optimism(wv.posterior(1.0)), seed=1)
    random = np.random.default_rng(5)
    xs = unit_rows(random, 4000, 2)
    policy.learn_many(xs, xs @ [0.5, -0.2] + 0.2 * random.standard_normal(4000))
    assert policy.estimated_noise == pytest.approx(0.2, rel=0.05)
    scale = compute_scale(policy._belief.arrays)
    assert scale == pytest.approx(policy.estimated_noise / 0.2, rel=1e-12)
