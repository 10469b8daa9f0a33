"""Values for a moment to come: the formula as written, and the time feature that is chosen."""

from datetime import UTC, datetime

import numpy as np
import pytest

from windvane.errors import SettingError
from windvane.evaluation.future_value import HOUR, predict_value
from windvane.evaluation.value_series import SeriesBuilder, ValueSeries
from windvane.types import Floats

START = datetime(2024, 1, 1, tzinfo=UTC).timestamp()  # a Monday
NEXT_SUNDAY = datetime(2024, 1, 28, 15, 30, tzinfo=UTC).timestamp()
NEXT_TUESDAY = datetime(2024, 1, 23, 15, 30, tzinfo=UTC).timestamp()


def draw_series(
    weekend_value: float, has_model: bool, minutes: int = 5
) -> tuple[ValueSeries, Floats, Floats, Floats]:
    """Three weeks; also the times, the model values m and the corrections u."""
    rng = np.random.default_rng(2)
    times = START + np.sort(rng.random(30_000)) * 21 * 24 * HOUR
    days = ((times - START) // (24 * HOUR)).astype(int) % 7
    truth = np.where(days >= 5, weekend_value, 0.3)
    weights = (rng.random(len(times)) < 0.5) / 0.5
    rewards = (rng.random(len(times)) < truth).astype(np.float64)
    m = 0.35 + 0.1 * rng.random(len(times)) if has_model else np.zeros(len(times))
    q = m - 0.02 if has_model else np.zeros(len(times))
    builder = SeriesBuilder()
    for part in np.array_split(np.arange(len(times)), 4):
        builder.add(
            times[part],
            rewards[part],
            weights[part],
            m[part] if has_model else None,
            q[part] if has_model else None,
            None,
        )
    return builder.build().coarsen(minutes), times, m, weights * (rewards - q)


@pytest.mark.parametrize("has_model", [False, True])
def test_every_feature_has_the_mean_of_its_cell(has_model: bool) -> None:
    series, times, m, u = draw_series(0.7, has_model)
    found = predict_value(series, NEXT_SUNDAY)
    hours = (times - START) // HOUR % 168
    cells = {
        "hour of week": hours == 6 * 24 + 15,
        "weekday": hours // 24 == 6,
        "weekend": hours // 24 >= 5,
        "none": hours >= 0,
    }
    assert list(found.features) == list(cells)
    for name, cell in cells.items():
        estimate = found.features[name]
        share = cell.mean()
        scores = cell / share * u + m
        assert estimate.value == pytest.approx(scores.mean(), rel=1e-9)
        influence = cell / share * (u - u[cell].mean()) + m - m.mean()
        error = np.sqrt((influence**2).sum() * cell.sum() / (cell.sum() - 1)) / len(times)
        assert estimate.error == pytest.approx(error, rel=1e-9)
    drifting = predict_value(series, NEXT_SUNDAY, has_drifting_contexts=True)
    inside = cells["weekend"]
    assert drifting.features["weekend"].value == pytest.approx((m + u)[inside].mean(), rel=1e-9)


def test_the_weekend_is_chosen_if_weekends_differ_and_no_feature_if_they_do_not() -> None:
    differs = draw_series(0.7, has_model=True)[0]
    sunday, tuesday = predict_value(differs, NEXT_SUNDAY), predict_value(differs, NEXT_TUESDAY)
    assert (sunday.value.name, tuesday.value.name) == ("weekend", "weekend")
    assert sunday.value.value == pytest.approx(0.7, abs=0.05)
    assert tuesday.value.value == pytest.approx(0.3, abs=0.05)
    assert predict_value(draw_series(0.3, True)[0], NEXT_SUNDAY).value.name == "none"


def test_features_that_the_intervals_cannot_tell_are_left_out() -> None:
    series = draw_series(0.7, has_model=False, minutes=1440)[0]
    assert list(predict_value(series, NEXT_SUNDAY).features) == ["weekday", "weekend", "none"]
    shifted = predict_value(series, NEXT_SUNDAY, utc_offset=2 * HOUR)
    assert list(shifted.features) == ["none"]
    with pytest.raises(SettingError, match="at least two decisions"):
        predict_value(SeriesBuilder().build(), NEXT_SUNDAY)
