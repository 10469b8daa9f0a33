"""The drift alarm: a change of taste raises it soon; without a change it stays silent."""

import random

import numpy as np
import pytest

from windvane.features.json_reader import JsonObjects
from windvane.features.packed_features import pack_actions
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.loops.learner_model import LearnerModel, Moment
from windvane.service.loops.settings import LoopSettings
from windvane.service.monitoring.alarms import (
    CALIBRATION_LESSONS,
    GROUP_LESSONS,
    THRESHOLD,
    DriftAlarm,
)
from windvane.service.schemas import Action
from windvane.types import Floats

DRINKS = ("coffee", "tea", "juice", "water")
ROUNDS = 3000
TURN = 1500  # round of the change of taste


def play_loop(seed: int, turn: int) -> Floats:
    """Prediction errors of a loop whose visitors change to other drinks at a round."""
    model, generator = (
        LearnerModel(LoopSettings(seed=seed, exploration_percentage=0.1)),
        random.Random(seed),
    )
    actions = pack_actions([Action(name, [{"kind": name}]) for name in DRINKS])
    contexts: list[JsonObjects] = [[{"time": time}] for time in ("morning", "evening")]
    errors = np.empty(ROUNDS)
    for k in range(ROUNDS):
        time, moment = generator.randrange(2), Moment(k, k * MICROSECONDS_PER_SECOND)
        choice = model.rank(contexts[time], actions, range(len(DRINKS)), moment.at_us)
        good = time + (2 if k >= turn else 0)
        value = float(generator.random() < (0.7 if choice.chosen == good else 0.1))
        errors[k] = value - model.predict_slowly(choice.features, moment)
        model.learn(choice.features, value, moment)
    return errors


def list_alarms(errors: Floats) -> list[int]:
    alarm = DriftAlarm()
    return [k for k, error in enumerate(errors) if alarm.update(float(error))]


def list_alarms_naively(errors: Floats) -> list[int]:
    """The formula of the docstring, computed from all squared errors each time."""
    found: list[int] = []
    usual: list[float] = []
    level = 0.0
    for start in range(0, len(errors) - GROUP_LESSONS + 1, GROUP_LESSONS):
        group = errors[start : start + GROUP_LESSONS] ** 2
        if len(usual) >= CALIBRATION_LESSONS:
            deviation = np.sqrt(np.var(usual) * (1 / GROUP_LESSONS + 1 / len(usual)))
            level = max(0.0, level + min((group.mean() - np.mean(usual)) / deviation, 4.0) - 0.5)
        if level > THRESHOLD:
            found.append(start + GROUP_LESSONS - 1)
            usual, level = [], 0.0
        elif level < THRESHOLD / 2:
            usual.extend(group)
    return found


def test_alarms_agree_with_a_naive_computation_of_the_formula() -> None:
    errors = np.random.default_rng(3).normal(size=8000)
    errors[1000:1300] *= 2
    errors[2500:4000] *= 1.5
    errors[4000:] *= np.linspace(1, 3, 4000)
    found = list_alarms(errors)
    assert len(found) >= 3
    assert found == list_alarms_naively(errors)


def test_one_outlier_raises_no_alarm() -> None:
    errors = np.random.default_rng(5).normal(size=1000)
    errors[600] = 50.0
    assert list_alarms(errors) == list_alarms_naively(errors) == []


@pytest.mark.parametrize("seed", range(4))
def test_a_change_of_taste_raises_one_alarm_within_a_hundred_lessons(seed: int) -> None:
    (found,) = list_alarms(play_loop(seed, TURN))
    assert TURN < found < TURN + 100


@pytest.mark.parametrize("seed", range(4))
def test_a_constant_taste_raises_no_alarm(seed: int) -> None:
    assert list_alarms(play_loop(seed, ROUNDS)) == []


def test_false_alarms_are_rare() -> None:
    errors = np.random.default_rng(4).normal(size=(100, 2000))
    assert sum(len(list_alarms(each)) for each in errors) <= 5


def test_what_is_not_known_says_nothing() -> None:
    alarm = DriftAlarm()
    assert not any(alarm.update(float("nan")) for _ in range(2 * CALIBRATION_LESSONS))
    assert not alarm.is_calibrated
    assert not any(alarm.update(0.5) for _ in range(CALIBRATION_LESSONS))
    assert alarm.is_calibrated
