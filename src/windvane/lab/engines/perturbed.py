"""The engine for policies that perturb their history, linear ones and those with a link.

In a linear policy, and under the identity link, the sums of a belief follow every observation, and
an estimate is the solution of a linear equation. Only the pseudo-rewards, which are new in every
round, need a pass over the history.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.beliefs.full.block import reset, view_belief
from windvane.beliefs.full.choosing import choose_by_scores, score_linearly
from windvane.beliefs.full.layout import PolicyArrays, build_rules, history_limit
from windvane.beliefs.full.learning import LARGEST_CONDITION, learn_and_track
from windvane.beliefs.full.linalg import copy_vector, dot
from windvane.beliefs.full.sampling import draw_pseudo_rewards, solve_from_estimate
from windvane.beliefs.full.widths import track_no_arms
from windvane.beliefs.glm import IDENTITY
from windvane.beliefs.glm import policy as glm
from windvane.beliefs.glm.kernels import GeneralizedArrays, GeneralizedRules, choose, learn
from windvane.errors import FitError
from windvane.exploration import greedy
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
from windvane.types import Floats


class PseudoRewards(NamedTuple):
    """What the pseudo-rewards of a round are made from."""

    features: Floats  # (d, room) of past observations, one a column
    weights: Floats  # (room,) of a pseudo-reward, by its age in observations
    is_newest_first: bool  # the first draw is for the newest observation; else for the first column


def can_play_perturbed(player: Player) -> bool:
    """Whether this engine plays the player: it perturbs a history with weights by age alone."""
    has_history = player.exploration.kind.needs == "history"
    return has_history and player.memory.name in ("keep", "discount", "window")


def replay_perturbed(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication of a linear policy and return the regret at the marks, (M,)."""
    memory = player.memory
    has_root_weights = memory.single and player.exploration.pseudo == "normal"
    gamma = math.sqrt(memory.gamma) if has_root_weights else memory.gamma
    limit = history_limit(memory, player.exploration)
    return replay_from_sums(player, draw, key, marks, limit or draw.rounds, gamma, True)


def replay_from_sums(
    player: Player,
    draw: Draw,
    key: int,
    marks: Marks,
    most: int,
    gamma: float,
    is_newest_first: bool,
) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,).

    The newest `most` observations get pseudo-rewards, whose weights are γ^age.
    """
    game = open_game(player, draw, key)
    room, dim = min(most, draw.rounds), game.draw.dim
    weights = np.multiply.accumulate([1.0, *[gamma] * (room - 1)])
    pseudo_rewards = PseudoRewards(np.zeros((dim, room)), weights, is_newest_first)
    rules = build_rules(dim, player.memory, player.exploration, player.ridge, player.floor)
    # `greedy` needs no history, so that only the observations of a window are kept in the arrays
    arrays = make_arrays(rules, player.memory, greedy(), draw.rounds)
    play(game, arrays, pseudo_rewards)
    return accumulate_regret(game.regret, marks)


@compiled
def play(game: Game, arrays: PolicyArrays, pseudo_rewards: PseudoRewards) -> None:
    """Choose and learn in every round of a replication."""
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    state, tracked = view_belief(arrays), track_no_arms(view_belief(arrays))
    features = pseudo_rewards.features
    reset(arrays)
    best = 0.0
    for t in range(draw.era.size):
        if has_new_arms(draw, t):
            best = open_round(draw, offer, t)
        if t < game.any_first:
            chosen = choose_uniformly(game.key, t, means.size)
        else:
            start = _random.start_round(np.uint64(game.key), t)
            theta = state.theta
            if arrays.rules[0].scale > 0.0:
                right = perturb_moment(arrays, state.moment, pseudo_rewards, start)
                theta = solve_from_estimate(arrays, state, right)
            chosen = choose_by_scores(arrays.rules, score_linearly(offer.arms, theta), start)
        x = offer.arms[chosen]
        reward = realize_reward(draw, means[chosen], draw.noise[t])
        learn_and_track(arrays, state, x, reward, float(t), tracked)
        copy_vector(x, features[:, t % features.shape[1]])
        regret[t] = best - means[chosen]


@compiled
def perturb_moment(
    arrays: PolicyArrays, moment: Floats, pseudo_rewards: PseudoRewards, start: np.uint64
) -> Floats:
    """Return b + a(Σ w·x·z + √λ·ζ), (d,), z and ζ normal; with m coins (b + Σ w·x·z)/(m + 1)."""
    rule, seen, room = arrays.rules[0], arrays.tally[0].seen, pseudo_rewards.weights.size
    count, d = min(seen, room), moment.size
    z = np.empty(count + d)
    draw_pseudo_rewards(arrays.rules, start, count, z)
    factors = z[:count]
    if pseudo_rewards.is_newest_first or pseudo_rewards.weights[-1] < 1.0:
        factors = np.empty(count)
        newest = (seen - 1) % room if count > 0 else -1
        weigh_draws(pseudo_rewards, z, newest, 0, factors[: newest + 1])
        weigh_draws(pseudo_rewards, z, room - 1, newest + 1, factors[newest + 1 :])
    right = sum_columns(pseudo_rewards.features, factors)
    for i in range(d):
        if rule.coins > 0:
            right[i] = (moment[i] + right[i]) / (rule.coins + 1.0)
        else:
            right[i] = moment[i] + rule.scale * (right[i] + math.sqrt(rule.ridge) * z[count + i])
    return right


@compiled
def weigh_draws(
    pseudo_rewards: PseudoRewards, z: Floats, oldest: int, first: int, out: Floats
) -> None:
    """Write w·z of the observations in the columns `first`, `first` + 1, … to `out` (n,).

    Their ages are `oldest`, `oldest` − 1, …
    """
    weights = pseudo_rewards.weights
    if pseudo_rewards.is_newest_first:
        for i in range(out.size):
            out[i] = weights[oldest - i] * z[oldest - i]
    else:
        for i in range(out.size):
            out[i] = weights[oldest - i] * z[first + i]


@compiled
def sum_columns(columns: Floats, factors: Floats) -> Floats:
    """Return Σ factor·column over the first n columns, (d,); each pass over n serves five rows."""
    totals, first = np.empty(columns.shape[0]), 0
    while first + 5 <= totals.size:
        row0, row1, row2 = columns[first], columns[first + 1], columns[first + 2]
        row3, row4 = columns[first + 3], columns[first + 4]
        sum0, sum1, sum2, sum3, sum4 = 0.0, 0.0, 0.0, 0.0, 0.0
        for i in range(factors.size):
            sum0 += row0[i] * factors[i]
            sum1 += row1[i] * factors[i]
            sum2 += row2[i] * factors[i]
            sum3 += row3[i] * factors[i]
            sum4 += row4[i] * factors[i]
        totals[first], totals[first + 1], totals[first + 2] = sum0, sum1, sum2
        totals[first + 3], totals[first + 4] = sum3, sum4
        first += 5
    for j in range(first, totals.size):
        totals[j] = dot(columns[j, : factors.size], factors)
    return totals


def replay_generalized(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,)."""
    memory, scale = player.memory, player.exploration.factor
    rules = glm.build_rules(player.link, memory, scale, player.ridge, player.floor)
    most = glm.history_limit(memory) or draw.rounds
    energy = draw.rounds * draw.arm_norm**2  # the trace of the Gram matrix is not larger
    if rules.link == IDENTITY and energy <= LARGEST_CONDITION * player.ridge:
        return replay_from_sums(player, draw, key, marks, most, memory.gamma, False)
    game = open_game(player, draw, key)
    arrays = glm.make_blank(game.draw.dim, player.ridge, min(most, draw.rounds))
    failed = play_generalized(game, rules, arrays)
    if failed >= 0:
        raise FitError(f"{player.name}: in round {failed} no {player.link} estimate was reached")
    return accumulate_regret(game.regret, marks)


@compiled
def play_generalized(game: Game, rules: GeneralizedRules, arrays: GeneralizedArrays) -> int:
    """Choose and learn in every round; return -1, or the round in which no estimate was reached."""
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    best = 0.0
    for t in range(draw.era.size):
        if has_new_arms(draw, t):
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
