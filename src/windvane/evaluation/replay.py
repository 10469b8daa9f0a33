"""Replay: score a policy that learns, as if it had decided on the rows of a log (DR-ns).

For each row, in the order of time, the policy gives its probabilities π and predictions q̂. The row
is scored by R = Σ_a π(a) q̂(a) + π(a_k)/p_k · (r_k − q̂(a_k)), before anything is learned from it.
Then the row is accepted or refused as `acceptance` says, and only accepted rows are learned. The
value is Σ c R / Σ c with the multiplier c of each row.
"""

from typing import NamedTuple, Protocol

import numpy as np

from windvane.evaluation.acceptance import (
    ACCEPTANCE_KEY,
    MULTIPLIER,
    ROWS,
    UPDATES,
    VIOLATIONS,
    Acceptance,
    count_repetitions,
    set_first_multiplier,
    start_acceptance,
)
from windvane.evaluation.candidates import Clock
from windvane.evaluation.feature_blocks import FeatureBlock
from windvane.evaluation.players import Player
from windvane.types import Floats


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
    """Replays a player row by row."""

    def __init__(self, player: Player, clock: Clock, seed: int) -> None:
        self._player = player
        self._clock = clock
        self._key = make_acceptance_key(seed)
        self._acceptance = start_acceptance()
        self._learned = 0  # how often a row was learned: the rounds of the policy

    def score_block(self, block: FeatureBlock, first_row: int) -> ScoredRows:
        """Score the rows of a block and learn from those accepted."""
        scores = make_scores(block.rows.size, block.logged.size)
        self._player.open_block(block)
        begin_acceptance(self._acceptance, block)
        counters, key = self._acceptance.counters, self._key
        weights = (block.multiplicities / block.probabilities).tolist()
        starts, times = block.starts.tolist(), block.times.tolist()
        rewards = block.rewards.tolist()
        for row, chosen in enumerate(block.chosen.tolist()):
            at = self._find_time(times[row], first_row + row)
            probabilities, predictions = self._player.view_row(row, at)
            scores.probabilities[starts[row] : starts[row + 1]] = probabilities
            scores.predictions[starts[row] : starts[row + 1]] = predictions
            scores.coefficients[row] = counters[MULTIPLIER]
            own = float(probabilities[chosen]) if chosen >= 0 else 0.0
            repetitions = count_repetitions(
                self._acceptance, own * weights[row], key, first_row + row
            )
            for _ in range(repetitions):
                at = self._find_time(times[row], first_row + row)
                self._player.learn_row(row, chosen, rewards[row], at)
                self._learned += 1
        fill_scores(scores, block)
        return scores

    def count(self) -> ReplayCounts:
        """How the replay went so far."""
        return count_replay(self._acceptance, self._player.is_sampled)

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
