"""What every study returns: its numbers as polars frames, a figure, and the files of both."""

import base64
import html
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import polars as pl

from windvane._terminal.tables import Cell, format_cell, format_table
from windvane.errors import FileError
from windvane.lab.experiments import ExperimentResult
from windvane.persistence import check_regular, read_small_file, replace_file
from windvane.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CSS_PIXELS_PER_INCH = 96
MAX_JSON_BYTES = 1 << 28  # of the settings and tables
UNREADABLE = (  # the errors of a folder that holds no result
    *(OSError, ValueError, LookupError, TypeError, RecursionError),
    pl.exceptions.PolarsError,
)


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult(ABC):
    """The result of a study: settings, tables of a few rows, and frames of many rows.

    A result does not change after it was made. Two results are equal if `save` writes the same
    numbers for both. `print` shows the tables that the command prints, and a notebook shows the
    tables and the figure.
    """

    file: ClassVar[str]  # settings and tables, as JSON
    picture: ClassVar[str]  # the name of the picture files, without .png and .pdf
    keys: ClassVar[Mapping[str, str]]  # the key in the file of each attribute that is a table
    long_frames: ClassVar[tuple[str, ...]] = ()  # attributes that have a Parquet file each

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The frames that `print` and a notebook show, by their attribute's name."""
        return {name: getattr(self, name) for name in self.keys}

    @abstractmethod
    def describe(self) -> str:
        """Return one line that says what was played."""

    @abstractmethod
    def figure(self) -> "Figure":
        """Draw the figure."""

    def to_dict(self) -> dict[str, Any]:
        """Return the settings and the rows of each table, as the command prints with --json."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        settings = {
            k: value for k, value in values.items() if isinstance(value, str | float | dict | int)
        }
        return {**settings, **{key: values[name].to_dicts() for name, key in self.keys.items()}}

    def to_document(self) -> dict[str, Any]:
        """Return what the JSON file holds."""
        return self.to_dict()

    @classmethod
    def read_fields(cls, document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the attributes of the result that a document and the Parquet files stand for."""
        settings = {each.name: document[each.name] for each in fields(cls) if each.name in document}
        tables = {
            name: pl.DataFrame(document[key], infer_schema_length=None)
            for name, key in cls.keys.items()
        }
        long = {}
        for name in cls.long_frames:
            check_regular(folder / f"{name}.parquet")
            with open(folder / f"{name}.parquet", "rb") as file:
                long[name] = pl.read_parquet(file)
        return {**settings, **tables, **long}

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write numbers and pictures to a folder, and return the paths of the pictures."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        with replace_file(target / self.file) as draft:
            text = json.dumps(self.to_document(), indent=2, ensure_ascii=False)
            draft.write_text(text + "\n", "utf-8")
        for name in self.long_frames:
            # As open files: Polars takes no path that is not UTF-8.
            with replace_file(target / f"{name}.parquet") as draft, open(draft, "wb") as file:
                getattr(self, name).write_parquet(file)
        return self.save_figure(target)

    def save_figure(self, folder: str | PathLike[str]) -> list[Path]:
        """Write the figure as PNG and as PDF to a folder, and return both paths."""
        from windvane._terminal.figures import save_figure

        return save_figure(self.figure(), Path(folder), self.picture)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StudyResult) or type(other) is not type(self):
            return NotImplemented
        return self.to_document() == other.to_document() and all(
            getattr(self, name).equals(getattr(other, name)) for name in self.long_frames
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.describe()}>"

    def __str__(self) -> str:
        return "\n\n".join(format_text(frame) for frame in self.tables.values())

    def _repr_html_(self) -> str:
        description = html.escape(self.describe())
        tables = "".join(_format_html(frame) for frame in self.tables.values())
        figure = self.figure()
        picture = BytesIO()
        figure.savefig(picture, format="png", metadata={"Software": None})
        data = base64.b64encode(picture.getvalue()).decode()
        width = round(figure.get_figwidth() * CSS_PIXELS_PER_INCH)
        return (
            f"<div><p><b>{type(self).__name__}</b>: {description}</p>{tables}"
            f'<img alt="{description}" style="width:{width}px;max-width:100%" '
            f'src="data:image/png;base64,{data}"></div>'
        )


class Panel(NamedTuple):
    """The regret curves of one world, and the rounds at which that world changes."""

    title: str
    result: ExperimentResult
    changes: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class PanelResult(StudyResult):
    """The result of a study that plays policies in worlds, one panel a world."""

    panels: tuple[Panel, ...]

    file = "summary.json"
    long_frames = ("curves",)

    @property
    def note(self) -> str:
        """The note in the corner of the figure."""
        return ""

    @cached_property
    def curves(self) -> pl.DataFrame:
        """The regret of every replication: panel, policy, replication, rounds, regret."""
        return pl.concat([_to_frame(panel) for panel in self.panels])

    def figure(self) -> "Figure":
        """Draw regret over rounds: mean and 10–90 % band of every policy, one panel a world."""
        from windvane.lab.studies.figures import draw_regret

        return draw_regret(self.panels, self.note)

    def to_document(self) -> dict[str, Any]:
        """Return what the JSON file holds: also what the figure needs."""
        drawn = [{"title": panel.title, "changes": list(panel.changes)} for panel in self.panels]
        return {**self.to_dict(), "note": self.note, "kind": self.picture, "drawn": drawn}

    @classmethod
    def read_fields(cls, document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the attributes of the result, with panels instead of one frame of curves."""
        values = super().read_fields(document, folder)
        curves = values.pop("curves")
        panels = [_from_frame(curves, each["title"], each["changes"]) for each in document["drawn"]]
        return {**values, "panels": tuple(panels)}


def _to_frame(panel: Panel) -> pl.DataFrame:
    """Return every curve in long form."""
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


def _from_frame(frame: pl.DataFrame, title: str, changes: Sequence[int]) -> Panel:
    rows = frame.filter(pl.col("panel") == title)
    names = tuple(rows["policy"].unique(maintain_order=True))
    marks = rows["rounds"].unique().sort().to_numpy()
    regret = rows["regret"].to_numpy().reshape(len(names), -1, marks.size)
    return Panel(title, ExperimentResult(names, marks, regret), tuple(changes))


def load(folder: str | PathLike[str]) -> StudyResult:
    """Read the result that `save` or a command of the lab wrote to a folder."""
    path = Path(folder)
    try:
        return _read_result(path)
    except UNREADABLE as reason:
        raise FileError(
            f"result folder: {path} holds no finished run of reproduce, simulate, tune, "
            f"leaderboard or coverage ({reason})"
        ) from None


def _read_result(folder: Path) -> StudyResult:
    """Read the result of the study whose file is in the folder."""
    from windvane import lab  # imported late: every study imports this module

    studies: dict[str, type[StudyResult]] = {
        each.file: each
        for each in (lab.Simulation, lab.Tuning, lab.Leaderboard, lab.Coverage, lab.LearnerCoverage)
    }
    for file, study in studies.items():
        if (folder / file).exists():
            document = json.loads(read_small_file(folder / file, MAX_JSON_BYTES))
            if not isinstance(document, dict):
                raise ValueError(f"{file} must hold a JSON object")
            if document.get("kind") == lab.Reproduction.picture:  # in the file of a simulation
                study = lab.Reproduction
            return study(**study.read_fields(document, folder))
    *first, last = studies
    raise ValueError(f"it has no {', '.join(first)} or {last}")


def count_noun(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 world" or "3 policies"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean, or 0 for a single value."""
    return float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else 0.0


def format_text(frame: pl.DataFrame) -> str:
    """Return a frame as an aligned table, with rounded numbers."""
    return format_table(_round_rows(frame))


def _format_html(frame: pl.DataFrame) -> str:
    """Return a frame as an HTML table, with the same numbers as `format_text`."""
    align = {name: "left" if kind == pl.String else "right" for name, kind in frame.schema.items()}
    heads = "".join(_format_html_cell("th", align[name], name) for name in frame.columns)
    rows = "".join(
        f"<tr>{''.join(_format_html_cell('td', align[name], row[name]) for name in row)}</tr>"
        for row in _round_rows(frame)
    )
    return (
        '<div style="overflow-x:auto;margin:0.5em 0"><table class="dataframe">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _format_html_cell(tag: str, align: str, cell: Cell) -> str:
    style = f"text-align:{align};padding:2px 8px;white-space:nowrap"
    return f'<{tag} style="{style}">{html.escape(format_cell(cell))}</{tag}>'


def _round_rows(frame: pl.DataFrame) -> list[dict[str, Cell]]:
    return [
        {name: _round(name, value) for name, value in row.items()}
        for row in frame.iter_rows(named=True)
    ]


def _round(name: str, value: Cell) -> Cell:
    """Round a large number to a whole one, a p-value to two digits, any other to six decimals."""
    if not isinstance(value, float):
        return value
    if abs(value) >= 100:
        return round(value)
    return float(f"{value:.2g}") if name == "p" else round(value, 6)
