"""Eight replications that are played side by side: their draws, their rounds and their regret."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._cholesky import factor_cholesky, solve_with_root
from windvane._jit import compiled
from windvane._lanes import LANES
from windvane._layout import PolicyArrays
from windvane.kernels import mix_uniformly
from windvane.kernels.choosing import choose_best
from windvane.kernels.linalg import dot
from windvane.kernels.round_draws import TIE_PLACE
from windvane.lab.engines.game import (
    Offer,
    Player,
    choose_uniformly,
    has_new_offer,
    open_round,
    realize_reward,
    reduce_dimension,
)
from windvane.lab.worlds.draw import Draw, Marks, Picks
from windvane.lab.worlds.drift import Eras
from windvane.types import Floats, Places


class LaneGame(NamedTuple):
    """Replications with fixed arms, one a lane, as compiled code sees them."""

    theta: Floats  # (8, P, d)
    era: Eras  # (8, T)
    arms: Floats  # (8, K, d)
    picks: Picks  # (1, K)
    noise: Floats  # (8, T)
    binary: bool
    centre: Floats  # (8,)
    slope: Floats  # (8,)
    link: int
    squared_norms: Floats  # (8, K)
    means: Floats  # (8, K) mean rewards of the round
    best: Floats  # (8,) the largest of them
    rows: Floats  # (K·d, 8) the arms as lanes
    regret: Floats  # (8, T)
    keys: Places  # (8,) of the random streams
    any_first: int  # first rounds, in which any arm is chosen uniformly at random
    chosen: Places  # (8,) the arms of the round
    features: Floats  # (d, 8) their features
    reward: Floats  # (1, 8) their rewards


def open_lane_game(player: Player, draws: Sequence[Draw], keys: Sequence[int]) -> LaneGame:
    """Prepare up to eight replications; lanes that are left over repeat the first replication."""
    spare = LANES - len(draws)
    reduced = [reduce_dimension(draw) for draw in draws]
    reduced += [reduced[0]] * spare
    first = reduced[0]
    count, dim, rounds = len(first.arms), first.dim, first.rounds
    theta = np.zeros((LANES, max(len(draw.theta) for draw in reduced), dim))
    for lane, draw in enumerate(reduced):
        theta[lane, : len(draw.theta)] = draw.theta
    arms = np.stack([draw.arms for draw in reduced])
    return LaneGame(
        theta,
        np.stack([draw.era for draw in reduced]),
        arms,
        first.picks,
        np.stack([draw.noise for draw in reduced]),
        first.binary,
        np.array([draw.centre for draw in reduced]),
        np.array([draw.slope for draw in reduced]),
        first.link,
        np.empty((LANES, count)),
        np.empty((LANES, count)),
        np.empty(LANES),
        np.ascontiguousarray(arms.transpose(1, 2, 0)).reshape(count * dim, LANES),
        np.empty((LANES, rounds)),
        np.array([*keys, *[keys[0]] * spare], dtype=np.int64),
        player.any_first,
        np.zeros(LANES, np.int64),
        np.zeros((dim, LANES)),
        np.zeros((1, LANES)),
    )


@compiled
def view_draw(game: LaneGame, lane: int) -> Draw:
    """The replication in a lane, as views."""
    return Draw(
        game.theta[lane],
        game.era[lane],
        game.arms[lane],
        game.picks,
        game.noise[lane],
        game.binary,
        game.centre[lane],
        game.slope[lane],
        game.link,
    )


@compiled
def open_lane_round(game: LaneGame, t: int) -> None:
    """Compute the mean rewards of round t in the lanes in which they change."""
    for lane in range(LANES):
        draw = view_draw(game, lane)
        if has_new_offer(draw, t):
            offer = Offer(game.arms[lane], game.squared_norms[lane], game.means[lane])
            game.best[lane] = open_round(draw, offer, t)


@compiled
def choose_lanes_uniformly(game: LaneGame, t: int) -> None:
    """Choose any arm of round t in every lane."""
    for lane in range(LANES):
        game.chosen[lane] = choose_uniformly(game.keys[lane], t, game.means.shape[1])


@compiled
def earn_rewards(game: LaneGame, t: int) -> None:
    """Write the reward, the regret and the features of the chosen arm in every lane."""
    count, d = game.means.shape[1], game.features.shape[0]
    for lane in range(LANES):
        chosen = min(max(game.chosen[lane], 0), count - 1)
        mean = game.means[lane, chosen]
        draw = view_draw(game, lane)
        game.reward[0, lane] = realize_reward(draw, mean, game.noise[lane, t])
        game.regret[lane, t] = game.best[lane] - mean
        for i in range(d):
            game.features[i, lane] = game.arms[lane, chosen, i]


@compiled
def mix_lanes(game: LaneGame, arrays: PolicyArrays, t: int) -> None:
    """Replace choices by uniform ones, with the probability of the floor and of ε."""
    if arrays.rules[0].mix > 0.0:
        for lane in range(LANES):
            start = _random.start_round(np.uint64(game.keys[lane]), t)
            count = game.means.shape[1]
            game.chosen[lane] = mix_uniformly(arrays.rules, game.chosen[lane], count, start)


@compiled
def choose_among_equals(game: LaneGame, lane: int, highest: Floats, bar: float, t: int) -> int:
    """Choose among the arms whose `highest` (K, 8) reaches the bar, if they are all the same arm.

    Return −1 if two of these arms differ.
    """
    first, ties = -1, 0
    for k in range(highest.shape[0]):
        if highest[k, lane] >= bar:
            if first < 0:
                first = k
            for i in range(game.features.shape[0]):
                if game.arms[lane, k, i] != game.arms[lane, first, i]:
                    return -1
            ties += 1
    start = _random.start_round(np.uint64(game.keys[lane]), t)
    remaining = int(_random.uniform(start, TIE_PLACE) * ties)
    for k in range(highest.shape[0]):
        if highest[k, lane] >= bar:
            if remaining == 0:
                return k
            remaining -= 1
    return -1


@compiled
def weigh_arms(game: LaneGame, lane: int, counts: Floats, scale: float, ridge: float) -> Floats:
    """λI + Σ scale·counts[k]·xxᵀ of one lane, (d, d), the lower half only; counts (K, 8)."""
    d = game.features.shape[0]
    matrix = np.zeros((d, d))
    for k in range(counts.shape[0]):
        x, weight = game.arms[lane, k], scale * counts[k, lane]
        if weight > 0.0:
            for i in range(d):
                for j in range(i + 1):
                    matrix[i, j] += weight * x[i] * x[j]
    for i in range(d):
        matrix[i, i] += ridge
    return matrix


@compiled
def solve_exactly(matrix: Floats, right: Floats) -> Floats:
    """Solve matrix·u = right for u (d, n); replaces the matrix by its root, and `right` by u."""
    factor_cholesky(matrix)
    solve_with_root(matrix, right)
    return right


@compiled
def choose_best_in_lane(game: LaneGame, lane: int, scores: Floats, t: int) -> int:
    """Choose the best of the scores (K,) of one lane; ties are broken as `Policy` breaks them."""
    start = _random.start_round(np.uint64(game.keys[lane]), t)
    return choose_best(scores, _random.uniform(start, TIE_PLACE))
