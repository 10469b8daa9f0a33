"""The figure of the study of coverage: a column for each drift, a row for each estimator."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from windvane._terminal.figures import (
    DPI,
    GRID_COLOUR,
    HUES,
    LINE_COLOUR,
    NAMED_STYLES,
    NORMAL_POINTS,
    SMALL_POINTS,
    TEXT_COLOUR,
    TICK_STEPS,
    freeze_layout,
)

VALID_COLOUR = NAMED_STYLES["D-RandLinUCB"].colour
INVALID_COLOUR = HUES[0]
ERRORS = 2.0  # standard errors on each side of a share


def draw_coverage(summary: pl.DataFrame, alpha: float) -> Figure:
    """Draw the shares of runs in which the truth was covered, and below the widths."""
    drifts = summary["drift"].unique(maintain_order=True).to_list()
    estimators = summary["estimator"].unique(maintain_order=True).to_list()
    widest = max(summary["width"].to_list())
    size = (1.6 + 1.75 * max(2, len(drifts)), 1.5 + 0.36 * len(estimators))
    figure = Figure(size, DPI, layout="constrained")
    panels = figure.subplots(2, len(drifts), sharex="row", sharey=True, squeeze=False)
    for place, drift in enumerate(drifts):
        rows = summary.filter(pl.col("drift") == drift)
        above, below = panels[:, place]
        above.set_title(drift, fontsize=NORMAL_POINTS, color=TEXT_COLOUR, loc="left")
        for axes in (above, below):
            _format_axes(axes, estimators)
        _draw_shares(above, rows, alpha)
        _draw_widths(below, rows, alpha)
        below.set_xlim(0, 1.05 * widest)
    labels = ("runs whose truth is covered, in %", "mean width at the last look")
    for axes, label in zip(panels[:, len(drifts) // 2], labels, strict=True):
        axes.set_xlabel(label, fontsize=NORMAL_POINTS, color=TEXT_COLOUR)
    keys = _make_keys(alpha)
    look = {"frameon": False, "fontsize": SMALL_POINTS, "columnspacing": 1.6}
    figure.legend(handles=keys, loc="outside lower center", ncols=len(keys), **look)
    freeze_layout(figure)
    return figure


def is_valid(row: dict[str, float], alpha: float) -> bool:
    """Whether the share at every look is not clearly below 1 − α."""
    return row["every look"] + ERRORS * row["standard error"] >= 1 - alpha


def _draw_shares(axes: Axes, rows: pl.DataFrame, alpha: float) -> None:
    axes.axvline(1 - alpha, color=LINE_COLOUR, lw=0.9, ls=(0, (4, 2)), zorder=1)
    for place, row in enumerate(rows.iter_rows(named=True)):
        colour = VALID_COLOUR if is_valid(row, alpha) else INVALID_COLOUR
        share, error = row["every look"], ERRORS * row["standard error"]
        ends = [max(0.0, share - error), min(1.0, share + error)]
        axes.plot(ends, [place, place], color=colour, lw=1.4, zorder=2)
        axes.plot(share, place, color=colour, marker="o", ms=5, zorder=4)
        axes.plot(row["last look"], place, color=colour, marker="o", ms=5, mfc="white", zorder=3)
    axes.set_xlim(-0.04, 1.04)
    axes.set_xticks([0.0, 0.5, 1.0])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))


def _draw_widths(axes: Axes, rows: pl.DataFrame, alpha: float) -> None:
    for place, row in enumerate(rows.iter_rows(named=True)):
        colour = VALID_COLOUR if is_valid(row, alpha) else INVALID_COLOUR
        axes.barh(place, row["width"], 0.6, color=colour, lw=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=TICK_STEPS))
    axes.xaxis.set_major_formatter("{x:.10g}")


def _format_axes(axes: Axes, estimators: list[str]) -> None:
    axes.set_yticks(range(len(estimators)), estimators)
    axes.set_ylim(len(estimators) - 0.4, -0.6)
    axes.tick_params(labelsize=SMALL_POINTS, color=LINE_COLOUR, labelcolor=TEXT_COLOUR)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID_COLOUR, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE_COLOUR)


def _make_keys(alpha: float) -> list[Line2D | Patch]:
    """The entries of the legend."""
    promise = f"{100 * (1 - alpha):.4g} %"
    every_look = Line2D([], [], color=LINE_COLOUR, marker="o", ms=5, lw=1.4)
    last_look = Line2D([], [], color=LINE_COLOUR, marker="o", ms=5, mfc="white", lw=0)
    every_look.set_label("at every look, ± 2 standard errors")
    last_look.set_label("at the last look")
    return [
        every_look,
        last_look,
        Line2D([], [], color=LINE_COLOUR, lw=0.9, ls=(0, (4, 2)), label=f"promised: {promise}"),
        Patch(color=VALID_COLOUR, label="holds at every look"),
        Patch(color=INVALID_COLOUR, label="does not"),
    ]
