"""The files of a result folder: curves in Parquet, summaries in JSON, pictures in PNG and PDF."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from windvane._files import replace_file
from windvane.lab.output.panels import Panel, from_frame, to_frame

CURVES_FILE = "curves.parquet"
SUMMARY_FILE = "summary.json"


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
