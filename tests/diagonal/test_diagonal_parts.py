"""The memory `parts` of a diagonal belief: the formulas, a game, its belief and its files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import windvane as wv
from diagonal_game import make_diagonal, read
from grid import ARMS, REWARDS, contents, rewrite_saved
from windvane.beliefs.diagonal.kernels import ODDS, Weights
from windvane.errors import BeliefError, FileError, SettingError

DIM = 15
HOUR, START = 3600.0, 1.7e9  # seconds
EXPLORATION = wv.randomized(wv.half_normal(wv.posterior(1.0)))
EYE = np.eye(DIM)
Observation = tuple[naive.Row, float, float]  # a row, a reward and a time


def draw_observations(seed: int, count: int = 300) -> list[Observation]:
    """Draw rows of one to five entries; θ changes twice, and one reward in ten is late."""
    random = np.random.default_rng(seed)
    thetas = random.standard_normal((3, DIM))
    times = START + np.cumsum(HOUR * random.exponential(size=count))
    times -= np.where(random.random(count) < 0.1, 5 * HOUR, 0.0)
    observations = []
    for n, at in enumerate(times.tolist()):
        places = np.sort(random.choice(DIM, random.integers(1, 6), replace=False)).tolist()
        row = dict(zip(places, random.standard_normal(len(places)).tolist(), strict=True))
        mean = sum(x * thetas[3 * n // count, i] for i, x in row.items())
        observations.append((row, float(mean + 0.3 * random.standard_normal()), at))
    return observations


def teach(policy: wv.Policy, observations: list[Observation]) -> None:
    for row, reward, at in observations:
        policy.learn((list(row), list(row.values())), reward, at=at)


def look_inside(policy: wv.Policy) -> Weights:
    """The arrays of a policy."""
    weights: Weights = policy._belief.weights  # type: ignore[attr-defined]
    return weights


MEMORIES = [
    wv.parts(5, 50, "never", shares=[1, 2, 3]),
    wv.parts("2 hours", "2 days", shares=[1, 1]),
    wv.parts(),
    wv.parts(3, 30, 300, "never"),
    wv.parts("2 hours", "2 days", "never"),
]


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_the_formulas_hold_for_every_row(memory: wv.Memory) -> None:
    """While the still belief leads, is given up, starts again from the parts and leads again."""
    policy = make_diagonal(DIM, memory, EXPLORATION, ridge=0.6, seed=0)
    belief = naive.DiagonalParts(memory, 0.6, DIM)
    leaders, renewals = set(), 0
    for row, reward, at in draw_observations(1):
        before = look_inside(policy).evidence[-1, ODDS]
        teach(policy, [(row, reward, at)])
        belief.learn(row, reward, at)
        renewals += bool(before < 0 and look_inside(policy).evidence[-1, ODDS] == -2.5)
        leaders.add(belief.leads())
        means, variances = belief.read_all()
        np.testing.assert_allclose(policy.theta, means, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(policy.widths(EYE) ** 2, variances, rtol=1e-9)
        assert policy.estimated_noise == pytest.approx(belief.noise(), rel=1e-9)
    assert leaders == ({True, False} if memory.finds else {False})
    assert renewals > 0 or not memory.finds


def test_a_part_that_hardly_fades_is_a_full_belief_for_rows_of_one_entry() -> None:
    """Two parts are not: a full belief knows that only the sum of both was seen."""
    random = np.random.default_rng(2)
    for memory, is_exact in ((wv.parts(1e15, shares=[1]), True), (wv.parts(1e14, 1e15), False)):
        full = wv.Policy(DIM, memory, EXPLORATION, ridge=0.6, seed=0)
        diagonal = make_diagonal(DIM, memory, EXPLORATION, ridge=0.6, seed=0)
        for i in random.integers(0, DIM, 300).tolist():
            row, reward = random.standard_normal() * EYE[i], random.standard_normal()
            for policy in (full, diagonal):
                policy.learn(row, reward)
            if is_exact:
                np.testing.assert_allclose(diagonal.theta, full.theta, rtol=1e-9, atol=1e-9)
                np.testing.assert_allclose(diagonal.widths(EYE), full.widths(EYE), rtol=1e-9)
        assert is_exact or np.abs(diagonal.theta - full.theta).max() > 1e-6


def test_the_first_lesson_gives_the_estimate_of_a_full_belief() -> None:
    """Nothing is correlated before it."""
    row = np.random.default_rng(3).standard_normal(DIM)
    for memory in (m for m in MEMORIES if not m.finds):
        policies = wv.Policy(DIM, memory, "greedy()"), make_diagonal(DIM, memory, "greedy()")
        for policy in policies:
            policy.learn(row, 0.7, at=START)
        np.testing.assert_allclose(policies[1].theta, policies[0].theta, rtol=1e-12)


def test_parts_win_after_a_change_and_lose_little_in_a_still_world() -> None:
    """Ten games of 2000 rounds among six arms of one weight each."""

    def play(memory: wv.Memory, seed: int, changes: bool) -> float:
        """Return the regret of the second half if θ changes at half-time, else of all rounds."""
        random = np.random.default_rng([5, seed])
        thetas, noise = random.random((2, 6)), 0.3 * random.standard_normal(2000)
        policy = make_diagonal(6, memory, EXPLORATION, seed=seed)
        regrets = []
        for t in range(2000):
            theta = thetas[int(changes and t >= 1000)]
            choice = policy.choose(np.eye(6))
            policy.learn(choice, float(theta[choice.index] + noise[t]))
            regrets.append(float(theta.max() - theta[choice.index]))
        return sum(regrets[1000 * changes :])

    for changes, most in ((False, 1.15), (True, 0.5)):
        found, kept = (
            sum(play(memory, seed, changes) for seed in range(10))
            for memory in (wv.parts(), wv.keep())
        )
        assert found < most * kept


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_the_belief_is_that_which_chooses(memory: wv.Memory) -> None:
    """Also of weights without data, whose variance is found from the others."""
    policy = make_diagonal(DIM + 2, memory, EXPLORATION, ridge=0.6, seed=0)
    assert read(policy).ridge == pytest.approx(0.6)
    arms = np.vstack([np.eye(DIM + 2), np.ones(DIM + 2)])
    for observation in draw_observations(6)[:150]:
        teach(policy, [observation])
        belief = read(policy)
        np.testing.assert_allclose(belief.theta, policy.theta, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(arms @ belief.theta, policy.predict(arms), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(belief.widths(arms), policy.widths(arms), rtol=1e-9)
    belief.check()


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_a_long_silence_leaves_only_what_never_fades(memory: wv.Memory) -> None:
    policy = make_diagonal(DIM, memory, EXPLORATION, seed=0)
    teach(policy, draw_observations(7)[:200])
    if not memory.in_time:  # the sums are scaled back many times instead
        for _ in range(60_000):
            policy.learn(([], []), 0.0)
    policy.learn(([], []), 0.0, at=START + 1e9 * HOUR)
    weights = look_inside(policy)
    size = len(read(policy).indices)
    left = np.abs(weights.fade[:, None] * weights.sums[:size]).max(axis=(0, 2))
    never = np.isinf(memory.half_lives)
    assert (left[: len(never)][~never] < 1e-5).all()
    assert (left[: len(never)][never] > 1e-2).all()
    assert np.isfinite(policy.theta).all()


@pytest.mark.parametrize("factor", [2.0**-12, 0.5, 64.0])
def test_scaled_features_lead_to_the_same_choices(factor: float) -> None:
    policies = [make_diagonal(3, wv.parts(10, 100), EXPLORATION, seed=1) for _ in range(2)]
    for t in range(300):
        first, second = policies[0].choose(ARMS[t]), policies[1].choose(factor * ARMS[t])
        assert first.index == second.index
        reward = float(ARMS[t, first.index, t // 100]) + REWARDS[t]
        policies[0].learn(first, reward)
        policies[1].learn(second, reward)
        np.testing.assert_array_equal(factor * policies[1].theta, policies[0].theta)


@pytest.mark.parametrize("belief", ["full", "diagonal"])
def test_features_next_to_0_set_no_variance(belief: str) -> None:
    """1/‖x‖² would be infinite."""
    policy = wv.Policy(2, wv.parts(), "greedy()", belief=belief)
    policy.learn([1e-160, 0.0], 1.0)
    policy.learn([1.0, 0.0], 1.0)
    assert 0 < policy.theta[0] < 1


def test_beliefs_of_parts_cannot_be_amended_merged_or_assigned() -> None:
    policy = make_diagonal(3, wv.parts(), "greedy()", seed=0)
    policy.learn(([1], [1.0]), 1.0)
    before = policy.belief
    with pytest.raises(SettingError, match="amend: only keep and half_life know the weight"):
        policy.amend(([1], [1.0]), 1.0)
    with pytest.raises(BeliefError, match=r"merge: only beliefs of keep, .* can be merged"):
        before.merge(before)
    with pytest.raises(BeliefError, match=r"belief: parts\(.*\) needs the observations themselves"):
        policy.belief = before
    assert policy.belief == before


@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_a_loaded_policy_goes_on_bit_by_bit(memory: wv.Memory, tmp_path: Path) -> None:
    observations = draw_observations(8)
    policy = make_diagonal(DIM, memory, EXPLORATION, seed=2)
    teach(policy, observations[:150])
    policy.save(tmp_path / "parts.npz")
    loaded = wv.Policy.load(tmp_path / "parts.npz")
    for one in (policy, loaded):
        teach(one, observations[150:])
    assert contents(loaded, tmp_path) == contents(policy, tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda arrays: arrays["evidence"].fill(0.0), "its variances are not positive"),
        (lambda arrays: arrays["evidence"].fill(-1.0), "a negative precision"),
        (
            lambda arrays: arrays["evidence"].__setitem__((-1, 1), 0.0),
            "its variances are not positive",
        ),
        (lambda arrays: arrays["evidence"].fill(np.nan), "not finite"),
        (lambda arrays: arrays.update(evidence=np.ones((3, 3))), "different lengths"),
        (lambda arrays: arrays.update(evidence=np.ones((4, 2))), "have shape"),
        (lambda arrays: arrays.update(fade=np.ones(1)), "different lengths"),
        (lambda arrays: arrays["fade"].__setitem__(1, 2.0), "counters are out of bounds"),
        (lambda arrays: arrays["sums"].__setitem__((0, 2, 0), -1.0), "a negative precision"),
        (lambda arrays: arrays.pop("evidence"), "evidence"),
    ],
)
def test_a_damaged_file_is_refused(
    change: Callable[[Any], object], complaint: str, tmp_path: Path
) -> None:
    policy = make_diagonal(DIM, wv.parts(), "greedy()", seed=0)
    teach(policy, draw_observations(9)[:20])
    policy.save(tmp_path / "parts.npz")
    rewrite_saved(tmp_path / "parts.npz", lambda header, arrays: change(arrays))
    with pytest.raises(FileError, match=complaint):
        wv.Policy.load(tmp_path / "parts.npz")
