"""The engine for linear policies: a whole replication in compiled code, with Policy's kernels.

If the arms stay the same, their widths follow each rank-one update instead of being recomputed.

A policy may also log its decisions with the probabilities of all arms. Rewards are then 0 or 1,
with the mean ½ + ⟨x, θ_t⟩/(2SL). The policy learns 2r − 1, whose mean is linear in x, and predicts
the reward q̂ = (1 + xᵀθ̂)/2 of each arm before it chooses.
"""

from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.beliefs.full.block import reset, view_belief
from windvane.beliefs.full.choosing import choose_measured, score_linearly
from windvane.beliefs.full.layout import HALF_NORMAL, NORMAL, WIDTH, PolicyArrays, build_rules
from windvane.beliefs.full.learning import learn_and_track
from windvane.beliefs.full.propensities import choose_with_propensities
from windvane.beliefs.full.widths import TrackedArms, measure_arms, track_no_arms
from windvane.errors import SettingError
from windvane.lab.engines.game import (
    Game,
    Player,
    accumulate_regret,
    choose_uniformly,
    has_new_arms,
    make_arrays,
    open_game,
    open_round,
    realize_reward,
)
from windvane.lab.worlds.draw import Draw, Marks
from windvane.memory import Memory
from windvane.types import Floats, Places


def replay(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,)."""
    game = open_game(player, draw, key)
    play(game, _make_arrays(player, draw, game), list_restarts(player.memory, draw.rounds))
    return accumulate_regret(game.regret, marks)


def _make_arrays(player: Player, draw: Draw, game: Game) -> PolicyArrays:
    memory, exploration, dim = player.memory, player.exploration, game.draw.dim
    rules = build_rules(dim, memory, exploration, player.ridge, player.floor, space=draw.dim)
    return make_arrays(rules, memory, exploration, draw.rounds)


def list_restarts(memory: Memory, rounds: int) -> Marks:
    """The rounds before which everything is dropped, and then `rounds`, (R + 1,)."""
    restarts = []
    following = memory.next_restart(0)
    while 0 <= following < rounds:
        restarts.append(following)
        following = memory.next_restart(following)
    return np.array([*restarts, rounds], dtype=np.int64)


@compiled
def play(game: Game, arrays: PolicyArrays, restarts: Marks) -> None:
    """Choose and learn in every round of a replication."""
    rule, counts, state = arrays.rules[0], arrays.tally[0], view_belief(arrays)
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    is_fixed = draw.picks.shape[0] == 1
    squared_widths = np.empty(means.size if rule.style == WIDTH else 0)
    squared_images = np.empty(squared_widths.size if is_fixed else 0)
    offered = TrackedArms(offer.arms, offer.squared_norms, squared_widths, squared_images)
    tracked = offered if is_fixed else track_no_arms(state)
    restart = 0
    best = 0.0
    for t in range(draw.era.size):
        if t == 0 or t == restarts[restart]:
            reset(arrays)
            restart += t > 0
        if has_new_arms(draw, t):
            best = open_round(draw, offer, t)
        if squared_widths.size > 0 and (counts.seen == 0 or not is_fixed):
            measure_arms(state, offered)
        if t < game.any_first:
            chosen = choose_uniformly(game.key, t, means.size)
        else:
            start = _random.start_round(np.uint64(game.key), t)
            chosen = choose_measured(arrays, state, offered, start)
        reward = realize_reward(draw, means[chosen], draw.noise[t])
        learn_and_track(arrays, state, offer.arms[chosen], reward, float(t), tracked)
        regret[t] = best - means[chosen]


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
    arrays = _make_arrays(player, draw, game)
    rule = arrays.rules[0]
    if rule["style"] != WIDTH or rule["law"] not in (NORMAL, HALF_NORMAL):
        raise SettingError(
            "log_decisions: the exploration must be randomized(normal(...)) or "
            f"randomized(half_normal(...)), got {player.exploration!r}"
        )
    log = DecisionLog(
        np.empty(draw.rounds, np.int64),
        np.empty(draw.rounds),
        *np.empty((3, draw.rounds, game.offer.means.size)),
    )
    _play_and_log(game, arrays, list_restarts(player.memory, draw.rounds), log)
    return log


@compiled
def _play_and_log(game: Game, arrays: PolicyArrays, restarts: Marks, log: DecisionLog) -> None:
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
