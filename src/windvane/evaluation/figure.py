"""The figure of an evaluation: values with intervals, and values over time."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from windvane._terminal.figures import (
    DPI,
    GRID_COLOUR,
    LINE_COLOUR,
    NORMAL_POINTS,
    SMALL_POINTS,
    TEXT_COLOUR,
    Style,
    assign_styles,
    freeze_layout,
)
from windvane.evaluation.estimates.result import Evaluation, PolicyResult
from windvane.evaluation.estimates.value_series import INTERVAL_MINUTES, SeriesPoint

MOST_POINTS = 24  # points of a curve
FEWEST_ROWS_PER_POINT = 30
MOST_CURVES = 8
MOST_LETTERS = 44  # letters of a policy's name


def draw_evaluation(evaluation: Evaluation) -> Figure:
    """Draw each value with its interval, and below it the values of parts of the log's time."""
    policies = evaluation.policies
    styles = assign_styles([policy.name for policy in policies])
    height = 0.32 * len(policies) + 4.2
    figure = Figure((8.0, height), DPI, layout="constrained")
    top, bottom = figure.subplots(2, 1, height_ratios=[0.32 * len(policies) + 0.5, 3.2])
    _draw_values(top, policies, styles)
    _draw_curves(bottom, policies, styles)
    handles, _ = bottom.get_legend_handles_labels()
    look = {"frameon": False, "fontsize": SMALL_POINTS}
    figure.legend(handles=handles, loc="outside lower center", ncols=4, **look)
    freeze_layout(figure)
    return figure


def _draw_values(axes: Axes, policies: Sequence[PolicyResult], styles: dict[str, Style]) -> None:
    for place, policy in enumerate(policies):
        low, high = policy.sequence
        style = styles[policy.name]
        axes.plot([low, high], [place, place], color=style.colour, lw=2.5, solid_capstyle="butt")
        [mark] = axes.plot(policy.value.value, place, style.marker, color=style.colour)
        mark.set(markersize=7, markeredgecolor="white", markeredgewidth=0.6)
    logged = [policy for policy in policies if policy.source == "Online"]
    if logged:
        axes.axvline(logged[0].value.value, color=LINE_COLOUR, lw=0.8, ls=(0, (4, 3)), zorder=0)
    names = [shorten(policy.name) for policy in policies]
    axes.set_yticks(range(len(policies)), names, fontsize=SMALL_POINTS, color=TEXT_COLOUR)
    axes.set_ylim(len(policies) - 0.5, -0.5)
    percent = 100 * (1 - policies[0].alpha)
    _format(axes, f"reward of a decision; the intervals hold at any time ({percent:.3g} %)")
    axes.grid(axis="x", color=GRID_COLOUR, lw=0.6)


def _draw_curves(axes: Axes, policies: Sequence[PolicyResult], styles: dict[str, Style]) -> None:
    minutes = choose_minutes(policies[0])
    for policy in policies[:MOST_CURVES]:
        points = [
            point
            for point in policy.series.roll(minutes)
            if point.value is not None and point.rows >= FEWEST_ROWS_PER_POINT
        ]
        if not points:
            continue
        style = styles[policy.name]
        times = [datetime.fromtimestamp(point.time - 30.0 * minutes, UTC) for point in points]
        values = [_value_of(point) for point in points]
        errors = [2.0 * (point.error or 0.0) for point in points]
        dashes = (0, style.dashes) if style.dashes else "-"
        axes.plot(times, values, lw=1.5, ls=dashes, color=style.colour, label=shorten(policy.name))  # type: ignore[arg-type]
        axes.fill_between(
            times,  # type: ignore[arg-type]
            [value - error for value, error in zip(values, errors, strict=True)],
            [value + error for value, error in zip(values, errors, strict=True)],
            color=style.colour,
            alpha=0.1,
            lw=0,
        )
    lows, highs = policies[0].reward_range
    axes.set_ylim(max(lows, axes.get_ylim()[0]), min(highs, axes.get_ylim()[1]))
    locator = AutoDateLocator(maxticks=8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    _format(axes, f"time, in parts of {describe_minutes(minutes)} (± 2 standard errors)")
    axes.set_ylabel("reward of a decision", fontsize=NORMAL_POINTS, color=TEXT_COLOUR)
    axes.grid(color=GRID_COLOUR, lw=0.6)


def choose_minutes(policy: PolicyResult) -> int:
    """The length of the parts of a curve: a multiple of the intervals that the series has."""
    series = policy.series
    covered = (int(series.starts[-1]) - int(series.starts[0]) + 1) * series.minutes
    least_minutes = covered / MOST_POINTS
    for minutes in INTERVAL_MINUTES:
        if minutes >= max(least_minutes, series.minutes):
            return minutes
    return INTERVAL_MINUTES[-1] * math.ceil(least_minutes / INTERVAL_MINUTES[-1])


def describe_minutes(minutes: int) -> str:
    """A length of time in words."""
    for unit, length in (("day", 1440), ("hour", 60)):
        if minutes % length == 0:
            count = minutes // length
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return f"{minutes} minutes"


def shorten(name: str) -> str:
    """A name that fits beside the axes."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}…"


def _value_of(point: SeriesPoint) -> float:
    return math.nan if point.value is None else point.value


def _format(axes: Axes, xlabel: str) -> None:
    axes.set_xlabel(xlabel, fontsize=NORMAL_POINTS, color=TEXT_COLOUR)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL_POINTS, color=LINE_COLOUR, labelcolor=TEXT_COLOUR)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE_COLOUR)
