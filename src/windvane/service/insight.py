"""What a log says about its loop: pure computation on columns, one entry a decision or a lesson.

What another policy would have earned is estimated from the rewards of the actions that were chosen,
each weighted by w = π(a)/p(a), where p is the chance it had and π that under the other policy:
V̂ = Σwy / Σw, with the standard error √(n/(n−1) · Σw²(y − V̂)²) / Σw over the n weights above 0.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from windvane.arrays import Floats

Whole = npt.NDArray[np.int64]
NAN = float("nan")
MICRO = 1_000_000
BINS = 60  # at most, and one more where they begin before the first entry
SECONDS = (1, 2, 5, 10, 15, 30)
WIDTHS = (  # microseconds
    *(100_000, 200_000, 500_000),
    *(s * MICRO for s in SECONDS),
    *(s * 60 * MICRO for s in SECONDS),
    *(h * 3600 * MICRO for h in (1, 2, 3, 6, 12)),
    *(d * 86_400 * MICRO for d in (1, 2, 7, 14, 28, 91, 365)),
)
LEAST = 5  # lessons in a bin whose error is judged
BEFORE = 8  # bins from which the usual error is known
SLACK, ALARM, CAP = 0.5, 5.0, 4.0  # of the CUSUM, in standard errors
TOP = 8  # actions that are told apart
SURE = 2.0  # standard errors


class Decided(NamedTuple):
    """Decisions, (n,) each."""

    at: Whole  # microseconds
    reward: Floats  # NaN while it waits
    baseline: Floats  # weights of always the first action; NaN where the log cannot tell
    uniform: Floats  # weights of any action at all
    action: Whole  # which one, as a number
    explored: npt.NDArray[np.bool_]  # not the likeliest one

    def since(self, at: int) -> "Decided":
        """Those made at a time or later."""
        held = self.at >= at
        return Decided(
            self.at[held],
            self.reward[held],
            self.baseline[held],
            self.uniform[held],
            self.action[held],
            self.explored[held],
        )


class Learned(NamedTuple):
    """Lessons, (m,) each, and the estimates between them."""

    at: Whole  # microseconds
    error: Floats  # y − xᵀθ̂ before it was learned; NaN where it is not known
    path_at: Whole  # (k,)
    path: Floats  # θ̂ at these times, (k, d)

    def since(self, at: int) -> "Learned":
        """Those learned at a time or later."""
        held, after = self.at >= at, self.path_at >= at
        return Learned(self.at[held], self.error[held], self.path_at[after], self.path[after])


class Estimate(msgspec.Struct, frozen=True):
    """A mean with its standard error: `value` by normalised weights, `plain` by Σwy / n."""

    value: float
    error: float
    plain: float
    count: int


class Gain(msgspec.Struct, frozen=True):
    """How much more a decision earned than it would have under another policy."""

    value: float
    error: float


class Series(msgspec.Struct, frozen=True):
    """A number for each bin, NaN where there is none."""

    value: list[float]
    error: list[float]


class Share(msgspec.Struct, frozen=True):
    """How often an action was chosen: in all, and in each bin as a share of it."""

    name: str | None  # None: all others
    total: int
    value: list[float]


class Bins(NamedTuple):
    """Spans of equal width; the first starts at `start`, a multiple of the width."""

    start: int
    width: int
    size: int

    def places(self, at: Whole) -> Whole:
        """The bin of each time; one outside falls to the first or the last."""
        return np.clip((at - self.start) // self.width, 0, self.size - 1)

    def starts(self) -> list[int]:
        """When each begins."""
        return [self.start + k * self.width for k in range(self.size)]


def bins(since: int, until: int) -> Bins:
    """At most 61 bins of a round width that hold all times in [since, until]."""
    span = max(until - since, 0)
    width = next((w for w in WIDTHS if span <= BINS * w), span // BINS + 1)
    start = since // width * width
    return Bins(start, width, (until - start) // width + 1)


def estimate(rewards: Floats, weights: Floats) -> Estimate:
    """What a policy earns a decision, V̂ = Σwy / Σw; rewards and weights must be known."""
    total, count = float(weights.sum()), len(rewards)
    if total == 0.0:
        return Estimate(NAN, NAN, NAN, count)
    value = float(weights @ rewards) / total
    used = int(np.count_nonzero(weights))
    error = NAN
    if used > 1:
        spread = float(np.sum((weights * (rewards - value)) ** 2))
        error = (used / (used - 1) * spread) ** 0.5 / total
    return Estimate(value, error, float(weights @ rewards) / count, count)


def gain(rewards: Floats, weights: Floats) -> Gain:
    """ȳ − V̂, whose error is that of the mean of (y − ȳ) − w(y − V̂)/w̄: both see the same luck."""
    other = estimate(rewards, weights)
    if len(rewards) < 2 or np.isnan(other.value):
        return Gain(NAN, NAN)
    mean = float(rewards.mean())
    part = (rewards - mean) - weights * (rewards - other.value) / weights.mean()
    error = float(np.sqrt(np.sum(part**2) / (len(part) * (len(part) - 1))))
    return Gain(mean - other.value, error)


def known(rewards: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Those entries whose reward and weight are both known."""
    held = ~(np.isnan(rewards) | np.isnan(weights))
    return rewards[held], weights[held]


def over_time(in_bins: Bins, decided: Decided, weights: Floats) -> Series:
    """The estimate in each bin."""
    held = ~(np.isnan(decided.reward) | np.isnan(weights))
    places = in_bins.places(decided.at[held])
    rewards, weights = decided.reward[held], weights[held]
    found = [estimate(rewards[places == k], weights[places == k]) for k in range(in_bins.size)]
    return Series([each.value for each in found], [each.error for each in found])


def squared_errors(in_bins: Bins, learned: Learned) -> tuple[Whole, Floats, Floats]:
    """Of each bin: how many lessons, and the mean and the variance of their squared errors."""
    held = ~np.isnan(learned.error)
    places = in_bins.places(learned.at[held])
    squares = learned.error[held] ** 2
    counts = np.bincount(places, minlength=in_bins.size)
    size = np.maximum(counts, 1)
    means = np.bincount(places, squares, in_bins.size) / size
    variances = np.bincount(places, (squares - means[places]) ** 2, in_bins.size) / size
    return counts.astype(np.int64), means, variances


def errors(in_bins: Bins, learned: Learned) -> Series:
    """The root of the mean squared error of prediction in each bin, √m ± √(v/n) / 2√m."""
    counts, means, variances = squared_errors(in_bins, learned)
    roots = np.sqrt(means)
    noise = np.sqrt(variances / np.maximum(counts, 1)) / (2.0 * np.maximum(roots, 1e-12))
    return Series(
        np.where(counts > 0, roots, NAN).tolist(), np.where(counts > 1, noise, NAN).tolist()
    )


def alarms(in_bins: Bins, learned: Learned) -> list[int]:
    """The bins in which the squared error of prediction has left its usual size, upwards.

    C ← max(0, C + min(z, 4) − ½), where z is how far the mean of a bin lies above that of the bins
    since the last alarm, in standard errors; where C > 5, an alarm is raised, and all starts anew.
    """
    raised = []
    before: list[tuple[int, float, float]] = []
    sum_ = 0.0
    for k, (count, mean, variance) in enumerate(
        zip(*squared_errors(in_bins, learned), strict=True)
    ):
        if count < LEAST:
            continue
        if len(before) >= BEFORE:
            sizes, means, variances = (np.array(column) for column in zip(*before, strict=True))
            total = float(sizes.sum())
            usual = float(sizes @ means) / total
            spread = float(sizes @ (variances + (means - usual) ** 2)) / total
            deviation = (spread / count + spread / total) ** 0.5
            z = (mean - usual) / max(deviation, 1e-12)
            sum_ = max(0.0, sum_ + min(z, CAP) - SLACK)
            if sum_ > ALARM:
                raised.append(k)
                before, sum_ = [], 0.0
        if sum_ < ALARM / 2:  # what is already suspect is no measure of the usual
            before.append((int(count), float(mean), float(variance)))
    return raised


def movement(in_bins: Bins, learned: Learned) -> list[float]:
    """How far θ̂ has come in each bin, ‖θ̂ at its end − θ̂ at its start‖."""
    if not len(learned.path_at):
        return [NAN] * in_bins.size
    ends = np.array(in_bins.starts()) + in_bins.width
    last = np.searchsorted(learned.path_at, ends) - 1  # -1: not yet
    found = [NAN]
    for here, there in pairwise(last):
        moved = np.linalg.norm(learned.path[there] - learned.path[here])
        found.append(float(moved) if here >= 0 and there > here else NAN)
    return found


def shares(in_bins: Bins, decided: Decided, names: Sequence[str]) -> list[Share]:
    """The actions that were chosen most, and all others as one."""
    places = in_bins.places(decided.at)
    totals = np.bincount(decided.action, minlength=len(names))
    all_ = np.maximum(np.bincount(places, minlength=in_bins.size), 1)
    empty = np.bincount(places, minlength=in_bins.size) == 0
    order = [int(k) for k in np.argsort(-totals, kind="stable") if totals[k] > 0]

    def share(name: str | None, theirs: list[int]) -> Share:
        held = np.isin(decided.action, theirs)
        part = np.bincount(places[held], minlength=in_bins.size) / all_
        return Share(name, int(held.sum()), np.where(empty, NAN, part).tolist())

    found = [share(names[k], [k]) for k in order[:TOP]]
    return [*found, share(None, order[TOP:])] if order[TOP:] else found


def waiting(in_bins: Bins, decided: Decided) -> list[float]:
    """Which share of each bin still waits for its reward."""
    places = in_bins.places(decided.at)
    all_ = np.bincount(places, minlength=in_bins.size)
    waits = np.bincount(places[np.isnan(decided.reward)], minlength=in_bins.size)
    return [float(w / a) if a else 0.0 for w, a in zip(waits, all_, strict=True)]
