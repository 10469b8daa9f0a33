"""The figure of the leaderboard: a row for each policy, a marker for each world."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from windvane._terminal.figures import (
    DPI,
    GRID_COLOUR,
    HUES,
    LINE_COLOUR,
    NORMAL_POINTS,
    SMALL_POINTS,
    TEXT_COLOUR,
    add_note,
)
from windvane.lab.output.standings import Standing

MARKERS = "os^Dv<>Ph"
BAR_COLOUR = "#CFE2EF"


def draw_leaderboard(standings: Sequence[Standing], note: str = "") -> Figure:
    """Draw scores with their errors as bars, and the share of each world as a marker on top."""
    figure = Figure((9.0, 0.2 * len(standings) + 1.5), DPI, layout="constrained")
    axes = figure.add_subplot()
    places = range(len(standings))
    scores = [100.0 * standing.score for standing in standings]
    errors = [200.0 * standing.error for standing in standings]
    label = "score ± 2 standard errors"
    axes.barh(places, scores, 0.72, color=BAR_COLOUR, xerr=errors, ecolor=LINE_COLOUR, label=label)
    for k, title in enumerate(standings[0].shares):
        shares = [100.0 * standing.shares[title] for standing in standings]
        marker = MARKERS[k % len(MARKERS)]
        hue = HUES[k % len(HUES)]
        axes.scatter(shares, places, 16, hue, marker=marker, label=title, linewidths=0, zorder=3)
    names = [standing.name for standing in standings]
    axes.set_yticks(places, names, fontsize=SMALL_POINTS, color=TEXT_COLOUR)
    axes.set(ylim=(len(standings) - 0.4, -0.6), xlim=(0, None))
    axes.set_xlabel(
        "regret, in % of what playing at random loses", fontsize=NORMAL_POINTS, color=TEXT_COLOUR
    )
    axes.tick_params(labelsize=SMALL_POINTS, color=LINE_COLOUR, labelcolor=TEXT_COLOUR)
    axes.grid(axis="x", color=GRID_COLOUR, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=SMALL_POINTS)
    add_note(figure, note)
    return figure
