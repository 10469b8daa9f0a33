"""Generalised policies in the lab: a whole replication in compiled code, as the engine plays it."""

import numpy as np

from windvane import _random
from windvane._jit import compiled
from windvane.errors import FitError
from windvane.glm.policy import history_limit, make_blank, make_model
from windvane.kernels.choosing import ANY
from windvane.kernels.glm import Held, choose, learn
from windvane.kernels.glm_solver import Model
from windvane.lab.engines.linear import Player, mean_rewards, offer, reward_for, spanned
from windvane.lab.worlds.draw import Draw, Marks
from windvane.types import Floats


def replay_generalized(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """The cumulative regret of one player in one replication, at the given round counts."""
    small = spanned(draw)
    scale = player.exploration.scale
    model = make_model(player.link, player.memory, scale, player.ridge, player.floor)
    room = history_limit(player.memory) or draw.rounds
    held = make_blank(small.dim, player.ridge, min(room, draw.rounds))
    curve = np.empty(len(marks))
    failed = play(model, held, small, player.any_first, key, marks, curve)
    if failed >= 0:
        raise FitError(f"{player.name}: in round {failed} no {player.link} estimate was reached")
    return curve


@compiled
def play(
    model: Model,
    held: Held,
    draw: Draw,
    any_first: int,
    key: int,
    marks: Marks,
    curve: Floats,
) -> int:
    """Choose, learn and count regret in every round; -1, or the round without an estimate."""
    rounds, count, fixed = draw.era.size, draw.picks.shape[1], draw.picks.shape[0] == 1
    arms, means = np.empty((count, held.theta.size)), np.empty(count)
    mark, regret = 0, 0.0
    for t in range(rounds):
        if t == 0 or not fixed:
            offer(draw, t, arms)
        best = mean_rewards(arms, draw.theta[draw.era[t]], draw, means)
        if t < any_first:
            chosen = int(_random.uniform(_random.opening(np.uint64(key), t), ANY) * count)
        else:
            chosen = choose(model, held, arms, key, t)
        if chosen < 0:
            return t
        reward = np.array([reward_for(draw, means[chosen], draw.noise[t])])
        if not learn(model, held, arms[chosen : chosen + 1], reward):
            return t
        regret += best - means[chosen]
        if mark < marks.size and t + 1 == marks[mark]:
            curve[mark] = regret
            mark += 1
    return -1
