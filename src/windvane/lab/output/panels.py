"""Panels: the regret curves of one world, as arrays and as a polars frame."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from windvane._terminal.tables import Cell
from windvane.lab.output.statistics import standard_error
from windvane.lab.running.experiment import ExperimentResult


class Panel(NamedTuple):
    """The result of one world, and the rounds at which that world changes."""

    title: str
    result: ExperimentResult
    changes: tuple[int, ...] = ()


def to_frame(panels: Sequence[Panel]) -> pl.DataFrame:
    """Return every curve in long form: panel, policy, replication, rounds, regret."""
    return pl.concat([_panel_to_frame(panel) for panel in panels])


def _panel_to_frame(panel: Panel) -> pl.DataFrame:
    players, replications, marks = panel.result.regret.shape
    return pl.DataFrame(
        {
            "panel": [panel.title] * panel.result.regret.size,
            "policy": np.repeat(np.array(panel.result.names), replications * marks),
            "replication": np.tile(np.repeat(np.arange(replications), marks), players),
            "rounds": np.tile(panel.result.marks, players * replications),
            "regret": panel.result.regret.ravel(),
        }
    )


def from_frame(frame: pl.DataFrame, title: str, changes: Sequence[int]) -> Panel:
    """Return one panel of a frame that `to_frame` made."""
    rows = frame.filter(pl.col("panel") == title)
    names = tuple(rows["policy"].unique(maintain_order=True))
    marks = rows["rounds"].unique().sort().to_numpy()
    regret = rows["regret"].to_numpy().reshape(len(names), -1, marks.size)
    return Panel(title, ExperimentResult(names, marks, regret), tuple(changes))


def end_regrets(panel: Panel) -> list[dict[str, Cell]]:
    """Return one row a policy: its regret at the end and half-way, averaged over replications."""
    result = panel.result
    end = result.regret[:, :, -1]
    half_way = result.at(int(result.marks[-1]) // 2)
    return [
        {
            "world": panel.title,
            "policy": name,
            "end regret": float(end[p].mean()),
            "standard error": standard_error(end[p]),
            "half-way": float(half_way[p].mean()),
        }
        for p, name in enumerate(result.names)
    ]
