"""The figure of regret over rounds, one panel a world.

If a few curves are far above all others, they leave their panel at the top. The end value of every
curve is written at the right edge of its panel.
"""

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from windvane import validation
from windvane._terminal.figures import (
    DPI,
    LINE_COLOUR,
    NORMAL_POINTS,
    SMALL_POINTS,
    TEXT_COLOUR,
    TICK_STEPS,
    Style,
    add_note,
    assign_styles,
    format_axes,
    format_number,
    freeze_layout,
    make_line,
)
from windvane.errors import SettingError
from windvane.lab.output.panels import Panel
from windvane.types import Floats

BAND_PERCENTILES = (10, 90)  # over replications
OUTLIER_RATIO = 1.8  # a curve this many times above the next lower one leaves the panel


def draw_regret(panels: Sequence[Panel], note: str = "", columns: int = 3) -> Figure:
    """Draw the cumulative regret in each panel: mean and 10–90 % band of every policy."""
    if not panels:
        raise SettingError("draw_regret: at least one panel is needed, got none")
    columns = min(validation.whole("draw_regret", "columns", columns), len(panels))
    rows = ceil(len(panels) / columns)
    names = list(dict.fromkeys(name for panel in panels for name in panel.result.names))
    styles = assign_styles(names)
    keys = [make_line([], [], styles[name], name) for name in names]
    if any(panel.changes for panel in panels):
        keys.append(Line2D([], [], color=LINE_COLOUR, lw=0, marker="|", ms=11, label="change"))
    width, height = _panel_inches(panels)
    longest = 0.7 + 0.07 * max(len(str(key.get_label())) for key in keys)  # inches
    legend_lines = ceil(len(keys) / max(1, int(width * columns / longest)))
    size = (width * columns, (height + 0.6) * rows + 0.2 * legend_lines + 0.4)
    figure = Figure(size, DPI, layout="constrained")
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        format_axes(axes, "round" if place + columns >= len(panels) else "", place % columns == 0)
        axes.set_title(panel.title, fontsize=NORMAL_POINTS, color=TEXT_COLOUR, loc="left")
        _draw_panel(axes, panel, styles, (1 / (width - 1), 1 / height))
    look = {"frameon": False, "fontsize": NORMAL_POINTS, "handlelength": 3.2, "columnspacing": 1.6}
    legend_columns = ceil(len(keys) / legend_lines)
    figure.legend(handles=keys, loc="outside lower center", ncols=legend_columns, **look)
    add_note(figure, note)
    freeze_layout(figure)
    return figure


def _panel_inches(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return the width of a panel and the height of its axes.

    Long numbers need more width, and many end values need more height.
    """
    width, height = (6.8, 3.9) if len(panels) == 1 else (3.2, 2.2)
    width += 0.12 * max(0, max(len(format_number(p.result.mean().max())) for p in panels) - 6)
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
    axes.xaxis.set_major_locator(MaxNLocator(5 if marks[-1] <= 10_000 else 3, steps=TICK_STEPS))
    for change in panel.changes:
        axes.axvline(change, color=LINE_COLOUR, lw=0.6, zorder=1)
    spacing = max(1, marks.size // 5)  # points of a curve between two markers
    for p, name in enumerate(names):
        axes.fill_between(marks, low[p], high[p], color=styles[name].colour, alpha=0.12, lw=0)
        line = axes.add_line(make_line(marks, mean[p], styles[name], name))
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
        leader = make_line(*path, styles[p], "_end", 0.8)
        leader.set(transform=axes.transAxes, clip_on=False, linestyle="-", markevery=[1])
        axes.add_line(leader)
        text = ("↑ " if above else "") + format_number(ends[p])
        label = axes.text(edge + 0.08 * inch[0], y, text, transform=axes.transAxes, va="center")
        label.set(size=SMALL_POINTS, color=TEXT_COLOUR)


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
