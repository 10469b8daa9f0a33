"""Statistics of a loop's log: pure functions of columns with one entry per decision or lesson.

The value of another policy is estimated from the rewards of the chosen actions. Each reward y has
the weight w = π(a)/p(a), with the probability p(a) of the action a when it was chosen and its
probability π(a) under the other policy:

    V̂ = Σwy / Σw,   with the standard error   e = √(n/(n−1) · Σw²(y − V̂)²) / Σw

over the n weights above 0. With few or equal rewards e is too small. Therefore two pseudo-rewards
are added to the error, one at each end of the range [l, h] of all rewards: the error becomes
√(e² + ((V̂ − l)² + (h − V̂)²)/m²), at most (h − l)/2, with the effective size m = (Σw)²/Σw².
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.monitoring.click_alarm import RateChange
from windvane.types import Floats

Integers = npt.NDArray[np.int64]
Parameter = npt.NDArray[np.float32]  # θ̂, (d,)
NAN = float("nan")
MAX_BINS = 60  # and one more if the first bin begins before the first entry
MIN_BINS = 6
DECISIONS_PER_BIN = 10  # on average, or more
NAMED_ACTIONS = 8  # the most chosen ones; all others are counted together
BAND_STANDARD_ERRORS = 2.0
SMOOTHING_BINS = 2  # on either side, from which rare weights are collected
_STEPS = (1, 2, 5, 10, 15, 30)
BIN_WIDTHS_US = (
    *(100_000, 200_000, 500_000),
    *(seconds * MICROSECONDS_PER_SECOND for seconds in _STEPS),
    *(minutes * 60 * MICROSECONDS_PER_SECOND for minutes in _STEPS),
    *(hours * 3600 * MICROSECONDS_PER_SECOND for hours in (1, 2, 3, 6, 12)),
    *(days * 86_400 * MICROSECONDS_PER_SECOND for days in (1, 2, 7, 14, 28, 91, 365)),
)


class DecisionArrays(NamedTuple):
    """Decisions as columns, (n,) each."""

    at: Integers  # microseconds since 1970
    reward: Floats  # NaN if the decision has no reward yet
    baseline: Floats  # weights of "always the first action"; NaN if the log has no estimate
    uniform: Floats  # weights of "a random action"; NaN if the log has no estimate
    action: Integers  # number of the chosen action
    explored: npt.NDArray[np.bool_]  # whether another action was more probable

    def select_since(self, time: int) -> "DecisionArrays":
        """Select the decisions made at a time or later."""
        selected = self.at >= time
        return DecisionArrays(
            self.at[selected],
            self.reward[selected],
            self.baseline[selected],
            self.uniform[selected],
            self.action[selected],
            self.explored[selected],
        )


class LessonArrays(NamedTuple):
    """Lessons as columns, (m,) each, and the path of the estimate."""

    at: Integers  # microseconds since 1970
    error: Floats  # y − xᵀθ̂ before the lesson; NaN if unknown
    alarms: Integers  # times at which an alarm was raised
    rate_changes: Sequence[RateChange]
    path_at: Integers  # (k,), increasing
    path: Sequence[Parameter]  # the estimate from each of these times on

    def select_since(self, time: int) -> "LessonArrays":
        """Select the lessons learned at a time or later, and the estimate they started from."""
        selected = self.at >= time
        first = max(int(np.searchsorted(self.path_at, time)) - 1, 0)
        return LessonArrays(
            self.at[selected],
            self.error[selected],
            self.alarms[self.alarms >= time],
            [change for change in self.rate_changes if change.at >= time],
            self.path_at[first:],
            self.path[first:],
        )


class Estimate(msgspec.Struct, frozen=True):
    """The mean reward of a policy: `value` is Σwy / Σw with a standard error, `plain` Σwy / n."""

    value: float
    error: float
    plain: float
    count: int


class Gain(msgspec.Struct, frozen=True):
    """How much more a decision earned than under another policy, with a standard error."""

    value: float
    error: float


class Series(msgspec.Struct, frozen=True):
    """A value and a standard error for each bin; NaN if the bin has none."""

    value: list[float]
    error: list[float]


class ActionShare(msgspec.Struct, frozen=True):
    """How often an action was chosen: the count, and the share of each bin."""

    name: str | None  # None: all actions without a share of their own
    total: int
    value: list[float]


class Bins(NamedTuple):
    """Time spans of equal width; `start` is a multiple of the width, in microseconds."""

    start: int
    width: int
    size: int

    def find(self, times: Integers) -> Integers:
        """Find the bin of each time; times outside belong to the first or the last bin."""
        return np.clip((times - self.start) // self.width, 0, self.size - 1)

    def list_starts(self) -> list[int]:
        """List the times at which the bins start."""
        return [self.start + k * self.width for k in range(self.size)]


def choose_bins(since: int, until: int, count: int) -> Bins:
    """Choose at most 61 bins of a round width that contain [since, until]; few for few entries."""
    span = max(until - since, 0)
    size = min(max(count // DECISIONS_PER_BIN, MIN_BINS), MAX_BINS)
    width = next((width for width in BIN_WIDTHS_US if span <= size * width), span // size + 1)
    start = since // width * width
    return Bins(start, width, (until - start) // width + 1)


class RewardRange(NamedTuple):
    """The range [low, high] of rewards."""

    low: float
    high: float


def find_range(rewards: Floats) -> RewardRange:
    """Find the range of the known rewards; if they are all equal, the range includes 0 and 1."""
    known = rewards[~np.isnan(rewards)]
    if not len(known):
        return RewardRange(0.0, 1.0)
    low, high = float(known.min()), float(known.max())
    return RewardRange(low, high) if low < high else RewardRange(min(low, 0.0), max(high, 1.0))


def compute_effective_size(weights: Floats) -> float:
    """Compute the number of equal weights with the same variance, m = (Σw)² / Σw²."""
    return float(weights.sum() ** 2 / np.sum(weights**2))


def widen_error(error: float, value: float, range_: RewardRange, weight: float) -> float:
    """Add to a standard error two pseudo-rewards at the ends of the range, of this weight each."""
    pseudo = weight**2 * ((value - range_.low) ** 2 + (range_.high - value) ** 2)
    widest = (range_.high - range_.low) / BAND_STANDARD_ERRORS
    return min(float(np.sqrt(error**2 + pseudo)), widest)


def estimate_value(rewards: Floats, weights: Floats, range_: RewardRange | None = None) -> Estimate:
    """Estimate the mean reward of a policy, V̂ = Σwy / Σw, from known rewards and weights."""
    total, count = float(weights.sum()), len(rewards)
    if total == 0.0:
        return Estimate(NAN, NAN, NAN, count)
    value = float(weights @ rewards) / total
    used = int(np.count_nonzero(weights))
    spread = float(np.sum((weights * (rewards - value)) ** 2))
    error = (used / max(used - 1, 1) * spread) ** 0.5 / total
    pseudo_weight = 1.0 / compute_effective_size(weights)
    error = widen_error(error, value, range_ or find_range(rewards), pseudo_weight)
    return Estimate(value, error, float(weights @ rewards) / count, count)


def estimate_gain(rewards: Floats, weights: Floats) -> Gain:
    """Estimate the gain ȳ − V̂ over another policy.

    Its error is that of the mean of (y − ȳ) − w(y − V̂)/w̄, because both terms share the same
    rewards. They share the pseudo-rewards too, which therefore count 1/m − 1/n.
    """
    other = estimate_value(rewards, weights)
    if len(rewards) < 2 or np.isnan(other.value):
        return Gain(NAN, NAN)
    mean = float(rewards.mean())
    terms = (rewards - mean) - weights * (rewards - other.value) / weights.mean()
    error = float(np.sqrt(np.sum(terms**2) / (len(terms) * (len(terms) - 1))))
    pseudo_weight = max(1.0 / compute_effective_size(weights) - 1.0 / len(rewards), 0.0)
    widened = widen_error(error, other.value, find_range(rewards), pseudo_weight)
    return Gain(mean - other.value, widened)


def select_known(rewards: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Select the entries whose reward and weight are both known."""
    known = ~(np.isnan(rewards) | np.isnan(weights))
    return rewards[known], weights[known]


def estimate_per_bin(
    bins: Bins, decisions: DecisionArrays, weights: Floats, smoothing: int = 0
) -> Series:
    """Estimate the value in each bin with decisions, from it and `smoothing` bins on each side."""
    known = ~(np.isnan(decisions.reward) | np.isnan(weights))
    places = bins.find(decisions.at[known])
    rewards, weights = decisions.reward[known], weights[known]
    range_ = find_range(decisions.reward)
    distance = np.abs(places - np.arange(bins.size)[:, None])  # (bins, n)
    has_decisions = (distance == 0).any(1, keepdims=True)
    used = np.where(has_decisions, distance <= smoothing, False)
    values = [estimate_value(rewards[row], weights[row], range_) for row in used]
    return Series([each.value for each in values], [each.error for each in values])


def compute_prediction_errors(bins: Bins, lessons: LessonArrays) -> Series:
    """Compute the root mean square prediction error of each bin, √m ± (√(m + 2e) − √m)."""
    known = ~np.isnan(lessons.error)
    places, squares = bins.find(lessons.at[known]), lessons.error[known] ** 2
    range_ = find_range(squares)
    by_bin = [squares[places == k] for k in range(bins.size)]
    means = [estimate_value(group, np.ones(len(group)), range_) for group in by_bin]
    roots = [mean.value**0.5 for mean in means]
    upper = [(mean.value + BAND_STANDARD_ERRORS * mean.error) ** 0.5 for mean in means]
    errors = [(high - root) / BAND_STANDARD_ERRORS for high, root in zip(upper, roots, strict=True)]
    return Series(roots, errors)


def find_alarm_bins(bins: Bins, lessons: LessonArrays) -> list[int]:
    """Find the bins in which an alarm was raised because of prediction errors."""
    return [int(k) for k in np.unique(bins.find(lessons.alarms))]


def find_rate_change_bins(bins: Bins, lessons: LessonArrays) -> list[int]:
    """Find the bins in which an alarm was raised because of the share of clicks."""
    times = np.array([change.at for change in lessons.rate_changes], np.int64)
    return [int(k) for k in np.unique(bins.find(times))]


def compute_movement(bins: Bins, lessons: LessonArrays) -> list[float]:
    """Compute how far θ̂ moved in each bin, ‖θ̂ at its end − θ̂ at its start‖.

    A bin that starts before the first known estimate starts from that one, and is NaN if it also
    ends before it.
    """
    edges = bins.start + bins.width * np.arange(bins.size + 1)
    last = np.searchsorted(lessons.path_at, edges) - 1  # -1: before the first known estimate
    return [
        compute_distance(lessons.path[max(start, 0)], lessons.path[end]) if end >= 0 else NAN
        for start, end in pairwise(last)
    ]


def compute_distance(start: Parameter, end: Parameter) -> float:
    """Compute the Euclidean distance between two estimates."""
    return float(np.linalg.norm(end - start))


def count_shares(bins: Bins, decisions: DecisionArrays, names: Sequence[str]) -> list[ActionShare]:
    """Count how often the most chosen actions were chosen, and all other actions together."""
    places = bins.find(decisions.at)
    per_bin = np.bincount(places, minlength=bins.size)
    totals = np.bincount(decisions.action, minlength=len(names))
    order = [int(k) for k in np.argsort(-totals, kind="stable") if totals[k] > 0]

    def count(name: str | None, actions: list[int]) -> ActionShare:
        selected = np.isin(decisions.action, actions)
        shares = np.bincount(places[selected], minlength=bins.size) / np.maximum(per_bin, 1)
        return ActionShare(name, int(selected.sum()), np.where(per_bin == 0, NAN, shares).tolist())

    shares = [count(names[k], [k]) for k in order[:NAMED_ACTIONS]]
    others = order[NAMED_ACTIONS:]
    return [*shares, count(None, others)] if others else shares


def compute_waiting_shares(
    bins: Bins, decisions: DecisionArrays, waiting_since: int
) -> list[float]:
    """Compute the share of each bin that still waits for a reward.

    A decision waits if it has no reward and was made at `waiting_since` or later.
    """
    places = bins.find(decisions.at)
    counts = np.bincount(places, minlength=bins.size)
    waiting = np.isnan(decisions.reward) & (decisions.at >= waiting_since)
    waits = np.bincount(places[waiting], minlength=bins.size)
    return [float(w / count) if count else 0.0 for w, count in zip(waits, counts, strict=True)]
