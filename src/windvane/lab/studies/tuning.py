"""The tuning view: regret as a function of how much is remembered."""

from typing import NamedTuple

import numpy as np

from windvane import text_form, validation
from windvane._text_table import Cell
from windvane.adaptive.selection import Adaptation, bandits, predictive
from windvane.errors import SettingError
from windvane.exploration import Exploration
from windvane.lab.engines.linear import Player
from windvane.lab.running.experiment import Experiment, Result
from windvane.lab.studies.paper import standard_error
from windvane.lab.studies.plan import noise_of, problem
from windvane.lab.worlds.definition import World
from windvane.memory import MEMORIES, Memory, keep, names_of
from windvane.theory import TUNINGS, discount_for, span_for
from windvane.types import Floats

THEORY, OLDER, BEST = "theory's choice", "older, uncorrected choice", "best"
AXES = {"discount": "discount γ", "window": "window w", "restart": "rounds between restarts H"}


class Curve(NamedTuple):
    """Regret by memory."""

    values: Floats  # (N,)  γ, w or H
    means: Floats  # (N,)
    errors: Floats  # (N,)  standard errors
    marks: dict[str, float]  # the values worth naming
    found: dict[str, tuple[float, float]]  # mean and error of those who find their memory
    axis: str

    def rows(self) -> list[dict[str, Cell]]:
        """The curve as a table, what is marked named beside it, then those who find their own."""
        named: dict[float, list[str]] = {}
        for name, value in self.marks.items():
            named.setdefault(value, []).append(name)
        listed: list[tuple[float | None, float, float, str]] = [
            (float(value), float(mean), float(error), "; ".join(named.get(float(value), [])))
            for value, mean, error in zip(self.values, self.means, self.errors, strict=True)
        ]
        listed += [(None, mean, error, name) for name, (mean, error) in self.found.items()]
        return [
            {
                self.axis: value,
                "end regret": mean,
                "standard error": error,
                "to the best": mean / float(self.means.min()),
                "choice": choice,
            }
            for value, mean, error, choice in listed
        ]


class Search(NamedTuple):
    """Memories of one family, with the choices of theory among them."""

    family: str
    exploration: Exploration
    world: World
    values: tuple[float, ...]
    chosen: dict[str, float]

    def experiment(self, replications: int, seed: int) -> Experiment:
        """Every memory as a player in the same replications, and those who find their own."""
        memories = [_memory(self.family, value) for value in self.values]
        fixed = [Player(repr(made), made, self.exploration) for made in memories]
        finding = [
            Player(name, keep(), self.exploration, adaptation=how)
            for name, how in self.finding().items()
        ]
        return Experiment((*fixed, *finding), self.world, replications, seed, points=10)

    def finding(self) -> dict[str, Adaptation]:
        """Ways to find a memory of this family as one goes."""
        noise = noise_of(self.world.reward)
        given = (self.world.dim, self.world.horizon, self.family, noise)
        return {
            "bandits over bandits": bandits(*given),
            "the same, warm": bandits(*given, warm=True),
            "predictive memory": predictive(self.family),
        }

    def curve(self, result: Result) -> Curve:
        """What was found, the best marked."""
        end, count = result.regret[:, :, -1], len(self.values)
        means, errors = end.mean(axis=1), np.array([standard_error(row) for row in end])
        marks = {**self.chosen, BEST: self.values[int(means[:count].argmin())]}
        found = {
            name: (float(means[p]), float(errors[p]))
            for p, name in enumerate(self.finding(), count)
        }
        values = np.array(self.values)
        return Curve(values, means[:count], errors[:count], marks, found, AXES[self.family])


def search(family: str, exploration: Exploration | str, world: World, points: int) -> Search:
    """Memories from a few rounds to the whole horizon, evenly spaced in log."""
    families = names_of(lambda kind: bool(kind.sized_by))
    if family not in families:
        hint = validation.suggest(family, families)
        raise SettingError(
            f"tune: memory must be one of {', '.join(families)}, got {family!r}{hint}"
        )
    facts = problem(world)
    drift = facts.drift or 1.0
    lengths = np.geomspace(5, world.horizon, points)
    if MEMORIES[family].sized_by == "gamma":
        given = [1.0 - 1.0 / length for length in lengths]
        rates = [discount_for(world.dim, world.horizon, drift, tuning=t) for t in TUNINGS]
        chosen = dict(zip((THEORY, OLDER), rates, strict=True))
    else:
        given = [float(round(length)) for length in lengths]
        older = 1.0 / (1.0 - discount_for(world.dim, world.horizon, drift, tuning="uncorrected"))
        span = float(span_for(world.dim, world.horizon, drift))
        chosen = {THEORY: span, OLDER: float(np.ceil(older))}
    values = tuple(sorted({*given, *chosen.values()}))
    return Search(family, text_form.as_exploration("tune", exploration), world, values, chosen)


def _memory(family: str, value: float) -> Memory:
    kind = MEMORIES[family]
    return kind.factory(value if kind.sized_by == "gamma" else int(value))
