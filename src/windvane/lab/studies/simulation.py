"""Simulations: any policies in any worlds.

>>> from windvane import lab
>>> place = lab.worlds.world(4, 6, 200, lab.worlds.abrupt([100], flip=0.5))
>>> result = lab.simulate(worlds=place, policies=["D-LinTS", "window(50) * greedy()"],
...                       replications=3)
>>> result
<Simulation: 1 world, 2 policies, 3 replications, seed 1>
>>> result.summary.columns
['world', 'policy', 'end regret', 'standard error', 'half-way']
>>> result.curves.columns
['world', 'policy', 'replication', 'rounds', 'regret']
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import ClassVar

import polars as pl

from windvane import validation
from windvane._terminal.tables import Cell
from windvane.errors import SettingError
from windvane.lab.experiments import Report, open_report, run_all
from windvane.lab.studies.plan import (
    Plan,
    PolicySpec,
    WorldSpec,
    change_rounds,
    make_plan,
    read_plan,
)
from windvane.lab.studies.result import Panel, PanelResult, count_noun, standard_error


@dataclass(frozen=True, eq=False, repr=False)
class Simulation(PanelResult):
    """The result of `simulate`.

    `summary` has one row for each policy in each world: world, policy, end regret,
    standard error (of the end regret), half-way (the regret after half of the rounds).
    `curves` has one row for each recorded round of each replication: world, policy, replication,
    rounds, regret (cumulative).
    """

    worlds: dict[str, str]  # the text of each world
    replications: int
    seed: int
    summary: pl.DataFrame

    picture = "curves"
    keys: ClassVar = {"summary": "results"}

    def describe(self) -> str:
        worlds = count_noun(len(self.worlds), "world")
        policies = count_noun(self.summary["policy"].n_unique(), "policy", "policies")
        replications = count_noun(self.replications, "replication")
        return f"{worlds}, {policies}, {replications}, seed {self.seed}"


def simulate(
    plan: Plan | str | PathLike[str] | None = None,
    *,
    worlds: WorldSpec | Sequence[str] | Mapping[str, WorldSpec] | None = None,
    policies: PolicySpec | Sequence[PolicySpec] | None = None,
    replications: int | None = None,
    seed: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Report = False,
) -> Simulation:
    """Play policies in worlds and return their regret.

    Give a plan or the path of a TOML file with a plan; or else give `worlds` and `policies`.
    `replications` and `seed` replace those of the plan.
    A world is a `World`, a table of its settings, or a text for `read_world`; several worlds are a
    mapping by name. A policy is a name of the literature, a text "MEMORY * EXPLORATION", a pair
    (memory, exploration), a table with the keys of [[policies]] in a TOML file, or one of your own:
    a class, a factory or an object, or the text "FILE.py:NAME".
    `checkpoint` is a folder for finished chunks: after an interruption, the same call continues
    from there.
    `progress` is True for bars on stderr, or a function that takes a `TaskProgress`.
    """
    if plan is not None:
        if worlds is not None or policies is not None:
            raise SettingError("simulate: give either a plan or worlds and policies, got both")
        chosen = plan if isinstance(plan, Plan) else read_plan(Path(plan))
    elif worlds is None or policies is None:
        raise SettingError("simulate: a plan, or worlds and policies, must be given")
    else:
        chosen = make_plan(worlds, policies)
    if replications is not None:
        replications = validation.whole("simulate", "replications", replications)
        chosen = chosen._replace(replications=replications)
    if seed is not None:
        chosen = chosen._replace(seed=validation.whole("simulate", "seed", seed, least=0))
    with open_report(progress) as report:
        results = run_all(chosen.experiments(), report, checkpoint)
    panels = tuple(
        Panel(name, result, change_rounds(chosen.worlds[name])) for name, result in results.items()
    )
    return Simulation(
        panels=panels,
        worlds={name: repr(world) for name, world in chosen.worlds.items()},
        replications=chosen.replications,
        seed=chosen.seed,
        summary=pl.DataFrame([row for panel in panels for row in _list_ends(panel)]),
    )


def _list_ends(panel: Panel) -> list[dict[str, Cell]]:
    """Return one row a policy: its regret at the end and half-way, averaged over replications."""
    result = panel.result
    end = result.regret[:, :, -1]
    half_way = result.at(int(result.marks[-1]) // 2)
    return [
        {
            "world": panel.world,
            "policy": name,
            "end regret": float(end[p].mean()),
            "standard error": standard_error(end[p]),
            "half-way": float(half_way[p].mean()),
        }
        for p, name in enumerate(result.names)
    ]
