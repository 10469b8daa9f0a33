"""The engines: each plays a whole replication, in compiled code with the kernels of the policies.

An action set has no list of arms and is played in Python; so are logs, and policies of your own
(`own`). If the arms stay the same, their widths follow each rank-one update instead of being
recomputed.

A policy may also log its decisions with the probabilities of all arms. Rewards are then 0 or 1,
with the mean ½ + ⟨x, θ_t⟩/(2SL). The policy learns 2r − 1, whose mean is linear in x, and predicts
the reward q̂ = (1 + xᵀθ̂)/2 of each arm before it chooses.

Policies with a link play with the kernels of `GeneralizedPolicy`. Under the identity link an
estimate is the solution of a linear equation, so that a belief follows every observation and no
root is searched; only the pseudo-rewards, new in every round, need a pass over the history.

Adaptive policies, which select their memory, make the same choices as `Adaptive`.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.beliefs import adaptive
from windvane.beliefs.adaptive import SELECTION_KEY, Adaptation, Adaptive
from windvane.beliefs.full import layout
from windvane.beliefs.full.block import reset, view_belief
from windvane.beliefs.full.choosing import (
    choose_by_scores,
    choose_measured,
    score_linearly,
    solve_from_estimate,
)
from windvane.beliefs.full.layout import TALLY, WIDTH, PolicyArrays, block_size, build_rules
from windvane.beliefs.full.learning import LARGEST_CONDITION, learn_and_track
from windvane.beliefs.full.linalg import dot
from windvane.beliefs.full.noise import forget_errors
from windvane.beliefs.full.propensities import choose_with_propensities
from windvane.beliefs.full.widths import TrackedArms, measure_arms, track_no_arms
from windvane.beliefs.glm import policy as glm
from windvane.beliefs.glm.kernels import (
    GeneralizedArrays,
    GeneralizedRules,
    choose,
    learn,
    make_perturbed_equation,
    store_observation,
)
from windvane.beliefs.glm.policy import GeneralizedPolicy
from windvane.beliefs.links import IDENTITY
from windvane.errors import FitError, SettingError
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
from windvane.lab.engines.own import ChooserSeat, log_in_python, replay_in_python, take_seat
from windvane.lab.worlds import draw as draws
from windvane.lab.worlds.definition import World
from windvane.lab.worlds.draw import Draw, Marks
from windvane.memory import Memory
from windvane.policy import Policy
from windvane.sets import ActionSet
from windvane.types import Floats, Places, Records


def select_engine(
    player: Player, world: World, replication: int = 0
) -> Callable[[Draw, int, Marks], Floats]:
    """Return the function that plays one replication and returns the regret at the marks."""
    if player.own or world.is_log:
        return partial(replay_as_object, player, world.horizon, replication)
    if actions := world.action_set:
        return partial(replay_on, actions, player)
    if player.adaptation:
        return partial(replay_adaptive, player, player.adaptation)
    if player.link:
        return partial(replay_generalized, player)
    return partial(replay, player)


def replay_as_object(
    player: Player, horizon: int, replication: int, draw: Draw, key: int, marks: Marks
) -> Floats:
    """Play one replication with an object in Python, the user's or a policy of Windvane."""
    if player.own:
        seat = take_seat(player, draw, horizon, key)
    else:
        seat = ChooserSeat(player.name, make_policy(player, draw.dim, key), draw, key)
    return replay_in_python(player, seat, horizon, replication, draw, marks)


def replay_on(actions: ActionSet, player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication with one choice a round, and return the regret at the marks, (M,).

    Σ_t max_x μ_t(x) − μ_t(x_t)
    """
    if player.any_first:
        raise SettingError(f"{player.name}: no action can be drawn at random from {actions!r}")
    policy = make_policy(player, draw.dim, key)
    regret = np.empty(draw.rounds)
    era = -1
    largest = 0.0
    for t in range(draw.rounds):
        theta = draw.theta[draw.era[t]]
        if era != draw.era[t]:
            era = int(draw.era[t])
            largest = draws.compute_mean(draw, float(actions.best(theta).features @ theta))
        choice = policy.choose(actions)
        expected = draws.compute_mean(draw, float(choice.features @ theta))
        policy.learn(choice, draws.realize_reward(draw, expected, float(draw.noise[t])))
        regret[t] = largest - expected
    return accumulate_regret(regret, marks)


def make_policy(player: Player, dim: int, key: int) -> Policy | Adaptive | GeneralizedPolicy:
    """Make the policy that a player describes."""
    exploration = player.exploration
    rest = (player.ridge, 0, player.floor)  # 0: a seed, which the key replaces
    policy: Policy | Adaptive | GeneralizedPolicy
    if player.adaptation:
        policy = Adaptive.from_adaptation(dim, player.adaptation, exploration, *rest)
    elif player.link:
        pseudo = exploration.pseudo
        policy = GeneralizedPolicy(
            dim, player.link, player.memory, exploration.factor, *rest, pseudo=pseudo
        )
    else:
        policy = Policy(dim, player.memory, exploration, *rest)
    policy.key = key
    return policy


def replay(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,)."""
    game = open_game(player, draw, key)
    play(game, _make_arrays(player, draw, game), list_restarts(player.memory, draw.rounds))
    return accumulate_regret(game.regret, marks)


def _make_arrays(player: Player, draw: Draw, game: Game) -> PolicyArrays:
    memory, exploration, dim = player.memory, player.exploration, game.draw.dim
    rules = build_rules(dim, memory, exploration, player.ridge, player.floor, space=draw.dim)
    return make_arrays(rules, memory, exploration, draw.rounds)


def list_restarts(memory: Memory, rounds: int) -> Marks:
    """The rounds before which everything is dropped, and then `rounds`, (R + 1,)."""
    restarts = []
    following = memory.next_restart(0)
    while 0 <= following < rounds:
        restarts.append(following)
        following = memory.next_restart(following)
    return np.array([*restarts, rounds], dtype=np.int64)


@compiled
def begin_round(game: Game, t: int, best: float) -> tuple[float, int]:
    """Return the best mean reward of round t, and an arm if any arm is chosen in it, else -1."""
    if has_new_arms(game.draw, t):
        best = open_round(game.draw, game.offer, t)
    if t < game.any_first:
        return best, choose_uniformly(game.key, t, game.offer.means.size)
    return best, -1


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
        best, chosen = begin_round(game, t, best)
        if squared_widths.size > 0 and (counts.seen == 0 or not is_fixed):
            measure_arms(state, offered)
        if chosen < 0:
            start = _random.start_round(np.uint64(game.key), t)
            chosen = choose_measured(arrays, state, offered, start)
        reward = realize_reward(draw, means[chosen], draw.noise[t])
        learn_and_track(arrays, state, offer.arms[chosen], reward, float(t), tracked)
        regret[t] = best - means[chosen]


class DecisionLog(NamedTuple):
    """The decisions of one replication, in order."""

    chosen: Places  # (T,) the arm that was chosen
    rewards: Floats  # (T,) 0 or 1
    probabilities: Floats  # (T, K) with which each arm would have been chosen
    predictions: Floats  # (T, K) q̂ before the decision, cut to [0, 1]
    means: Floats  # (T, K) the true mean rewards


def log_decisions(player: Player, draw: Draw, key: int, replication: int = 0) -> DecisionLog:
    """Play one replication with binary rewards, and return its decisions."""
    if not draw.binary:
        raise SettingError("log_decisions: rewards must be 0 or 1")
    if player.own:
        return DecisionLog(*log_in_python(player, draw, key, replication))
    if player.adaptation or player.link or player.memory.link:
        raise SettingError(f"log_decisions: {player.name} must be a memory and an exploration")
    game = open_game(player, draw, key)
    arrays = _make_arrays(player, draw, game)
    rule = arrays.rules[0]
    if rule["style"] != WIDTH or rule["law"] not in (layout.NORMAL, layout.HALF_NORMAL):
        raise SettingError(
            "log_decisions: the exploration must be randomized(normal(...)) or "
            f"randomized(half_normal(...)), got {player.exploration!r}"
        )
    tables = np.empty((3, draw.rounds, game.offer.means.size))
    log = DecisionLog(np.empty(draw.rounds, np.int64), np.empty(draw.rounds), *tables)
    _play_and_log(game, arrays, list_restarts(player.memory, draw.rounds), log)
    return log


@compiled
def _play_and_log(game: Game, arrays: PolicyArrays, restarts: Marks, log: DecisionLog) -> None:
    """Choose, learn and record in every round of a replication."""
    state = view_belief(arrays)
    draw, offer = game.draw, game.offer
    untracked = track_no_arms(state)
    restart = 0
    for t in range(draw.era.size):
        if t == 0 or t == restarts[restart]:
            reset(arrays)
            restart += t > 0
        if has_new_arms(draw, t):
            open_round(draw, offer, t)
        log.means[t] = offer.means
        log.predictions[t] = np.clip(0.5 + 0.5 * score_linearly(offer.arms, state.theta), 0.0, 1.0)
        chosen, shares = choose_with_propensities(arrays, offer.arms, game.key, t)
        log.probabilities[t] = shares
        log.chosen[t] = chosen
        log.rewards[t] = realize_reward(draw, offer.means[chosen], draw.noise[t])
        learn_and_track(
            arrays, state, offer.arms[chosen], 2.0 * log.rewards[t] - 1.0, float(t), untracked
        )


def replay_generalized(player: Player, draw: Draw, key: int, marks: Marks) -> Floats:
    """Play one replication and return the cumulative regret at the marks, (M,)."""
    game, memory = open_game(player, draw, key), player.memory
    dim = game.draw.dim
    scale, pseudo = player.exploration.factor, player.exploration.pseudo
    rules = glm.build_rules(player.link, memory, scale, player.ridge, player.floor, pseudo)
    room = min(glm.history_limit(memory) or draw.rounds, draw.rounds)
    history = glm.make_blank(dim, player.ridge, room)
    energy = draw.rounds * draw.arm_norm**2  # the trace of the Gram matrix is not larger
    if rules.link == IDENTITY and energy <= LARGEST_CONDITION * player.ridge:
        linear = build_rules(dim, memory, player.exploration, player.ridge, player.floor)
        # `greedy` needs no history, so that only the observations of a window are kept twice
        play_identity(game, rules, history, make_arrays(linear, memory, greedy(), draw.rounds))
    elif (failed := play_generalized(game, rules, history)) >= 0:
        raise FitError(f"{player.name}: in round {failed} no {player.link} estimate was reached")
    return accumulate_regret(game.regret, marks)


@compiled
def play_generalized(game: Game, rules: GeneralizedRules, arrays: GeneralizedArrays) -> int:
    """Choose and learn in every round; return -1, or the round in which no estimate was reached."""
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    best = 0.0
    for t in range(draw.era.size):
        best, chosen = begin_round(game, t, best)
        if chosen < 0:
            chosen = choose(rules, arrays, offer.arms, game.key, t)
        if chosen < 0:
            return t
        reward = np.array([realize_reward(draw, means[chosen], draw.noise[t])])
        if not learn(rules, arrays, offer.arms[chosen : chosen + 1], reward):
            return t
        regret[t] = best - means[chosen]
    return -1


@compiled
def play_identity(
    game: Game, rules: GeneralizedRules, history: GeneralizedArrays, arrays: PolicyArrays
) -> None:
    """Choose and learn in every round under the identity link."""
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    state, tracked = view_belief(arrays), track_no_arms(view_belief(arrays))
    reset(arrays)
    best = 0.0
    for t in range(draw.era.size):
        best, chosen = begin_round(game, t, best)
        if chosen < 0:
            start, theta = _random.start_round(np.uint64(game.key), t), state.theta
            if rules.scale > 0.0:
                right = make_perturbed_equation(rules, history, start).right
                theta = solve_from_estimate(arrays, state, right)
            chosen = choose_by_scores(arrays.rules, score_linearly(offer.arms, theta), start)
        x, reward = offer.arms[chosen], realize_reward(draw, means[chosen], draw.noise[t])
        learn_and_track(arrays, state, x, reward, float(t), tracked)
        store_observation(history, x, reward)
        regret[t] = best - means[chosen]


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
    play_adaptive(game, candidates, make_selector(adaptation, key))
    return accumulate_regret(game.regret, marks)


def make_candidates(player: Player, adaptation: Adaptation, draw: Draw, space: int) -> Candidates:
    """Make a policy for each candidate memory; `space` is the dimension before its reduction."""
    memories, exploration = adaptation.memories, player.exploration
    rules = [
        build_rules(draw.dim, memory, exploration, player.ridge, player.floor, space)
        for memory in memories
    ]
    limits = [layout.history_limit(memory, exploration) for memory in memories]
    kept = [draw.rounds if limit is None else min(limit, draw.rounds) for limit in limits]
    return Candidates(
        np.concatenate(rules),
        np.zeros(len(memories), TALLY),
        np.zeros((len(memories), max(block_size(record) for record in rules))),
        np.zeros((sum(kept), max(layout.history_width(draw.dim, memory) for memory in memories))),
        np.cumsum([0, *kept]).astype(np.int64),
        np.array([memory.every for memory in memories], dtype=np.int64),
    )


def make_selector(adaptation: Adaptation, key: int) -> Selector:
    """Make the selector of an adaptation before the first round: the longest memory acts."""
    count = len(adaptation.memories)
    turn = np.array([(count - 1, 1.0, key, 0, 0.0, 0.0)], TURN)
    kinds = (adaptation.kind == "predictive", adaptation.kind == "bandits")
    rates = (adaptation.rate, adaptation.largest, adaptation.fade)
    return Selector(*kinds, adaptation.span, *rates, np.zeros(count), turn)


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
def learn_as_all(
    candidates: Candidates, selector: Selector, x: Floats, reward: float, at: float
) -> None:
    """Let all candidates learn, or only the acting one if a block starts with a blank belief."""
    for j in range(candidates.rules.size):
        if not selector.is_fresh or j == selector.turn[0].acting:
            arrays = view_arrays(candidates, j)
            state = view_belief(arrays)
            learn_and_track(arrays, state, x, reward, at, track_no_arms(state))


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
def play_adaptive(game: Game, candidates: Candidates, selector: Selector) -> None:
    """Select a candidate, choose and learn in every round of a replication."""
    draw, offer, means, regret = game.draw, game.offer, game.offer.means, game.regret
    turn = selector.turn[0]
    squared_widths = np.empty(means.size if candidates.rules[0].style == WIDTH else 0)
    offered = TrackedArms(offer.arms, offer.squared_norms, squared_widths, squared_widths[:0])
    for j in range(candidates.rules.size):
        reset(view_arrays(candidates, j))
    best = 0.0
    for t in range(draw.era.size):
        if selector.predicts:
            turn.acting = np.argmax(predictive_chances(selector.scores, turn.held))
        elif t % selector.span == 0:
            open_block(candidates, selector, game.key, t)
        age = t - turn.first_round if selector.is_fresh else t
        restart_due(candidates, selector, age)
        best, chosen = begin_round(game, t, best)
        if chosen < 0:
            start = _random.start_round(turn.key, age)
            chosen = choose_as(candidates, turn.acting, offered, start)
        x = offer.arms[chosen]
        reward = realize_reward(draw, means[chosen], draw.noise[t])
        if selector.predicts:
            score_predictions(candidates, selector, x, reward)
        turn.earned += reward
        learn_as_all(candidates, selector, x, reward, float(t))
        regret[t] = best - means[chosen]
