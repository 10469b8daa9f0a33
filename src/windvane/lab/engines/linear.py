"""The engine for linear policies: a whole replication in compiled code, with Policy's kernels.

If the arms stay the same, their widths follow each rank-one update instead of being recomputed.
"""

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.beliefs.full.block import reset, view_belief
from windvane.beliefs.full.choosing import choose_measured
from windvane.beliefs.full.layout import WIDTH, PolicyArrays, build_rules
from windvane.beliefs.full.learning import learn_and_track
from windvane.beliefs.full.widths import TrackedArms, measure_arms, track_no_arms
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
from windvane.types import Floats


def replay(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,)."""
    game = open_game(player, draw, key)
    memory, exploration = player.memory, player.exploration
    dim = game.draw.dim
    rules = build_rules(dim, memory, exploration, player.ridge, player.floor, space=draw.dim)
    arrays = make_arrays(rules, memory, exploration, draw.rounds)
    play(game, arrays, list_restarts(memory, draw.rounds))
    return accumulate_regret(game.regret, marks)


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
