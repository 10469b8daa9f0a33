"""The engine for policies with a link: the arms of GeneralizedPolicy."""

import numpy as np
import pytest

import windvane as wv
from game import play_round_by_round
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.replay import replay_generalized

ROUNDS = 120
MARKS = np.arange(1, ROUNDS + 1)
KEY = 321
MEMORIES = [
    wv.keep(),
    wv.discount(0.97),
    wv.discount(0.6),  # keeps 54 observations
    wv.window(35),
]
every_actions = pytest.mark.parametrize("actions", [worlds.fresh(), worlds.fixed()], ids=repr)


def make_world(actions: worlds.Actions) -> worlds.World:
    return worlds.world(5, 8, ROUNDS, worlds.abrupt([60], flip=0.6), actions)


@every_actions
@pytest.mark.parametrize("scale", [0.0, 0.5])
@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_the_engine_plays_the_arms_of_the_identity_link(
    memory: wv.Memory, scale: float, actions: worlds.Actions
) -> None:
    """The history of discount(0.6) and of the window is full long before the last round."""
    draw = make_world(actions).draw(4)
    player = Player("it", memory, wv.perturbed_history(scale), 0.7, 0.05, link="identity")
    curve = replay_generalized(player, draw, KEY, MARKS)
    policy = wv.GeneralizedPolicy(draw.dim, "identity", memory, scale, 0.7, floor=0.05)
    np.testing.assert_allclose(curve, play_round_by_round(policy, KEY, draw), atol=1e-9)


def test_a_ridge_that_leaves_too_few_digits_is_played_with_the_checks_of_the_class() -> None:
    """With a ridge of 1e-14 an estimate is found or refused by its gradient, as in the class."""
    draw = make_world(worlds.fixed()).draw(4)
    player = Player("it", wv.keep(), wv.perturbed_history(0.5), 1e-14, link="identity")
    curve = replay_generalized(player, draw, KEY, MARKS)
    policy = wv.GeneralizedPolicy(draw.dim, "identity", wv.keep(), 0.5, 1e-14)
    np.testing.assert_allclose(curve, play_round_by_round(policy, KEY, draw), atol=1e-9)
