"""The engine: the same arms as Policy, and the same numbers on any number of threads."""

import numpy as np
import pytest

import windvane as wv
from game import played
from grid import EXPLORATIONS, MEMORIES
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.linear import replay
from windvane.lab.running.experiment import Experiment, make_thread_runner, run_experiment

ROUNDS = 120
KEY = 12345


@pytest.mark.parametrize("actions", [worlds.fresh(), worlds.fixed()], ids=repr)
@pytest.mark.parametrize("exploration", EXPLORATIONS, ids=repr)
@pytest.mark.parametrize("memory", MEMORIES, ids=repr)
def test_engine_plays_the_arms_of_policy(
    memory: wv.Memory, exploration: wv.Exploration, actions: worlds.Actions
) -> None:
    world = worlds.world(4, 9, ROUNDS, worlds.abrupt([50], flip=0.5), actions)
    draw = world.draw(3)
    player = Player("it", memory, exploration, ridge=0.7)
    curve = replay(player, draw, KEY, np.arange(1, ROUNDS + 1))
    policy = wv.Policy(draw.dim, memory, exploration, ridge=0.7)
    np.testing.assert_allclose(curve, played(policy, KEY, draw), atol=1e-9)


def test_result_does_not_depend_on_the_number_of_threads() -> None:
    world = worlds.world(5, 8, 300, worlds.walk(2.0))
    players = (
        Player("one", wv.discount(0.95), wv.thompson(0.4)),
        Player("two", wv.window(40), wv.randomized(wv.half_normal(1.0))),
    )
    experiment = Experiment(players, world, replications=12, seed=5)
    alone, together = (run_experiment(experiment, make_thread_runner(n)).regret for n in (1, 3))
    assert alone.tobytes() == together.tobytes()
