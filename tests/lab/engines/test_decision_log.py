"""The engine that logs decisions: choices, probabilities and predictions are those of Policy."""

import numpy as np
import pytest

import windvane as wv
from game import compute_reward, list_arms
from windvane.errors import SettingError
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.replay import log_decisions
from windvane.lab.worlds.draw import compute_means

ROUNDS = 150
KEY = 12345
EXPLORATION = wv.randomized(wv.half_normal(2.0))


@pytest.mark.parametrize("actions", [worlds.fresh(), worlds.fixed()], ids=repr)
@pytest.mark.parametrize("memory", [wv.discount(0.98), wv.restart(40)], ids=repr)
def test_a_log_holds_what_a_policy_does(memory: wv.Memory, actions: worlds.Actions) -> None:
    drift = worlds.abrupt([70], flip=0.5)
    draw = worlds.world(4, 5, ROUNDS, drift, actions, worlds.bernoulli()).draw(3)
    log = log_decisions(Player("player", memory, EXPLORATION, floor=0.2), draw, KEY)
    policy = wv.Policy(4, memory, EXPLORATION, floor=0.2)
    policy.key = KEY
    for t in range(ROUNDS):
        arms = list_arms(draw, t)
        chances = policy.propensities(arms)
        choice = policy.choose(arms)
        theta = policy.belief.theta
        reward = compute_reward(draw, t, choice.index)
        assert choice.index == log.chosen[t]
        assert reward == log.rewards[t]
        np.testing.assert_allclose(log.probabilities[t], chances, atol=1e-9)
        np.testing.assert_allclose(log.predictions[t], np.clip((1 + arms @ theta) / 2, 0, 1))
        np.testing.assert_allclose(log.means[t], compute_means(draw, t))
        policy.learn(choice, 2 * reward - 1)
    assert log.probabilities.min() == pytest.approx(0.04)
    assert log.probabilities.max() == pytest.approx(0.84)


def test_players_without_exact_probabilities_are_refused() -> None:
    clicks = worlds.world(4, 5, 20, reward=worlds.bernoulli()).draw(3)
    with pytest.raises(SettingError, match=r"randomized\(half_normal\(...\)\), got thompson"):
        log_decisions(Player("player", wv.keep(), wv.thompson(1.0)), clicks, KEY)
    with pytest.raises(SettingError, match="must be a memory and an exploration"):
        log_decisions(Player("player", wv.keep(), EXPLORATION, link="logistic"), clicks, KEY)
    normal = worlds.world(4, 5, 20).draw(3)
    with pytest.raises(SettingError, match="rewards must be 0 or 1"):
        log_decisions(Player("player", wv.keep(), EXPLORATION), normal, KEY)
