"""The tuning view: regret as a function of how much is remembered."""

from typing import NamedTuple

import numpy as np

from windvane import memory as fade
from windvane import spec
from windvane.arrays import Floats
from windvane.errors import SettingError
from windvane.exploration import Exploration
from windvane.lab.engine import Player
from windvane.lab.experiment import Experiment, Result
from windvane.lab.paper import standard_error
from windvane.lab.setup import problem
from windvane.lab.worlds import World
from windvane.memory import Memory
from windvane.tables import Cell
from windvane.theory import TUNINGS, discount_for, span_for

FAMILIES = ("discount", "window", "restart")
THEORY, OLDER, BEST = "theory's choice", "older, uncorrected choice", "best"
AXES = {"discount": "discount γ", "window": "window w", "restart": "rounds between restarts H"}


class Curve(NamedTuple):
    """Regret by memory."""

    values: Floats  # (N,)  γ, w or H
    means: Floats  # (N,)
    errors: Floats  # (N,)  standard errors
    marks: dict[str, float]  # the values worth naming
    axis: str

    def rows(self) -> list[dict[str, Cell]]:
        """The curve as a table, what is marked named beside it."""
        named: dict[float, list[str]] = {}
        for name, value in self.marks.items():
            named.setdefault(value, []).append(name)
        return [
            {
                self.axis: float(value),
                "end regret": float(mean),
                "standard error": float(error),
                "choice": "; ".join(named.get(float(value), [])),
            }
            for value, mean, error in zip(self.values, self.means, self.errors, strict=True)
        ]


class Search(NamedTuple):
    """Memories of one family, with the choices of theory among them."""

    family: str
    exploration: Exploration
    world: World
    values: tuple[float, ...]
    chosen: dict[str, float]

    def experiment(self, replications: int, seed: int) -> Experiment:
        """Every memory as a player in the same replications."""
        players = tuple(
            Player(repr(made), made, self.exploration)
            for made in (_memory(self.family, value) for value in self.values)
        )
        return Experiment(players, self.world, replications, seed, points=10)

    def curve(self, result: Result) -> Curve:
        """What was found, the best marked."""
        end = result.regret[:, :, -1]
        means = end.mean(axis=1)
        errors = np.array([standard_error(row) for row in end])
        best = {BEST: self.values[int(means.argmin())]}
        return Curve(
            np.array(self.values), means, errors, {**self.chosen, **best}, AXES[self.family]
        )


def search(family: str, exploration: str, world: World, points: int) -> Search:
    """Memories from a few rounds to the whole horizon, evenly spaced in log."""
    if family not in FAMILIES:
        raise SettingError(f"tune: memory must be one of {', '.join(FAMILIES)}, got {family!r}")
    facts = problem(world)
    drift = facts.drift or 1.0
    lengths = np.geomspace(5, world.horizon, points)
    if family == "discount":
        given = [1.0 - 1.0 / length for length in lengths]
        rates = [discount_for(world.dim, world.horizon, drift, tuning=t) for t in TUNINGS]
        chosen = dict(zip((THEORY, OLDER), rates, strict=True))
    else:
        given = [float(round(length)) for length in lengths]
        older = 1.0 / (1.0 - discount_for(world.dim, world.horizon, drift, tuning="uncorrected"))
        span = float(span_for(world.dim, world.horizon, drift))
        chosen = {THEORY: span, OLDER: float(np.ceil(older))}
    values = tuple(sorted({*given, *chosen.values()}))
    return Search(family, spec.read_exploration(exploration), world, values, chosen)


def _memory(family: str, value: float) -> Memory:
    if family == "discount":
        return fade.discount(value)
    return fade.window(int(value)) if family == "window" else fade.restart(int(value))
