"""Figures of the studies: regret over rounds, tuning, coverage and the leaderboard.

In a figure of regret, if a few curves are far above all others, they leave their panel at the top.
The end value of every curve is written at the right edge of its panel.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import ceil, log10

import numpy as np
import numpy.typing as npt
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, PercentFormatter

from windvane._terminal import figures as shared
from windvane._terminal.figures import DPI, HUES, LABEL_LOOK, LINE_COLOUR, SMALL_POINTS, Style
from windvane.lab.studies.result import Panel
from windvane.types import Floats

BAND_PERCENTILES = (10, 90)  # over replications
OUTLIER_RATIO = 1.8  # a curve this many times above the next lower one leaves the panel
VALID_COLOUR = shared.NAMED_STYLES["D-RandLinUCB"].colour
INVALID_COLOUR = HUES[0]
ERRORS = 2.0  # standard errors on each side of a share
MARKERS = "os^Dv<>Ph"
MOST_COLUMNS = 3  # of panels
BAR_COLOUR = "#CFE2EF"


def draw_regret(panels: Sequence[Panel], note: str = "") -> Figure:
    """Draw the cumulative regret in each panel: mean and 10–90 % band of every policy."""
    columns = min(MOST_COLUMNS, len(panels))
    rows = ceil(len(panels) / columns)
    names = list(dict.fromkeys(name for panel in panels for name in panel.result.names))
    styles = shared.assign_styles(names)
    keys = [shared.make_line([], [], styles[name], name) for name in names]
    if any(panel.changes for panel in panels):
        keys.append(Line2D([], [], color=LINE_COLOUR, lw=0, marker="|", ms=11, label="change"))
    width, height = _panel_inches(panels)
    longest = 0.7 + 0.07 * max(len(str(key.get_label())) for key in keys)  # inches
    legend_lines = ceil(len(keys) / max(1, int(width * columns / longest)))
    size = (width * columns, (height + 0.6) * rows + 0.2 * legend_lines + 0.4)
    figure = Figure(size, DPI, layout="constrained")
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        shared.format_axes(
            axes, "round" if place + columns >= len(panels) else "", place % columns == 0
        )
        axes.set_title(panel.title or panel.world, **LABEL_LOOK, loc="left")
        _draw_panel(axes, panel, styles, (1 / (width - 1), 1 / height))
    look = {"handles": keys, "handlelength": 3.2, "columnspacing": 1.6}
    shared.add_legend(figure, ceil(len(keys) / legend_lines), shared.NORMAL_POINTS, **look)
    shared.add_note(figure, note)
    shared.freeze_layout(figure)
    return figure


def _panel_inches(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return the width of a panel and the height of its axes.

    Long numbers need more width, and many end values need more height.
    """
    width, height = (6.8, 3.9) if len(panels) == 1 else (3.2, 2.2)
    longest = max(len(shared.format_number(panel.result.mean().max())) for panel in panels)
    width += 0.12 * max(0, longest - 6)
    return width, max(height, 0.16 * max(len(panel.result.names) for panel in panels))


def _draw_panel(
    axes: Axes, panel: Panel, styles: Mapping[str, Style], inch: tuple[float, float]
) -> None:
    """Draw the curves of a panel; `inch` is one inch as a share of its width and height."""
    names, marks, regret = panel.result
    mean = panel.result.mean()  # (players, M)
    low, high = np.percentile(regret, BAND_PERCENTILES, axis=1)  # (players, M)
    top = _upper_limit(mean.max(axis=1), np.maximum(mean, high).max(axis=1))
    axes.set(xlim=(0, marks[-1]), ylim=(0, top))
    ticks = 5 if marks[-1] <= 10_000 else 3
    axes.xaxis.set_major_locator(MaxNLocator(ticks, steps=shared.TICK_STEPS))
    for change in panel.changes:
        axes.axvline(change, color=LINE_COLOUR, lw=0.6, zorder=1)
    spacing = max(1, marks.size // 5)  # points of a curve between two markers
    for p, name in enumerate(names):
        axes.fill_between(marks, low[p], high[p], color=styles[name].colour, alpha=0.12, lw=0)
        line = axes.add_line(shared.make_line(marks, mean[p], styles[name], name))
        line.set_markevery((spacing * p // len(names), spacing))  # markers do not overlap
    _write_end_values(axes, [styles[name] for name in names], mean[:, -1], top, inch)


def _write_end_values(
    axes: Axes, styles: Sequence[Style], ends: Floats, top: float, inch: tuple[float, float]
) -> None:
    """Write the end value of each curve at the right edge, without overlap."""
    heights = ends / top
    order = np.argsort(heights)
    edge = 1 + 0.12 * inch[0]
    line_height = 1.3 * SMALL_POINTS / 72 * inch[1]
    for p, y in zip(order, _separate(heights[order], line_height), strict=True):
        above = heights[p] > 1
        path = ([edge, edge], [y, y]) if above else ([1, edge], [heights[p], y])
        leader = shared.make_line(*path, styles[p], "_end", 0.8)
        leader.set(transform=axes.transAxes, clip_on=False, linestyle="-", markevery=[1])
        axes.add_line(leader)
        text = ("↑ " if above else "") + shared.format_number(ends[p])
        label = axes.text(edge + 0.08 * inch[0], y, text, transform=axes.transAxes, va="center")
        label.set(size=SMALL_POINTS, color=shared.TEXT_COLOUR)


def _upper_limit(peaks: Floats, bands: Floats) -> float:
    """Return the top of a panel: above all bands, or above those of the curves that stay in it."""
    order = np.argsort(peaks)
    majority = range(max(2, peaks.size // 2 + 1), peaks.size)  # more than half of the curves stay
    kept = next(
        (k for k in majority if peaks[order[k]] > OUTLIER_RATIO * peaks[order[k - 1]]), peaks.size
    )
    return float(bands[order[:kept]].max()) * (1.25 if kept < peaks.size else 1.05) or 1.0


def _separate(heights: Floats, gap: float) -> Floats:
    """Move ascending heights in [0, 1] as little as possible so that all are `gap` apart."""
    steps = gap * np.arange(heights.size)
    shifted = np.clip(heights - steps, 0, max(0, 1 - steps[-1]))
    return _make_ascending(shifted) + steps


def _make_ascending(values: Floats) -> Floats:
    """Return the ascending numbers that are nearest to `values` in the sum of squares.

    Neighbours that descend are replaced by their mean until none descend. The bits may differ from
    those of `scipy.optimize.isotonic_regression`, whose package takes long to import.
    """
    sums: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        sums.append(value)
        sizes.append(1)
        while len(sums) > 1 and sums[-2] / sizes[-2] >= sums[-1] / sizes[-1]:
            last_sum, last_size = sums.pop(), sizes.pop()
            sums[-1] += last_sum
            sizes[-1] += last_size
    return np.repeat(np.array(sums) / np.array(sizes), sizes)


def draw_tuning(
    values: npt.ArrayLike,
    means: npt.ArrayLike,
    errors: npt.ArrayLike,
    marks: Mapping[str, float],
    xlabel: str,
    levels: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw regret over γ, w or H, mean ± error, with the values in `marks` labelled.

    The axis is logarithmic. Values up to 1 are discounts, drawn at their memory 1/(1 − γ).
    `levels` are means and errors that do not depend on the value, drawn as horizontal lines.
    """
    x, y, error = (np.asarray(column, dtype=np.float64) for column in (values, means, errors))
    are_discounts = bool(x.max() <= 1)
    x, y, error = np.stack([x, y, error])[:, np.argsort(x)]
    x = 1 / (1 - x) if are_discounts else x
    places = {name: 1 / (1 - v) if are_discounts else v for name, v in marks.items()}
    figure = Figure((6.6, 4.2), DPI, layout="constrained")
    axes = figure.add_subplot()
    shared.format_axes(axes, xlabel, has_ylabel=True)
    _set_log_axis(axes, np.array([*x, *places.values()]), are_discounts)
    blue = shared.NAMED_STYLES["D-RandLinUCB"].colour
    axes.errorbar(x, y, error, color=blue, lw=1.5, marker="o", ms=4, elinewidth=1, capsize=2.5)
    format_value = _format_discount if are_discounts else shared.format_number
    _draw_marks(axes, {f"{name}: {format_value(place)}": place for name, place in places.items()})
    _draw_levels(axes, levels or {})
    shared.freeze_layout(figure)
    return figure


def _format_discount(memory: float) -> str:
    return f"{1 - 1 / memory:.{max(2, ceil(log10(memory)) + 2)}g}"  # two digits after the nines


def _set_log_axis(axes: Axes, places: Floats, are_discounts: bool) -> None:
    axes.set_xscale("log")
    least, most = places.min() / 1.1, places.max() * 1.1
    axes.set_xlim(least, most)
    subs = (1, 2, 3, 4, 5, 7) if most < 10 * least else (1, 2, 5) if most < 1000 * least else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_minor_formatter("")
    axes.xaxis.set_major_formatter("{x:,.10g}")
    if are_discounts:
        axes.set_xlabel(f"{axes.get_xlabel()}\n(memory 1/(1 − γ), in rounds)")
        axes.xaxis.set_major_formatter(
            lambda memory, _: f"{_format_discount(memory)}\n({memory:,.10g})"
        )


def _draw_marks(axes: Axes, marks: Mapping[str, float]) -> None:
    """Draw labelled vertical lines; each label points away from the lines that are taller."""
    names = sorted(marks, key=lambda name: marks[name])
    middle = np.log(axes.get_xlim()).mean()
    to_left = np.sum(np.log([*marks.values()]) - middle) > 0  # the side with more room
    side = "right" if to_left else "left"
    transform = axes.get_xaxis_transform()
    for level, name in enumerate(names if to_left else reversed(names)):
        x, y = marks[name], 1.03 + 0.06 * level
        line = Line2D([x, x], [0, y - 0.01], color=LINE_COLOUR, lw=0.8, transform=transform)
        line.set(clip_on=False, zorder=1)
        axes.add_line(line)
        label = axes.text(x, y, name, transform=transform, size=SMALL_POINTS, ha=side)
        label.set_color(shared.TEXT_COLOUR)


def _draw_levels(axes: Axes, levels: Mapping[str, tuple[float, float]]) -> None:
    """Draw horizontal lines with errors; a level above the panel is only in the legend."""
    top = axes.get_ylim()[1]
    keys = []
    for (name, (mean, error)), style in zip(levels.items(), shared.OTHER_STYLES, strict=False):
        above = mean > top
        label = f"{name}: {shared.format_number(mean)}{' ↑' if above else ''}"
        keys.append(shared.make_line([], [], style, label))
        keys[-1].set_marker("")
        if not above:
            dashes = (0, style.dashes) if style.dashes else "-"
            axes.axhline(mean, color=style.colour, lw=1.3, ls=dashes, zorder=1.5)
            axes.axhspan(mean - error, mean + error, color=style.colour, alpha=0.12, lw=0)
    axes.set_ylim(0, top)
    if keys:
        axes.legend(handles=keys, fontsize=SMALL_POINTS, frameon=False, handlelength=3)


def draw_coverage(summary: pl.DataFrame, alpha: float) -> Figure:
    """Draw the shares of runs in which the truth was covered, and below the widths."""
    worlds = summary["world"].unique(maintain_order=True).to_list()
    estimators = summary["estimator"].unique(maintain_order=True).to_list()
    widest = max(summary["width"].to_list())
    size = (1.6 + 1.75 * max(2, len(worlds)), 1.5 + 0.36 * len(estimators))
    figure = Figure(size, DPI, layout="constrained")
    panels = figure.subplots(2, len(worlds), sharex="row", sharey=True, squeeze=False)
    for place, world in enumerate(worlds):
        rows = summary.filter(pl.col("world") == world)
        above, below = panels[:, place]
        above.set_title(world, **LABEL_LOOK, loc="left")
        for axes in (above, below):
            _format_bars(axes, estimators)
        above.axvline(1 - alpha, color=LINE_COLOUR, lw=0.9, ls=(0, (4, 2)), zorder=1)
        for height, row in enumerate(rows.iter_rows(named=True)):
            colour = VALID_COLOUR if is_valid(row, alpha) else INVALID_COLOUR
            _draw_share(above, height, row, colour)
            below.barh(height, row["width"], 0.6, color=colour, lw=0)
        above.set(xlim=(-0.04, 1.04), xticks=[0.0, 0.5, 1.0])
        above.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
        below.set_xlim(0, 1.05 * widest)
        below.xaxis.set_major_locator(MaxNLocator(4, steps=shared.TICK_STEPS))
        below.xaxis.set_major_formatter("{x:.10g}")
    labels = ("runs whose truth is covered, in %", "mean width at the last look")
    for axes, label in zip(panels[:, len(worlds) // 2], labels, strict=True):
        axes.set_xlabel(label, **LABEL_LOOK)
    keys = _make_keys(alpha)
    shared.add_legend(figure, len(keys), SMALL_POINTS, handles=keys, columnspacing=1.6)
    shared.freeze_layout(figure)
    return figure


def is_valid(row: dict[str, float], alpha: float) -> bool:
    """Whether the share at every look is not clearly below 1 − α."""
    return row["every look"] + ERRORS * row["standard error"] >= 1 - alpha


def _draw_share(axes: Axes, height: int, row: dict[str, float], colour: str) -> None:
    share, error = row["every look"], ERRORS * row["standard error"]
    ends = [max(0.0, share - error), min(1.0, share + error)]
    axes.plot(ends, [height, height], color=colour, lw=1.4, zorder=2)
    axes.plot(share, height, color=colour, marker="o", ms=5, zorder=4)
    axes.plot(row["last look"], height, color=colour, marker="o", ms=5, mfc="white", zorder=3)


def _format_bars(axes: Axes, names: Sequence[str]) -> None:
    """Set the look of axes that show a row for each name, from top to bottom."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    shared.draw_frame(axes, "x")
    axes.tick_params(axis="y", length=0)


def _make_keys(alpha: float) -> list[Line2D | Patch]:
    """The entries of the legend."""
    promise = f"{100 * (1 - alpha):.4g} %"
    dot = partial(Line2D, [], [], color=LINE_COLOUR, marker="o", ms=5)
    return [
        dot(lw=1.4, label="at every look, ± 2 standard errors"),
        dot(mfc="white", lw=0, label="at the last look"),
        Line2D([], [], color=LINE_COLOUR, lw=0.9, ls=(0, (4, 2)), label=f"promised: {promise}"),
        Patch(color=VALID_COLOUR, label="holds at every look"),
        Patch(color=INVALID_COLOUR, label="does not"),
    ]


def draw_leaderboard(standings: pl.DataFrame, note: str = "") -> Figure:
    """Draw scores with their errors as bars, and the share of each world as a marker on top."""
    figure = Figure((9.0, 0.2 * standings.height + 1.5), DPI, layout="constrained")
    axes = figure.add_subplot()
    places = range(standings.height)
    scores, errors = standings["score %"], 2.0 * standings["±"]
    label = "score ± 2 standard errors"
    axes.barh(places, scores, 0.72, color=BAR_COLOUR, xerr=errors, ecolor=LINE_COLOUR, label=label)
    for k, title in enumerate(standings.columns[4:]):  # after rank, policy, score and ±
        marker, hue, shares = MARKERS[k % len(MARKERS)], HUES[k % len(HUES)], standings[title]
        axes.scatter(shares, places, 16, hue, marker=marker, label=title, linewidths=0, zorder=3)
    _format_bars(axes, standings["policy"].to_list())
    axes.set_xlim(0, None)
    axes.set_xlabel("regret, in % of what playing at random loses", **LABEL_LOOK)
    shared.add_legend(figure, 5, SMALL_POINTS)
    shared.add_note(figure, note)
    return figure
