"""Games: what all engines share when a player plays one replication of a world.

In every round an engine calls `has_new_arms` and `open_round`, its own way to choose,
`realize_reward` and its own way to learn.
"""

from typing import Any, NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import allow_in_compiled_code, compiled
from windvane._random import ANY_ARM_PLACE
from windvane.beliefs import links
from windvane.beliefs.adaptive import Adaptation
from windvane.beliefs.full.layout import (
    TALLY,
    PolicyArrays,
    block_size,
    history_limit,
    history_width,
)
from windvane.beliefs.full.linalg import copy_vector, dot
from windvane.exploration import Exploration
from windvane.lab.worlds import draw as draws
from windvane.lab.worlds.draw import Draw, Marks
from windvane.memory import Memory
from windvane.types import Floats, Records

allow_in_compiled_code(links.mean, draws.invert_poisson)
compute_mean = compiled(draws.compute_mean)
realize_reward = compiled(draws.realize_reward)


class OwnPolicy(NamedTuple):
    """A policy of the user."""

    source: Any  # a class or a factory, or an instance that is copied
    identity: str  # the same text only for the same code

    def __repr__(self) -> str:
        return self.identity


class Player(NamedTuple):
    """A policy as an experiment describes it."""

    name: str
    memory: Memory
    exploration: Exploration
    ridge: float = 1.0
    floor: float = 0.0
    any_first: int = 0  # first rounds, in which any arm is chosen uniformly at random
    adaptation: Adaptation | None = None  # if the policy selects its memory while it plays
    link: str = ""  # of a generalized policy; `exploration` is then perturbed_history
    own: OwnPolicy | None = None  # instead of all parts above


class RoundArms(NamedTuple):
    """The arms of one round."""

    arms: Floats  # (K, d)
    squared_norms: Floats  # (K,)
    means: Floats  # (K,) mean rewards


class Game(NamedTuple):
    """A replication that is being played, as compiled code sees it."""

    draw: Draw
    offer: RoundArms
    regret: Floats  # (T,) of each round
    key: int  # of the player's random stream
    any_first: int  # first rounds, in which any arm is chosen uniformly at random


def open_game(player: Player, draw: Draw, key: int) -> Game:
    """Prepare a replication before its first round, in the smallest space that contains it."""
    draw = reduce_dimension(draw)
    return Game(draw, make_offer(draw), np.empty(draw.rounds), key, player.any_first)


def make_offer(draw: Draw) -> RoundArms:
    """Make room for the arms of a round; `open_round` never writes to blocks that stay 0."""
    count = draw.picks.shape[1]
    return RoundArms(np.zeros((count, draw.dim)), np.empty(count), np.empty(count))


def make_arrays(
    rules: Records, memory: Memory, exploration: Exploration, rounds: int
) -> PolicyArrays:
    """Make the arrays of a policy that has learned nothing and plays this number of rounds."""
    limit = history_limit(memory, exploration)
    kept = rounds if limit is None else min(limit, rounds)
    past = np.zeros((kept, history_width(int(rules["dim"][0]), memory)))
    return PolicyArrays(rules, np.zeros(1, TALLY), np.zeros(block_size(rules)), past)


def accumulate_regret(regret: Floats, marks: Marks) -> Floats:
    """The cumulative regret after the round counts in `marks`, (M,)."""
    curve: Floats = np.cumsum(regret)[marks - 1]
    return curve


def reduce_dimension(draw: Draw) -> Draw:
    """Project a replication onto the span of its arms if they are fixed and fewer than d.

    Nothing is ever observed outside this span, so the choices have the same distribution, and the
    matrices are smaller.
    """
    if len(draw.picks) > 1:
        return draw
    arms = draw.arms[draw.picks[0]]
    theta = draw.theta
    if len(arms) < draw.dim:
        basis = np.linalg.qr(arms.T)[0]  # (d, K)
        arms = arms @ basis
        theta = theta @ basis
    all_arms = np.arange(len(arms), dtype=np.int32)[None]
    return draw._replace(arms=arms, theta=theta, picks=all_arms)


@compiled
def has_new_arms(draw: Draw, t: int) -> bool:
    """Whether the arms of round t or their mean rewards differ from those of the round before."""
    return bool(t == 0 or draw.picks.shape[0] > 1 or draw.era[t] != draw.era[t - 1])


@compiled
def open_round(draw: Draw, offer: RoundArms, t: int) -> float:
    """Write the arms of round t and their mean rewards to `offer`; return the largest mean."""
    width = draw.arms.shape[1]
    if t == 0 or draw.picks.shape[0] > 1:
        for k in range(offer.means.size):
            start = k * width if width < offer.arms.shape[1] else 0
            copy_vector(draw.arms[draw.picks[t, k]], offer.arms[k, start : start + width])
            offer.squared_norms[k] = dot(offer.arms[k], offer.arms[k])
    theta = draw.theta[draw.era[t]]
    best = -np.inf
    for k in range(offer.means.size):
        if draw.table.size > 0:
            offer.means[k] = draw.table[t, k]
        else:
            offer.means[k] = compute_mean(draw, dot(offer.arms[k], theta))
        best = max(best, offer.means[k])
    return best


@compiled
def choose_uniformly(key: int, t: int, count: int) -> int:
    """Choose any of the arms of round t, all with equal probability."""
    return int(_random.uniform(_random.start_round(np.uint64(key), t), ANY_ARM_PLACE) * count)
