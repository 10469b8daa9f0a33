"""Tables of decisions.py: a row for each stream and contestant, and a row for each stream."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from benchmarks.contestants import CONTESTANTS
from benchmarks.games import Result
from windvane._terminal.tables import Cell, format_cell

VOWPAL = ("vw-epsilon", "vw-squarecb", "vw-cover")
Titles = tuple[tuple[str, str], ...]  # titles and contestants
ENDS: Titles = (("uniform", "uniform"), ("best action", "oracle"))
VW: Titles = (("VW ε = 0.05", "vw-epsilon"), ("VW --squarecb", "vw-squarecb"))
OTHERS: Titles = (
    ("bayesianbandits", "bayesianbandits"),
    ("MABWiser", "mabwiser"),
    ("contextualbandits", "contextualbandits"),
    ("River", "river"),
)
OWN = tuple(name for name, entry in CONTESTANTS.items() if entry.is_own)


class Standing(NamedTuple):
    """The games of one contestant on one stream."""

    stream: str
    contestant: str
    rewards: dict[int, float]  # by seed
    last_quarters: list[float]
    micros: float

    @property
    def reward(self) -> float:
        """The mean over seeds."""
        return float(np.mean([*self.rewards.values()]))

    @property
    def error(self) -> float:
        """The standard error of the mean; nan for one seed."""
        return compute_error([*self.rewards.values()])


def compute_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; nan for a single value."""
    return float(np.std(values, ddof=1)) / sqrt(len(values)) if len(values) > 1 else float("nan")


def collect(results: Sequence[Result]) -> dict[tuple[str, str], Standing]:
    """Collect results by stream and contestant, in the order in which they come."""
    standings: dict[tuple[str, str], Standing] = {}
    for stream, name in dict.fromkeys((r.game.stream, r.game.contestant) for r in results):
        games = [r for r in results if (r.game.stream, r.game.contestant) == (stream, name)]
        rewards = {r.game.seed: r.reward for r in games if r.reward is not None}
        quarters = [r.last_quarter for r in games if r.last_quarter is not None]
        micros = float(np.mean([r.micros for r in games]))
        standings[stream, name] = Standing(stream, name, rewards, quarters, micros)
    return standings


def find_best(
    standings: dict[tuple[str, str], Standing], stream: str, names: Sequence[str]
) -> Standing | None:
    """Return the standing with the highest mean among contestants, if any of them played."""
    played = [standings[stream, name] for name in names if (stream, name) in standings]
    return max(
        (each for each in played if each.rewards), key=lambda each: each.reward, default=None
    )


def compare(standing: Standing, other: Standing) -> tuple[float, float]:
    """Return the ratio of the mean rewards on common seeds, and its standard error."""
    seeds = [seed for seed in standing.rewards if seed in other.rewards]
    if not seeds:
        return float("nan"), float("nan")
    mine, theirs = (np.array([each.rewards[s] for s in seeds]) for each in (standing, other))
    ratio = float(mine.mean() / theirs.mean())
    # of a ratio of means: the error of (mine − ratio · theirs), in units of the other's mean
    return ratio, compute_error((mine - ratio * theirs).tolist()) / float(theirs.mean())


def list_rows(results: Sequence[Result]) -> list[dict[str, Cell]]:
    """Return a row for each stream and contestant."""
    standings = collect(results)
    rows: list[dict[str, Cell]] = []
    for stream in dict.fromkeys(stream for stream, _ in standings):
        vowpal = find_best(standings, stream, VOWPAL)
        for name in CONTESTANTS:
            standing = standings.get((stream, name))
            if standing is not None:
                rows.append(_make_row(standing, vowpal))
    return rows


def _make_row(standing: Standing, vowpal: Standing | None) -> dict[str, Cell]:
    """Return the row of a standing; empty cells where there is nothing to say."""
    has_reward, error = bool(standing.rewards), standing.error if standing.rewards else 0.0
    ratio = compare(standing, vowpal)[0] if has_reward and vowpal else float("nan")
    return {
        "stream": standing.stream,
        "contestant": CONTESTANTS[standing.contestant].title,
        "seeds": len(standing.rewards),
        "reward": f"{standing.reward:.4f}" if has_reward else "over the limit",
        "±": f"{error:.4f}" if has_reward and error == error else "",
        "last quarter": f"{np.mean(standing.last_quarters):.4f}" if has_reward else "",
        "µs a round": round(standing.micros),
        "to Vowpal Wabbit": f"{ratio:.3f}" if ratio == ratio else "",
    }


def _format_ratio(ratio: float, error: float) -> str:
    """Return a ratio with its error; without it for one seed; nothing if there is none."""
    if ratio != ratio:
        return ""
    return f"{ratio:.3f} ± {error:.3f}" if error == error else f"{ratio:.3f}"


def summarise(results: Sequence[Result]) -> list[dict[str, Cell]]:
    """Return a row for each stream on which Windvane's learner played, on its seeds."""
    standings = collect(results)
    rows: list[dict[str, Cell]] = []
    for stream in dict.fromkeys(stream for stream, _ in standings):
        mine = standings.get((stream, "windvane"))
        if mine is None or not mine.rewards:
            continue
        vowpal = find_best(standings, stream, VOWPAL)
        own = find_best(standings, stream, OWN)
        error = f" ± {mine.error:.4f}" if len(mine.rewards) > 1 else ""
        rows.append(
            {
                "stream": stream,
                "seeds": len(mine.rewards),
                **{
                    title: _format_mean(standings.get((stream, name)), mine) for title, name in ENDS
                },
                "Windvane": f"{mine.reward:.4f}{error}",
                **_list_means(standings, mine, VW),
                "to the better VW": _format_ratio(*compare(mine, vowpal)) if vowpal else "",
                "best own policy": f"{_format_mean(own, mine)} {own.contestant}" if own else "",
                "to own policy": _format_ratio(*compare(mine, own)) if own else "",
            }
        )
    return rows


def list_real(results: Sequence[Result]) -> list[dict[str, Cell]]:
    """Return a row for each stream of real data: the learner beside the best of the others.

    The last column is the ratio of the gains over uniform choices, on the common seeds.
    """
    standings = collect(results)
    rows: list[dict[str, Cell]] = []
    for stream in dict.fromkeys(stream for stream, _ in standings):
        mine, uniform = standings.get((stream, "windvane")), standings.get((stream, "uniform"))
        if mine is None or uniform is None:
            continue
        vowpal = find_best(standings, stream, VOWPAL)
        other = find_best(standings, stream, [name for _, name in OTHERS])
        best = max((each for each in (vowpal, other) if each), key=lambda each: each.reward)
        seeds = [seed for seed in best.rewards if seed in mine.rewards]
        base, own, theirs = (
            np.mean([each.rewards[seed] for seed in seeds]) for each in (uniform, mine, best)
        )
        rows.append(
            {
                "stream": stream,
                "uniform": f"{uniform.reward:.3f}",
                "Windvane": f"{mine.reward:.3f} ± {mine.error:.3f}",
                "worst of its seeds": f"{min(mine.rewards.values()):.3f}",
                "best Vowpal Wabbit": _name_best(vowpal),
                "best other library": _name_best(other),
                "`Policy(dim)`": _format_played(standings.get((stream, "policy"))),
                "gain to the best": f"{(own - base) / (theirs - base):.2f}",
            }
        )
    return rows


def _name_best(standing: Standing | None) -> str:
    if standing is None:
        return ""
    title = CONTESTANTS[standing.contestant].title.removeprefix("Vowpal Wabbit, ")
    return f"{_format_played(standing)} {title}"


def list_others(results: Sequence[Result]) -> list[dict[str, Cell]]:
    """Return a row for each stream: the libraries that take vectors, and the best own policy.

    The number of seeds stands in brackets. The best own policy is that to which the ratio of
    Windvane's learner, on the seeds of both, is lowest.
    """
    standings = collect(results)
    rows: list[dict[str, Cell]] = []
    for stream in dict.fromkeys(stream for stream, _ in standings):
        mine = standings.get((stream, "windvane"))
        names = [name for _, name in OTHERS] + [*OWN]
        if mine is None or not any((stream, name) in standings for name in names):
            continue
        own = [standings[stream, name] for name in OWN if (stream, name) in standings]
        ratios = {each.contestant: compare(mine, each) for each in own if each.rewards}
        known = {name: ratio for name, ratio in ratios.items() if ratio[0] == ratio[0]}
        best = min(known, key=lambda name: known[name][0], default=None)
        rows.append(
            {
                "stream": stream,
                "Windvane": _format_played(mine),
                **{title: _format_played(standings.get((stream, name))) for title, name in OTHERS},
                "best own policy": (
                    f"{_format_played(standings[stream, best])} {best}"
                    if best
                    else ("given up" if own else "not played")
                ),
                "Windvane's learner to it": _format_ratio(*known[best]) if best else "",
            }
        )
    return rows


def _format_played(standing: Standing | None) -> str:
    """Return the mean reward with the number of seeds, or why there is none."""
    if standing is None:
        return "not played"
    if not standing.rewards:
        return f"given up: {standing.micros / 1000:.1f} ms a round"
    digits = 4 if standing.reward < 0.1 else 3
    return f"{standing.reward:.{digits}f} ({len(standing.rewards)})"


def _list_means(
    standings: dict[tuple[str, str], Standing], mine: Standing, names: Titles
) -> dict[str, str]:
    """Return the mean rewards of contestants on one stream, by title."""
    stream = mine.stream
    return {title: _format_mean(standings.get((stream, name)), mine) for title, name in names}


def _format_mean(standing: Standing | None, mine: Standing) -> str:
    """Return the mean reward on the seeds that Windvane's learner played too."""
    rewards = standing.rewards if standing else {}
    common = [reward for seed, reward in rewards.items() if seed in mine.rewards]
    return f"{np.mean(common):.4f}" if common else ""


def format_markdown(rows: Sequence[dict[str, Cell]]) -> str:
    """Format rows as a table of Markdown."""
    lines = [[*rows[0]], ["---"] * len(rows[0])]
    lines += [[format_cell(cell) for cell in row.values()] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
