"""The lab: worlds that drift, and studies of how policies do in them.

| function      | command                | result         | frames                          |
|---------------|------------------------|----------------|---------------------------------|
| `reproduce`   | `windvane reproduce`   | `Reproduction` | `summary`, `claims`, `curves`   |
| `simulate`    | `windvane simulate`    | `Simulation`   | `summary`, `curves`             |
| `tune`        | `windvane tune`        | `Tuning`       | `table`                         |
| `leaderboard` | `windvane leaderboard` | `Leaderboard`  | `standings`                     |
| `coverage`    | `windvane coverage`    | `Coverage`     | `summary`, `intervals`          |

Each result holds its numbers as polars frames, draws a matplotlib figure with `figure()`, writes
the files of the command with `save(folder)`, and shows tables and figure in a notebook.
`load(folder)` reads a result back.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windvane.lab import worlds
    from windvane.lab.progress import TaskProgress
    from windvane.lab.studies.coverage import Coverage, coverage
    from windvane.lab.studies.leaderboard import Leaderboard, leaderboard
    from windvane.lab.studies.plan import Plan, make_plan, read_plan
    from windvane.lab.studies.reproduction import Reproduction, reproduce
    from windvane.lab.studies.result import StudyResult
    from windvane.lab.studies.result_folder import load
    from windvane.lab.studies.simulation import Simulation, simulate
    from windvane.lab.studies.tuning import Tuning, tune

__all__ = [
    "Coverage",
    "Leaderboard",
    "Plan",
    "Reproduction",
    "Simulation",
    "StudyResult",
    "TaskProgress",
    "Tuning",
    "coverage",
    "leaderboard",
    "load",
    "make_plan",
    "read_plan",
    "reproduce",
    "simulate",
    "tune",
    "worlds",
]

MODULES = {  # imported at first use: polars and matplotlib take longer than all of windvane
    "Coverage": "studies.coverage",
    "Leaderboard": "studies.leaderboard",
    "Plan": "studies.plan",
    "Reproduction": "studies.reproduction",
    "Simulation": "studies.simulation",
    "StudyResult": "studies.result",
    "TaskProgress": "progress",
    "Tuning": "studies.tuning",
    "coverage": "studies.coverage",
    "leaderboard": "studies.leaderboard",
    "load": "studies.result_folder",
    "make_plan": "studies.plan",
    "read_plan": "studies.plan",
    "reproduce": "studies.reproduction",
    "simulate": "studies.simulation",
    "tune": "studies.tuning",
}


if not TYPE_CHECKING:  # a type checker reads the imports above instead

    def __getattr__(name: str) -> object:
        if name == "worlds":
            return import_module("windvane.lab.worlds")
        if name not in MODULES:
            raise AttributeError(f"module 'windvane.lab' has no attribute {name!r}")
        return getattr(import_module(f"windvane.lab.{MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
