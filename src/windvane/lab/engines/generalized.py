"""The engine for generalized linear policies: a whole replication in compiled code.

Under the identity link, an estimate is the solution of a linear equation. There the sums of a linear
belief follow every observation, and only the pseudo-rewards need a pass over the history.
"""

from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._jit import compiled
from windvane._layout import (
    TALLY,
    PolicyArrays,
    block_size,
    build_rules,
    history_width,
)
from windvane._layout import history_limit as belief_history_limit
from windvane.errors import FitError
from windvane.exploration import greedy
from windvane.glm.links import IDENTITY
from windvane.glm.policy import history_limit, make_blank, make_model
from windvane.kernels import (
    LARGEST_CONDITION,
    learn_and_track,
    reset,
    score_linearly,
    view_belief,
)
from windvane.kernels.choosing import choose_by_scores
from windvane.kernels.glm import Held, choose, learn
from windvane.kernels.glm_solver import Model, sum_features
from windvane.kernels.linalg import copy_vector
from windvane.kernels.round_draws import FIRST_FREE_PLACE
from windvane.kernels.sampling import solve_from_estimate
from windvane.kernels.widths import track_no_arms
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
from windvane.lab.worlds.draw import Draw, Marks
from windvane.types import Floats


class Perturbation(NamedTuple):
    """What the pseudo-rewards of a round are made from."""

    features: Floats  # (d + 1, room) of past observations in columns; the last row is not used
    weights: Floats  # (room,) γ^age by age
    scale: float  # a


def replay_generalized(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,)."""
    game = open_game(player, draw, key)
    scale, dim = player.exploration.factor, game.draw.dim
    model = make_model(player.link, player.memory, scale, player.ridge, player.floor)
    room = min(history_limit(player.memory) or draw.rounds, draw.rounds)
    energy = draw.rounds * draw.arm_norm**2  # the trace of the Gram matrix is not larger
    if model.link == IDENTITY and energy <= LARGEST_CONDITION * player.ridge:
        weights = np.cumprod([1.0, *[model.gamma] * (room - 1)])
        pseudo_rewards = Perturbation(np.zeros((dim + 1, room)), weights, scale)
        play_linearly(game, make_arrays(player, draw.rounds, dim), pseudo_rewards)
        return accumulate_regret(game.regret, marks)
    failed = play(game, model, make_blank(dim, player.ridge, room))
    if failed >= 0:
        raise FitError(f"{player.name}: in round {failed} no {player.link} estimate was reached")
    return accumulate_regret(game.regret, marks)


def make_arrays(player: Player, rounds: int, dim: int) -> PolicyArrays:
    """Make the arrays of a linear policy with the memory, the ridge and the floor of a player."""
    rules = build_rules(dim, player.memory, greedy(), player.ridge, player.floor)
    limit = belief_history_limit(player.memory, greedy())
    kept = rounds if limit is None else min(limit, rounds)
    past = np.zeros((kept, history_width(dim, player.memory)))
    return PolicyArrays(rules, np.zeros(1, TALLY), np.zeros(block_size(rules)), past)


@compiled
def play(game: Game, model: Model, held: Held) -> int:
    """Choose and learn in every round; return -1, or the round in which no estimate was reached."""
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    best = 0.0
    for t in range(draw.era.size):
        if has_new_offer(draw, t):
            best = open_round(draw, offer, t)
        if t < game.any_first:
            chosen = choose_uniformly(game.key, t, means.size)
        else:
            chosen = choose(model, held, offer.arms, game.key, t)
        if chosen < 0:
            return t
        reward = np.array([realize_reward(draw, means[chosen], draw.noise[t])])
        if not learn(model, held, offer.arms[chosen : chosen + 1], reward):
            return t
        regret[t] = best - means[chosen]
    return -1


@compiled
def play_linearly(game: Game, arrays: PolicyArrays, pseudo_rewards: Perturbation) -> None:
    """Choose and learn in every round, under the identity link."""
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    state, tracked = view_belief(arrays), track_no_arms(view_belief(arrays))
    features = pseudo_rewards.features
    reset(arrays)
    best = 0.0
    for t in range(draw.era.size):
        if has_new_offer(draw, t):
            best = open_round(draw, offer, t)
        if t < game.any_first:
            chosen = choose_uniformly(game.key, t, means.size)
        else:
            start = _random.start_round(np.uint64(game.key), t)
            theta = state.theta
            if pseudo_rewards.scale > 0.0:
                right = perturb_moment(state.moment, arrays, pseudo_rewards, t, start)
                theta = solve_from_estimate(arrays, state, right)
            chosen = choose_by_scores(arrays.rules, score_linearly(offer.arms, theta), start)
        x = offer.arms[chosen]
        reward = realize_reward(draw, means[chosen], draw.noise[t])
        learn_and_track(arrays, state, x, reward, float(t), tracked)
        copy_vector(x, features[:-1, t % features.shape[1]])
        regret[t] = best - means[chosen]


@compiled
def perturb_moment(
    moment: Floats, arrays: PolicyArrays, pseudo_rewards: Perturbation, seen: int, start: np.uint64
) -> Floats:
    """Return b + a(Σ w·x·z + √λ·ζ), (d,), with the draws of `glm.make_perturbed_equation`."""
    room, d = pseudo_rewards.weights.size, moment.size
    count = min(seen, room)
    z = np.empty(count + d)
    _random.fill_normals(start, FIRST_FREE_PLACE, z)
    newest = (seen - 1) % room
    weigh_by_age(pseudo_rewards.weights, newest, z[: min(newest + 1, count)])
    weigh_by_age(pseudo_rewards.weights, room - 1, z[newest + 1 : count])
    right = sum_features(pseudo_rewards.features, z[:count])
    for i in range(d):
        noise = right[i] + np.sqrt(arrays.rules[0].ridge) * z[count + i]
        right[i] = moment[i] + pseudo_rewards.scale * noise
    return right


@compiled
def weigh_by_age(weights: Floats, oldest: int, values: Floats) -> None:
    """Multiply values (n,) by the weights of the ages `oldest`, `oldest` − 1, …"""
    for i in range(values.size):
        values[i] *= weights[oldest - i]
