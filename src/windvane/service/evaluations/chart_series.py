"""The value of a policy over time in few steps, as the chart of the dashboard shows it."""

from windvane.evaluation.estimates.value_series import ValueSeries
from windvane.service.evaluations.outcome import ChartSeries

MAX_STEPS = 60  # and one more if the first step begins before the first decision
MIN_STEPS = 6
DECISIONS_PER_STEP = 50  # on average, or more
MINUTES_PER_DAY = 1440
STEP_MINUTES = (
    *(5, 10, 15, 30, 60, 120, 180, 360, 720),
    *(days * MINUTES_PER_DAY for days in (1, 2, 7, 14, 28, 91, 364)),
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
