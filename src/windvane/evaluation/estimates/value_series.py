"""The value of a policy over time: sums for each interval of 5 minutes or longer.

The intervals begin at multiples of their length since 1970, UTC. Only intervals with decisions are
kept. If there are more than MAX_INTERVALS of them, the intervals become longer: 60, 360, 720 and
1440 minutes, so that a log of any length needs little memory.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from windvane.errors import SettingError
from windvane.evaluation.estimates.estimators import (
    DR,
    IPS,
    ONE,
    SNIPS,
    WEIGHT,
    WEIGHTED_REWARD,
    ValueSums,
    estimate_values,
)
from windvane.types import Floats, Places

INTERVAL_MINUTES = (5, 60, 360, 720, 1440)
MAX_INTERVALS = 30_000  # 104 days of 5 minutes; about 7 MB for each policy
FIRST = np.zeros(1, dtype=np.int64)
MERGE_AFTER_GROUPS = 4096  # sums of batches that wait until they are merged
MOST_POINTS = 24  # of a curve
FEWEST_ROWS_PER_POINT = 30


class SeriesPoint(NamedTuple):
    """The value of a policy over the decisions of one interval, or of all up to its end."""

    time: float  # the end of the interval, in seconds since 1970
    rows: int
    value: float | None  # DR with a reward model, else SNIPS
    error: float | None  # its standard error
    mass: float  # Σ b, the number of decisions: ipsEstimatorDenominator
    weight: float  # Σ b w: snipsEstimatorDenominator
    weighted_reward: float  # Σ b w r: ipsEstimatorNumerator
    squared_weighted_reward: float  # Σ (b w r)²: sumOfSquares
    positive: int  # decisions with w > 0: nonZeroProbability
    ips: float | None  # Σ b w r / Σ b: averageReward
    ips_error: float | None  # its standard error: confidenceInterval is 1.96 times as large


@dataclass(frozen=True, eq=False)
class ValueSeries:
    """Sums for each interval, in the order of time."""

    minutes: int  # length of an interval
    starts: Places  # (k,) start / length of the interval, increasing
    sums: ValueSums  # of k groups

    @property
    def start_times(self) -> Floats:
        """The start of each interval in seconds since 1970, (k,)."""
        return self.starts.astype(np.float64) * (self.minutes * 60.0)

    def coarsen(self, minutes: int) -> "ValueSeries":
        """Add the sums of shorter intervals to those of intervals of `minutes`."""
        if minutes < self.minutes or minutes % self.minutes:
            raise SettingError(
                f"coarsen: minutes must be a multiple of {self.minutes}, got {minutes!r}"
            )
        starts = self.starts // (minutes // self.minutes)
        return ValueSeries(minutes, *_merge_equal_starts(starts, self.sums))

    def coarsen_to_one(self) -> "ValueSeries":
        """The sums of all decisions as one interval, which begins with the first."""
        if not len(self.starts):  # the pair of a policy that knows the logged action only
            return self
        return ValueSeries(
            self.minutes, self.starts[:1], self.sums.add_groups(np.arange(len(self.starts)), FIRST)
        )

    def roll(self, minutes: int) -> list[SeriesPoint]:
        """The value over the decisions of each interval of `minutes`."""
        series = self.coarsen(minutes)
        return _make_points(series.start_times + minutes * 60.0, series.sums)

    def expand(self) -> list[SeriesPoint]:
        """The value over all decisions up to the end of each interval."""
        return _make_points(self.start_times + self.minutes * 60.0, self.sums.accumulate())


class Curve(NamedTuple):
    """The values of parts of the time, as a picture shows them."""

    times: list[float]  # the middle of each part, in seconds since 1970
    values: list[float]
    errors: list[float]  # standard errors


def list_curve(series: ValueSeries, minutes: int) -> Curve:
    """The curve of a series in parts of so many minutes, without parts that have few rows."""
    points = [
        (point.time - 30.0 * minutes, point.value, point.error or 0.0)
        for point in series.roll(minutes)
        if point.value is not None and point.rows >= FEWEST_ROWS_PER_POINT
    ]
    return Curve(*([each[k] for each in points] for k in range(3)))


def choose_minutes(series: ValueSeries) -> int:
    """The length of the parts of a curve: a multiple of the intervals that the series has."""
    covered = (int(series.starts[-1]) - int(series.starts[0]) + 1) * series.minutes
    least_minutes = covered / MOST_POINTS
    for minutes in INTERVAL_MINUTES:
        if minutes >= max(least_minutes, series.minutes):
            return minutes
    return INTERVAL_MINUTES[-1] * math.ceil(least_minutes / INTERVAL_MINUTES[-1])


class TimedRows(NamedTuple):
    """Decisions as columns of n numbers each."""

    times: Floats  # seconds since 1970
    rewards: Floats
    weights: Floats
    model_values: Floats | None = None
    model_chosen: Floats | None = None
    coefficients: Floats | None = None

    def select(self, part: slice | Places) -> "TimedRows":
        return TimedRows._make(None if column is None else column[part] for column in self)


class SeriesBuilder:
    """Adds batches of decisions to a series, with bounded memory."""

    def __init__(self) -> None:
        self._minutes = INTERVAL_MINUTES[0]
        self._starts: list[Places] = []  # of the parts that wait to be merged
        self._parts: list[ValueSums] = []

    def add(self, rows: TimedRows) -> None:
        """Add decisions in any order; they are fastest in the order of time."""
        if len(rows.times) == 0:
            return
        places = np.floor(rows.times / (self._minutes * 60.0)).astype(np.int64)
        changes = np.flatnonzero(np.diff(places)) + 1
        if (places[changes] < places[changes - 1]).any():  # not in the order of time
            self.add(rows.select(np.argsort(places, kind="stable")))
            return
        groups = np.concatenate([[0], changes]).astype(np.int64)
        self._starts.append(places[groups])
        self._parts.append(ValueSums.from_rows(*rows[1:], starts=groups))
        if sum(map(len, self._starts)) > MERGE_AFTER_GROUPS + 2 * len(self._starts[0]):
            self._compact()

    def merge(self, other: "SeriesBuilder") -> None:
        theirs = other.build()
        mine = self.build()
        self._minutes = max(mine.minutes, theirs.minutes)
        parts = [mine.coarsen(self._minutes), theirs.coarsen(self._minutes)]
        self._starts = [part.starts for part in parts]
        self._parts = [part.sums for part in parts]
        self._compact()

    def build(self) -> ValueSeries:
        self._compact()
        return ValueSeries(self._minutes, self._starts[0], self._parts[0])

    def _compact(self) -> None:
        starts = np.concatenate([np.zeros(0, dtype=np.int64), *self._starts])
        sums = ValueSums.make_empty((0,))
        for part in self._parts:
            sums = sums.concatenate(part)
        starts, sums = _merge_equal_starts(starts, sums)
        while len(starts) > MAX_INTERVALS and self._minutes != INTERVAL_MINUTES[-1]:
            longer = INTERVAL_MINUTES[INTERVAL_MINUTES.index(self._minutes) + 1]
            starts, sums = _merge_equal_starts(starts // (longer // self._minutes), sums)
            self._minutes = longer
        self._starts, self._parts = [starts], [sums]


def _merge_equal_starts(starts: Places, sums: ValueSums) -> tuple[Places, ValueSums]:
    """Sort groups by their start, and add those with the same start."""
    if len(starts) == 0:
        return starts, sums
    order = np.argsort(starts, kind="stable")
    ordered = starts[order]
    groups = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1]).astype(np.int64)
    return ordered[groups], sums.add_groups(order, groups)


def _make_points(times: Floats, sums: ValueSums) -> list[SeriesPoint]:
    if len(times) == 0:
        return []
    headline = estimate_values(DR if sums.has_model else SNIPS, sums)
    plain = estimate_values(IPS, sums)
    return [
        SeriesPoint(
            time=float(times[i]),
            rows=int(sums.rows[i]),
            value=number_or_none(headline.value[i]),
            error=number_or_none(headline.error[i]),
            mass=float(sums.moments[i, ONE]),
            weight=float(sums.moments[i, WEIGHT]),
            weighted_reward=float(sums.moments[i, WEIGHTED_REWARD]),
            squared_weighted_reward=float(sums.product(WEIGHTED_REWARD, WEIGHTED_REWARD)[i]),
            positive=int(sums.positive[i]),
            ips=number_or_none(plain.value[i]),
            ips_error=number_or_none(plain.error[i]),
        )
        for i in range(len(times))
    ]


def number_or_none(value: float | Floats) -> float | None:
    """A finite number as a float; None for NaN and infinities."""
    return float(value) if np.isfinite(value) else None
