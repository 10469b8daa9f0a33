"""The engine for adaptive policies, which select their memory: the same choices as `Adaptive`."""

from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.beliefs import adaptive
from windvane.beliefs.adaptive import SELECTION_KEY, Adaptation
from windvane.beliefs.full.block import reset, view_belief
from windvane.beliefs.full.choosing import choose_measured
from windvane.beliefs.full.layout import (
    TALLY,
    WIDTH,
    PolicyArrays,
    block_size,
    build_rules,
    history_limit,
    history_width,
)
from windvane.beliefs.full.learning import learn_and_track
from windvane.beliefs.full.linalg import dot
from windvane.beliefs.full.memories import forget_errors
from windvane.beliefs.full.widths import TrackedArms, measure_arms, track_no_arms
from windvane.lab.engines.game import (
    Game,
    Player,
    accumulate_regret,
    choose_uniformly,
    has_new_arms,
    open_game,
    open_round,
    realize_reward,
)
from windvane.lab.worlds.draw import Draw, Marks
from windvane.types import Floats, Records

exp3_chances = compiled(adaptive.exp3_chances)
predictive_chances = compiled(adaptive.predictive_chances)
draw_index = compiled(adaptive.draw_index)
scale_block_reward = compiled(adaptive.scale_block_reward)


class Candidates(NamedTuple):
    """N policies that differ only in their memory, as compiled code sees them."""

    rules: Records  # (N,) RULES
    tally: Records  # (N,) TALLY
    blocks: Floats  # (N, largest block size)
    past: Floats  # (sum of kept observations, history width) of all candidates
    first_rows: Marks  # (N + 1,) candidate j keeps the rows of `past` from j to j + 1
    restart_every: Marks  # (N,) rounds between two restarts, 0 if the memory has none


TURN = np.dtype(
    [
        ("acting", "i8"),  # the candidate that chooses
        ("chance", "f8"),  # the probability with which EXP3 drew this candidate
        ("key", "u8"),  # of its random stream
        ("first_round", "i8"),  # of the block
        ("earned", "f8"),  # the sum of rewards in the block
        ("held", "f8"),  # the sum of the weights of all squared errors in a loss
    ]
)


class Selector(NamedTuple):
    """The rule that selects the acting candidate, and its state."""

    predicts: bool  # the candidate that predicted rewards best acts; else EXP3 draws it
    is_fresh: bool  # a candidate starts each block with a blank belief
    span: int  # rounds of a block
    rate: float  # of EXP3
    largest: float  # Q, by which the reward of a block is divided
    fade: float  # of squared prediction errors, for each observation
    scores: Floats  # (N,) logarithms of EXP3's weights, or losses: faded squared errors
    turn: Records  # (1,) TURN


def replay_adaptive(
    player: Player, adaptation: Adaptation, draw: Draw, key: int, marks: Marks
) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,)."""
    game = open_game(player, draw, key)
    candidates = make_candidates(player, adaptation, game.draw, draw.dim)
    play(game, candidates, make_selector(adaptation, key))
    return accumulate_regret(game.regret, marks)


def make_candidates(player: Player, adaptation: Adaptation, draw: Draw, space: int) -> Candidates:
    """Make a policy for each candidate memory; `space` is the dimension before its reduction."""
    memories, exploration = adaptation.memories, player.exploration
    rules = [
        build_rules(draw.dim, memory, exploration, player.ridge, player.floor, space)
        for memory in memories
    ]
    limits = [history_limit(memory, exploration) for memory in memories]
    kept = [draw.rounds if limit is None else min(limit, draw.rounds) for limit in limits]
    return Candidates(
        np.concatenate(rules),
        np.zeros(len(memories), TALLY),
        np.zeros((len(memories), max(block_size(record) for record in rules))),
        np.zeros((sum(kept), max(history_width(draw.dim, memory) for memory in memories))),
        np.cumsum([0, *kept]).astype(np.int64),
        np.array([memory.every for memory in memories], dtype=np.int64),
    )


def make_selector(adaptation: Adaptation, key: int) -> Selector:
    """Make the selector of an adaptation before the first round: the longest memory acts."""
    count = len(adaptation.memories)
    turn = np.zeros(1, TURN)
    turn["acting"] = count - 1
    turn["chance"] = 1.0
    turn["key"] = key
    return Selector(
        adaptation.kind == "predictive",
        adaptation.kind == "bandits",
        adaptation.span,
        adaptation.rate,
        adaptation.largest,
        adaptation.fade,
        np.zeros(count),
        turn,
    )


@compiled
def view_arrays(candidates: Candidates, j: int) -> PolicyArrays:
    """The arrays of candidate j, as views."""
    rules, tally = candidates.rules[j : j + 1], candidates.tally[j : j + 1]
    past = candidates.past[candidates.first_rows[j] : candidates.first_rows[j + 1]]
    return PolicyArrays(rules, tally, candidates.blocks[j], past)


@compiled
def choose_as(candidates: Candidates, j: int, offered: TrackedArms, start: np.uint64) -> int:
    """Let candidate j choose."""
    arrays = view_arrays(candidates, j)
    state = view_belief(arrays)
    if offered.squared_widths.size > 0:
        measure_arms(state, offered)
    return choose_measured(arrays, state, offered, start)


@compiled
def learn_as(candidates: Candidates, j: int, x: Floats, reward: float, at: float) -> None:
    """Let candidate j learn."""
    arrays = view_arrays(candidates, j)
    state = view_belief(arrays)
    learn_and_track(arrays, state, x, reward, at, track_no_arms(state))


@compiled
def learn_as_all(
    candidates: Candidates, selector: Selector, x: Floats, reward: float, at: float
) -> None:
    """Let all candidates learn, or only the acting one if a block starts with a blank belief."""
    for j in range(candidates.rules.size):
        if not selector.is_fresh or j == selector.turn[0].acting:
            learn_as(candidates, j, x, reward, at)


@compiled
def open_block(candidates: Candidates, selector: Selector, key: int, t: int) -> None:
    """Credit the candidate that acted in the last block, and draw the next one by EXP3."""
    turn, scores = selector.turn[0], selector.scores
    if t > 0:
        gained = scale_block_reward(turn.earned, selector.largest) / turn.chance
        scores[turn.acting] += selector.rate / scores.size * gained
    chances = exp3_chances(scores, selector.rate)
    start = _random.start_round(np.uint64(key ^ SELECTION_KEY), t // selector.span)
    turn.acting = draw_index(chances, _random.uniform(start, 0))
    turn.chance = chances[turn.acting]
    turn.first_round = t
    turn.earned = 0.0
    if selector.is_fresh:
        reset(view_arrays(candidates, turn.acting))
        forget_errors(view_arrays(candidates, turn.acting))
        turn.key = _random.draw_word(start, 1) >> np.uint64(1)


@compiled
def restart_due(candidates: Candidates, selector: Selector, age: int) -> None:
    """Blank the candidates whose memory restarts; `age` is the age of their beliefs in rounds."""
    for j in range(candidates.rules.size):
        every = candidates.restart_every[j]
        is_idle = selector.is_fresh and j != selector.turn[0].acting
        if every > 0 and age > 0 and age % every == 0 and not is_idle:
            reset(view_arrays(candidates, j))


@compiled
def score_predictions(candidates: Candidates, selector: Selector, x: Floats, reward: float) -> None:
    """Add the squared prediction error of each candidate to its loss."""
    turn, losses = selector.turn[0], selector.scores
    for j in range(losses.size):
        error = reward - dot(x, view_belief(view_arrays(candidates, j)).theta)
        losses[j] = selector.fade * losses[j] + error * error
    turn.held = selector.fade * turn.held + 1.0


@compiled
def play(game: Game, candidates: Candidates, selector: Selector) -> None:
    """Select a candidate, choose and learn in every round of a replication."""
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    turn = selector.turn[0]
    count = candidates.rules.size
    squared_widths = np.empty(means.size if candidates.rules[0].style == WIDTH else 0)
    offered = TrackedArms(offer.arms, offer.squared_norms, squared_widths, squared_widths[:0])
    for j in range(count):
        reset(view_arrays(candidates, j))
    best = 0.0
    for t in range(draw.era.size):
        if selector.predicts:
            turn.acting = np.argmax(predictive_chances(selector.scores, turn.held))
        elif t % selector.span == 0:
            open_block(candidates, selector, game.key, t)
        age = t - turn.first_round if selector.is_fresh else t
        restart_due(candidates, selector, age)
        if has_new_arms(draw, t):
            best = open_round(draw, offer, t)
        if t < game.any_first:
            chosen = choose_uniformly(game.key, t, means.size)
        else:
            start = _random.start_round(turn.key, age)
            chosen = choose_as(candidates, turn.acting, offered, start)
        x = offer.arms[chosen]
        reward = realize_reward(draw, means[chosen], draw.noise[t])
        if selector.predicts:
            score_predictions(candidates, selector, x, reward)
        turn.earned += reward
        learn_as_all(candidates, selector, x, reward, float(t))
        regret[t] = best - means[chosen]
