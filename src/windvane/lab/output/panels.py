"""Panels: the regret curves of a world, as arrays, as a frame and as the files of a result."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from windvane._terminal.tables import Cell
from windvane.lab.output.tables import standard_error
from windvane.lab.running.experiment import ExperimentResult
from windvane.persistence import replace_file

CURVES_FILE = "curves.parquet"
SUMMARY_FILE = "summary.json"


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


def write_panels(folder: Path, panels: Sequence[Panel], summary: Mapping[str, Any]) -> None:
    """Write the curves of every replication, and the summary with what the figure needs."""
    folder.mkdir(parents=True, exist_ok=True)
    with replace_file(folder / CURVES_FILE) as draft:
        to_frame(panels).write_parquet(draft)
    panel_facts = [{"title": panel.title, "changes": list(panel.changes)} for panel in panels]
    write_json(folder / SUMMARY_FILE, {**summary, "drawn": panel_facts})


def read_panels(folder: Path, summary: Mapping[str, Any]) -> tuple[Panel, ...]:
    """Read the panels that `write_panels` wrote."""
    frame = pl.read_parquet(folder / CURVES_FILE)
    return tuple(from_frame(frame, facts["title"], facts["changes"]) for facts in summary["drawn"])


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document for people and machines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as draft:
        draft.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    document = json.loads(path.read_text("utf-8"))
    if not isinstance(document, dict):
        raise ValueError(f"{path.name} must hold a JSON object")
    return document
