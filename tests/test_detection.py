"""Detection: how soon a change is found, how rarely one is imagined, and what is left after it."""

import numpy as np
import pytest

import naive
import windvane as wv
from grid import Floats, unit_rows
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.running.experiment import Experiment, run_experiment

NOISE = 0.4


def alarms(policy: wv.Policy) -> int:
    return int(policy._arrays.tally["alarms"][0])


def alarm_rounds(theta: Floats, rounds: int, change: int, seed: int) -> list[int]:
    """The rounds in which alarms are raised where θ turns to its opposite, if it does."""
    random = np.random.default_rng(seed)
    dim = theta.size
    policy = wv.Policy(dim, wv.detect(NOISE), wv.thompson(NOISE), seed=seed)
    raised = []
    for t in range(rounds):
        before = alarms(policy)
        choice = policy.choose(unit_rows(random, 10, dim))
        mean = float(choice.features @ theta) * (-1 if t >= change else 1)
        policy.learn(choice, mean + NOISE * random.standard_normal())
        if alarms(policy) > before:
            raised.append(t)
    return raised


@pytest.mark.parametrize("size", [0.5, 1.0, 3.0])
def test_a_world_that_does_not_change_raises_hardly_an_alarm(size: float) -> None:
    """Fewer than one in 10 000 rounds, also where the parameter is longer than assumed."""
    runs = [alarm_rounds(size * np.eye(5)[0], 2000, 10**9, seed) for seed in range(10)]
    assert sum(map(len, runs)) <= 2


@pytest.mark.parametrize(("size", "delay"), [(0.5, 20), (1.0, 8), (3.0, 5)])
def test_a_change_is_found_soon(size: float, delay: int) -> None:
    """Once each time, on average within so many rounds: the larger the jump, the sooner."""
    runs = [alarm_rounds(size * np.eye(5)[0], 1500, 1000, seed) for seed in range(10)]
    assert all(len(run) == 1 and run[0] >= 1000 for run in runs)
    assert np.mean([run[0] - 1000 for run in runs]) <= delay


def test_alarms_are_those_of_the_formula() -> None:
    """A CUSUM over residuals of refits raises each alarm at the same observation."""
    random = np.random.default_rng(4)
    memory = wv.detect(0.5, 0.3, slack=1.2, alarm=4.0)
    xs = random.standard_normal((400, 3))
    thetas = np.repeat(random.standard_normal((8, 3)), 50, axis=0)
    ys = np.einsum("nd,nd->n", xs, thetas) + 0.5 * random.standard_normal(400)
    policy = wv.Policy(3, memory, wv.greedy(), ridge=0.6, seed=0)
    raised = []
    for n, (x, y) in enumerate(zip(xs, ys.tolist(), strict=True)):
        before = alarms(policy)
        policy.learn(x, y)
        if alarms(policy) > before:
            raised.append(n)
            assert policy.belief.seen == 1  # what raised the alarm is learned anew
    assert raised == naive.alarms(memory, 0.6, xs, ys)
    assert len(raised) >= 7


def test_detection_beats_a_discount_where_changes_are_rare_and_abrupt() -> None:
    """And both leave a memory that keeps everything far behind."""
    exploration = wv.thompson(0.39)
    world = worlds.world(5, 10, 4000, worlds.abrupt([2000], flip=1.0))
    memories = wv.detect(0.39), wv.discount(0.99), wv.keep()
    players = tuple(Player(repr(memory), memory, exploration) for memory in memories)
    found, faded, kept = run_experiment(Experiment(players, world, 10, seed=2, points=1)).mean()[
        :, -1
    ]
    assert found < 0.8 * faded
    assert faded < 0.5 * kept


def test_a_filter_follows_a_parameter_that_wanders_as_it_believes() -> None:
    """Where θ is drawn from its own model, its error is what its covariance says: χ² of d."""
    random = np.random.default_rng(8)
    d, rho, distances = 4, 0.98, []
    for _ in range(150):
        theta = random.standard_normal(d)
        policy = wv.Policy(d, wv.kalman(rho, NOISE), wv.greedy(), seed=0)
        for _ in range(60):
            theta = rho * theta + np.sqrt(1 - rho**2) * random.standard_normal(d)
            x = unit_rows(random, 1, d)[0]
            policy.learn(x, float(x @ theta + NOISE * random.standard_normal()))
        miss = theta - policy.theta
        distances.append(miss @ policy.belief.precision @ miss)
    assert np.mean(distances) == pytest.approx(d, abs=4 * np.sqrt(2 * d / len(distances)))


def test_one_wild_reward_is_no_change() -> None:
    """A reward six standard deviations off counts as three: no alarm, as the formula says."""
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


@pytest.mark.parametrize("many", [False, True], ids=["one by one", "at once"])
def test_a_late_reward_of_before_the_alarm_is_dropped_with_the_rest(many: bool) -> None:
    policy = wv.Policy(2, wv.detect(0.1, alarm=5.0), wv.greedy(), seed=0)
    late = [policy.choose(np.eye(2)) for _ in range(5)]
    for reward in (*[0.0] * 30, *[1.0] * 3):
        policy.learn(policy.choose(np.eye(2)[:1]), reward)
    assert policy.alarms == 1
    held, theta = policy.belief.seen, policy.theta
    if many:
        policy.learn_many(late, [1.0] * 5)
    else:
        for choice in late:
            policy.learn(choice, 1.0)
    assert (policy.belief.seen, policy.theta.tolist()) == (held, theta.tolist())
