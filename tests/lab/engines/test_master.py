"""MASTER against its formulas written out: which LinUCB acts, what it plays, when all restart."""

import math

import numpy as np
import pytest

from windvane import lab, named
from windvane.errors import SettingError
from windvane.lab.engines.master import Master
from windvane.types import Floats

DIM, HORIZON, NOISE, DELTA, RIDGE = 3, 300, 0.2, 0.05, 0.5


def compute_radius(count: int) -> float:
    inner = 2 * math.log(1 / DELTA) + DIM * math.log(1 + count / (RIDGE * DIM))
    return math.sqrt(RIDGE) + NOISE * math.sqrt(inner)


def compute_rate(rounds: int) -> float:
    width = math.sqrt(2 * DIM * math.log(1 + HORIZON / (DIM * RIDGE)) / rounds)
    return 2 * compute_radius(HORIZON) * width


def play_naively(
    arms: Floats, rewards: Floats, seed: int, caution: float
) -> tuple[list[int], list[int]]:
    """Return the chosen arms, and the rounds after which a test failed: all sums are made anew.

    A block is a schedule of (start, end, observations); ridge regressions are refitted.
    """
    random = np.random.default_rng(seed)
    chosen, failures, t = [], [], 0
    order = 0
    while t < len(arms):
        first, has_failed = t, False
        schedule: list[tuple[int, int, list[tuple[Floats, float]]]] = []
        values: list[float] = []
        earned: list[float] = []
        while t < min(first + 2**order, len(arms)) and not has_failed:
            place = t - first
            for m in range(order, -1, -1):
                if place % 2**m == 0 and random.random() < compute_rate(2**order) / compute_rate(
                    2**m
                ):
                    schedule.append((place, place + 2**m, []))
            alive = [each for each in schedule if each[0] <= place < each[1]]
            history = min(alive, key=lambda each: each[1] - each[0])[2]
            rows = np.array([x for x, _ in history]).reshape(-1, DIM)
            inverse = np.linalg.inv(rows.T @ rows + RIDGE * np.eye(DIM))
            theta = inverse @ rows.T @ np.array([y for _, y in history])
            widths = np.sqrt(np.einsum("kd,de,ke->k", arms[t], inverse, arms[t]))
            scores = arms[t] @ theta + compute_radius(len(history)) * widths
            arm = int(np.argmax(scores))
            history.append((arms[t, arm], rewards[t, arm]))
            chosen.append(arm)
            values.append(scores[arm])
            earned.append(rewards[t, arm])
            t += 1
            gap = np.mean(np.array(values) - np.array(earned))
            has_failed = bool(gap >= 3 * caution * compute_rate(len(values)))
            for start, end, _ in schedule:
                limit = min(values) + 9 * caution * compute_rate(end - start)
                if end == len(values) and np.mean(earned[start:end]) >= limit:
                    has_failed = True
        if has_failed:
            failures.append(t)
        order = 0 if has_failed else order + 1
    return chosen, failures


@pytest.mark.parametrize(
    ("caution", "least_failures"), [(None, 0), (0.009, 2), (0.004, 5)], ids=["paper", "few", "many"]
)
def test_master_plays_as_its_formulas_say(caution: float | None, least_failures: int) -> None:
    """Smaller constants than those of the paper let the tests fail."""
    random = np.random.default_rng(5)
    arms = random.uniform(-1, 1, (HORIZON, 4, DIM)) / math.sqrt(DIM)
    theta = np.where(np.arange(HORIZON)[:, None] < 150, [0.9, -0.3, 0.2], [-0.9, 0.3, -0.2])
    noise = NOISE * random.normal(size=(HORIZON, 1))
    rewards = np.einsum("tkd,td->tk", arms, theta) + noise
    master = Master(DIM, HORIZON, 11, NOISE, DELTA, ridge=RIDGE)
    written_out = 6 * (math.log2(HORIZON) + 1) * math.log(HORIZON / DELTA)
    assert master.caution == pytest.approx(written_out, rel=1e-12)
    master.caution = master.caution if caution is None else caution
    chosen = []
    for t in range(HORIZON):
        index = master.choose(arms[t], t)
        if t % 7 == 0:  # a choice that is not learned changes nothing
            assert master.choose(arms[t], t) == index
        master.learn(arms[t, index], rewards[t, index])
        chosen.append(index)
    expected, failures = play_naively(arms, rewards, 11, master.caution)
    assert chosen == expected
    assert master.restarts == len(failures) >= least_failures
    assert (master.restarts == 0) == (least_failures == 0)


def test_the_first_test_alone_starts_the_blocks_again() -> None:
    """Rewards far above the optimistic values: their mean passes U + 9ρ̂, and g − y is negative."""
    master = Master(DIM, HORIZON, 1, NOISE, DELTA, ridge=RIDGE)
    master.caution = 0.01
    for t in range(2):
        master.learn(np.eye(DIM)[master.choose(np.eye(DIM), t)], 10.0)
    assert master.restarts == 2
    assert master.order == 0


def test_master_plays_in_the_lab_and_nowhere_else() -> None:
    place = lab.worlds.world(3, 4, 60)
    result = lab.simulate(worlds=place, policies=["MASTER-LinUCB", "LinUCB"], replications=2)
    again = lab.simulate(worlds=place, policies=["MASTER-LinUCB"], replications=2)
    regret = result.panels[0].result.regret
    assert np.array_equal(regret[:1], again.panels[0].result.regret)
    assert regret[1].sum() > 0
    with pytest.raises(SettingError, match="MASTER-LinUCB is a baseline that plays only in the"):
        named("MASTER-LinUCB", dim=3, horizon=60)
    ball = lab.worlds.world(3, 4, 60, actions=lab.worlds.ball())
    with pytest.raises(SettingError, match="MASTER-LinUCB needs a list of arms, got ball"):
        lab.simulate(worlds=ball, policies=["MASTER-LinUCB"])
