"""The engine: a whole replication in compiled code, with the same kernels as `Policy`.

Arms that stay the same let two things be cheap. Their widths follow each rank-one step instead of
being computed anew. And where there are fewer of them than dimensions, nothing is ever seen
outside the space they span, so the game is played in that space: the same choices in law, with
smaller matrices.
"""

from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._jit import compiled
from windvane._layout import (
    TALLY,
    WIDTH,
    PolicyArrays,
    block_size,
    history_limit,
    history_width,
    rules_of,
)
from windvane.adaptive.selection import Adaptation
from windvane.exploration import Exploration
from windvane.glm import links
from windvane.glm.links import POISSON
from windvane.kernels import Watched, blank, choose_among, learn_watching, look, parts
from windvane.kernels.belief_block import dot
from windvane.kernels.choosing import ANY
from windvane.kernels.widths import nobody, squared_norms
from windvane.lab.worlds.draw import Draw, Marks, count
from windvane.memory import Memory
from windvane.types import Floats


class Player(NamedTuple):
    """A policy as a game sees it."""

    name: str
    memory: Memory
    exploration: Exploration
    ridge: float = 1.0
    floor: float = 0.0
    any_first: int = 0  # rounds played at random before the policy is asked
    adaptation: Adaptation | None = None  # where it finds its memory as it goes
    link: str = ""  # of a generalised policy; then `exploration` is perturbed_history


mean_under = compiled(links.mean)
count_of = compiled(count)


def replay(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """The cumulative regret of one player in one replication, at the given round counts."""
    small = spanned(draw)
    rules = rules_of(
        small.dim, player.memory, player.exploration, player.ridge, player.floor, draw.dim
    )
    limit = history_limit(player.memory, player.exploration)
    kept = draw.rounds if limit is None else min(limit, draw.rounds)
    restarts = restart_rounds(player.memory, draw.rounds)
    past = np.zeros((kept, history_width(small.dim, player.memory)))
    arrays = PolicyArrays(rules, np.zeros(1, TALLY), np.zeros(block_size(rules)), past)
    curve = np.empty(len(marks))
    play(arrays, restarts, small, player.any_first, key, marks, curve)
    return curve


def spanned(draw: Draw) -> Draw:
    """The same replication in the space that its fixed arms span, where that is smaller."""
    if len(draw.picks) > 1:
        return draw
    arms, theta = draw.arms[draw.picks[0]], draw.theta
    if len(arms) < draw.dim:
        basis = np.linalg.qr(arms.T)[0]  # (d, K)
        arms, theta = arms @ basis, theta @ basis
    every = np.arange(len(arms), dtype=np.int32)[None]
    return draw._replace(arms=arms, theta=theta, picks=every)


def restart_rounds(memory: Memory, rounds: int) -> Marks:
    """The rounds before which everything is dropped, and one past the end."""
    found = []
    following = memory.next_restart(0)
    while 0 <= following < rounds:
        found.append(following)
        following = memory.next_restart(following)
    return np.array([*found, rounds], dtype=np.int64)


@compiled
def mean_rewards(arms: Floats, theta: Floats, draw: Draw, out: Floats) -> float:
    """Fill in the mean reward of each arm, and return the best."""
    best = -np.inf
    for k in range(arms.shape[0]):
        mean = mean_under(draw.link, draw.centre + draw.slope * dot(arms[k], theta))
        if draw.binary:
            mean = min(max(mean, 0.0), 1.0)
        out[k] = mean
        best = max(best, mean)
    return best


@compiled
def reward_for(draw: Draw, mean: float, noise: float) -> float:
    """The reward that the noise of a round makes of a mean."""
    if draw.binary:
        return 1.0 if noise < mean else 0.0
    return count_of(mean, noise) if draw.link == POISSON else mean + noise


@compiled
def offer(draw: Draw, t: int, arms: Floats) -> None:
    """Copy the arms of a round to where the kernels read them."""
    for k in range(arms.shape[0]):
        arms[k] = draw.arms[draw.picks[t, k]]


@compiled
def play(
    arrays: PolicyArrays,
    restarts: Marks,
    draw: Draw,
    any_first: int,
    key: int,
    marks: Marks,
    curve: Floats,
) -> None:
    """Choose, learn and count regret for every round of a replication."""
    rule, counts, state = arrays.rules[0], arrays.tally[0], parts(arrays)
    rounds, count, fixed = draw.era.size, draw.picks.shape[1], draw.picks.shape[0] == 1
    arms, means = np.empty((count, rule.dim)), np.empty(count)
    squares = np.empty(count if rule.style == WIDTH else 0)
    seen = Watched(arms, np.empty(count), squares, np.empty(squares.size if fixed else 0))
    kept = seen if fixed else nobody(state)
    restart, mark, era, regret, best = 0, 0, -1, 0.0, 0.0
    for t in range(rounds):
        if t == 0 or t == restarts[restart]:
            blank(arrays)
            restart += t > 0
        if t == 0 or not fixed:
            offer(draw, t, arms)
            seen.sizes[:] = squared_norms(arms)
        if squares.size > 0 and (counts.seen == 0 or not fixed):
            look(state, seen)
        if era != draw.era[t] or not fixed:
            era = draw.era[t]
            best = mean_rewards(arms, draw.theta[era], draw, means)
        start = _random.opening(np.uint64(key), t)
        if t < any_first:
            chosen = int(_random.uniform(start, ANY) * count)
        else:
            chosen = choose_among(arrays, state, seen, start)
        mean = means[chosen]
        reward = reward_for(draw, mean, draw.noise[t])
        learn_watching(arrays, state, arms[chosen], reward, float(t), kept)
        regret += best - mean
        if mark < marks.size and t + 1 == marks[mark]:
            curve[mark] = regret
            mark += 1
