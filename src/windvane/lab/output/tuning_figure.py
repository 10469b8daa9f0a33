"""The figure of regret over a tuning parameter: a discount, a window or a restart period."""

from collections.abc import Mapping
from math import ceil, log10

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from windvane import validation
from windvane._terminal.figures import (
    DPI,
    LINE_COLOUR,
    NAMED_STYLES,
    OTHER_STYLES,
    SMALL_POINTS,
    TEXT_COLOUR,
    add_note,
    format_axes,
    format_number,
    freeze_layout,
    make_line,
)
from windvane.errors import SettingError
from windvane.types import Floats


def draw_tuning(
    values: npt.ArrayLike,
    means: npt.ArrayLike,
    errors: npt.ArrayLike,
    marks: Mapping[str, float],
    xlabel: str,
    note: str = "",
    levels: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Draw regret over γ, w or H, mean ± error, with the values in `marks` labelled.

    The axis is logarithmic. Values up to 1 are discounts, drawn at their memory 1/(1 − γ).
    `levels` are means and errors that do not depend on the value, drawn as horizontal lines.
    """
    x, y, error = (np.asarray(column, dtype=np.float64) for column in (values, means, errors))
    if x.ndim != 1 or not x.size or not x.shape == y.shape == error.shape:
        shapes = x.shape, y.shape, error.shape
        raise SettingError(
            f"draw_tuning: each value needs a mean and an error, got shapes {shapes}"
        )
    are_discounts = bool(x.max() <= 1)
    check = validation.inside if are_discounts else validation.positive
    for value in (*x.tolist(), *marks.values()):
        check("draw_tuning", xlabel, value)
    x, y, error = np.stack([x, y, error])[:, np.argsort(x)]
    x = 1 / (1 - x) if are_discounts else x
    places = {name: 1 / (1 - v) if are_discounts else v for name, v in marks.items()}
    figure = Figure((6.6, 4.2), DPI, layout="constrained")
    axes = figure.add_subplot()
    format_axes(axes, xlabel, has_ylabel=True)
    _set_log_axis(axes, np.array([*x, *places.values()]), are_discounts)
    blue = NAMED_STYLES["D-RandLinUCB"].colour
    axes.errorbar(x, y, error, color=blue, lw=1.5, marker="o", ms=4, elinewidth=1, capsize=2.5)
    format_value = _format_discount if are_discounts else format_number
    _draw_marks(axes, {f"{name}: {format_value(place)}": place for name, place in places.items()})
    _draw_levels(axes, levels or {})
    add_note(figure, note)
    freeze_layout(figure)
    return figure


def _format_discount(memory: float) -> str:
    return f"{1 - 1 / memory:.{max(2, ceil(log10(memory)) + 2)}g}"  # two digits after the nines


def _set_log_axis(axes: Axes, places: Floats, are_discounts: bool) -> None:
    axes.set_xscale("log")
    least = places.min() / 1.1
    most = places.max() * 1.1
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
        x = marks[name]
        y = 1.03 + 0.06 * level
        line = Line2D([x, x], [0, y - 0.01], color=LINE_COLOUR, lw=0.8, transform=transform)
        line.set(clip_on=False, zorder=1)
        axes.add_line(line)
        axes.text(x, y, name, transform=transform, size=SMALL_POINTS, color=TEXT_COLOUR, ha=side)


def _draw_levels(axes: Axes, levels: Mapping[str, tuple[float, float]]) -> None:
    """Draw horizontal lines with errors; a level above the panel is only in the legend."""
    top = axes.get_ylim()[1]
    keys = []
    for (name, (mean, error)), style in zip(levels.items(), OTHER_STYLES, strict=False):
        above = mean > top
        label = f"{name}: {format_number(mean)}{' ↑' if above else ''}"
        keys.append(make_line([], [], style, label))
        keys[-1].set_marker("")
        if not above:
            dashes = (0, style.dashes) if style.dashes else "-"
            axes.axhline(mean, color=style.colour, lw=1.3, ls=dashes, zorder=1.5)
            axes.axhspan(mean - error, mean + error, color=style.colour, alpha=0.12, lw=0)
    axes.set_ylim(0, top)
    if keys:
        axes.legend(handles=keys, fontsize=SMALL_POINTS, frameon=False, handlelength=3)
