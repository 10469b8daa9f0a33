"""The memory `detect`: delay of detection, false alarms, and the belief after an alarm."""

import numpy as np
import pytest

import naive
import windvane as wv
from experiments import run_experiment
from grid import Floats, unit_rows
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.experiments import Experiment

NOISE = 0.4


def record_alarms(theta: Floats, rounds: int, change: int, seed: int) -> list[int]:
    """Play rounds in which θ becomes −θ at round `change`; return the rounds with an alarm."""
    random = np.random.default_rng(seed)
    dim = theta.size
    policy = wv.Policy(dim, wv.detect(NOISE), wv.thompson(NOISE), seed=seed)
    raised = []
    for t in range(rounds):
        before = policy.alarms
        choice = policy.choose(unit_rows(random, 10, dim))
        mean = float(choice.features @ theta) * (-1 if t >= change else 1)
        policy.learn(choice, mean + NOISE * random.standard_normal())
        if policy.alarms > before:
            raised.append(t)
    return raised


@pytest.mark.parametrize("size", [0.5, 1.0, 3.0])
def test_a_world_that_does_not_change_raises_almost_no_alarm(size: float) -> None:
    """At most one alarm in 10 000 rounds, also if ‖θ‖ is larger than the memory assumes."""
    runs = [record_alarms(size * np.eye(5)[0], 2000, 10**9, seed) for seed in range(10)]
    assert sum(map(len, runs)) <= 2


@pytest.mark.parametrize(("size", "delay"), [(0.5, 20), (1.0, 8), (3.0, 5)])
def test_a_change_is_detected_within_a_few_rounds(size: float, delay: int) -> None:
    """One alarm in each run, on average within `delay` rounds; a larger change is found sooner."""
    runs = [record_alarms(size * np.eye(5)[0], 1500, 1000, seed) for seed in range(10)]
    assert all(len(run) == 1 and run[0] >= 1000 for run in runs)
    assert np.mean([run[0] - 1000 for run in runs]) <= delay


def test_alarms_come_at_the_observations_that_the_formula_gives() -> None:
    """The naive CUSUM computes each residual from a refit."""
    random = np.random.default_rng(4)
    memory = wv.detect(0.5, 0.3, slack=1.2, alarm=4.0)
    xs = random.standard_normal((400, 3))
    thetas = np.repeat(random.standard_normal((8, 3)), 50, axis=0)
    ys = np.einsum("nd,nd->n", xs, thetas) + 0.5 * random.standard_normal(400)
    policy = wv.Policy(3, memory, wv.greedy(), ridge=0.6, seed=0)
    raised = []
    for n, (x, y) in enumerate(zip(xs, ys.tolist(), strict=True)):
        before = policy.alarms
        policy.learn(x, y)
        if policy.alarms > before:
            raised.append(n)
            assert policy.belief.seen == 1  # the observation that raised the alarm
    assert raised == naive.alarms(memory, 0.6, xs, ys)
    assert len(raised) >= 7


def test_detection_beats_a_discount_if_changes_are_rare_and_abrupt() -> None:
    """Both have less than half of the regret of `keep`."""
    exploration = wv.thompson(0.39)
    world = worlds.world(5, 10, 4000, worlds.abrupt([2000], flip=1.0))
    memories = wv.detect(0.39), wv.discount(0.99), wv.keep()
    players = tuple(Player(repr(memory), memory, exploration) for memory in memories)
    result = run_experiment(Experiment(players, world, 10, seed=2, points=1))
    detected, discounted, kept = result.mean()[:, -1]
    assert detected < 0.8 * discounted
    assert discounted < 0.5 * kept


def test_the_error_of_a_kalman_filter_has_the_covariance_that_it_believes() -> None:
    """If θ moves as the filter assumes, (θ − θ̂)ᵀΣ⁻¹(θ − θ̂) is χ² with d degrees of freedom."""
    random = np.random.default_rng(8)
    d, rho = 4, 0.98
    distances = []
    for _ in range(150):
        theta = random.standard_normal(d)
        policy = wv.Policy(d, wv.kalman(rho, NOISE), wv.greedy(), seed=0)
        for _ in range(60):
            theta = rho * theta + np.sqrt(1 - rho**2) * random.standard_normal(d)
            x = unit_rows(random, 1, d)[0]
            policy.learn(x, float(x @ theta + NOISE * random.standard_normal()))
        error = theta - policy.theta
        distances.append(error @ policy.belief.precision @ error)
    assert np.mean(distances) == pytest.approx(d, abs=4 * np.sqrt(2 * d / len(distances)))


def test_a_single_outlier_raises_no_alarm() -> None:
    """An error of six standard deviations counts as three."""
    random = np.random.default_rng(6)
    memory = wv.detect(0.5)
    xs = unit_rows(random, 300, 3)
    ys = xs @ np.array([0.5, -0.5, 0.2]) + 0.5 * random.standard_normal(300)
    ys[[120, 200]] += 3.0
    policy = wv.Policy(3, memory, wv.greedy(), seed=0)
    for x, y in zip(xs, ys.tolist(), strict=True):
        policy.learn(x, y)
    assert naive.alarms(memory, 1.0, xs, ys) == []
    assert policy.alarms == 0


@pytest.mark.parametrize("many", [False, True], ids=["learn", "learn_many"])
def test_a_late_reward_for_a_choice_before_the_alarm_is_dropped(many: bool) -> None:
    policy = wv.Policy(2, wv.detect(0.1, alarm=5.0), wv.greedy(), seed=0)
    late = [policy.choose(np.eye(2)) for _ in range(5)]
    for reward in (*[0.0] * 30, *[1.0] * 3):
        policy.learn(policy.choose(np.eye(2)[:1]), reward)
    assert policy.alarms == 1
    before = policy.belief
    if many:
        policy.learn_many(late, [1.0] * 5)
    else:
        for choice in late:
            policy.learn(choice, 1.0)
    assert policy.belief == before


def test_a_shift_is_found_soon_and_nothing_is_found_in_a_still_world() -> None:
    """2000 still rounds raise no alarm in 20 runs; a flipped θ raises one within 60 rounds."""
    late = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        policy = wv.Policy(3, wv.detect_shift(0.3, delta=0.01), wv.greedy(), seed=1)
        theta = np.array([0.6, 0.5, -0.4])
        for t in range(2300):
            arms = unit_rows(random, 8, 3)
            choice = policy.choose(arms)
            sign = 1.0 if t < 2000 else -1.0
            policy.learn(choice, sign * choice.features @ theta + 0.3 * random.standard_normal())
            if t == 1999:
                assert policy.alarms == 0
            if t >= 2000 and policy.alarms:
                late.append(t - 2000)
                break
    assert len(late) == 20
    assert max(late) < 60


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shifts_are_those_of_the_ratio_test_as_written(seed: int) -> None:
    memory, random = wv.detect_shift(0.2, 0.5, 0.2), np.random.default_rng(seed)
    xs = unit_rows(random, 400, 2)
    levels = np.repeat([0.0, 1.5, -1.0, 0.2], 100)
    ys = xs @ [0.4, -0.3] + levels * xs[:, 0] ** 2 + 0.2 * random.standard_normal(400)
    policy = wv.Policy(2, memory, wv.thompson(0.5), seed=1)
    found = []
    for n, (x, y) in enumerate(zip(xs, ys, strict=True)):
        before = policy.alarms
        policy.learn(x, y)
        found += [n] if policy.alarms > before else []
    assert found == naive.alarms(memory, 1.0, xs, ys)
    assert len(found) >= 2
