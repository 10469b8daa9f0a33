"""Statistics of a loop's log: pure functions of columns with one entry per decision or lesson.

The value of another policy is estimated by SNIPS, and the gain over it by the difference from the
mean reward: both with the standard error e of `evaluation.estimates.estimators`. With few or equal
rewards e is too small. Therefore two pseudo-rewards are added to the error, one at each end of the
range [l, h] of all rewards: the error becomes √(e² + ((V̂ − l)² + (h − V̂)²)/m²), at most
(h − l)/2, with the effective size m = (Σw)²/Σw² of the weights w.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import hypot, isnan, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from windvane.evaluation.estimates import estimators
from windvane.evaluation.estimates.estimators import (
    SNIPS,
    UNIT_RANGE,
    RewardRange,
    Values,
    ValueSums,
)
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.monitoring.alarms import RateChange
from windvane.types import Floats

Integers = npt.NDArray[np.int64]
Parameter = npt.NDArray[np.float32]  # θ̂, (d,)
NAN = float("nan")
MAX_BINS = 60  # one more if the first bin begins before the first entry
MIN_BINS = 6
DECISIONS_PER_BIN = 10  # on average, or more
NAMED_ACTIONS = 8  # the most chosen ones; all others are counted together
BAND_STANDARD_ERRORS = 2.0
MISSED_SHARE = 0.05  # with which any interval of a table may miss
MOST_GROUPS = 20  # rows of a table; all others are one more
MIN_TREND_REWARDS = 10  # in each half of the time
SMOOTHING_BINS = 2  # bins on either side that are added if weights are rare
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

    def select(self, selected: npt.NDArray[np.bool_]) -> "DecisionArrays":
        columns: list[npt.NDArray[Any]] = [column[selected] for column in self]
        return DecisionArrays(*columns)


class LessonArrays(NamedTuple):
    """Lessons as columns, (m,) each, and the path of the estimate."""

    at: Integers  # microseconds since 1970
    error: Floats  # y − xᵀθ̂ before the lesson; NaN if unknown
    alarms: Integers  # times at which an alarm was raised
    rate_changes: Sequence[RateChange]
    path_at: Integers  # (k,), increasing
    path: Sequence[Parameter]  # the estimate from each of these times on

    def select_between(self, since: int, until: int) -> "LessonArrays":
        """Select the lessons of [since, until), and the estimate they started from."""
        selected = (self.at >= since) & (self.at < until)
        first = max(int(np.searchsorted(self.path_at, since)) - 1, 0)
        end = int(np.searchsorted(self.path_at, until))
        return LessonArrays(
            self.at[selected],
            self.error[selected],
            self.alarms[(self.alarms >= since) & (self.alarms < until)],
            [change for change in self.rate_changes if since <= change.at < until],
            self.path_at[first:end],
            self.path[first:end],
        )


class MeanReward(msgspec.Struct, frozen=True):
    """The mean reward of a policy: SNIPS with a standard error."""

    value: float
    error: float
    count: int


class Estimate(msgspec.Struct, frozen=True):
    """A value and the ends of its interval; NaN if unknown."""

    value: float = NAN
    low: float = NAN
    high: float = NAN


class RewardGain(msgspec.Struct, frozen=True):
    """How much more a decision earned than under another policy, with a standard error."""

    value: float
    error: float
    lift: Estimate = Estimate()  # as a share of what the other policy earns


class GroupSummary(msgspec.Struct, frozen=True):
    """The decisions of an action or a segment; the intervals hold for all groups together."""

    name: str | None  # None: all groups without a row of their own
    count: int
    rewarded: int  # how many of them have a reward
    reward: Estimate  # the mean
    trend: Estimate  # the mean in the second half of the time minus that in the first half
    gain: Estimate  # over always the first action


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

    def count_times(self, times: Integers) -> list[int]:
        counts: list[int] = np.bincount(self.find(times), minlength=self.size).tolist()
        return counts

    def list_used(self, times: Integers) -> list[int]:
        return [int(k) for k in np.unique(self.find(times))]

    def list_starts(self) -> list[int]:
        return [self.start + k * self.width for k in range(self.size)]


def choose_bins(since: int, until: int, count: int) -> Bins:
    """Choose at most 61 bins of a round width that contain [since, until]; few for few entries."""
    span = max(until - since, 0)
    size = min(max(count // DECISIONS_PER_BIN, MIN_BINS), MAX_BINS)
    width = next((width for width in BIN_WIDTHS_US if span <= size * width), span // size + 1)
    start = since // width * width
    return Bins(start, width, (until - start) // width + 1)


def find_range(rewards: Floats) -> RewardRange:
    """Find the range of the known rewards; if they are all equal, the range includes 0 and 1."""
    known = rewards[~np.isnan(rewards)]
    if not len(known):
        return UNIT_RANGE
    low, high = float(known.min()), float(known.max())
    return RewardRange(low, high) if low < high else RewardRange(min(low, 0.0), max(high, 1.0))


def widen_error(
    error: Floats | float, value: Floats | float, range_: RewardRange, weight: Floats | float
) -> Floats:
    """Add to a standard error two pseudo-rewards at the ends of the range, of this weight each."""
    pseudo = weight**2 * ((value - range_.low) ** 2 + (range_.high - value) ** 2)
    widened: Floats = np.minimum(np.sqrt(error**2 + pseudo), range_.width / BAND_STANDARD_ERRORS)
    return widened


def _estimate(sums: ValueSums, range_: RewardRange) -> Values:
    """Estimate the mean reward of each group; NaN if a group has no weight."""
    value, error = estimators.estimate_values(SNIPS, sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        widened = widen_error(
            np.where(sums.rows > 1, error, 0.0), value, range_, 1.0 / sums.effective_rows
        )
    return Values(value, np.where(np.isnan(value), NAN, widened))


def estimate_value(
    rewards: Floats, weights: Floats, range_: RewardRange | None = None
) -> MeanReward:
    """Estimate the mean reward of a policy from known rewards and weights."""
    sums = ValueSums.from_rows(rewards, weights)
    value, error = map(float, _estimate(sums, range_ or find_range(rewards)))
    return MeanReward(value, error, len(rewards))


def estimate_gain(rewards: Floats, weights: Floats) -> RewardGain:
    """Estimate the gain over another policy, the mean reward minus the value of that policy.

    Both share the pseudo-rewards, which therefore count 1/m − 1/n.
    """
    sums, range_ = ValueSums.from_rows(rewards, weights), find_range(rewards)
    other, other_error = map(float, _estimate(sums, range_))
    if len(rewards) < 2 or np.isnan(other):
        return RewardGain(NAN, NAN)
    loss, error = map(float, estimators.estimate_gain(sums, SNIPS))
    pseudo_weight = max(1.0 / float(sums.effective_rows) - 1.0 / len(rewards), 0.0)
    error = float(widen_error(error, other, range_, pseudo_weight))
    mean_error = estimate_value(rewards, np.ones(len(rewards)), range_).error
    lift = _estimate_lift(-loss, error, other, other_error, mean_error)
    return RewardGain(-loss, error, lift)


def _estimate_lift(
    gain: float, error: float, other: float, other_error: float, mean_error: float
) -> Estimate:
    """Estimate the ratio ρ of a gain g and the value V of the other policy, by Fieller's interval.

    It has all ρ with |g − ρV| ≤ 2 √(e² − 2ρc + ρ²f²), for the errors e of g and f of V and their
    covariance c, which follows from the error of the mean reward g + V. It is unknown if V may be
    0 or less: the interval would have no end.
    """
    covariance = (mean_error**2 - error**2 - other_error**2) / 2.0
    covariance = float(np.clip(covariance, -error * other_error, error * other_error))
    factor = BAND_STANDARD_ERRORS**2
    square = other**2 - factor * other_error**2
    if other <= 0.0 or square <= 0.0:
        return Estimate()
    middle = gain * other - factor * covariance
    root = sqrt(max(middle**2 - square * (gain**2 - factor * error**2), 0.0))
    return Estimate(gain / other, (middle - root) / square, (middle + root) / square)


def summarize_groups(
    decisions: DecisionArrays, groups: Integers, names: Sequence[str], has_gain: bool
) -> list[GroupSummary]:
    """Summarize the largest groups, and all others together; a group is the number of a name."""
    if not len(groups):
        return []
    counts = np.bincount(groups, minlength=len(names))
    order = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k] > 0]
    listed: list[tuple[str | None, list[int]]] = [(names[k], [k]) for k in order[:MOST_GROUPS]]
    if order[MOST_GROUPS:]:
        listed.append((None, order[MOST_GROUPS:]))
    factor = NormalDist().inv_cdf(1.0 - MISSED_SHARE / len(listed) / 2.0)
    middle = (int(decisions.at.min()) + int(decisions.at.max())) // 2
    range_ = find_range(decisions.reward)
    differences = RewardRange(-range_.width, range_.width)

    def summarize(name: str | None, members: list[int]) -> GroupSummary:
        group = decisions.select(np.isin(groups, members))
        mean, early, late = (
            estimate_value(*select_known(rewards, np.ones(len(rewards))), range_)
            for rewards in (
                group.reward,
                group.reward[group.at <= middle],
                group.reward[group.at > middle],
            )
        )
        has_trend = min(early.count, late.count) >= MIN_TREND_REWARDS
        change = late.value - early.value if has_trend else NAN
        gain = RewardGain(NAN, NAN)
        if has_gain:
            gain = estimate_gain(*select_known(group.reward, group.baseline))
        return GroupSummary(
            name,
            len(group.at),
            mean.count,
            _make_estimate(mean.value, factor * mean.error, range_),
            _make_estimate(change, factor * hypot(early.error, late.error), differences),
            _make_estimate(gain.value, factor * gain.error, differences),
        )

    return [summarize(*each) for each in listed]


def _make_estimate(value: float, half_width: float, limits: RewardRange) -> Estimate:
    """An estimate whose interval ends at the limits; unknown if the value or the width is."""
    if isnan(value) or isnan(half_width):
        return Estimate()
    ends = max(value - half_width, limits.low), min(value + half_width, limits.high)
    return Estimate(value, *ends)


def select_known(rewards: Floats, weights: Floats) -> tuple[Floats, Floats]:
    known = ~(np.isnan(rewards) | np.isnan(weights))
    return rewards[known], weights[known]


def estimate_per_bin(
    bins: Bins, decisions: DecisionArrays, weights: Floats, smoothing: int = 0
) -> Series:
    """Estimate the value in each bin with decisions, from it and `smoothing` bins on each side."""
    rewards, range_ = decisions.reward, find_range(decisions.reward)
    value, error = _estimate_bins(bins, decisions.at, rewards, weights, range_, smoothing)
    return Series(value.tolist(), error.tolist())


def compute_prediction_errors(bins: Bins, lessons: LessonArrays) -> Series:
    """Compute the root mean square prediction error of each bin, √m ± (√(m + 2e) − √m)."""
    squares = lessons.error**2
    mean, error = _estimate_bins(
        bins, lessons.at, squares, np.ones(len(squares)), find_range(squares)
    )
    roots, upper = np.sqrt(mean), np.sqrt(mean + BAND_STANDARD_ERRORS * error)
    return Series(roots.tolist(), ((upper - roots) / BAND_STANDARD_ERRORS).tolist())


def _estimate_bins(
    bins: Bins,
    at: Integers,
    rewards: Floats,
    weights: Floats,
    range_: RewardRange,
    smoothing: int = 0,
) -> Values:
    """Estimate the mean reward of each bin, (bins,); NaN in bins without known entries."""
    values, errors = np.full(bins.size, NAN), np.full(bins.size, NAN)
    known = np.flatnonzero(~(np.isnan(rewards) | np.isnan(weights)))
    if not len(known):
        return Values(values, errors)
    places = bins.find(at[known])
    order = np.argsort(places, kind="stable")
    known = known[order]
    used, starts = np.unique(places[order], return_index=True)
    sums = ValueSums.from_rows(rewards[known], weights[known], starts=starts)
    first = np.searchsorted(used, used - smoothing)
    sizes = np.searchsorted(used, used + smoothing, "right") - first
    ends = np.cumsum(sizes)
    near = np.arange(ends[-1]) + np.repeat(first - (ends - sizes), sizes)  # places of used bins
    values[used], errors[used] = _estimate(sums.add_groups(near, ends - sizes), range_)
    return Values(values, errors)


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
