"""The engine for generalized linear policies: a whole replication in compiled code.

Under the identity link, an estimate is the solution of a linear equation, and the engine
`perturbed` plays the policy.
"""

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.learning import LARGEST_CONDITION
from windvane.beliefs.glm.kernels import GeneralizedArrays, GeneralizedRules, choose, learn
from windvane.beliefs.glm.links import IDENTITY
from windvane.beliefs.glm.policy import build_rules, history_limit, make_blank
from windvane.errors import FitError
from windvane.lab.engines.game import (
    Game,
    Player,
    accumulate_regret,
    choose_uniformly,
    has_new_offer,
    open_game,
    open_round,
    realize_reward,
)
from windvane.lab.engines.perturbed import replay_from_sums
from windvane.lab.worlds.draw import Draw, Marks
from windvane.types import Floats


def replay_generalized(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,)."""
    memory, scale = player.memory, player.exploration.factor
    rules = build_rules(player.link, memory, scale, player.ridge, player.floor)
    most = history_limit(memory) or draw.rounds
    energy = draw.rounds * draw.arm_norm**2  # the trace of the Gram matrix is not larger
    if rules.link == IDENTITY and energy <= LARGEST_CONDITION * player.ridge:
        return replay_from_sums(player, draw, key, marks, most, memory.gamma, False)
    game = open_game(player, draw, key)
    arrays = make_blank(game.draw.dim, player.ridge, min(most, draw.rounds))
    failed = play(game, rules, arrays)
    if failed >= 0:
        raise FitError(f"{player.name}: in round {failed} no {player.link} estimate was reached")
    return accumulate_regret(game.regret, marks)


@compiled
def play(game: Game, rules: GeneralizedRules, arrays: GeneralizedArrays) -> int:
    """Choose and learn in every round; return -1, or the round in which no estimate was reached."""
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    best = 0.0
    for t in range(draw.era.size):
        if has_new_offer(draw, t):
            best = open_round(draw, offer, t)
        if t < game.any_first:
            chosen = choose_uniformly(game.key, t, means.size)
        else:
            chosen = choose(rules, arrays, offer.arms, game.key, t)
        if chosen < 0:
            return t
        reward = np.array([realize_reward(draw, means[chosen], draw.noise[t])])
        if not learn(rules, arrays, offer.arms[chosen : chosen + 1], reward):
            return t
        regret[t] = best - means[chosen]
    return -1
