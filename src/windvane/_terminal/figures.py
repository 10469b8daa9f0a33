"""What all figures share: colours, line styles, axes, and how a figure is saved.

Curves differ in hue (Okabe–Ito palette), lightness, dashes and marker, so readers can distinguish
them without colour vision and on grey paper.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from windvane.persistence import replace_file

DPI = 180
SMALL_POINTS = 8.0  # font size
NORMAL_POINTS = 9.0  # font size
TEXT_COLOUR = "#222222"
LINE_COLOUR = "#6B6B6B"  # axes, marks and notes
GRID_COLOUR = "#E6E6E6"
TICK_STEPS = [1, 2, 2.5, 5, 10]  # between ticks, times a power of ten
LABEL_LOOK: dict[str, Any] = {"fontsize": NORMAL_POINTS, "color": TEXT_COLOUR}


class Style(NamedTuple):
    """How the curve of a policy is drawn."""

    colour: str
    dashes: tuple[float, ...]  # on, off, ... in line widths; empty for a solid line
    marker: str


NAMED_STYLES = {
    "D-LinUCB": Style("#000000", (), "o"),
    "D-RandLinUCB": Style("#0072B2", (5, 1.5), "s"),
    "D-LinTS": Style("#DB8F00", (6, 1.5, 1.2, 1.5), "^"),
    "LinTS": Style("#AA5588", (), "D"),
    "LinTS-OR": Style("#005A43", (1.2, 1.2), "v"),
}
HUES = ("#D55E00", "#56B4E9", "#6A3D6B", "#8C8C8C", "#009E73", "#B8A800")
DASHES: tuple[tuple[float, ...], ...] = ((3, 1), (), (8, 2, 2, 2), (1, 2), (10, 3))
OTHER_STYLES = tuple(Style(HUES[k % 6], DASHES[k % 5], "XP<h>dp"[k % 7]) for k in range(210))


def assign_styles(names: Sequence[str]) -> dict[str, Style]:
    """Return a style for each name: the fixed one if it has one, else the next free style."""
    free = [style for name, style in NAMED_STYLES.items() if name not in names] + [*OTHER_STYLES]
    others = [name for name in dict.fromkeys(names) if name not in NAMED_STYLES]
    assigned = {name: free[place % len(free)] for place, name in enumerate(others)}
    return {name: NAMED_STYLES.get(name) or assigned[name] for name in names}


def make_line(
    x: npt.ArrayLike, y: npt.ArrayLike, style: Style, name: str, width: float = 1.5
) -> Line2D:
    """Return a line in a style, not yet on any axes."""
    dashes = (0, style.dashes) if style.dashes else "-"
    line = Line2D(x, y, lw=width, ls=dashes, color=style.colour, marker=style.marker, label=name)
    line.set(markersize=5, markeredgecolor="white", markeredgewidth=0.4)
    return line


def format_axes(axes: Axes, xlabel: str, has_ylabel: bool) -> None:
    """Set the labels, the grid and the look of axes that show regret."""
    axes.set_xlabel(xlabel, **LABEL_LOOK)
    axes.set_ylabel("cumulative dynamic regret" if has_ylabel else "", **LABEL_LOOK)
    draw_frame(axes)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=TICK_STEPS))
        axis.set_major_formatter("{x:,.10g}")


def draw_frame(axes: Axes, grid_axis: Literal["both", "x"] = "both") -> None:
    """Set the look of ticks and grid lines, and of the lines on the left and below."""
    axes.grid(axis=grid_axis, color=GRID_COLOUR, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(
        which="both", labelsize=SMALL_POINTS, color=LINE_COLOUR, labelcolor=TEXT_COLOUR
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(LINE_COLOUR)


def add_legend(figure: Figure, columns: int, points: float, **look: Any) -> None:
    """Write a legend below all axes of a figure, without a frame."""
    look |= {"ncols": columns, "fontsize": points}
    figure.legend(loc="outside lower center", frameon=False, **look)


def format_number(value: float) -> str:
    """Return a number with three digits, or whole if it is 100 or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def add_note(figure: Figure, note: str) -> None:
    """Write a note, such as the source of the data, in the corner of a figure."""
    if note:
        look = {"fontsize": SMALL_POINTS, "color": LINE_COLOUR, "style": "italic"}
        figure.suptitle(note, x=0.99, ha="right", **look)


def freeze_layout(figure: Figure) -> None:
    """Lay the figure out once, so that it looks the same however often it is saved."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def save_figure(figure: Figure, folder: Path, stem: str) -> list[Path]:
    """Write the figure as PNG, PDF and SVG, without a date, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    for kind, entries in metadata.items():
        # the salt gives the parts of an SVG file the same ids every time
        with replace_file(folder / f"{stem}.{kind}") as draft, rc_context({"svg.hashsalt": stem}):
            figure.savefig(draft, format=kind, dpi=DPI, metadata=entries)
    return [folder / f"{stem}.{kind}" for kind in metadata]
