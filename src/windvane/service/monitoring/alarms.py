"""Alarms: predictions became worse than usual, or the share of clicks changed unforeseen.

**The drift alarm** is a CUSUM of squared prediction errors, which are taken in groups. The
predictions are those of the belief with the longest memory: one that adapts within some lessons
would hide a change. After each group

    C ← max(0, C + min(z, 4) − ½),   z = (m − m₀) / √(v₀/n + v₀/n₀)

with the mean m of the group's n squared errors, and the mean m₀ and variance v₀ of the n₀ usual
ones. If C > 8.5, an alarm is raised and the usual errors are learned again. The usual errors are
those of all groups since the last alarm, except groups during which C was at least 4.25.

This is not the CUSUM of the memory `detect`. `detect` adds up single squared errors, scaled by a
given noise and by the uncertainty of the belief, and an alarm resets the belief. This alarm knows
no noise: it learns the usual error from the log, and it only reports.

**The click alarm** is for rewards that are 0 or 1. The recent past is split in two at a geometric
grid of places. Of each part j the alarm knows the number n of lessons, of clicks O (rewards that
are 1) and the sum E of the predictions. The evidence that the two parts differ is

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

**The click monitor** puts the rewards of a loop in the order of its decisions, for the click alarm.
A click becomes a lesson at once. A decision without a click becomes one only after its wait. In the
order of the lessons, every rise of the traffic would therefore look like a rise of the share of
clicks. The monitor counts lessons by decision, and passes them on to the alarm when no earlier
decision waits for its reward any more.

A second alarm counts only explored decisions, in which another action was more likely. It finds
that an action which is rarely chosen has become better or worse, which the many other decisions
hide from the first alarm. A change that the first alarm finds is no news to the second one, which
then starts again. Explored decisions count once, not with the weight 1/p: of a weighted count,
whose variance is unknown, the thresholds would not hold.

Rewards other than 0 and 1 are left out while they are rare: at
most one for every 100 clicks and for every 100 misses. If there are more, everything counted is
dropped and the alarm starts again, so that it never speaks about a loop with other rewards.
"""

from dataclasses import dataclass
from math import ceil, isnan, log, sqrt
from operator import add
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from windvane.types import Floats

GROUP_LESSONS = 10
CALIBRATION_LESSONS = 20 * GROUP_LESSONS  # lessons until the usual error is known
# In standard errors:
SLACK = 0.5
LARGEST_STEP = 4.0
THRESHOLD = 8.5


Sums = TypeVar("Sums", "SquaredErrors", "Outcomes")


def merge(sums: Sums, others: Sums) -> Sums:
    """Add the sums of others, field by field."""
    return type(sums)(*map(add, sums, others))


class SquaredErrors(NamedTuple):
    """Sums over squared prediction errors."""

    size: int = 0
    total: float = 0.0
    total_of_squares: float = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.size

    @property
    def variance(self) -> float:
        return max(self.total_of_squares / self.size - self.mean**2, 0.0)


class DriftAlarm:
    """Takes in prediction errors one by one and raises an alarm if they grow."""

    def __init__(self) -> None:
        self.usual = SquaredErrors()
        self.group = SquaredErrors()
        self.level = 0.0  # C

    @property
    def is_calibrated(self) -> bool:
        """Whether the usual error is known."""
        return self.usual.size >= CALIBRATION_LESSONS

    def update(self, error: float) -> bool:
        """Take in one prediction error; returns True if it raises an alarm. NaN is ignored."""
        if isnan(error):
            return False
        square = error * error
        self.group = merge(self.group, SquaredErrors(1, square, square * square))
        if self.group.size < GROUP_LESSONS:
            return False
        group = self.group
        self.group = SquaredErrors()
        if self.is_calibrated:
            step = min(self._compute_excess(group), LARGEST_STEP)
            self.level = max(0.0, self.level + step - SLACK)
        if self.level > THRESHOLD:
            self.usual = SquaredErrors()
            self.level = 0.0
            return True
        if self.level < THRESHOLD / 2:  # else the group may already belong to a changed world
            self.usual = merge(self.usual, group)
        return False

    def _compute_excess(self, group: SquaredErrors) -> float:
        """Compute z, by how many standard errors the mean of a group exceeds the usual mean."""
        usual = self.usual
        deviation = sqrt(usual.variance / group.size + usual.variance / usual.size)
        return (group.mean - usual.mean) / max(deviation, 1e-12)


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


class RateChange(NamedTuple):
    """An alarm: the share of clicks before and after a change, and when it was known."""

    at: int  # microseconds since 1970, of the newest decision that was counted
    before: float
    after: float
    count_before: int = 0  # lessons
    count_after: int = 0
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
        self._block = merge(self._block, outcomes)
        total = merge(self._totals[-1], self._block)
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
        return RateChange(
            at,
            float(rates_before[place]),
            float(rates_after[place]),
            int(before[0][place]),
            int(after[0][place]),
        )


def _count_lessons_per_block(total: Outcomes) -> int:
    """Count n with n r (1 − r) = 5, for the share r of clicks in all lessons and in two more.

    The two are a click and a miss, so that r is neither 0 nor 1.
    """
    rate = (total.clicks + 1.0) / (total.lessons + 2.0)
    return ceil(BLOCK_VARIANCE / (rate * (1.0 - rate)))


DECISIONS_PER_BUCKET = 32  # decision ids that are counted together
MIN_OUTCOMES_PER_OTHER_REWARD = 100
NOTHING = Outcomes()


@dataclass(slots=True)
class _Bucket:
    """The outcomes of decisions with ids close to each other."""

    outcomes: Outcomes = NOTHING
    explored: Outcomes = NOTHING  # of explored decisions alone
    ranked_at: int = 0  # microseconds since 1970, of the newest decision


class ClickMonitor:
    """Counts the lessons of a loop and tells the click alarm about them."""

    def __init__(self) -> None:
        self.alarm = ClickAlarm()
        self.explored_alarm = ClickAlarm()
        self._buckets: dict[int, _Bucket] = {}
        self._first_bucket = 0  # all earlier ones were passed on
        self._rewards = [0, 0]  # how many were 0 and 1, since the last other rewards
        self._other_rewards = 0

    def count(
        self,
        decision: int,
        ranked_at: int,
        reward: float,
        outcomes: Outcomes,
        is_explored: bool = False,
    ) -> None:
        """Count the outcomes of a lesson, after which a decision has this reward.

        What comes too late for the bucket of its decision is counted in the next one.
        """
        if self._is_click_or_miss(reward):
            number = max(decision // DECISIONS_PER_BUCKET, self._first_bucket)
            bucket = self._buckets.setdefault(number, _Bucket())
            bucket.ranked_at = max(bucket.ranked_at, ranked_at)
            bucket.outcomes = merge(bucket.outcomes, outcomes)
            if is_explored:
                bucket.explored = merge(bucket.explored, outcomes)

    def advance(self, first_waiting: int) -> list[RateChange]:
        """Pass on what is known of all decisions before one, the first that may still wait."""
        end = first_waiting // DECISIONS_PER_BUCKET
        changes = []
        for number in sorted(number for number in self._buckets if number < end):
            bucket = self._buckets.pop(number)
            change = self.alarm.update(bucket.outcomes, bucket.ranked_at)
            explored_change = self.explored_alarm.update(bucket.explored, bucket.ranked_at)
            if change is not None:
                changes.append(change)
                self.explored_alarm = ClickAlarm()
            elif explored_change is not None:
                changes.append(explored_change._replace(is_of_explored=True))
        self._first_bucket = max(self._first_bucket, end)
        return changes

    def _is_click_or_miss(self, reward: float) -> bool:
        """Whether a reward is 1 or 0; starts again if too many are neither."""
        if reward in (0.0, 1.0):
            self._rewards[int(reward)] += 1
            return True
        self._other_rewards += 1
        if self._other_rewards * MIN_OUTCOMES_PER_OTHER_REWARD > min(self._rewards):
            self.alarm, self.explored_alarm = ClickAlarm(), ClickAlarm()
            self._buckets.clear()
            self._rewards, self._other_rewards = [0, 0], 0
        return False
