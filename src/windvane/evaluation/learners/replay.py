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
from typing import NamedTuple, Protocol

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.evaluation.learners.candidates import Clock
from windvane.evaluation.learners.feature_blocks import FeatureBlock
from windvane.evaluation.learners.replayed_policies import ReplayedPolicy
from windvane.types import Floats

QUANTILE = 0.005  # q: the share of rows whose chance may exceed 1
LARGEST_MULTIPLIER = 1.0
LEAST_FIRST_MULTIPLIER = 0.01  # a smaller one would wait too long for the first accepted row
MOST_REPETITIONS = 10  # how often a violating row is learned at most
BINS_PER_OCTAVE = 64  # the quantile of the ratios is at most 1.1 % too small
LEAST_EXPONENT, LARGEST_EXPONENT = -40, 8
BINS = BINS_PER_OCTAVE * (LARGEST_EXPONENT - LEAST_EXPONENT)
ACCEPTANCE_KEY = np.uint64(0x3C6EF372FE94F82B)  # seed ^ ACCEPTANCE_KEY is the key of the draws

MULTIPLIER, ROWS, UPDATES, VIOLATIONS, LEAST_BIN = range(5)  # places in `Acceptance.counters`


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


class ReplayCounts(NamedTuple):
    """How a replay went."""

    rows: int
    accepted: int
    violations: int
    multiplier: float
    is_sampled: bool


class Replayer(Protocol):
    """A policy that is replayed, block by block."""

    def score_block(self, block: FeatureBlock, first_row: int) -> ScoredRows:
        """Score the rows of a block and learn from those accepted; `first_row` is the number of
        rows before the block."""

    def count(self) -> ReplayCounts:
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

    def count(self) -> ReplayCounts:
        """How the replay went so far."""
        return count_replay(self._acceptance, self._policy.is_sampled)

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


def count_replay(acceptance: Acceptance, is_sampled: bool) -> ReplayCounts:
    """Read the counters of a replay."""
    counters = acceptance.counters
    return ReplayCounts(
        int(counters[ROWS]),
        int(counters[UPDATES]),
        int(counters[VIOLATIONS]),
        float(counters[MULTIPLIER]),
        is_sampled,
    )
