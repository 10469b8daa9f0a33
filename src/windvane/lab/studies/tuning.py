"""Tuning: regret as a function of the memory's parameter, with the choices of theory marked."""

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import polars as pl

from windvane import validation
from windvane._terminal.tables import Cell
from windvane.beliefs.adaptive import Adaptation, bandits, predictive
from windvane.errors import SettingError
from windvane.exploration import Exploration, as_exploration
from windvane.lab.engines.game import Player
from windvane.lab.experiments import Experiment, ExperimentResult, Report, open_report, run_all
from windvane.lab.studies.plan import describe_problem, make_default_world, noise_scale
from windvane.lab.studies.result import StudyResult, count_noun, standard_error
from windvane.lab.worlds import World
from windvane.memory import MEMORIES, keep, memory_of_size, names_of
from windvane.theory import TUNINGS, discount_for, span_for

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
        """Return one line that says what was played."""
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
    search = make_search(memory, exploration, place, points)
    with open_report(progress) as report:
        experiments = {"tuning": search.experiment(replications, seed)}
        result = run_all(experiments, report, checkpoint)["tuning"]
    table = pl.DataFrame(search.summarize(result))
    return Tuning(repr(place), str(exploration), replications, seed, table)


class Search(NamedTuple):
    """Memories of one family, with the choices of theory among them."""

    family: str
    exploration: Exploration
    world: World
    values: tuple[float, ...]  # γ, w or H, ascending
    choices: dict[str, float]  # by theory

    def experiment(self, replications: int, seed: int) -> Experiment:
        """Return the experiment: a player for each memory, and the policies that adapt."""
        memories = [memory_of_size("tune", self.family, int(value), value) for value in self.values]
        fixed = [Player(repr(memory), memory, self.exploration) for memory in memories]
        adaptive = [
            Player(name, keep(), self.exploration, adaptation=adaptation)
            for name, adaptation in self.adaptations().items()
        ]
        players = (*fixed, *adaptive)
        return Experiment(players, self.world, replications, seed, points=POINTS_PER_CURVE)

    def adaptations(self) -> dict[str, Adaptation]:
        """Return the ways to adapt a memory of this family during a run."""
        noise = noise_scale(self.world.reward)
        problem = (self.world.dim, self.world.horizon, self.family, noise)
        return {
            "bandits over bandits": bandits(*problem),
            "the same, warm": bandits(*problem, warm=True),
            "predictive memory": predictive(self.family),
        }

    def summarize(self, result: ExperimentResult) -> list[dict[str, Cell]]:
        """Return the rows of the table: the fixed memories, then the policies that adapt."""
        end = result.regret[:, :, -1]
        means = end.mean(axis=1)
        best = int(means[: len(self.values)].argmin())
        labels: dict[float, list[str]] = {}
        for label, value in {**self.choices, BEST: self.values[best]}.items():
            labels.setdefault(value, []).append(label)
        listed: list[tuple[float | None, str]] = [
            (float(value), "; ".join(labels.get(value, []))) for value in self.values
        ]
        listed += [(None, name) for name in self.adaptations()]
        return [
            {
                AXES[self.family]: value,
                "end regret": float(means[p]),
                "standard error": standard_error(end[p]),
                "to the best": float(means[p]) / float(means[best]),
                "choice": label,
            }
            for p, (value, label) in enumerate(listed)
        ]


def make_search(family: str, exploration: Exploration | str, world: World, points: int) -> Search:
    """Choose memories from a few rounds to the whole horizon, evenly spaced on a log scale."""
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
    values = tuple(sorted({*spaced, *choices.values()}))
    return Search(family, as_exploration("tune", exploration), world, values, choices)
