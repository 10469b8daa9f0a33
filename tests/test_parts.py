"""The memory `parts`: processes in time, silence, late rewards, found variances, saved files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import naive
import windvane as wv
from experiments import run_experiment
from grid import ARMS, REWARDS, Floats, check_estimate, contents, unit_rows
from windvane.beliefs.full.parts import ODDS, STILL_VARIANCE, PartsState, view_parts
from windvane.errors import BeliefError, FileError, SettingError
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.experiments import Experiment
from windvane.memory import DEFAULT_HALF_LIVES, read_memory

HOUR, START = 3600.0, 1.7e9  # seconds
GIVEN = wv.parts("20 minutes", "1 day", "never", shares=[1, 2, 3])
FOUND = wv.parts("20 minutes", "1 day", "never")
EXPLORATION = wv.randomized(wv.half_normal(wv.posterior(1.0)))


def draw_observations(seed: int, count: int, hours: float) -> tuple[Floats, Floats, Floats]:
    """Draw features (n, 4), rewards (n,) and uneven times (n,) in seconds, in order of time."""
    random = np.random.default_rng(seed)
    xs, ys = 1.3 * random.standard_normal((count, 4)), random.standard_normal(count)
    return xs, ys, START + hours * HOUR * np.sort(random.random(count) ** 2)


def look_inside(policy: wv.Policy) -> PartsState:
    """Views of what a policy keeps of its parts."""
    inside: PartsState = view_parts(policy._belief.arrays)
    return inside


def regress(memory: wv.Memory, ridge: float, xs: Floats, ys: Floats, at: Floats) -> naive.Estimate:
    """Regress with the kernel Σ v_s·2^{−|t−t'|/h_s}·xᵀx' and noise 1, for θ at the newest time."""
    halves, v = np.array(memory.half_lives), np.array(memory.shares) / ridge
    kernel = (0.5 ** (np.abs(at[:, None] - at)[..., None] / halves) @ v) * (xs @ xs.T)
    cross = (0.5 ** ((at.max() - at)[:, None] / halves) @ v)[:, None] * xs
    inverse = np.linalg.inv(kernel + np.eye(len(ys)))
    covariance = v.sum() * np.eye(xs.shape[1]) - cross.T @ inverse @ cross
    theta, W = cross.T @ inverse @ ys, np.linalg.inv(covariance)
    return naive.Estimate(W, W, W @ theta, theta, covariance)


@pytest.mark.parametrize("hours", [0.1, 5.0, 300.0, 1e5])
def test_parts_in_time_are_a_gaussian_process(hours: float) -> None:
    xs, ys, times = draw_observations(1, 120, hours)
    policy = wv.Policy(4, GIVEN, wv.optimism(1.0), ridge=0.7, seed=0)
    for n in range(120):
        policy.learn(xs[n], float(ys[n]), at=float(times[n]))
        if n % 17 == 0 or n == 119:
            expected = regress(GIVEN, 0.7, xs[: n + 1], ys[: n + 1], times[: n + 1])
            check_estimate(policy, expected, np.eye(4))


def test_one_lesson_an_hour_equals_half_lives_counted_in_lessons() -> None:
    xs, ys, _ = draw_observations(2, 80, 1.0)
    in_time = wv.parts("1 hour", "1 day", "never", shares=[1, 1, 2])
    counted = wv.parts(1, 24, "never", shares=[1, 1, 2])
    timed, plain = (wv.Policy(4, memory, wv.greedy(), seed=0) for memory in (in_time, counted))
    timed.learn_many(xs, ys, at=HOUR * np.arange(-99.0, -19.0))  # before the epoch
    plain.learn_many(xs, ys, at=np.zeros(80))
    assert timed.theta.tobytes() == plain.theta.tobytes()
    assert timed.belief.gram.tobytes() == plain.belief.gram.tobytes()


def test_variances_found_in_time_equal_those_found_by_lessons() -> None:
    """The first lesson has no features; the next comes after two hours, so that n have passed."""
    xs, ys, _ = draw_observations(3, 300, 1.0)
    xs[0] = ys[0] = 0.0
    in_time, counted = wv.parts("3 hours", "40 hours", "never"), wv.parts(3, 40, "never")
    timed, plain = (wv.Policy(4, memory, wv.greedy(), seed=0) for memory in (in_time, counted))
    timed.learn_many(xs, ys, at=START + HOUR * np.array([0, *range(2, 301)]))
    plain.learn_many(xs, ys, at=np.zeros(300))
    for got, wanted in zip(look_inside(timed), look_inside(plain), strict=True):
        np.testing.assert_allclose(got[:3], wanted[:3], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("minutes", [1.0, 20.0, 3000.0, 1e9])
def test_a_late_reward_is_exact_if_all_others_are_of_one_time(minutes: float) -> None:
    xs, ys, _ = draw_observations(4, 6, 1.0)
    times = START - np.array([0.0, 0.0, 0.0, 0.0, 1e6 * HOUR, 60.0 * minutes])
    xs[4] = 0.0  # says nothing, and does not move the clock back
    policy = wv.Policy(4, GIVEN, wv.optimism(1.0), ridge=0.7, seed=0)
    policy.learn_many(xs, ys, at=times)
    check_estimate(policy, regress(GIVEN, 0.7, xs, ys, times), np.eye(4))


@pytest.mark.parametrize("memory", [GIVEN, FOUND], ids=repr)
@pytest.mark.parametrize("hours", [1.0, 1e3, 1e6])
def test_rewards_in_any_order_leave_a_sound_belief(memory: wv.Memory, hours: float) -> None:
    xs, ys, times = draw_observations(5, 300, hours)
    order = np.random.default_rng(6).permutation(300)
    policy = wv.Policy(4, memory, wv.optimism(1.0), seed=0)
    inside = look_inside(policy)
    for part in np.split(order, 10):
        policy.learn_many(xs[part], ys[part], at=times[part])
        for matrix in (inside.covariance, inside.still_covariance, policy.belief.covariance):
            np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-15)
            assert np.linalg.eigvalsh(matrix).min() > 0
        assert np.linalg.eigvalsh(policy.belief.covariance).max() < inside.variances.sum()


@pytest.mark.parametrize("memory", [GIVEN, FOUND], ids=repr)
def test_a_long_silence_leaves_only_what_never_fades(memory: wv.Memory) -> None:
    xs, ys, times = draw_observations(8, 100, 30.0)
    policy = wv.Policy(4, memory, wv.greedy(), seed=0)
    policy.learn_many(xs, ys, at=times)
    inside = look_inside(policy)
    known, sure = inside.means[8:].copy(), inside.covariance[8:, 8:].copy()
    prior = np.diag(np.repeat(inside.variances[:2], 4))
    policy.learn(np.zeros(4), 0.0, at=START + 1e6 * HOUR)
    np.testing.assert_array_equal(inside.means, [*np.zeros(8), *known])
    np.testing.assert_array_equal(inside.covariance[:8], np.hstack([prior, np.zeros((8, 4))]))
    np.testing.assert_array_equal(inside.covariance[8:, 8:], sure)


@pytest.mark.parametrize("half_life", [0.3, 7.0, 900.0])
def test_one_part_with_a_share_is_a_kalman_filter(half_life: float) -> None:
    xs, ys, times = draw_observations(9, 400, 1.0)
    memories = wv.parts(half_life, shares=[5]), wv.kalman(rho=2 ** (-1 / half_life), noise=1.0)
    policies = [wv.Policy(4, memory, wv.greedy(), ridge=0.4, seed=0) for memory in memories]
    for policy in policies:
        policy.learn_many(xs, ys, at=times)
    one, other = (policy.belief for policy in policies)
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.precision, other.precision, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("memory", [wv.parts(), wv.parts(4, 40, 400, "never")], ids=repr)
def test_the_formulas_hold_while_theta_moves_and_rests(memory: wv.Memory) -> None:
    """The still belief is given up, starts again from the parts, and is believed again."""
    random = np.random.default_rng(10)
    xs = 3.0 * random.random((1500, 1)) * unit_rows(random, 1500, 3)
    thetas = np.repeat(random.standard_normal((4, 3)), [250, 150, 600, 500], axis=0)
    ys = np.einsum("nd,nd->n", xs, thetas) + 0.4 * random.standard_normal(1500)
    policy = wv.Policy(3, memory, EXPLORATION, seed=0)
    numbers, beliefs = look_inside(policy).numbers, []
    for n, (x, y) in enumerate(zip(xs, ys.tolist(), strict=True), 1):
        policy.learn(x, y)
        beliefs.append((bool(numbers[STILL_VARIANCE] > 0), bool(numbers[ODDS] > 0)))
        if n in (1, 7, 8, 9, 64, 255, 260, 300, 512, 900, 1100, 1500):
            theta, covariance, noise = naive.find_parts(memory, 1.0, xs[:n], ys[:n])
            np.testing.assert_allclose(policy.theta, theta, rtol=1e-8, atol=1e-9)
            np.testing.assert_allclose(policy.belief.covariance, covariance, rtol=1e-7, atol=1e-10)
            assert policy.estimated_noise == pytest.approx(noise, rel=1e-9)
    assert {(True, True), (False, False), (False, True)} <= set(beliefs)


@pytest.mark.parametrize(
    ("drift", "most"), [(worlds.stationary(), 1.1), (worlds.abrupt([1000], flip=1.0), 0.5)]
)
def test_parts_lose_little_in_a_still_world_and_win_after_a_flip(
    drift: worlds.Drift, most: float
) -> None:
    world = worlds.world(5, 5, 2000, drift, reward=worlds.gaussian(0.4))
    players = [Player(repr(memory), memory, EXPLORATION) for memory in (wv.parts(), wv.keep())]
    result = run_experiment(Experiment(tuple(players), world, 128, seed=3, points=1))
    found, kept = result.mean()[:, -1]
    assert found < most * kept


@pytest.mark.parametrize("factor", [2.0**-12, 0.5, 64.0])
def test_scaled_features_lead_to_the_same_choices(factor: float) -> None:
    policies = [wv.Policy(3, wv.parts(10, 100), EXPLORATION, seed=1) for _ in range(2)]
    for t in range(300):
        first, second = policies[0].choose(ARMS[t]), policies[1].choose(factor * ARMS[t])
        assert first.index == second.index
        reward = float(ARMS[t, first.index, t // 100]) + REWARDS[t]
        policies[0].learn(first, reward)
        policies[1].learn(second, reward)
        np.testing.assert_array_equal(factor * policies[1].theta, policies[0].theta)


ORDER = 'up to 4 in rising order, all in observations or all texts such as "1 day"'


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: wv.parts(100, 10), ORDER),
        (lambda: wv.parts(10, 10), ORDER),
        (lambda: wv.parts(1, 2, 3, 4, 5), r"got \[1, 2, 3, 4, 5\]"),
        (lambda: wv.parts(10, "1 day"), ORDER),
        (lambda: wv.parts(0, 10), "parts: a half-life must be above 0, got 0"),
        (lambda: wv.parts("0 days"), r"a duration must lie within \(0, 10 years\], got '0 days'"),
        (lambda: wv.parts(10, shares=[1, 2]), "parts: shares must be 1, one a part, got 2"),
        (lambda: wv.Policy(3, wv.parts(), wv.perturbed_history(1.0)), "cannot be replayed for"),
        (lambda: wv.Policy(1025, wv.parts(), wv.greedy()), "follows 2050 numbers together, and at"),
    ],
)
def test_what_parts_cannot_be_is_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(SettingError, match=complaint):
        make()


def test_beliefs_of_parts_cannot_be_amended_merged_or_assigned() -> None:
    policy = wv.Policy(3, wv.parts(), wv.greedy(), seed=0)
    policy.learn([1.0, 0.0, 0.0], 1.0)
    before = policy.belief
    with pytest.raises(SettingError, match="amend: only keep and half_life know the weight"):
        policy.amend([1.0, 0.0, 0.0], 1.0)
    with pytest.raises(BeliefError, match=r"merge: only beliefs of keep, .* can be merged"):
        before.merge(before)
    with pytest.raises(BeliefError, match=r"belief: parts\(.*\) needs the observations themselves"):
        policy.belief = before
    assert policy.belief == before


@pytest.mark.parametrize("memory", [GIVEN, FOUND], ids=repr)
def test_a_loaded_policy_goes_on_bit_by_bit(memory: wv.Memory, tmp_path: Path) -> None:
    xs, ys, times = draw_observations(11, 300, 90.0)
    ys += xs[:, 0] * np.sign(times - times[100])  # so that the still belief is given up
    policy = wv.Policy(4, memory, EXPLORATION, seed=2)
    policy.learn_many(xs[:200], ys[:200], at=times[:200])
    policy.save(tmp_path / "parts.npz")
    loaded = wv.Policy.load(tmp_path / "parts.npz")
    for one in (policy, loaded):
        one.learn(xs[0], 1.0, at=float(times[50]))  # late
        one.learn_many(xs[200:], ys[200:], at=times[200:])
    assert contents(loaded, tmp_path) == contents(policy, tmp_path)


@pytest.mark.parametrize(
    ("name", "place", "value", "complaint"),
    [
        ("variances", 1, 0.0, "its variances are not positive"),
        ("covariance", (0, 5), 0.5, "its matrices are not symmetric"),
        ("covariance", (5, 5), -0.5, "not positive definite"),
        ("still_covariance", (2, 0), 0.5, "its matrices are not symmetric"),
    ],
)
def test_a_damaged_file_is_refused(
    name: str, place: int | tuple[int, int], value: float, complaint: str, tmp_path: Path
) -> None:
    policy = wv.Policy(3, wv.parts(), wv.greedy(), seed=0)
    policy.learn([1.0, 0.5, 0.0], 1.0)
    getattr(look_inside(policy), name)[place] = value
    policy.save(tmp_path / "parts.npz")
    with pytest.raises(FileError, match=complaint):
        wv.Policy.load(tmp_path / "parts.npz")


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (wv.parts(), "parts({}, {})".format(*DEFAULT_HALF_LIVES)),
        (wv.parts("1 day", "never"), "parts('1 day', 'never')"),
        (wv.parts(5, 50, shares=[1, 3]), "parts(5.0, 50.0, shares=[0.25, 0.75])"),
        (wv.parts("90m", "7d", shares=[2, 2]), "parts('90 minutes', '7 days', shares=[0.5, 0.5])"),
    ],
)
def test_parts_are_written_as_they_are_read(memory: wv.Memory, text: str) -> None:
    assert repr(memory) == text
    assert read_memory(text) == memory


def test_a_policy_that_has_learned_nothing_is_saved_and_loaded(tmp_path: Path) -> None:
    policy = wv.Policy(2, wv.parts("1234567 seconds", "2345678.5 seconds"), wv.greedy(), seed=1)
    policy.save(tmp_path / "blank")
    assert wv.Policy.load(tmp_path / "blank") == policy


def test_tiny_first_features_leave_the_belief_sound() -> None:
    policy = wv.Policy(2, wv.parts(), wv.greedy(), seed=1)
    policy.learn([1e-12, 0.0], 1.0)
    for x in np.random.default_rng(1).standard_normal((50, 2)):
        policy.learn(x, float(x[0]))
    assert np.abs(policy.theta - [1.0, 0.0]).max() < 0.2
