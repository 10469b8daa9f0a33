"""The picture of the leaderboard: a line for each policy, a mark for each world."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from windvane.lab.output.figures import DPI, GRID, HUES, INK, NORMAL, QUIET, SMALL
from windvane.lab.studies.leaderboard import Standing

MARKS = "os^Dv<>Ph"


def ranking(standings: Sequence[Standing], note: str = "") -> Figure:
    """Scores with their errors as bars, the shares of single worlds as marks over them."""
    figure = Figure((9.0, 0.2 * len(standings) + 1.5), DPI, layout="constrained")
    axes = figure.add_subplot()
    places = range(len(standings))
    scores = [100.0 * standing.score for standing in standings]
    errors = [200.0 * standing.error for standing in standings]
    told = "score ± 2 standard errors"
    axes.barh(places, scores, 0.72, color="#CFE2EF", xerr=errors, ecolor=QUIET, label=told)
    for k, title in enumerate(standings[0].shares):
        shares = [100.0 * standing.shares[title] for standing in standings]
        mark, hue = MARKS[k % len(MARKS)], HUES[k % len(HUES)]
        axes.scatter(shares, places, 16, hue, marker=mark, label=title, linewidths=0, zorder=3)
    axes.set_yticks(places, [standing.name for standing in standings], fontsize=SMALL, color=INK)
    axes.set(ylim=(len(standings) - 0.4, -0.6), xlim=(0, None))
    axes.set_xlabel("regret, in % of what playing at random loses", fontsize=NORMAL, color=INK)
    axes.tick_params(labelsize=SMALL, color=QUIET, labelcolor=INK)
    axes.grid(axis="x", color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=SMALL)
    if note:
        figure.suptitle(note, x=0.99, ha="right", fontsize=SMALL, color=QUIET, style="italic")
    return figure
