"""What a run leaves behind: curves in Parquet, a summary in JSON, and enough to draw again."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from windvane._text_table import Cell
from windvane.errors import FileError
from windvane.lab.output.figures import Panel
from windvane.lab.running.experiment import Result
from windvane.lab.studies.paper import standard_error

CURVES, SUMMARY = "curves.parquet", "summary.json"


def write(directory: Path, panels: Sequence[Panel], summary: Mapping[str, Any]) -> None:
    """Write the curves of every replication and the summary, each whole or not at all."""
    directory.mkdir(parents=True, exist_ok=True)
    draft = directory / f".{CURVES}.{os.getpid()}.tmp"
    pl.concat([_long(panel) for panel in panels]).write_parquet(draft)
    os.replace(draft, directory / CURVES)
    drawn = [{"title": panel.title, "changes": list(panel.changes)} for panel in panels]
    text = json.dumps({**summary, "drawn": drawn}, indent=2, ensure_ascii=False)
    draft = directory / f".{SUMMARY}.{os.getpid()}.tmp"
    draft.write_text(text + "\n", "utf-8")
    os.replace(draft, directory / SUMMARY)


def read(directory: Path) -> tuple[list[Panel], dict[str, Any]]:
    """The panels and the summary of an earlier run."""
    try:
        summary = json.loads((directory / SUMMARY).read_text("utf-8"))
        table = pl.read_parquet(directory / CURVES)
        panels = [
            Panel(drawn["title"], _short(table, drawn["title"]), tuple(drawn["changes"]))
            for drawn in summary["drawn"]
        ]
    except (OSError, ValueError, KeyError, TypeError, pl.exceptions.PolarsError) as reason:
        raise FileError(
            f"plot: {directory} holds no finished run of reproduce or simulate ({reason})"
        ) from None
    return panels, summary


def rows(title: str, result: Result) -> list[dict[str, Cell]]:
    """The end regret of each policy of a panel."""
    end = result.regret[:, :, -1]
    return [
        {
            "world": title,
            "policy": name,
            "end regret": float(end[p].mean()),
            "standard error": standard_error(end[p]),
            "half-way": float(result.at(int(result.marks[-1]) // 2)[p].mean()),
        }
        for p, name in enumerate(result.names)
    ]


def _long(panel: Panel) -> pl.DataFrame:
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


def _short(table: pl.DataFrame, title: str) -> Result:
    mine = table.filter(pl.col("panel") == title)
    names = tuple(mine["policy"].unique(maintain_order=True))
    marks = mine["rounds"].unique().sort().to_numpy()
    regret = mine["regret"].to_numpy().reshape(len(names), -1, marks.size)
    return Result(names, marks, regret)
