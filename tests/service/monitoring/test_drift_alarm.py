"""Alarms: a change of taste raises one soon, and its absence hardly ever does."""

import random

import numpy as np
import pytest

from windvane.policy import Policy
from windvane.service.features.encoder import Encoder
from windvane.service.loops.settings import Settings
from windvane.service.monitoring.drift_alarm import ENOUGH, GROUP, LIMIT, Alarm
from windvane.service.schemas import Action
from windvane.types import Floats

DRINKS = ("coffee", "tea", "juice", "water")
LENGTH, TURN = 3000, 1500


def played(seed: int, turn: int) -> Floats:
    """Errors of prediction of a loop whose visitors turn to other drinks at a round."""
    told, chance = Settings(half_life="1000 rounds", seed=seed), random.Random(seed)
    policy = Policy(told.dim, told.memory(), told.exploration(), seed=seed, floor=0.1)
    actions = [Action(name, [{"kind": name}]) for name in DRINKS]
    encoder = Encoder(told.dim)
    rows = [encoder.encode([{"time": time}], actions) for time in ("morning", "evening")]
    errors = np.empty(LENGTH)
    for k in range(LENGTH):
        time = chance.randrange(2)
        choice = policy.choose(rows[time])
        policy.dismiss(choice)
        row, good = rows[time][choice.index], time + (2 if k >= turn else 0)
        value = float(chance.random() < (0.7 if choice.index == good else 0.1))
        errors[k] = value - row @ policy.theta
        policy.learn(row, value, float(k))
    return errors


def raised(errors: Floats) -> list[int]:
    alarm = Alarm()
    return [k for k, error in enumerate(errors) if alarm.raised_by(float(error))]


def naive(errors: Floats) -> list[int]:
    """The formula, from all squared errors each time."""
    found: list[int] = []
    usual: list[float] = []
    level = 0.0
    for start in range(0, len(errors) - GROUP + 1, GROUP):
        group = errors[start : start + GROUP] ** 2
        if len(usual) >= ENOUGH:
            deviation = np.sqrt(np.var(usual) * (1 / GROUP + 1 / len(usual)))
            level = max(0.0, level + min((group.mean() - np.mean(usual)) / deviation, 4.0) - 0.5)
        if level > LIMIT:
            found.append(start + GROUP - 1)
            usual, level = [], 0.0
        elif level < LIMIT / 2:
            usual.extend(group)
    return found


def test_alarms_are_those_of_the_formula() -> None:
    errors = np.random.default_rng(3).normal(size=8000)
    errors[1000:1300] *= 2
    errors[2500:4000] *= 1.5
    errors[4000:] *= np.linspace(1, 3, 4000)
    found = raised(errors)
    assert len(found) >= 3
    assert found == naive(errors)


def test_one_strange_reward_is_no_drift() -> None:
    errors = np.random.default_rng(5).normal(size=1000)
    errors[600] = 50.0
    assert raised(errors) == naive(errors) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_turn_of_taste_raises_one_alarm_within_a_hundred_lessons(seed: int) -> None:
    (found,) = raised(played(seed, TURN))
    assert TURN < found < TURN + 100


@pytest.mark.parametrize("seed", range(4))
def test_a_taste_that_stays_raises_none(seed: int) -> None:
    assert raised(played(seed, LENGTH)) == []


def test_false_alarms_are_rare() -> None:
    errors = np.random.default_rng(4).normal(size=(100, 2000))
    assert sum(len(raised(each)) for each in errors) <= 5


def test_what_is_not_known_says_nothing() -> None:
    alarm = Alarm()
    assert not any(alarm.raised_by(float("nan")) for _ in range(2 * ENOUGH))
    assert not alarm.knows
    assert not any(alarm.raised_by(0.5) for _ in range(ENOUGH))
    assert alarm.knows
