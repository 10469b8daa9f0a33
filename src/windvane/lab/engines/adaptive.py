"""The engine for players who find their memory as they go: the same arms as `Adaptive`."""

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
from windvane.adaptive import selection
from windvane.adaptive.selection import SELECTION_KEY, Adaptation
from windvane.kernels import Watched, blank, choose_among, learn_watching, look, parts
from windvane.kernels.belief_block import dot
from windvane.kernels.choosing import ANY
from windvane.kernels.widths import nobody, squared_norms
from windvane.lab.engines.linear import Player, mean_rewards, offer, reward_for, spanned
from windvane.lab.worlds.draw import Draw, Marks
from windvane.types import Floats, Records

exp3_chances = compiled(selection.exp3_chances)
predictive_chances = compiled(selection.predictive_chances)
draw_index = compiled(selection.draw_index)
scale_block_reward = compiled(selection.scale_block_reward)


class Bases(NamedTuple):
    """Policies that differ in their memory, as compiled code sees them."""

    rules: Records  # (N,)
    tally: Records  # (N,)
    blocks: Floats  # (N, size)
    past: Floats  # (M, d + 1) the observations kept by one after the other
    places: Marks  # (N + 1,) where the observations of each begin
    every: Marks  # (N,) rounds between two restarts, 0 where there are none


class Finding(NamedTuple):
    """How the one that acts is found, as compiled code sees it."""

    predicts: bool
    fresh: bool  # each block starts anew
    span: int
    rate: float
    largest: float
    fade: float


def replay_adaptive(
    player: Player, adaptation: Adaptation, draw: Draw, key: int, marks: Marks
) -> Floats:
    """The cumulative regret of one player in one replication, at the given round counts."""
    small, how = spanned(draw), adaptation
    finding = Finding(
        how.kind == "predictive", how.kind == "bandits", how.span, how.rate, how.largest, how.fade
    )
    curve = np.empty(len(marks))
    bases = bases_of(player, adaptation, small, draw.dim)
    play(bases, finding, small, player.any_first, key, marks, curve)
    return curve


def bases_of(player: Player, adaptation: Adaptation, small: Draw, space: int) -> Bases:
    """Blank policies, one for each candidate memory."""
    memories, explores = adaptation.memories, player.exploration
    given = [
        rules_of(small.dim, memory, explores, player.ridge, player.floor, space)
        for memory in memories
    ]
    limits = [history_limit(memory, explores) for memory in memories]
    kept = [small.rounds if limit is None else min(limit, small.rounds) for limit in limits]
    return Bases(
        np.concatenate(given),
        np.zeros(len(memories), TALLY),
        np.zeros((len(memories), max(block_size(rules) for rules in given))),
        np.zeros((sum(kept), max(history_width(small.dim, memory) for memory in memories))),
        np.cumsum([0, *kept]).astype(np.int64),
        np.array([memory.every for memory in memories], dtype=np.int64),
    )


@compiled
def arrays_of(bases: Bases, j: int) -> PolicyArrays:
    """The arrays of one of the policies, as views."""
    past = bases.past[bases.places[j] : bases.places[j + 1]]
    return PolicyArrays(bases.rules[j : j + 1], bases.tally[j : j + 1], bases.blocks[j], past)


@compiled
def learn_as(bases: Bases, j: int, x: Floats, reward: float, at: float) -> None:
    """Let one of the policies learn."""
    arrays = arrays_of(bases, j)
    state = parts(arrays)
    learn_watching(arrays, state, x, reward, at, nobody(state))


@compiled
def choose_as(bases: Bases, j: int, watched: Watched, start: np.uint64) -> int:
    """Let one of the policies choose."""
    arrays = arrays_of(bases, j)
    state = parts(arrays)
    if watched.squares.size > 0:
        look(state, watched)
    return choose_among(arrays, state, watched, start)


@compiled
def clear(bases: Bases, j: int) -> None:
    """Let one of the policies forget everything."""
    blank(arrays_of(bases, j))


@compiled
def play(
    bases: Bases,
    finding: Finding,
    draw: Draw,
    any_first: int,
    key: int,
    marks: Marks,
    curve: Floats,
) -> None:
    """Find who acts, choose, learn and count regret for every round of a replication."""
    size, dim = bases.rules.size, bases.rules[0].dim
    rounds, count, fixed = draw.era.size, draw.picks.shape[1], draw.picks.shape[0] == 1
    arms, means = np.empty((count, dim)), np.empty(count)
    squares = np.empty(count if bases.rules[0].style == WIDTH else 0)
    seen = Watched(arms, np.empty(count), squares, means[:0])
    scores, held, acting, chance, began, earned = np.zeros(size), 0.0, size - 1, 1.0, 0, 0.0
    mark, era, regret, best, own_key = 0, -1, 0.0, 0.0, np.uint64(key)
    for j in range(size):
        clear(bases, j)
    for t in range(rounds):
        if finding.predicts:
            acting = int(np.argmax(predictive_chances(scores, held)))
        elif t % finding.span == 0:
            if t > 0:
                gained = scale_block_reward(earned, finding.largest) / chance
                scores[acting] += finding.rate / size * gained
            chances = exp3_chances(scores, finding.rate)
            over = _random.opening(np.uint64(key ^ SELECTION_KEY), t // finding.span)
            acting = draw_index(chances, _random.uniform(over, 0))
            chance, began, earned = chances[acting], t, 0.0
            if finding.fresh:
                clear(bases, acting)
                own_key = _random.word(over, 1) >> np.uint64(1)
        first = began if finding.fresh else 0
        for j in range(size):
            every, idle = bases.every[j], finding.fresh and j != acting
            if every > 0 and t > first and (t - first) % every == 0 and not idle:
                clear(bases, j)
        if t == 0 or not fixed:
            offer(draw, t, arms)
            seen.sizes[:] = squared_norms(arms)
        if era != draw.era[t] or not fixed:
            era = draw.era[t]
            best = mean_rewards(arms, draw.theta[era], draw, means)
        if t < any_first:
            chosen = int(_random.uniform(_random.opening(np.uint64(key), t), ANY) * count)
        else:
            chosen = choose_as(bases, acting, seen, _random.opening(own_key, t - first))
        mean, x = means[chosen], arms[chosen]
        reward = reward_for(draw, mean, draw.noise[t])
        if finding.predicts:
            for j in range(size):
                miss = reward - dot(x, parts(arrays_of(bases, j)).theta)
                scores[j] = finding.fade * scores[j] + miss * miss
            held = finding.fade * held + 1.0
        earned += reward
        for j in range(size):
            if not finding.fresh or j == acting:
                learn_as(bases, j, x, reward, float(t))
        regret += best - mean
        if mark < marks.size and t + 1 == marks[mark]:
            curve[mark] = regret
            mark += 1
