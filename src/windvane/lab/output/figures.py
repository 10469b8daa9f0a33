"""Figures: regret over rounds, and regret over a tuning parameter.

Curves differ in hue (Okabe–Ito), lightness, dashes and marker, so they are told apart without
colour vision and on grey paper. Where a few curves tower over the rest they leave their panel at
its top; the end value of every curve stands at the panel's right edge.
"""

import os
from collections.abc import Mapping, Sequence
from math import ceil, log10
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator
from scipy.optimize import isotonic_regression

from windvane import validation
from windvane.errors import SettingError
from windvane.lab.running.experiment import Result
from windvane.types import Floats

DPI = 180
SMALL, NORMAL = 8.0, 9.0  # points
INK, QUIET, GRID = "#222222", "#6B6B6B", "#E6E6E6"
BAND = (10, 90)  # percentiles over replications
TOWERING = 1.8  # a curve so many times above the next lower one leaves the panel
STEPS = [1, 2, 2.5, 5, 10]  # between ticks, times a power of ten


class Panel(NamedTuple):
    """One world's result, and the rounds at which that world changes."""

    title: str
    result: Result
    changes: tuple[int, ...] = ()


class Style(NamedTuple):
    """How a policy is drawn."""

    colour: str
    dashes: tuple[float, ...]  # on, off, ... in line widths; none for a solid line
    marker: str


NAMED = {
    "D-LinUCB": Style("#000000", (), "o"),
    "D-RandLinUCB": Style("#0072B2", (5, 1.5), "s"),
    "D-LinTS": Style("#DB8F00", (6, 1.5, 1.2, 1.5), "^"),
    "LinTS": Style("#AA5588", (), "D"),
    "LinTS-OR": Style("#005A43", (1.2, 1.2), "v"),
}
HUES = ("#D55E00", "#56B4E9", "#6A3D6B", "#8C8C8C", "#009E73", "#B8A800")
DASHES: tuple[tuple[float, ...], ...] = ((3, 1), (), (8, 2, 2, 2), (1, 2), (10, 3))
OTHERS = tuple(Style(HUES[k % 6], DASHES[k % 5], "XP<h>dp"[k % 7]) for k in range(210))


def styles(names: Sequence[str]) -> dict[str, Style]:
    """The style of each name: its own where it has one, else the next that is free."""
    free = [style for name, style in NAMED.items() if name not in names] + [*OTHERS]
    others = [name for name in dict.fromkeys(names) if name not in NAMED]
    given = {name: free[place % len(free)] for place, name in enumerate(others)}
    return {name: NAMED.get(name) or given[name] for name in names}


def curves(panels: Sequence[Panel], note: str = "", columns: int = 3) -> Figure:
    """Cumulative regret over rounds in each panel: mean and 10–90 % band of every policy."""
    if not panels:
        raise SettingError("curves: at least one panel is needed, got none")
    columns = min(validation.whole("curves", "columns", columns), len(panels))
    rows = ceil(len(panels) / columns)
    names = list(dict.fromkeys(name for panel in panels for name in panel.result.names))
    style = styles(names)
    keys = [_line([], [], style[name], name) for name in names]
    if any(panel.changes for panel in panels):
        keys.append(Line2D([], [], color=QUIET, lw=0, marker="|", ms=11, label="change"))
    # inches: a panel's width, and the height of its axes; room for long numbers, and for many
    width, tall = (6.8, 3.9) if len(panels) == 1 else (3.2, 2.2)
    width += 0.12 * max(0, max(len(_number(p.result.mean().max())) for p in panels) - 6)
    tall = max(tall, 0.16 * max(len(panel.result.names) for panel in panels))
    longest = 0.7 + 0.07 * max(len(str(key.get_label())) for key in keys)
    lines = ceil(len(keys) / max(1, int(width * columns / longest)))  # of the legend
    size = (width * columns, (tall + 0.6) * rows + 0.2 * lines + 0.4)
    figure = Figure(size, DPI, layout="constrained")
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        _dress(axes, "round" if place + columns >= len(panels) else "", place % columns == 0)
        axes.set_title(panel.title, fontsize=NORMAL, color=INK, loc="left")
        _draw(axes, panel, style, (1 / (width - 1), 1 / tall))
    look = {"frameon": False, "fontsize": NORMAL, "handlelength": 3.2, "columnspacing": 1.6}
    figure.legend(handles=keys, loc="outside lower center", ncols=ceil(len(keys) / lines), **look)
    return _settled(figure, note)


def tuning(
    values: npt.ArrayLike,
    means: npt.ArrayLike,
    errors: npt.ArrayLike,
    marks: Mapping[str, float],
    xlabel: str,
    note: str = "",
    found: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """Regret over γ, w or H, mean ± error, with some choices marked.

    The axis is logarithmic; values up to 1 are discounts, drawn at their memory 1/(1 − γ). What is
    `found` without a choice, as mean and error, is drawn across.
    """
    x, y, error = (np.asarray(given, dtype=np.float64) for given in (values, means, errors))
    if x.ndim != 1 or not x.size or not x.shape == y.shape == error.shape:
        shapes = x.shape, y.shape, error.shape
        raise SettingError(f"tuning: each value needs a mean and an error, got shapes {shapes}")
    discounts = bool(x.max() <= 1)
    for value in (*x.tolist(), *marks.values()):
        (validation.inside if discounts else validation.positive)("tuning", xlabel, value)
    x, y, error = np.stack([x, y, error])[:, np.argsort(x)]
    x = 1 / (1 - x) if discounts else x
    places = {name: 1 / (1 - v) if discounts else v for name, v in marks.items()}
    figure = Figure((6.6, 4.2), DPI, layout="constrained")
    axes = figure.add_subplot()
    _dress(axes, xlabel, True)
    _log_axis(axes, np.array([*x, *places.values()]), discounts)
    blue = NAMED["D-RandLinUCB"].colour
    axes.errorbar(x, y, error, color=blue, lw=1.5, marker="o", ms=4, elinewidth=1, capsize=2.5)
    text = _discount if discounts else _number
    _flag(axes, {f"{name}: {text(place)}": place for name, place in places.items()})
    _across(axes, found or {})
    return _settled(figure, note)


def save(figure: Figure, directory: Path, stem: str) -> list[Path]:
    """Write the figure as PNG and as PDF, each whole or not at all, without a date in it."""
    directory.mkdir(parents=True, exist_ok=True)
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}}
    for kind, dateless in metadata.items():
        draft = directory / f".{stem}.{kind}.{os.getpid()}.tmp"
        try:
            figure.savefig(draft, format=kind, dpi=DPI, metadata=dateless)
            os.replace(draft, directory / f"{stem}.{kind}")
        finally:
            draft.unlink(missing_ok=True)
    return [directory / f"{stem}.{kind}" for kind in metadata]


def _dress(axes: Axes, xlabel: str, first: bool) -> None:
    axes.set_xlabel(xlabel, fontsize=NORMAL, color=INK)
    axes.set_ylabel("cumulative dynamic regret" if first else "", fontsize=NORMAL, color=INK)
    axes.grid(color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=SMALL, color=QUIET, labelcolor=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(QUIET)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(6, steps=STEPS))
        axis.set_major_formatter("{x:,.10g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _discount(memory: float) -> str:
    return f"{1 - 1 / memory:.{max(2, ceil(log10(memory)) + 2)}g}"  # two digits after the nines


def _line(x: npt.ArrayLike, y: npt.ArrayLike, style: Style, name: str, lw: float = 1.5) -> Line2D:
    dashes = (0, style.dashes) if style.dashes else "-"
    line = Line2D(x, y, lw=lw, ls=dashes, color=style.colour, marker=style.marker, label=name)
    line.set(markersize=5, markeredgecolor="white", markeredgewidth=0.4)
    return line


def _draw(axes: Axes, panel: Panel, style: Mapping[str, Style], inch: tuple[float, float]) -> None:
    """The curves of a panel, `inch` being an inch as a share of its width and height."""
    names, marks, regret = panel.result
    mean = panel.result.mean()  # (players, M)
    low, high = np.percentile(regret, BAND, axis=1)  # (players, M)
    top = _ceiling(mean.max(axis=1), np.maximum(mean, high).max(axis=1))
    axes.set(xlim=(0, marks[-1]), ylim=(0, top))
    axes.xaxis.set_major_locator(MaxNLocator(5 if marks[-1] <= 10_000 else 3, steps=STEPS))
    for change in panel.changes:
        axes.axvline(change, color=QUIET, lw=0.6, zorder=1)
    every = max(1, marks.size // 5)  # so many points of a curve for one marker
    for p, name in enumerate(names):
        axes.fill_between(marks, low[p], high[p], color=style[name].colour, alpha=0.12, lw=0)
        line = axes.add_line(_line(marks, mean[p], style[name], name))
        line.set_markevery((every * p // len(names), every))  # two curves' markers do not meet
    ends = mean[:, -1] / top
    order = np.argsort(ends)
    edge = 1 + 0.12 * inch[0]
    for p, y in zip(order, _spread(ends[order], 1.3 * SMALL / 72 * inch[1]), strict=True):
        beyond = ends[p] > 1
        path = ([edge, edge], [y, y]) if beyond else ([1, edge], [ends[p], y])
        leader = _line(*path, style[names[p]], "_end", 0.8)
        leader.set(transform=axes.transAxes, clip_on=False, linestyle="-", markevery=[1])
        axes.add_line(leader)
        text = ("↑ " if beyond else "") + _number(mean[p, -1])
        place = (edge + 0.08 * inch[0], y)
        axes.text(*place, text, transform=axes.transAxes, size=SMALL, color=INK, va="center")


def _ceiling(peaks: Floats, bands: Floats) -> float:
    """The top of a panel: above all bands, or those of most curves if the rest tower over them."""
    order = np.argsort(peaks)
    some = range(max(2, peaks.size // 2 + 1), peaks.size)  # most curves stay
    kept = next((k for k in some if peaks[order[k]] > TOWERING * peaks[order[k - 1]]), peaks.size)
    return float(bands[order[:kept]].max()) * (1.25 if kept < peaks.size else 1.05) or 1.0


def _spread(heights: Floats, gap: float) -> Floats:
    """Places in [0, 1] as near to the given ascending heights as a gap between them allows."""
    steps = gap * np.arange(heights.size)
    shifted = np.clip(heights - steps, 0, max(0, 1 - steps[-1]))
    return np.asarray(isotonic_regression(shifted).x + steps)


def _log_axis(axes: Axes, places: Floats, discounts: bool) -> None:
    axes.set_xscale("log")
    least, most = places.min() / 1.1, places.max() * 1.1
    axes.set_xlim(least, most)
    subs = (1, 2, 3, 4, 5, 7) if most < 10 * least else (1, 2, 5) if most < 1000 * least else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=subs))
    axes.xaxis.set_minor_formatter("")
    axes.xaxis.set_major_formatter("{x:,.10g}")
    if discounts:
        axes.set_xlabel(f"{axes.get_xlabel()}\n(memory 1/(1 − γ), in rounds)")
        axes.xaxis.set_major_formatter(lambda memory, _: f"{_discount(memory)}\n({memory:,.10g})")


def _flag(axes: Axes, flags: Mapping[str, float]) -> None:
    """Labelled vertical lines; each label flies away from the lines that reach higher than it."""
    places = sorted(flags, key=lambda name: flags[name])
    left = np.sum(np.log([*flags.values()]) - np.log(axes.get_xlim()).mean()) > 0  # more room
    side, across = "right" if left else "left", axes.get_xaxis_transform()
    for level, name in enumerate(places if left else reversed(places)):
        x, y = flags[name], 1.03 + 0.06 * level
        axes.plot([x, x], [0, y - 0.01], c=QUIET, lw=0.8, transform=across, clip_on=False, zorder=1)
        axes.text(x, y, name, transform=across, size=SMALL, color=INK, ha=side)


def _across(axes: Axes, found: Mapping[str, tuple[float, float]]) -> None:
    """Levels with their errors; one that would dwarf the curve is only told of."""
    top = axes.get_ylim()[1]
    keys = []
    for (name, (mean, error)), style in zip(found.items(), OTHERS, strict=False):
        beyond = mean > top
        keys.append(_line([], [], style, f"{name}: {_number(mean)}{' ↑' if beyond else ''}"))
        keys[-1].set_marker("")
        if not beyond:
            dashes = (0, style.dashes) if style.dashes else "-"
            axes.axhline(mean, color=style.colour, lw=1.3, ls=dashes, zorder=1.5)
            axes.axhspan(mean - error, mean + error, color=style.colour, alpha=0.12, lw=0)
    axes.set_ylim(0, top)
    if keys:
        axes.legend(handles=keys, fontsize=SMALL, frameon=False, handlelength=3)


def _settled(figure: Figure, note: str) -> Figure:
    """Add the note, lay the figure out once, and keep it so however often it is saved."""
    if note:
        figure.suptitle(note, x=0.99, ha="right", fontsize=SMALL, color=QUIET, style="italic")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure
