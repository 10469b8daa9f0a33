"""Replay: score a policy that learns, as if it had decided on the rows of a log (DR-ns).

For each row, in the order of time, the policy gives its probabilities π and predictions q̂. The row
is scored by R = Σ_a π(a) q̂(a) + π(a_k)/p_k · (r_k − q̂(a_k)), before anything is learned from it.
The value is Σ c R / Σ c with the multiplier c of each row.

Then the row is accepted with probability c·π(a)/p, so that the accepted rows are distributed as if
the policy itself had chosen, and only accepted rows are learned. The multiplier c is the q-quantile
of the ratios p/π(a) so far, at most 1. A row whose chance would exceed 1 is a violation; it is
learned several times.

Dudík, Erhan, Langford & Li (2012), "Sample-efficient nonstationary policy evaluation for contextual
bandits".
"""

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.beliefs.adaptive import Adaptive
from windvane.beliefs.bank.feature_parts import pick_action
from windvane.beliefs.diagonal.sparse_rows import SparseRow, SparseRows, read_arms
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.choosing import score_linearly
from windvane.beliefs.full.layout import WIDTH, PolicyArrays
from windvane.beliefs.full.learning import learn
from windvane.beliefs.full.propensities import compute_exact_propensities
from windvane.beliefs.full.widths import compute_widths
from windvane.beliefs.glm.policy import GeneralizedPolicy
from windvane.chooser import Choice, Chooser
from windvane.errors import WindvaneError
from windvane.evaluation.estimates.result import Replay
from windvane.evaluation.learners.candidates import (
    Clock,
    LearnerCandidate,
    PolicyCandidate,
)
from windvane.evaluation.learners.feature_blocks import FeatureBlock
from windvane.evaluation.log_batch import LogFacts
from windvane.learner import Learner
from windvane.policy import Policy
from windvane.types import Floats, Places

CLOCK_NAMES: dict[Clock, str] = {
    "none": "none: it forgets nothing",
    "rounds": "rounds: its memory fades with each accepted row",
    "time": "time: its memory fades by the times of the log",
    "rows": "time: its memory fades with each row of the log",
}
SAMPLES = 200  # draws that are counted, if a policy has no exact propensities
QUANTILE = 0.005  # q: the share of rows whose chance may exceed 1
LARGEST_MULTIPLIER = 1.0
LEAST_FIRST_MULTIPLIER = 0.01  # a smaller one would wait too long for the first accepted row
MOST_REPETITIONS = 10  # how often a violating row is learned at most
BINS_PER_OCTAVE = 64  # the quantile of the ratios is at most 1.1 % too small
LEAST_EXPONENT, LARGEST_EXPONENT = -40, 8
BINS = BINS_PER_OCTAVE * (LARGEST_EXPONENT - LEAST_EXPONENT)
ACCEPTANCE_KEY = np.uint64(0x3C6EF372FE94F82B)  # seed ^ ACCEPTANCE_KEY is the key of the draws
MULTIPLIER, ROWS, UPDATES, VIOLATIONS, LEAST_BIN = range(5)  # places in `Acceptance.counters`


class RowView(NamedTuple):
    """What a policy knows of a row: the probability and the predicted reward of each action."""

    probabilities: Floats  # (K,)
    predictions: Floats  # (K,)


class ReplayedPolicy(Protocol):
    """A policy that decides on rows of a block and learns from some of them."""

    @property
    def is_sampled(self) -> bool:
        """Whether the probabilities are counted in draws."""

    def open_block(self, block: FeatureBlock) -> None:
        """Prepare for the rows of a block."""

    def view_row(self, row: int, at: float) -> RowView:
        """Decide on a row of the block, and learn nothing."""

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        """Learn the reward of an action of a row."""


class ReplayedLearner:
    """A learner."""

    is_sampled = False

    def __init__(self, learner: Learner) -> None:
        self._learner = learner

    def open_block(self, block: FeatureBlock) -> None:
        """Pack the features of the block."""
        self._sides = block.get_sides(self._learner)

    def view_row(self, row: int, at: float) -> RowView:
        """Rank the actions."""
        sides, learner = self._sides[row], self._learner
        places = np.arange(sides.feature_counts.size - 1)
        ranking = learner.bank.rank(sides, places, at, learner.key, learner.bank.lessons)
        return RowView(ranking.probabilities, ranking.means)

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        """Learn the reward of an action of a row."""
        self._learner.bank.learn(pick_action(self._sides[row], chosen), reward, at)


class ReplayedChooser:
    """A policy over vectors; a round passes with each row that it learns."""

    def __init__(self, policy: Chooser) -> None:
        self._policy = policy
        self.is_sampled = is_counted(policy)

    def open_block(self, block: FeatureBlock) -> None:
        """Encode the actions of the block."""
        self._arms, self._starts = block.get_dense(self._policy.dim), block.starts.tolist()

    def view_row(self, row: int, at: float) -> RowView:
        """Compute the propensities and predictions."""
        arms = self._offer(row)
        policy = self._policy
        if isinstance(policy, GeneralizedPolicy):
            predictions = policy.mean(arms)
        elif isinstance(policy, Policy):  # it knows of a restart that is due
            predictions = policy.predict(arms)
        else:
            predictions = arms @ policy.theta
        return RowView(policy.propensities(arms, SAMPLES), predictions)

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        """Play the round with the logged action, and learn its reward."""
        arms = self._offer(row)
        round_ = self._policy.choose(arms).round
        choice = Choice(chosen, arms[chosen].copy(), round_, self._policy.key)
        self._policy.learn(choice, reward, at)

    def _offer(self, row: int) -> Floats:
        return self._arms[self._starts[row] : self._starts[row + 1]]


class ReplayedDiagonal:
    """A policy with a diagonal belief over sparse rows."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.is_sampled = is_counted(policy)

    def open_block(self, block: FeatureBlock) -> None:
        """Hash the actions of the block."""
        self._rows = block.get_sparse(self._policy.dim)

    def view_row(self, row: int, at: float) -> RowView:
        """Compute the propensities and predictions."""
        policy = self._policy
        rows = read_arms("evaluate", SparseRows(*self._rows[row]), policy.dim)
        return RowView(policy.propensities(rows, SAMPLES), policy.predict(rows))

    def learn_row(self, row: int, chosen: int, reward: float, at: float) -> None:
        """Play the round with the logged action, and learn its reward."""
        indices, values, ends = self._rows[row]
        self._policy.dismiss(self._policy.choose(SparseRows(*self._rows[row])))
        part = slice(ends[chosen - 1] if chosen else 0, ends[chosen])
        self._policy.learn(SparseRow(indices[part], values[part]), reward, at)


def is_counted(policy: Chooser) -> bool:
    """Whether the propensities of a policy are counted in draws."""
    if isinstance(policy, GeneralizedPolicy):
        return policy.scale > 0
    if isinstance(policy, Adaptive | Policy):
        return policy.exploration.kind.needs in ("sample", "history")
    return True


def make_replayed_chooser(policy: Chooser) -> ReplayedPolicy:
    """Make what replays a policy row by row."""
    if isinstance(policy, Policy) and policy.belief_kind == "diagonal":
        return ReplayedDiagonal(policy)
    return ReplayedChooser(policy)


class Acceptance(NamedTuple):
    """What decides about the next row: a histogram of the ratios so far, and counters."""

    ratios: Floats  # (BINS,) how many ratios p/π(a) fell into each bin
    counters: Floats  # (5,)


def start_acceptance() -> Acceptance:
    """Start with no rows; the first row sets the multiplier."""
    counters = np.zeros(5)
    counters[LEAST_BIN] = BINS
    return Acceptance(np.zeros(BINS), counters)


@compiled
def set_first_multiplier(acceptance: Acceptance, least_probability: float) -> None:
    """Begin with the least probability of the first row, with which no chance exceeds 1."""
    acceptance.counters[MULTIPLIER] = min(
        LARGEST_MULTIPLIER, max(LEAST_FIRST_MULTIPLIER, least_probability)
    )


@compiled
def find_bin(ratio: float) -> int:
    """The bin of a ratio; infinity is in the last one."""
    if not ratio < 2.0**LARGEST_EXPONENT:
        return BINS - 1
    if ratio <= 2.0**LEAST_EXPONENT:
        return 0
    place = math.floor((math.log2(ratio) - LEAST_EXPONENT) * BINS_PER_OCTAVE)
    return min(max(place, 0), BINS - 1)


@compiled
def compute_quantile(acceptance: Acceptance) -> float:
    """The lower end of the bin that holds the q-quantile of the ratios."""
    remaining = QUANTILE * (acceptance.counters[ROWS] - 1.0)
    for place in range(int(acceptance.counters[LEAST_BIN]), BINS):
        remaining -= acceptance.ratios[place]
        if remaining < 0.0:
            end: float = 2.0 ** (LEAST_EXPONENT + place / BINS_PER_OCTAVE)
            return end
    return 2.0**LARGEST_EXPONENT


@compiled
def count_repetitions(acceptance: Acceptance, weight: float, key: np.uint64, row: int) -> int:
    """How often the policy learns a row whose π(a)/p is `weight`; 0 if the row is refused.

    t = c·π(a)/p:  ⌊t⌋ times, and once more with probability t − ⌊t⌋.
    """
    counters = acceptance.counters
    ratio = 1.0 / weight if weight > 0.0 else np.inf
    place = find_bin(ratio)
    acceptance.ratios[place] += 1.0
    counters[LEAST_BIN] = min(counters[LEAST_BIN], place)
    counters[ROWS] += 1.0
    chance = counters[MULTIPLIER] * weight
    if chance > 1.0:
        counters[VIOLATIONS] += 1.0
    whole = math.floor(min(chance, MOST_REPETITIONS))
    draw = _random.uniform(_random.start_round(key, row), 0)
    repetitions: int = int(whole) + (draw <= min(chance, MOST_REPETITIONS) - whole)
    if repetitions > 0:
        counters[UPDATES] += 1.0
        counters[MULTIPLIER] = min(LARGEST_MULTIPLIER, compute_quantile(acceptance))
    return repetitions


class ScoredRows(NamedTuple):
    """What a policy made of the rows of a block, before it learned from them."""

    weights: Floats  # (n,) π(a_k)/p_k
    model_values: Floats  # (n,) Σ_a π(a) q̂(a)
    model_chosen: Floats  # (n,) q̂(a_k)
    coefficients: Floats  # (n,) c
    unsupported: Floats  # (n,) Σ π(a) over actions that were logged with probability 0
    probabilities: Floats  # (actions,) π of all actions of all rows
    predictions: Floats  # (actions,) q̂


class Replayer(Protocol):
    """A policy that is replayed, block by block."""

    def score_block(self, block: FeatureBlock, first_row: int) -> ScoredRows:
        """Score the rows of a block and learn from those accepted; `first_row` is the number of
        rows before the block."""

    def count(self) -> Replay:
        """How the replay went so far."""


def make_acceptance_key(seed: int) -> np.uint64:
    """The key of the draws that accept rows; all candidates of an evaluation share it."""
    return np.uint64(seed) ^ ACCEPTANCE_KEY


def make_scores(rows: int, actions: int) -> ScoredRows:
    """Make room for the scores of rows with some actions in all."""
    sizes = [rows] * 5 + [actions] * 2
    return ScoredRows(*(np.zeros(size) for size in sizes))


class RowReplayer:
    """Replays a policy row by row."""

    def __init__(self, policy: ReplayedPolicy, clock: Clock, seed: int) -> None:
        self._policy = policy
        self._clock = clock
        self._key = make_acceptance_key(seed)
        self._acceptance = start_acceptance()
        self._learned = 0  # how often a row was learned: the rounds of the policy

    def score_block(self, block: FeatureBlock, first_row: int) -> ScoredRows:
        """Score the rows of a block and learn from those accepted."""
        scores = make_scores(block.rows.size, block.logged.size)
        self._policy.open_block(block)
        begin_acceptance(self._acceptance, block)
        counters, key = self._acceptance.counters, self._key
        weights = (block.multiplicities / block.probabilities).tolist()
        starts, times = block.starts.tolist(), block.times.tolist()
        rewards = block.rewards.tolist()
        for row, chosen in enumerate(block.chosen.tolist()):
            at = self._find_time(times[row], first_row + row)
            probabilities, predictions = self._policy.view_row(row, at)
            scores.probabilities[starts[row] : starts[row + 1]] = probabilities
            scores.predictions[starts[row] : starts[row + 1]] = predictions
            scores.coefficients[row] = counters[MULTIPLIER]
            own = float(probabilities[chosen]) if chosen >= 0 else 0.0
            repetitions = count_repetitions(
                self._acceptance, own * weights[row], key, first_row + row
            )
            for _ in range(repetitions):
                at = self._find_time(times[row], first_row + row)
                self._policy.learn_row(row, chosen, rewards[row], at)
                self._learned += 1
        fill_scores(scores, block)
        return scores

    def count(self) -> Replay:
        """How the replay went so far."""
        return count_replay(self._acceptance, self._clock, self._policy.is_sampled)

    def _find_time(self, time: float, row: int) -> float:
        """The time of a row on the clock of the policy's memory."""
        if self._clock == "time":
            return time
        return float(row if self._clock == "rows" else self._learned)


def fill_scores(scores: ScoredRows, block: FeatureBlock) -> None:
    """Compute the columns of rows from the probabilities and predictions of all actions."""
    size = block.rows.size
    has_chosen = block.chosen >= 0
    places = (block.starts[:-1] + block.chosen)[has_chosen]
    owners = np.repeat(np.arange(size), np.diff(block.starts))
    scores.weights[has_chosen] = scores.probabilities[places]
    scores.weights[:] /= block.probabilities
    scores.model_chosen[has_chosen] = scores.predictions[places]
    products = scores.probabilities * scores.predictions
    scores.model_values[:] = np.bincount(owners, products, size)
    impossible = scores.probabilities * (block.logged == 0.0)
    scores.unsupported[:] = np.bincount(owners, impossible, size)


def begin_acceptance(acceptance: Acceptance, block: FeatureBlock) -> None:
    """Set the first multiplier, if this is the first block."""
    if acceptance.counters[ROWS] == 0.0 and block.rows.size:
        first = block.logged[: block.starts[1]]
        is_known = first.size > 0 and bool(np.isfinite(first).all())
        set_first_multiplier(acceptance, float(first.min()) if is_known else 0.0)


def count_replay(acceptance: Acceptance, clock: Clock, is_sampled: bool) -> Replay:
    """Read the counters of a replay."""
    counters = acceptance.counters
    return Replay(
        accepted=int(counters[UPDATES]),
        violations=int(counters[VIOLATIONS]),
        final_coefficient=float(counters[MULTIPLIER]),
        clock=CLOCK_NAMES[clock],
        rows=int(counters[ROWS]),
        is_sampled=is_sampled,
    )


class LoggedRows(NamedTuple):
    """The rows of a block, as compiled code reads them."""

    arms: Floats  # (actions, d)
    starts: Places  # (n + 1,)
    chosen: Places  # (n,)
    rewards: Floats  # (n,)
    probabilities: Floats  # (n,)
    multiplicities: Floats  # (n,)
    logged: Floats  # (actions,)
    times: Floats  # (n,) empty if the memory counts rounds


def can_replay_compiled(policy: object) -> bool:
    """Whether a policy has exact propensities and can be replayed in compiled code."""
    if type(policy) is not Policy or policy.belief_kind != "full":
        return False
    return not policy.is_large and not is_counted(policy)


class CompiledReplayer:
    """Replays a policy with exact propensities in compiled code."""

    def __init__(self, policy: Policy, clock: Clock, seed: int) -> None:
        self._policy = policy
        self._clock = clock
        self._key = make_acceptance_key(seed)
        self._acceptance = start_acceptance()

    def open_block(self, block: FeatureBlock) -> None:
        """Encode the actions of a block, before several policies read them at once."""
        block.get_dense(self._policy.dim)

    def score_block(self, block: FeatureBlock, first_row: int) -> ScoredRows:
        """Score the rows of a block and learn from those accepted."""
        size = block.rows.size
        times = np.empty(0)
        if self._clock == "time":
            times = block.times
        elif self._clock == "rows":
            times = np.arange(first_row, first_row + size, dtype=np.float64)
        rows = LoggedRows(
            block.get_dense(self._policy.dim),
            *(block.starts, block.chosen, block.rewards, block.probabilities),
            *(block.multiplicities, block.logged, times),
        )
        scores = make_scores(size, block.logged.size)
        begin_acceptance(self._acceptance, block)
        done = 0
        while done < size:
            done = self._replay(rows, scores, done, first_row)
        return scores

    def _replay(self, rows: LoggedRows, scores: ScoredRows, done: int, first_row: int) -> int:
        """Replay until the end of the block, or until the policy restarts."""
        arrays, restart = self._policy.prepare_rounds(MOST_REPETITIONS * len(rows.chosen))
        done, round_, refused = replay_rows(
            *(arrays, self._acceptance, rows, scores, done, first_row),
            *(self._key, self._policy.round, restart),
        )
        self._policy.round = int(round_)
        if refused:
            raise WindvaneError(
                f"evaluate: row {first_row + done + 1} has features too large to be learned"
            )
        return int(done)

    def count(self) -> Replay:
        """How the replay went so far."""
        return count_replay(self._acceptance, self._clock, is_sampled=False)


@compiled
def replay_rows(
    arrays: PolicyArrays,
    acceptance: Acceptance,
    rows: LoggedRows,
    scores: ScoredRows,
    first: int,
    rows_before: int,
    key: np.uint64,
    round_: int,
    restart: int,
) -> tuple[int, int, int]:
    """Score and learn rows from `first` on, until the round of a restart.

    Return the place of the next row, the round, and 0 or the code of a refusal.
    """
    state, no_widths = view_belief(arrays), np.empty(0)
    for i in range(first, rows.chosen.size):
        if 0 <= restart <= round_:
            return i, round_, 0
        arms = rows.arms[rows.starts[i] : rows.starts[i + 1]]
        means = score_linearly(arms, state.theta)
        widths = no_widths
        if arrays.rules[0].style == WIDTH:
            widths = compute_widths(arrays, state, arms)
        propensities = compute_exact_propensities(arrays, means, widths)
        value, unsupported = 0.0, 0.0
        for k in range(means.size):
            place = rows.starts[i] + k
            scores.probabilities[place] = propensities[k]
            scores.predictions[place] = means[k]
            value += propensities[k] * means[k]
            if rows.logged[place] == 0.0:
                unsupported += propensities[k]
        chosen = rows.chosen[i]
        own = propensities[chosen] if chosen >= 0 else 0.0
        scores.weights[i] = own / rows.probabilities[i]
        scores.model_values[i] = value
        scores.model_chosen[i] = means[chosen] if chosen >= 0 else 0.0
        scores.coefficients[i] = acceptance.counters[MULTIPLIER]
        scores.unsupported[i] = unsupported
        weight = own * (rows.multiplicities[i] / rows.probabilities[i])
        repetitions = count_repetitions(acceptance, weight, key, rows_before + i)
        for _ in range(repetitions):
            at = rows.times[i] if rows.times.size > 0 else float(round_)
            refused = learn(arrays, arms[chosen], rows.rewards[i], at)
            if refused != 0:
                return i, round_, refused
            round_ += 1
    return rows.chosen.size, round_, 0


def make_replayer(
    candidate: LearnerCandidate | PolicyCandidate, facts: LogFacts, seed: int
) -> Replayer:
    """Make what replays a candidate that learns."""
    if isinstance(candidate, LearnerCandidate):
        return RowReplayer(ReplayedLearner(candidate.build(seed)), candidate.clock, seed)
    policy = candidate.build(facts, seed)
    if can_replay_compiled(policy):
        return CompiledReplayer(policy, candidate.clock, seed)  # type: ignore[arg-type]
    return RowReplayer(make_replayed_chooser(policy), candidate.clock, seed)


def score_block(
    replayers: Sequence[Replayer | None], block: FeatureBlock, rows_before: int
) -> list[ScoredRows | None]:
    """Score a block by every replayer; compiled ones work on threads at the same time."""
    compiled = [each for each in replayers if isinstance(each, CompiledReplayer)]
    for replayer in compiled:
        replayer.open_block(block)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {each: pool.submit(each.score_block, block, rows_before) for each in compiled}
        scores: list[ScoredRows | None] = []
        for each in replayers:
            if each is None:
                scores.append(None)
            elif isinstance(each, CompiledReplayer):
                scores.append(running[each].result())
            else:
                scores.append(each.score_block(block, rows_before))
    return scores
