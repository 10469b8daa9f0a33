"""The figure of decisions.py: on each stream, how much of the possible gain each library makes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.contestants import CONTESTANTS
from benchmarks.games import Result
from benchmarks.standings import OWN, Standing, collect, compute_error, find_best
from windvane._terminal.figures import (
    DPI,
    GRID_COLOUR,
    LINE_COLOUR,
    NORMAL_POINTS,
    SMALL_POINTS,
    TEXT_COLOUR,
    freeze_layout,
    save_figure,
)

BAR_COLOUR = "#CFE2EF"
LOOKS = {  # colour and marker
    "vw-epsilon": ("#D55E00", "s"),
    "vw-squarecb": ("#DB8F00", "D"),
    "vw-cover": ("#B15928", "X"),
    "river": ("#E377C2", "*"),
    "bayesianbandits": ("#009E73", "^"),
    "mabwiser": ("#6A3D6B", "v"),
    "contextualbandits": ("#8C8C8C", "P"),
    "own": ("#0072B2", "o"),
}
OWN_TITLE = "best of Windvane's policies"


def draw_decisions(results: Sequence[Result]) -> Figure:
    """Draw a row for each stream: a bar for Windvane's learner, a marker for each other one."""
    standings = collect(results)
    streams = [*dict.fromkeys(stream for stream, _ in standings)]
    figure = Figure((9.0, 0.36 * len(streams) + 1.5), DPI, layout="constrained")
    axes = figure.add_subplot()
    for name in ("windvane", *LOOKS):
        places, gains, errors = [], [], []
        for place, stream in enumerate(streams):
            standing = find_best(standings, stream, OWN if name == "own" else [name])
            if standing is not None:
                scaled = scale_rewards(standing, standings)
                places.append(place)
                gains.append(float(np.mean(scaled)))
                errors.append(2.0 * compute_error(scaled) if len(scaled) > 1 else 0.0)
        if not places:
            continue
        title = OWN_TITLE if name == "own" else CONTESTANTS[name].title
        if name == "windvane":
            bars = axes.barh(places, gains, 0.72, color=BAR_COLOUR, xerr=errors, ecolor=LINE_COLOUR)
            bars.set_label(f"{title} ± 2 standard errors")
        else:
            colour, marker = LOOKS[name]
            axes.scatter(gains, places, 26, colour, marker=marker, label=title, lw=0, zorder=3)
    axes.set_yticks(range(len(streams)), streams, fontsize=SMALL_POINTS, color=TEXT_COLOUR)
    axes.set(ylim=(len(streams) - 0.4, -0.6))
    axes.axvline(0.0, color=LINE_COLOUR, lw=0.8)
    axes.set_xlabel(
        "reward, from uniform choice (0) to the best action every time (100)",
        fontsize=NORMAL_POINTS,
        color=TEXT_COLOUR,
    )
    axes.tick_params(labelsize=SMALL_POINTS, color=LINE_COLOUR, labelcolor=TEXT_COLOUR)
    axes.grid(axis="x", color=GRID_COLOUR, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=SMALL_POINTS)
    freeze_layout(figure)
    return figure


def scale_rewards(standing: Standing, standings: dict[tuple[str, str], Standing]) -> list[float]:
    """Return the reward of each seed, from 0 for uniform choice to 100 for the best action."""
    lowest = standings[standing.stream, "uniform"].rewards
    highest = standings[standing.stream, "oracle"].rewards
    return [
        100.0 * (reward - lowest[seed]) / (highest[seed] - lowest[seed])
        for seed, reward in standing.rewards.items()
    ]


def write_figure(results: Sequence[Result], folder: Path) -> list[Path]:
    """Write decisions.png and decisions.pdf, or decisions-real of real data."""
    is_real = results[0].game.set_name == "real"
    return save_figure(
        draw_decisions(results), folder, "decisions-real" if is_real else "decisions"
    )
