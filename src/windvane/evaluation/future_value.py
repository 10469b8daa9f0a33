"""The value of a policy at a moment to come, from decisions at similar times.

A time feature φ sorts times into cells: all times, weekends and workdays, days of the week, or
hours of the week. For a moment t' with the cell c = φ(t'), a share P of the decisions lies in c:

    V(t') = E[ 1{φ(t_i) = c}/P · u_i + m_i ],   u = w (r − q̂),   m = Σ_a π(a) q̂(a)

which is the mean of u in the cell plus the mean of m over all decisions: what the reward model
misses is learned from similar times, what it knows from all times. Without a model, V is the mean
of w r in the cell. If the contexts also depend on the time, m is averaged in the cell as well.

A finer feature has less bias and more variance. The feature is chosen by SLOPE, beginning with the
finest that has decisions in the cell.

Shimizu and others (2025), "Off-policy evaluation and learning for the future under
non-stationarity".
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from windvane.errors import SettingError
from windvane.evaluation.estimators import Values, normal_quantile
from windvane.evaluation.result import Estimate, Interval
from windvane.evaluation.shrinkage import choose_by_slope
from windvane.evaluation.value_series import ValueSeries
from windvane.evaluation.value_sums import CORRECTION, MODEL, ONE
from windvane.types import Floats, Places

HOUR = 3600
DAY = 24 * HOUR
FEWEST_ROWS = 30  # in a cell; a standard error from fewer is not used
FIRST_MONDAY = 4 * DAY  # 1970-01-05


def _find_hour_of_week(times: Floats) -> Places:
    return (np.floor_divide(times - FIRST_MONDAY, HOUR) % (7 * 24)).astype(np.int64)


def _find_weekday(times: Floats) -> Places:
    return _find_hour_of_week(times) // 24


def _is_weekend(times: Floats) -> Places:
    return (_find_weekday(times) >= 5).astype(np.int64)


def _put_in_one_cell(times: Floats) -> Places:
    return np.zeros(np.shape(times), dtype=np.int64)


TIME_FEATURES: dict[str, Callable[[Floats], Places]] = {  # from the finest to the coarsest
    "hour of week": _find_hour_of_week,
    "weekday": _find_weekday,
    "weekend": _is_weekend,
    "none": _put_in_one_cell,
}
FINEST_MINUTES = {"hour of week": 60, "weekday": 1440, "weekend": 1440}  # of the intervals


class FutureValue(NamedTuple):
    """The value at a moment to come, and the estimates of all time features behind it."""

    at: float  # seconds since 1970
    value: Estimate  # its name is that of the chosen feature
    features: dict[str, Estimate]  # from the finest to the coarsest


def predict_value(
    series: ValueSeries,
    at: float,  # seconds since 1970
    *,
    utc_offset: float = 0.0,  # seconds that local time is ahead of UTC
    has_drifting_contexts: bool = False,
    alpha: float = 0.05,
) -> FutureValue:
    """Predict the value of a policy at a moment, with the time feature that SLOPE chooses."""
    if float(series.sums.rows.sum()) < 2:
        raise SettingError("predict_value: the series must have at least two decisions")
    quantile = normal_quantile(alpha)
    features: dict[str, Estimate] = {}
    estimates: list[Values] = []
    for name, feature in TIME_FEATURES.items():
        is_divided = utc_offset % (series.minutes * 60) != 0  # an interval lies in two cells
        if name != "none" and (series.minutes > FINEST_MINUTES[name] or is_divided):
            continue
        cells = feature(series.start_times + utc_offset)
        is_inside = cells == feature(np.array([at + utc_offset]))[0]
        if name != "none" and float(series.sums.rows[is_inside].sum()) < FEWEST_ROWS:
            continue
        values = estimate_in_cell(series, is_inside, has_drifting_contexts)
        estimates.append(values)
        value, error = float(values.value), float(values.error)
        features[name] = Estimate(
            name, value, Interval(value - quantile * error, value + quantile * error), error
        )
    chosen = int(choose_by_slope(estimates, quantile))
    return FutureValue(at, list(features.values())[chosen], features)


def estimate_in_cell(
    series: ValueSeries, is_inside: np.ndarray, has_drifting_contexts: bool
) -> Values:
    """Estimate V from the intervals inside the cell, and m from all or from these alone.

    The influence of a decision is 1{inside}/P (u − ū) + (m − m̄).
    """
    sums = series.sums
    inside = sums.add_groups(np.flatnonzero(is_inside), np.zeros(1, dtype=np.int64)).select(0)
    total = inside if has_drifting_contexts else sums.total()
    share = float(inside.mass / total.mass)  # P
    correction = inside.moments[CORRECTION] / inside.moments[ONE]
    model = total.moments[MODEL] / total.moments[ONE]
    square = 0.0
    for group, influence in (
        (total, {MODEL: 1.0, ONE: -model}),
        (inside, {CORRECTION: 1 / share, ONE: -correction / share}),
    ):
        square += _sum_products(group.product, influence, influence)
    square += 2 * _sum_products(
        inside.product,
        {MODEL: 1.0, ONE: -model},
        {CORRECTION: 1 / share, ONE: -correction / share},
    )
    rows = float(inside.rows)
    error = np.sqrt(max(square, 0.0) * rows / (rows - 1)) / total.mass if rows > 1 else np.inf
    return Values(np.asarray(model + correction), np.asarray(error))


def _sum_products(
    product: Callable[[int, int], Floats],
    first: dict[int, float],
    second: dict[int, float],
) -> float:
    return float(sum(a * b * product(i, j) for i, a in first.items() for j, b in second.items()))
