"""The engine that logs decisions: a policy plays a replication with the probabilities of all arms.

Rewards are 0 or 1, with the mean ½ + ⟨x, θ_t⟩/(2SL). The policy learns 2r − 1, whose mean is linear
in x, and predicts the reward q̂ = (1 + xᵀθ̂)/2 of each arm before it chooses.
"""

from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.block import reset, view_belief
from windvane.beliefs.full.choosing import score_linearly
from windvane.beliefs.full.layout import HALF_NORMAL, NORMAL, WIDTH, PolicyArrays, build_rules
from windvane.beliefs.full.learning import learn_and_track
from windvane.beliefs.full.propensities import choose_with_propensities
from windvane.beliefs.full.widths import track_no_arms
from windvane.errors import SettingError
from windvane.lab.engines.game import (
    Game,
    Player,
    has_new_arms,
    make_arrays,
    open_game,
    open_round,
    realize_reward,
)
from windvane.lab.engines.linear import list_restarts
from windvane.lab.worlds.draw import Draw, Marks
from windvane.types import Floats, Places


class DecisionLog(NamedTuple):
    """The decisions of one replication, in order."""

    chosen: Places  # (T,) the arm that was chosen
    rewards: Floats  # (T,) 0 or 1
    probabilities: Floats  # (T, K) with which each arm would have been chosen
    predictions: Floats  # (T, K) q̂ before the decision, cut to [0, 1]
    means: Floats  # (T, K) the true mean rewards


def log_decisions(player: Player, draw: Draw, key: int) -> DecisionLog:
    """Play one replication with binary rewards, and return its decisions."""
    if not draw.binary:
        raise SettingError("log_decisions: rewards must be 0 or 1")
    if player.adaptation or player.link:
        raise SettingError(f"log_decisions: {player.name} must be a memory and an exploration")
    game = open_game(player, draw, key)
    memory, exploration, dim = player.memory, player.exploration, game.draw.dim
    rules = build_rules(dim, memory, exploration, player.ridge, player.floor, space=draw.dim)
    if rules["style"][0] != WIDTH or rules["law"][0] not in (NORMAL, HALF_NORMAL):
        raise SettingError(
            "log_decisions: the exploration must be randomized(normal(...)) or "
            f"randomized(half_normal(...)), got {exploration!r}"
        )
    arrays = make_arrays(rules, memory, exploration, draw.rounds)
    log = DecisionLog(
        np.empty(draw.rounds, np.int64),
        np.empty(draw.rounds),
        *np.empty((3, draw.rounds, game.offer.means.size)),
    )
    _play(game, arrays, list_restarts(memory, draw.rounds), log)
    return log


@compiled
def _play(game: Game, arrays: PolicyArrays, restarts: Marks, log: DecisionLog) -> None:
    """Choose, learn and record in every round of a replication."""
    state = view_belief(arrays)
    draw, offer = game.draw, game.offer
    untracked = track_no_arms(state)
    restart = 0
    for t in range(draw.era.size):
        if t == 0 or t == restarts[restart]:
            reset(arrays)
            restart += t > 0
        if has_new_arms(draw, t):
            open_round(draw, offer, t)
        log.means[t] = offer.means
        log.predictions[t] = np.clip(0.5 + 0.5 * score_linearly(offer.arms, state.theta), 0.0, 1.0)
        chosen, shares = choose_with_propensities(arrays, offer.arms, game.key, t)
        log.probabilities[t] = shares
        log.chosen[t] = chosen
        log.rewards[t] = realize_reward(draw, offer.means[chosen], draw.noise[t])
        learn_and_track(
            arrays, state, offer.arms[chosen], 2.0 * log.rewards[t] - 1.0, float(t), untracked
        )
