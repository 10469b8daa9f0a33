"""What a log says about its loop: pure computation on columns, one entry a decision or a lesson.

What another policy would have earned is estimated from the rewards of the actions that were chosen,
each weighted by w = π(a)/p(a), where p is the chance it had and π that under the other policy:
V̂ = Σwy / Σw, with the standard error e = √(n/(n−1) · Σw²(y − V̂)²) / Σw over the n weights above 0.

Of few or equal rewards e is too small, so two more are thought to be there unseen, one at each end
[l, h] of all rewards: e² + ((V̂ − l)² + (h − V̂)²)/m², with m = (Σw)²/Σw², and 2e at most h − l.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.types import Floats

Whole = npt.NDArray[np.int64]
NAN = float("nan")
BINS = 60  # at most, and one more where they begin before the first entry
FEWEST = 6  # bins, however little there is to fill them
FILL = 10  # decisions that a bin has on average, or more
SECONDS = (1, 2, 5, 10, 15, 30)
WIDTHS = (  # microseconds
    *(100_000, 200_000, 500_000),
    *(s * MICROSECONDS_PER_SECOND for s in SECONDS),
    *(s * 60 * MICROSECONDS_PER_SECOND for s in SECONDS),
    *(h * 3600 * MICROSECONDS_PER_SECOND for h in (1, 2, 3, 6, 12)),
    *(d * 86_400 * MICROSECONDS_PER_SECOND for d in (1, 2, 7, 14, 28, 91, 365)),
)
TOP = 8  # actions that are told apart
SURE = 2.0  # standard errors
REACH = 2  # bins to either side in which weights that are rare are gathered


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
    alarms: Whole  # when predictions had become worse than usual
    path_at: Whole  # (k,), in order
    path: Sequence[npt.NDArray[np.float32]]  # θ̂ from these times on, (d,) each

    def since(self, at: int) -> "Learned":
        """Those learned at a time or later, and the estimate that they started from."""
        held = self.at >= at
        first = max(int(np.searchsorted(self.path_at, at)) - 1, 0)
        return Learned(
            self.at[held],
            self.error[held],
            self.alarms[self.alarms >= at],
            self.path_at[first:],
            self.path[first:],
        )


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


def bins(since: int, until: int, count: int) -> Bins:
    """At most 61 bins of a round width that hold all times in [since, until], fewer for a few."""
    span, most = max(until - since, 0), min(max(count // FILL, FEWEST), BINS)
    width = next((w for w in WIDTHS if span <= most * w), span // most + 1)
    start = since // width * width
    return Bins(start, width, (until - start) // width + 1)


class Ends(NamedTuple):
    """The least and the most that a reward was."""

    low: float
    high: float


def ends(rewards: Floats) -> Ends:
    """Those of the rewards that are known; where they do not differ, 0 and 1 are possible too."""
    seen = rewards[~np.isnan(rewards)]
    low, high = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 1.0)
    return Ends(low, high) if low < high else Ends(min(low, 0.0), max(high, 1.0))


def effective(weights: Floats) -> float:
    """How many equal weights are worth as much, m = (Σw)² / Σw²."""
    return float(weights.sum() ** 2 / np.sum(weights**2))


def honest(error: float, value: float, within: Ends, part: float) -> float:
    """A standard error that admits two unseen rewards, each being this part of all."""
    unseen = part**2 * ((value - within.low) ** 2 + (within.high - value) ** 2)
    return min(float(np.sqrt(error**2 + unseen)), (within.high - within.low) / SURE)


def estimate(rewards: Floats, weights: Floats, within: Ends | None = None) -> Estimate:
    """What a policy earns a decision, V̂ = Σwy / Σw; rewards and weights must be known."""
    total, count = float(weights.sum()), len(rewards)
    if total == 0.0:
        return Estimate(NAN, NAN, NAN, count)
    value = float(weights @ rewards) / total
    used = int(np.count_nonzero(weights))
    spread = float(np.sum((weights * (rewards - value)) ** 2))
    error = (used / max(used - 1, 1) * spread) ** 0.5 / total
    error = honest(error, value, within or ends(rewards), 1.0 / effective(weights))
    return Estimate(value, error, float(weights @ rewards) / count, count)


def gain(rewards: Floats, weights: Floats) -> Gain:
    """ȳ − V̂, whose error is that of the mean of (y − ȳ) − w(y − V̂)/w̄: both see the same luck.

    Where all weights are equal they also miss the same, so what is unseen counts 1/m − 1/n.
    """
    other = estimate(rewards, weights)
    if len(rewards) < 2 or np.isnan(other.value):
        return Gain(NAN, NAN)
    mean = float(rewards.mean())
    part = (rewards - mean) - weights * (rewards - other.value) / weights.mean()
    error = float(np.sqrt(np.sum(part**2) / (len(part) * (len(part) - 1))))
    unseen = max(1.0 / effective(weights) - 1.0 / len(rewards), 0.0)
    return Gain(mean - other.value, honest(error, other.value, ends(rewards), unseen))


def known(rewards: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Those entries whose reward and weight are both known."""
    held = ~(np.isnan(rewards) | np.isnan(weights))
    return rewards[held], weights[held]


def over_time(in_bins: Bins, decided: Decided, weights: Floats, reach: int = 0) -> Series:
    """The estimate in each bin that is not empty, from it and those that it reaches."""
    held = ~(np.isnan(decided.reward) | np.isnan(weights))
    places = in_bins.places(decided.at[held])
    rewards, weights, within = decided.reward[held], weights[held], ends(decided.reward)
    apart = np.abs(places - np.arange(in_bins.size)[:, None])  # (bins, n)
    near = np.where((apart == 0).any(1, keepdims=True), apart <= reach, False)
    found = [estimate(rewards[each], weights[each], within) for each in near]
    return Series([each.value for each in found], [each.error for each in found])


def errors(in_bins: Bins, learned: Learned) -> Series:
    """The root of the mean squared error of prediction in each bin, √m ± (√(m + 2e) − √m)."""
    held = ~np.isnan(learned.error)
    places, squares = in_bins.places(learned.at[held]), learned.error[held] ** 2
    within = ends(squares)
    found = [
        estimate(theirs, np.ones(len(theirs)), within)
        for theirs in (squares[places == k] for k in range(in_bins.size))
    ]
    roots = [each.value**0.5 for each in found]
    above = [(each.value + SURE * each.error) ** 0.5 for each in found]
    return Series(roots, [(a - root) / SURE for a, root in zip(above, roots, strict=True)])


def alarms(in_bins: Bins, learned: Learned) -> list[int]:
    """The bins in which an alarm was raised."""
    return [int(k) for k in np.unique(in_bins.places(learned.alarms))]


def movement(in_bins: Bins, learned: Learned) -> list[float]:
    """How far θ̂ has come in each bin, ‖θ̂ at its end − θ̂ at its start, or the first known‖."""
    edges = in_bins.start + in_bins.width * np.arange(in_bins.size + 1)
    last = np.searchsorted(learned.path_at, edges) - 1  # -1: not known yet
    return [
        moved(learned.path[max(here, 0)], learned.path[there]) if there >= 0 else NAN
        for here, there in pairwise(last)
    ]


def moved(here: npt.NDArray[np.float32], there: npt.NDArray[np.float32]) -> float:
    """The distance of two estimates."""
    return float(np.linalg.norm(there - here))


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


def waiting(in_bins: Bins, decided: Decided, open_since: int) -> list[float]:
    """Which share of each bin can still get its reward: those made since a time, without one."""
    places = in_bins.places(decided.at)
    all_ = np.bincount(places, minlength=in_bins.size)
    open_ = np.isnan(decided.reward) & (decided.at >= open_since)
    waits = np.bincount(places[open_], minlength=in_bins.size)
    return [float(w / a) if a else 0.0 for w, a in zip(waits, all_, strict=True)]
