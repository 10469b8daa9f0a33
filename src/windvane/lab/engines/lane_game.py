"""Eight replications that are played side by side: their draws, their rounds and their regret."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane._numba.lanes import LANES, load, repeat, select_if_less, store
from windvane._random import TIE_PLACE
from windvane.beliefs.full.cholesky import factor_cholesky, solve_with_root
from windvane.beliefs.full.choosing import choose_best, mix_uniformly
from windvane.beliefs.full.layout import PolicyArrays
from windvane.lab.engines.game import (
    Offer,
    Player,
    choose_uniformly,
    open_round,
    realize_reward,
    reduce_dimension,
)
from windvane.lab.worlds.draw import Draw, Picks
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
    regret: Floats  # (8, T)
    keys: Places  # (8,) of the random streams
    any_first: int  # first rounds, in which any arm is chosen uniformly at random
    chosen: Places  # (8,) the arms of the round


class Rows(NamedTuple):
    """The first row of each part of the lanes that every policy has."""

    dim: int  # d
    arm_count: int  # K
    arms: int  # K·d rows: the features of all arms
    features: int  # d: those of the arms chosen in this round
    reward: int  # 1: their rewards
    moment: int  # d: b
    counts: int  # K: Σ of the weights of each arm, in units of the last refresh
    noise_counts: int  # K: Σ of the squared weights
    energy: int  # 1: trace(S)
    highest: int  # K: upper bounds of the scores
    best: int  # 1: an arm whose bound reaches the bar
    rivals: int  # 1: how many such arms there are
    bar: int  # 1: the largest lower bound of a score
    squared_norms: int  # K: ‖x‖²
    own: int  # the first row of the parts that one kind of policy has


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
    return LaneGame(
        theta,
        np.stack([draw.era for draw in reduced]),
        np.stack([draw.arms for draw in reduced]),
        first.picks,
        np.stack([draw.noise for draw in reduced]),
        first.binary,
        np.array([draw.centre for draw in reduced]),
        np.array([draw.slope for draw in reduced]),
        first.link,
        np.empty((LANES, count)),
        np.empty((LANES, count)),
        np.empty(LANES),
        np.empty((LANES, rounds)),
        np.array([*keys, *[keys[0]] * spare], dtype=np.int64),
        player.any_first,
        np.zeros(LANES, np.int64),
    )


def lay_out_rows(dim: int, count: int) -> Rows:
    """Return the first row of each part for d features and K arms."""
    sizes = [count * dim, dim, 1, dim, count, count, 1, count, 1, 1, 1, count]
    return Rows(dim, count, *np.cumsum([0, *sizes]).tolist())


def fill_rows(game: LaneGame, rows: Rows, size: int) -> Floats:
    """Make the lanes, (size, 8), with the arms and their norms in them and 0 elsewhere."""
    lanes = np.zeros((size, LANES))
    lanes[rows.arms : rows.features] = game.arms.reshape(LANES, -1).T
    lanes[rows.squared_norms : rows.own] = np.einsum("lkd,lkd->kl", game.arms, game.arms)
    return lanes


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
        if t == 0 or game.era[lane, t] != game.era[lane, t - 1]:
            offer = Offer(game.arms[lane], game.squared_norms[lane], game.means[lane])
            game.best[lane] = open_round(view_draw(game, lane), offer, t)


@compiled
def start_lane(game: LaneGame, lane: int, t: int) -> np.uint64:
    """The start of the random stream of round t in a lane."""
    return _random.start_round(np.uint64(game.keys[lane]), t)


@compiled
def choose_lanes_uniformly(game: LaneGame, t: int) -> None:
    """Choose any arm of round t in every lane."""
    for lane in range(LANES):
        game.chosen[lane] = choose_uniformly(game.keys[lane], t, game.means.shape[1])


@compiled
def earn_rewards(game: LaneGame, lanes: Floats, rows: Rows, t: int) -> None:
    """Write the reward, the regret and the features of the chosen arm in every lane."""
    for lane in range(LANES):
        chosen = game.chosen[lane]
        mean = game.means[lane, chosen]
        reward = realize_reward(view_draw(game, lane), mean, game.noise[lane, t])
        lanes[rows.reward, lane] = reward
        game.regret[lane, t] = game.best[lane] - mean
        for i in range(rows.dim):
            lanes[rows.features + i, lane] = lanes[rows.arms + chosen * rows.dim + i, lane]


@compiled
def add_to_sums(game: LaneGame, lanes: Floats, rows: Rows, fade: float, unit: float) -> None:
    """Add the observation of the round to b, to the counts and to the energy, in every lane."""
    for lane in range(LANES):
        lanes[rows.counts + game.chosen[lane], lane] += unit
        lanes[rows.noise_counts + game.chosen[lane], lane] += unit * unit
    reward, energy = load(lanes, rows.reward), fade * load(lanes, rows.energy)
    for i in range(rows.dim):
        own = load(lanes, rows.features + i)
        store(lanes, rows.moment + i, fade * load(lanes, rows.moment + i) + own * reward)
        energy = energy + own * own
    store(lanes, rows.energy, energy)


@compiled
def find_rivals(lanes: Floats, rows: Rows, bar: Floats) -> None:
    """Count the arms whose bound reaches the bar, and write one of them to `best`."""
    best, rivals, zero, one = repeat(0.0), repeat(0.0), repeat(0.0), repeat(1.0)
    for k in range(rows.arm_count):
        highest = load(lanes, rows.highest + k)
        rivals = rivals + select_if_less(highest, bar, zero, one)
        best = select_if_less(highest, bar, best, repeat(float(k)))
    store(lanes, rows.best, best)
    store(lanes, rows.rivals, rivals)
    store(lanes, rows.bar, bar)


@compiled
def mix_lanes(game: LaneGame, arrays: PolicyArrays, t: int) -> None:
    """Replace choices by uniform ones, with the probability of the floor and of ε."""
    if arrays.rules[0].mix > 0.0:
        for lane in range(LANES):
            start, count = start_lane(game, lane, t), game.means.shape[1]
            game.chosen[lane] = mix_uniformly(arrays.rules, game.chosen[lane], count, start)


@compiled
def has_one_best_arm(lanes: Floats, rows: Rows, lane: int) -> bool:
    """Whether all rivals of a lane have the same features, as the same arm offered twice has."""
    best = rows.arms + int(lanes[rows.best, lane]) * rows.dim
    for k in range(rows.arm_count):
        if lanes[rows.highest + k, lane] >= lanes[rows.bar, lane]:
            for i in range(rows.dim):
                if lanes[rows.arms + k * rows.dim + i, lane] != lanes[best + i, lane]:
                    return False
    return True


@compiled
def factor_precision(
    lanes: Floats, rows: Rows, lane: int, scale: float, ridge: float, matrix: Floats
) -> None:
    """Write the root of λI + Σ scale·counts[k]·xxᵀ of one lane to `matrix` (d, d)."""
    for i in range(rows.dim):
        for j in range(rows.dim):
            matrix[i, j] = ridge if i == j else 0.0
    for k in range(rows.arm_count):
        x, weight = rows.arms + k * rows.dim, scale * lanes[rows.counts + k, lane]
        if weight > 0.0:
            for i in range(rows.dim):
                own = weight * lanes[x + i, lane]
                for j in range(i + 1):
                    matrix[i, j] += own * lanes[x + j, lane]
    factor_cholesky(matrix)


@compiled
def solve_exactly(lanes: Floats, root: Floats, lane: int, first: int, out: Floats) -> None:
    """Solve W·u = v for u = `out` (d, 1), with the root of W; v starts at the row `first`."""
    for i in range(out.shape[0]):
        out[i, 0] = lanes[first + i, lane]
    solve_with_root(root, out)


@compiled
def multiply_arm(lanes: Floats, rows: Rows, lane: int, k: int, vector: Floats) -> float:
    """xᵀv of arm k of one lane; v = `vector` (d, 1)."""
    total, x = 0.0, rows.arms + k * rows.dim
    for i in range(rows.dim):
        total += lanes[x + i, lane] * vector[i, 0]
    return total


@compiled
def choose_best_in_lane(game: LaneGame, lane: int, scores: Floats, t: int) -> int:
    """Choose the best of the scores (K,) of one lane; ties are broken as `Policy` breaks them."""
    chosen = choose_best(scores, _random.uniform(start_lane(game, lane, t), TIE_PLACE))
    return max(chosen, 0)
