"""The linear engine: the choices of Policy."""

import numpy as np
import pytest

import windvane as wv
from game import play_round_by_round
from grid import EXPLORATIONS, MEMORIES
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.replay import replay

ROUNDS = 120
KEY = 12345


@pytest.mark.parametrize("actions", [worlds.fresh(), worlds.fixed()], ids=repr)
@pytest.mark.parametrize("exploration", EXPLORATIONS, ids=repr)
@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_the_engine_makes_the_choices_of_policy(
    memory: wv.Memory, exploration: wv.Exploration, actions: worlds.Actions
) -> None:
    world = worlds.world(4, 9, ROUNDS, worlds.abrupt([50], flip=0.5), actions)
    draw = world.draw(3)
    player = Player("player", memory, exploration, ridge=0.7)
    curve = replay(player, draw, KEY, np.arange(1, ROUNDS + 1))
    policy = wv.Policy(draw.dim, memory, exploration, ridge=0.7)
    np.testing.assert_allclose(curve, play_round_by_round(policy, KEY, draw), atol=1e-9)
