"""Tuning: regret as a function of the memory's parameter, with the choices of theory marked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import polars as pl

from windvane import validation
from windvane._terminal.tables import Cell
from windvane.beliefs.adaptive import bandits, predictive
from windvane.errors import SettingError
from windvane.exploration import Exploration, as_exploration
from windvane.lab.engines.game import Player
from windvane.lab.experiments import Experiment, Report, open_report, run_all
from windvane.lab.studies.plan import describe_problem, make_default_world, noise_scale
from windvane.lab.studies.result import StudyResult, count_noun, standard_error
from windvane.lab.worlds import World
from windvane.memory import MEMORIES, keep, memory_of_size, names_of
from windvane.theory import TUNINGS, discount_for, span_for
from windvane.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THEORY = "theory's choice"
OLDER = "older, uncorrected choice"
BEST = "best"
AXES = {"discount": "discount γ", "window": "window w", "restart": "rounds between restarts H"}
SHORTEST_MEMORY_ROUNDS = 5
POINTS_PER_CURVE = 10


@dataclass(frozen=True, eq=False, repr=False)
class Tuning(StudyResult):
    """The result of `tune`.

    `table` has one row for each memory: the parameter ("discount γ", "window w" or
    "rounds between restarts H"; null for a policy that adapts its memory), end regret,
    standard error, to the best (the ratio to the best fixed memory), choice (what is special about
    this memory, or the name of the policy that adapts).
    """

    world: str  # the text of the world
    exploration: str
    replications: int
    seed: int
    table: pl.DataFrame

    file = "tuning.json"
    picture = "tuning"
    keys: ClassVar = {"table": "results"}

    @property
    def axis(self) -> str:
        """The name of the parameter, which is the first column of the table."""
        return self.table.columns[0]

    def describe(self) -> str:
        fixed = count_noun(self.table[self.axis].count(), "value")
        return f"{fixed} of {self.axis}, {self.exploration}, {self.world}, seed {self.seed}"

    def figure(self) -> "Figure":
        """Draw the end regret over the parameter, with the special choices marked."""
        from windvane.lab.studies.figures import draw_tuning

        fixed = self.table.filter(pl.col(self.axis).is_not_null())
        adaptive = self.table.filter(pl.col(self.axis).is_null())
        means, errors, choices = ("end regret", "standard error", "choice")
        marks = {
            name: value
            for value, names in zip(fixed[self.axis], fixed[choices], strict=True)
            for name in names.split("; ")
            if name
        }
        levels = {
            name: (mean, error)
            for name, mean, error in adaptive.select(choices, means, errors).iter_rows()
        }
        return draw_tuning(
            fixed[self.axis], fixed[means], fixed[errors], marks, self.axis, levels=levels
        )


def tune(
    memory: str = "discount",
    exploration: Exploration | str = "thompson(0.4)",
    world: World | None = None,
    replications: int = 20,
    points: int = 13,
    seed: int = 1,
    *,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Report = False,
) -> Tuning:
    """Play memories of one family, from a few rounds to the whole horizon, and compare them.

    `memory` is "discount", "window" or "restart". `points` memories are spaced evenly on a log
    scale; the choices of theory are added, and so are three policies that adapt their memory.
    The default world has 10 dimensions, 20 arms and 5000 rounds, and flips 6 of 10 signs half-way.
    `checkpoint` and `progress` are those of `simulate`.
    """
    place = make_default_world() if world is None else world
    points = validation.whole("tune", "points", points, least=3)
    replications = validation.whole("tune", "replications", replications)
    seed = validation.whole("tune", "seed", seed, least=0)
    values, choices = choose_values(memory, place, points)
    explores = as_exploration("tune", exploration)
    memories = [memory_of_size("tune", memory, int(value), value) for value in values]
    problem = (place.dim, place.horizon, memory, noise_scale(place.reward))
    adaptations = {
        "bandits over bandits": bandits(*problem),
        "the same, warm": bandits(*problem, warm=True),
        "predictive memory": predictive(memory),
    }
    players = [Player(repr(each), each, explores) for each in memories]
    players += [
        Player(name, keep(), explores, adaptation=each) for name, each in adaptations.items()
    ]
    experiment = Experiment((*players,), place, replications, seed, points=POINTS_PER_CURVE)
    with open_report(progress) as report:
        regret = run_all({"tuning": experiment}, report, checkpoint)["tuning"].regret
    rows = summarize(AXES[memory], values, choices, [*adaptations], regret[:, :, -1])
    return Tuning(repr(place), str(exploration), replications, seed, pl.DataFrame(rows))


def summarize(
    axis: str,
    values: Sequence[float],
    choices: Mapping[str, float],
    adaptive: Sequence[str],
    end: Floats,
) -> list[dict[str, Cell]]:
    """Return the rows of the table, from the end regrets (players, replications).

    The fixed memories come first, then the policies that adapt.
    """
    means = end.mean(axis=1)
    best = int(means[: len(values)].argmin())
    labels: dict[float, list[str]] = {}
    for label, value in {**choices, BEST: values[best]}.items():
        labels.setdefault(value, []).append(label)
    listed: list[tuple[float | None, str]] = [
        (value, "; ".join(labels.get(value, []))) for value in values
    ]
    listed += [(None, name) for name in adaptive]
    return [
        {
            axis: value,
            "end regret": float(means[p]),
            "standard error": standard_error(end[p]),
            "to the best": float(means[p]) / float(means[best]),
            "choice": label,
        }
        for p, (value, label) in enumerate(listed)
    ]


def choose_values(family: str, world: World, points: int) -> tuple[list[float], dict[str, float]]:
    """Return γ, w or H, ascending, from a few rounds to the whole horizon, and theory's choices."""
    families = names_of(lambda kind: bool(kind.sized_by))
    if family not in families:
        hint = validation.suggest(family, families)
        raise SettingError(
            f"tune: memory must be one of {', '.join(families)}, got {family!r}{hint}"
        )
    drift = describe_problem(world).drift or 1.0
    lengths = np.geomspace(SHORTEST_MEMORY_ROUNDS, world.horizon, points)
    if MEMORIES[family].sized_by == "gamma":
        spaced = [1.0 - 1.0 / length for length in lengths]
        rates = [discount_for(world.dim, world.horizon, drift, tuning=t) for t in TUNINGS]
        choices = dict(zip((THEORY, OLDER), rates, strict=True))
    else:
        spaced = [float(round(length)) for length in lengths]
        older = 1.0 / (1.0 - discount_for(world.dim, world.horizon, drift, tuning="uncorrected"))
        span = float(span_for(world.dim, world.horizon, drift))
        choices = {THEORY: span, OLDER: float(np.ceil(older))}
    return sorted(float(value) for value in {*spaced, *choices.values()}), choices
