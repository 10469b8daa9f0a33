"""The value of a policy over time: expanding windows for clients, steps for a chart."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from windvane.evaluation.estimates.value_series import ValueSeries
from windvane.service.clock import MICROSECONDS_PER_MINUTE
from windvane.service.evaluations.records import ChartSeries, IpsSums, PolicySeries

QUANTILE = 1.96  # of a 95 % interval
MAX_STEPS = 60  # and one more if the first step begins before the first decision
MIN_STEPS = 6
DECISIONS_PER_STEP = 50  # on average, or more
MINUTES_PER_DAY = 1440
STEP_MINUTES = (
    *(5, 10, 15, 30, 60, 120, 180, 360, 720),
    *(days * MINUTES_PER_DAY for days in (1, 2, 7, 14, 28, 91, 364)),
)


class Point(NamedTuple):
    """The sums of a window that ends at a time, in microseconds since 1970."""

    at: int
    sums: IpsSums


def average_reward(sums: IpsSums) -> float:
    """IPS: Σ w r / n; 0 without decisions."""
    return sums.weighted_reward / sums.mass if sums.mass > 0 else 0.0


def half_width(sums: IpsSums) -> float:
    """Half of the Gaussian 95 % interval of IPS, as the retired service computed it.

    1.96 · √(((Σ(wr)² − (Σwr)²/n) / (n − 1)) / n), with n decisions; 0 with fewer than two.

    >>> sums = IpsSums(196, 193.761, 2.2, 2.424, 68)
    >>> round(half_width(sums), 8)
    0.01552936
    """
    n = sums.mass
    if n <= 1:
        return 0.0
    variance = (sums.squared_weighted_reward - sums.weighted_reward**2 / n) / (n - 1)
    return QUANTILE * math.sqrt(max(variance, 0.0) / n)


def list_expanding(series: PolicySeries) -> list[Point]:
    """The sums of all decisions up to the end of each interval."""
    points = []
    total = IpsSums()
    for at, sums in _iterate(series):
        total = _add(total, sums)
        points.append(Point(at, total))
    return points


def _iterate(series: PolicySeries) -> Iterator[Point]:
    """The sums of each interval of the series, with its end."""
    for start, *numbers in zip(
        series.starts,
        series.mass,
        series.weight,
        series.weighted_reward,
        series.squared_weighted_reward,
        series.positive,
        strict=True,
    ):
        end = (start + 1) * series.minutes * MICROSECONDS_PER_MINUTE
        yield Point(end, IpsSums(*numbers))


def _add(first: IpsSums, second: IpsSums) -> IpsSums:
    return IpsSums(
        first.mass + second.mass,
        first.weight + second.weight,
        first.weighted_reward + second.weighted_reward,
        first.squared_weighted_reward + second.squared_weighted_reward,
        first.positive + second.positive,
    )


def choose_step(series: ValueSeries) -> int:
    """Choose a round length of a step, in minutes: few steps if there are few decisions."""
    size = min(max(int(series.sums.rows.sum()) // DECISIONS_PER_STEP, MIN_STEPS), MAX_STEPS)
    span = int(series.starts[-1] - series.starts[0]) * series.minutes
    usable = [minutes for minutes in STEP_MINUTES if minutes % series.minutes == 0]
    longest = usable[-1]
    needed = -(-span // (size * longest)) * longest  # a multiple of the longest that is enough
    return next((minutes for minutes in usable if span <= size * minutes), needed)


def make_chart_series(series: ValueSeries, minutes: int) -> ChartSeries:
    """The value in each step of so many minutes, with its standard error.

    The size of a step is (Σw)²/Σw², the number of decisions of the policy's own that tell as much.
    """
    coarse = series.coarsen(minutes)
    points = coarse.roll(minutes)
    return ChartSeries(
        minutes=minutes,
        starts=coarse.starts.tolist(),
        value=[each.value for each in points],
        error=[each.error for each in points],
        size=coarse.sums.effective_rows.tolist(),
    )
