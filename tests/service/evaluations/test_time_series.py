"""The steps of a chart against the mean of each step as it is written."""

import numpy as np
import pytest

from windvane.evaluation.estimates.value_series import SeriesBuilder, TimedRows
from windvane.service.evaluations.worker import choose_step, make_chart_series

START = 1_790_000_000.0  # seconds since 1970
DAY = 86_400.0


@pytest.mark.parametrize(
    ("days", "rows", "minutes"),
    [
        (0.0, 1, 5),
        (0.02, 40, 5),
        (14.0, 24_000, 360),
        (14.0, 400, 2880),
        (3000.0, 10_000, 91 * 1440),
    ],
)
def test_steps_are_round_and_few(days: float, rows: int, minutes: int) -> None:
    series = SeriesBuilder()
    times = START + np.linspace(0.0, days * DAY, rows)
    series.add(TimedRows(times, np.zeros(rows), np.ones(rows)))
    assert choose_step(series.build()) == minutes
    assert len(make_chart_series(series.build(), minutes).starts) <= 61


def test_each_step_has_the_self_normalized_mean_of_its_decisions() -> None:
    draws = np.random.default_rng(1)
    rows, minutes = 2000, 120
    times = START + np.sort(draws.uniform(0.0, DAY, rows))
    rewards = (draws.random(rows) < 0.3).astype(float)
    weights = draws.exponential(1.0, rows)
    series = SeriesBuilder()
    series.add(TimedRows(times, rewards, weights))
    chart = make_chart_series(series.build(), minutes)
    steps = np.floor(times / (minutes * 60.0)).astype(int)
    assert chart.starts == np.unique(steps).tolist()
    for place, step in enumerate(chart.starts):
        w, r = weights[steps == step], rewards[steps == step]
        n, value = len(w), (w * r).sum() / w.sum()
        error = np.sqrt(n / (n - 1) * np.sum((w * (r - value)) ** 2)) / w.sum()
        assert chart.value[place] == pytest.approx(value)
        assert chart.error[place] == pytest.approx(error)
        assert chart.size[place] == pytest.approx(w.sum() ** 2 / (w**2).sum())
