"""Click alarm: detects a change of the share of clicks that a loop's predictions did not foresee.

For rewards that are 0 or 1. The recent past is split in two at a geometric grid of places. Of each
part j the alarm knows the number n of lessons, of clicks O (rewards that are 1) and the sum E of
the predictions. The evidence that the two parts differ is

    Λ(E) = L(O₁, E₁, O₂, E₂) + L(n₁ − O₁, n₁ − E₁, n₂ − O₂, n₂ − E₂),
    L(O₁, E₁, O₂, E₂) = O₁ log(O₁/E₁) + O₂ log(O₂/E₂) − (O₁ + O₂) log((O₁ + O₂)/(E₁ + E₂)),

the generalised likelihood ratio of counts; a prediction that is wrong by a constant factor cancels
out in L. An alarm is raised if, at one place,

    Λ(n·r) ≥ log(3 m^(3/2) / δ)    the share of clicks changed; r is the share of both parts
    Λ(E)   ≥ 5                     the predictions did not foresee this, in the same direction

with the number m of blocks in the recent past. Both are needed. Predictions alone hide a change,
because the belief learns it while the clicks are counted. The share alone also changes if other
contexts arrive, or if the loop learns; good predictions know of both.

Predictions of a linear belief may lie outside [0, 1]. Only their sum is used, as it is. If the sum
of a part is no count between 0 and n, it says nothing, and the share of clicks decides alone.
"""

from math import ceil, log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.types import Floats

BLOCK_VARIANCE = 5.0  # n r (1 − r) of a block of lessons: 5 clicks, if clicks are rare
WINDOW_BLOCKS = 200  # m, of the recent past
MIN_BLOCKS_BEFORE = 20
MIN_BLOCKS_AFTER = 2
GRID_RATIO = 1.15  # of the lengths of the second part
FALSE_ALARM_SHARE = 0.01  # δ
RATE_THRESHOLD = log(3.0 * WINDOW_BLOCKS**1.5 / FALSE_ALARM_SHARE)
PREDICTION_THRESHOLD = 5.0


class Outcomes(NamedTuple):
    """What became of some lessons."""

    lessons: int = 0  # n
    clicks: float = 0.0  # O, the sum of the rewards
    expected: float = 0.0  # E, the sum of the predictions

    def merge(self, other: "Outcomes") -> "Outcomes":
        """Add the outcomes of other lessons."""
        return Outcomes(
            self.lessons + other.lessons,
            self.clicks + other.clicks,
            self.expected + other.expected,
        )


class RateChange(NamedTuple):
    """An alarm: the share of clicks before and after a change, and when it was known."""

    at: int  # microseconds since 1970, of the newest decision that was counted
    before: float
    after: float
    is_of_explored: bool = False  # whether only explored decisions were counted


class RateEvidence(NamedTuple):
    """The evidence for a change at some places; the arrays have any one shape."""

    of_rate: Floats  # Λ(n·r)
    of_predictions: Floats  # Λ(E), 0 if the predictions err in the other direction

    @property
    def is_change(self) -> npt.NDArray[np.bool_]:
        """Whether both exceed their thresholds."""
        return (self.of_rate >= RATE_THRESHOLD) & (self.of_predictions >= PREDICTION_THRESHOLD)


def measure_evidence(before: Floats, after: Floats) -> RateEvidence:
    """Measure the evidence for a change between parts with (n, O, E) along the first axis."""
    lessons_1, clicks_1, expected_1 = before
    lessons_2, clicks_2, expected_2 = after
    misses_1, misses_2 = lessons_1 - clicks_1, lessons_2 - clicks_2
    of_rate = _compare(clicks_1, lessons_1, clicks_2, lessons_2)
    of_rate += _compare(misses_1, lessons_1, misses_2, lessons_2)
    is_count = (expected_1 > 0.0) & (expected_1 < lessons_1)
    is_count &= (expected_2 > 0.0) & (expected_2 < lessons_2)
    expected_1 = np.where(is_count, expected_1, 0.5 * lessons_1)  # any share of n gives Λ(n·r)
    expected_2 = np.where(is_count, expected_2, 0.5 * lessons_2)
    of_predictions = _compare(clicks_1, expected_1, clicks_2, expected_2)
    of_predictions += _compare(misses_1, lessons_1 - expected_1, misses_2, lessons_2 - expected_2)
    has_risen = clicks_2 * lessons_1 > clicks_1 * lessons_2
    exceeds_predictions = clicks_2 * expected_1 > clicks_1 * expected_2
    return RateEvidence(of_rate, np.where(has_risen == exceeds_predictions, of_predictions, 0.0))


def _compare(counts_1: Floats, expected_1: Floats, counts_2: Floats, expected_2: Floats) -> Floats:
    """Compute L, how badly one factor for both parts explains the counts."""
    parts = _weigh(counts_1, expected_1) + _weigh(counts_2, expected_2)
    return parts - _weigh(counts_1 + counts_2, expected_1 + expected_2)


def _weigh(counts: Floats, expected: Floats) -> Floats:
    """Compute O log(O/E), which is 0 if O is 0."""
    return counts * np.log(np.where(counts > 0.0, counts / expected, 1.0))


def _list_lengths() -> list[int]:
    """List the lengths of the second part, in blocks: a geometric grid."""
    lengths = [MIN_BLOCKS_AFTER]
    while lengths[-1] < WINDOW_BLOCKS - MIN_BLOCKS_BEFORE:
        lengths.append(max(lengths[-1] + 1, round(lengths[-1] * GRID_RATIO)))
    return [length for length in lengths if length <= WINDOW_BLOCKS - MIN_BLOCKS_BEFORE]


LENGTHS = _list_lengths()


class ClickAlarm:
    """Takes in the outcomes of lessons and raises an alarm if the share of clicks changes."""

    def __init__(self) -> None:
        self._block = Outcomes()  # not yet full
        self._totals = [Outcomes()]  # since the start or the last alarm, after each recent block

    @property
    def is_calibrated(self) -> bool:
        """Whether enough clicks are known to find a change."""
        return len(self._totals) > MIN_BLOCKS_BEFORE + MIN_BLOCKS_AFTER

    def update(self, outcomes: Outcomes, at: int) -> RateChange | None:
        """Take in the outcomes of the next decisions; returns a change that they have revealed.

        The outcomes come in the order of the decisions; `at` is the time of the newest one.
        """
        self._block = self._block.merge(outcomes)
        total = self._totals[-1].merge(self._block)
        if self._block.lessons < _count_lessons_per_block(total):
            return None
        self._block = Outcomes()
        self._totals.append(total)
        del self._totals[: -WINDOW_BLOCKS - 1]
        change = self._find_change(at)
        if change is not None:
            self._totals = [Outcomes()]
        return change

    def _find_change(self, at: int) -> RateChange | None:
        longest = len(self._totals) - 1 - MIN_BLOCKS_BEFORE
        splits = [self._totals[-1 - length] for length in LENGTHS if length <= longest]
        if not splits:
            return None
        sums = np.array(splits, np.float64).T  # (3, places)
        before = sums - np.array(self._totals[0])[:, None]
        after = np.array(self._totals[-1])[:, None] - sums
        evidence = measure_evidence(before, after)
        is_change = evidence.is_change
        if not is_change.any():
            return None
        place = int(np.argmax(np.where(is_change, evidence.of_rate, 0.0)))
        rates_before, rates_after = before[1] / before[0], after[1] / after[0]
        return RateChange(at, float(rates_before[place]), float(rates_after[place]))


def _count_lessons_per_block(total: Outcomes) -> int:
    """Count n with n r (1 − r) = 5, for the share r of clicks in all lessons and in two more.

    The two are a click and a miss, so that r is neither 0 nor 1.
    """
    rate = (total.clicks + 1.0) / (total.lessons + 2.0)
    return ceil(BLOCK_VARIANCE / (rate * (1.0 - rate)))
