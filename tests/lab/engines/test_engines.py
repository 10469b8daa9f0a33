"""The linear engine: the choices of Policy, and the same result on any number of threads."""

import numpy as np
import pytest

import windvane as wv
from game import play_round_by_round
from grid import EXPLORATIONS, MEMORIES
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.engines.linear import replay
from windvane.lab.running import Experiment, make_thread_runner, run_experiment

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


def test_the_result_does_not_depend_on_the_number_of_threads() -> None:
    world = worlds.world(5, 8, 300, worlds.walk(2.0))
    players = (
        Player("one", wv.discount(0.95), wv.thompson(0.4)),
        Player("two", wv.window(40), wv.randomized(wv.half_normal(1.0))),
    )
    experiment = Experiment(players, world, replications=12, seed=5)
    one_thread, three_threads = (
        run_experiment(experiment, make_thread_runner(n)).regret for n in (1, 3)
    )
    assert one_thread.tobytes() == three_threads.tobytes()
