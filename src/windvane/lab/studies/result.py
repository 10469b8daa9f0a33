"""What every study returns: its numbers as polars frames, a figure, and the files of both.

Every file of numbers has the settings with the seed and the versions of what computed them.
"""

import base64
import html
import json
import math
import platform
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from importlib.metadata import version
from io import BytesIO
from itertools import combinations
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
from scipy.special import stdtr

from windvane._terminal.tables import Cell, format_cell, format_table
from windvane.errors import FileError, SettingError
from windvane.lab.experiments import ExperimentResult
from windvane.persistence import check_regular, read_small_file, replace_file
from windvane.types import Floats

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

CSS_PIXELS_PER_INCH = 96
MAX_JSON_BYTES = 1 << 28  # of the settings and tables
VERSIONED = ("windvane", "numpy", "numba", "scipy", "polars")
SIGNIFICANCE = 0.05
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
        versions = ", ".join(f"{name} {number}" for name, number in find_versions().items())
        origin = f"{type(self).__name__}: {self.describe()}; {versions}"
        document = {**self.to_document(), "versions": find_versions()}
        texts = {
            self.file: json.dumps(document, indent=2, ensure_ascii=False),
            "tables.md": f"<!-- {origin} -->\n\n{self.to_markdown()}",
            "tables.tex": f"% {origin}\n{self.to_latex()}",
        }
        for name, text in texts.items():
            with replace_file(target / name) as draft:
                draft.write_text(text + "\n", "utf-8")
        for name in self.long_frames:
            # As open files: Polars takes no path that is not UTF-8.
            with replace_file(target / f"{name}.parquet") as draft, open(draft, "wb") as file:
                getattr(self, name).write_parquet(file, metadata={"windvane": origin})
        return self.save_figure(target)

    def to_pandas(self, name: str = "") -> "pd.DataFrame":
        """Return a frame, by default the first table, as one of pandas, which must be installed."""
        import pandas as pd

        frame: pl.DataFrame = getattr(self, name or next(iter(self.keys)))
        return pd.DataFrame(frame.to_dict(as_series=False))

    def to_markdown(self) -> str:
        """Return the tables in Markdown, as `print` rounds them."""
        return "\n\n".join(format_markdown(frame) for frame in self.tables.values())

    def to_latex(self) -> str:
        """Return the tables in LaTeX, as `print` rounds them, with rules of booktabs."""
        return "\n\n".join(format_latex(frame) for frame in self.tables.values())

    def save_figure(self, folder: str | PathLike[str]) -> list[Path]:
        """Write the figure as PNG, PDF and SVG to a folder, and return the paths."""
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

    world: str
    result: ExperimentResult
    changes: tuple[int, ...] = ()
    title: str = ""  # above the panel; without one, the name of the world


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
        """The regret of every replication: world, policy, replication, rounds, regret."""
        return pl.concat([list_curves(panel) for panel in self.panels])

    def figure(self) -> "Figure":
        """Draw regret over rounds: mean and 10–90 % band of every policy, one panel a world."""
        from windvane.lab.studies.figures import draw_regret

        return draw_regret(self.panels, self.note)

    def compare(self, reference: str = "") -> pl.DataFrame:
        """Test in pairs of the same replication whether policies differ in their end regret.

        All policies are compared with the reference, or without one all pairs with each other. The
        frame has world, policy, reference, difference (of the mean end regrets), standard error,
        p (of Student's t-test, two-sided), p Holm (corrected for all rows, by Holm), and verdict:
        better, worse or undecided, by p Holm at 5 %.
        """
        ends = {panel.world: panel.result.regret[:, :, -1] for panel in self.panels}
        return compare_policies(self.panels[0].result.names, ends, reference)

    def to_document(self) -> dict[str, Any]:
        """Return what the JSON file holds: also what the figure needs."""
        drawn = [
            {"world": panel.world, "title": panel.title, "changes": list(panel.changes)}
            for panel in self.panels
        ]
        return {**self.to_dict(), "note": self.note, "kind": self.picture, "drawn": drawn}

    @classmethod
    def read_fields(cls, document: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """Return the attributes of the result, with panels instead of one frame of curves."""
        values = super().read_fields(document, folder)
        curves = values.pop("curves")
        panels = [_from_frame(curves, **each) for each in document["drawn"]]
        return {**values, "panels": tuple(panels)}


def list_curves(panel: Panel) -> pl.DataFrame:
    """Return every curve in long form."""
    players, replications, marks = panel.result.regret.shape
    return pl.DataFrame(
        {
            "world": [panel.world] * panel.result.regret.size,
            "policy": np.repeat(np.array(panel.result.names), replications * marks),
            "replication": np.tile(np.repeat(np.arange(replications), marks), players),
            "rounds": np.tile(panel.result.marks, players * replications),
            "regret": panel.result.regret.ravel(),
        }
    )


def _from_frame(frame: pl.DataFrame, world: str, changes: Sequence[int], title: str) -> Panel:
    rows = frame.filter(pl.col("world") == world)
    names = tuple(rows["policy"].unique(maintain_order=True))
    marks = rows["rounds"].unique().sort().to_numpy()
    regret = rows["regret"].to_numpy().reshape(len(names), -1, marks.size)
    return Panel(world, ExperimentResult(names, marks, regret), tuple(changes), title)


def load(folder: str | PathLike[str]) -> StudyResult:
    """Read the result that `save` or a command of the lab wrote to a folder."""
    from windvane import lab  # imported late: every study imports this module

    path = Path(folder)
    kinds = (lab.Simulation, lab.Tuning, lab.Leaderboard, lab.Coverage)
    studies: dict[str, type[StudyResult]] = {each.file: each for each in kinds}
    try:
        for file, study in studies.items():
            if (path / file).exists():
                document = json.loads(read_small_file(path / file, MAX_JSON_BYTES))
                if not isinstance(document, dict):
                    raise ValueError(f"{file} must hold a JSON object")
                if document.get("kind") == lab.Reproduction.picture:  # in a simulation's file
                    study = lab.Reproduction
                return study(**study.read_fields(document, path))
        *first, last = studies
        raise ValueError(f"it has no {', '.join(first)} or {last}")
    except UNREADABLE as reason:
        raise FileError(
            f"result folder: {path} holds no finished run of reproduce, simulate, tune, "
            f"leaderboard or coverage ({reason})"
        ) from None


def count_noun(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 world" or "3 policies"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean, or 0 for a single value."""
    return float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else 0.0


def find_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that compute."""
    return {"python": platform.python_version(), **{name: version(name) for name in VERSIONED}}


def compare_policies(
    names: Sequence[str], ends: Mapping[str, Floats], reference: str = ""
) -> pl.DataFrame:
    """Compare the numbers (policies, replications) of each world in pairs, as `compare` says."""
    if reference and reference not in names:
        raise SettingError(f"compare: the reference must have played, got {reference!r}")
    if min(each.shape[1] for each in ends.values()) < 2:
        raise SettingError("compare: at least two replications are needed, got one")
    others = [(name, reference) for name in names if name != reference]
    rows = []
    for world, each in ends.items():
        for pair in others if reference else combinations(names, 2):
            gap = each[names.index(pair[0])] - each[names.index(pair[1])]
            rows.append((world, *pair, gap.mean(), standard_error(gap), compute_p_value(gap)))
    columns = ["world", "policy", "reference", "difference", "standard error", "p"]
    frame = pl.DataFrame(rows, columns, orient="row")
    sign = pl.when(pl.col("difference") < 0).then(pl.lit("better")).otherwise(pl.lit("worse"))
    is_clear = pl.col("p Holm") < SIGNIFICANCE
    verdict = pl.when(is_clear).then(sign).otherwise(pl.lit("undecided")).alias("verdict")
    corrected = pl.Series("p Holm", correct_by_holm(frame["p"].to_list()))
    return frame.with_columns(corrected).with_columns(verdict)


def compute_p_value(gap: Floats) -> float:
    """The two-sided p of Student's t-test that the mean of a sample (n,) is 0.

    The bits are those of `scipy.stats.ttest_1samp`, whose package takes long to import. Of equal
    numbers, p is 0 or, if they are 0, 1.
    """
    if gap.size < 2 or gap.std() == 0.0:
        return 0.0 if gap.any() and gap.size > 1 else 1.0
    mean, freedom = np.mean(gap), gap.size - 1
    variance = np.mean((gap - mean) ** 2) * (gap.size / freedom)
    return float(2.0 * stdtr(freedom, -abs(mean / np.sqrt(variance / gap.size))))


def correct_by_holm(values: Sequence[float]) -> list[float]:
    """Correct p-values for their number m: p₍ᵢ₎ ← max over j ≤ i of min(1, (m − j + 1)·p₍ⱼ₎).

    >>> correct_by_holm([0.04, 0.01, 0.5])
    [0.08, 0.03, 0.5]
    """
    order = np.argsort(values, kind="stable")
    scaled = np.minimum(1.0, np.array(values)[order] * np.arange(len(values), 0, -1))
    corrected = np.empty(len(values))
    corrected[order] = np.maximum.accumulate(scaled)
    return corrected.tolist()


def format_markdown(frame: pl.DataFrame) -> str:
    """Return a frame as a table in Markdown, with the same numbers as `format_text`."""
    rule = ["---" if kind == pl.String else "---:" for kind in frame.dtypes]
    lines = [frame.columns, rule, *_list_cells(frame)]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def format_latex(frame: pl.DataFrame) -> str:
    """Return a frame as a table in LaTeX, with the same numbers as `format_text`."""
    columns = "".join("l" if kind == pl.String else "r" for kind in frame.dtypes)
    cells = [
        [_escape_latex(cell) for cell in line] for line in (frame.columns, *_list_cells(frame))
    ]
    head, *rows = [" & ".join(line) + r" \\" for line in cells]
    start, end = (rf"\{word}{{tabular}}" for word in ("begin", "end"))
    return "\n".join(
        [f"{start}{{{columns}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule", end]
    )


def _escape_latex(text: str) -> str:
    """Return a text whose special characters LaTeX prints as they are."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    signs = {"±": r"$\pm$", "γ": r"$\gamma$", "−": "$-$"}
    escapes = special | signs | {sign: f"\\{sign}" for sign in "&%$#_{}"}
    return "".join(escapes.get(sign, sign) for sign in text)


def _list_cells(frame: pl.DataFrame) -> list[list[str]]:
    return [[format_cell(cell) for cell in row.values()] for row in _round_rows(frame)]


def format_text(frame: pl.DataFrame) -> str:
    """Return a frame as an aligned table, with rounded numbers."""
    return format_table(_round_rows(frame))


def _format_html(frame: pl.DataFrame) -> str:
    """Return a frame as an HTML table, with the same numbers as `format_text`."""
    look = "padding:2px 8px;white-space:nowrap"
    sides = ["left" if kind == pl.String else "right" for kind in frame.dtypes]

    def format_row(tag: str, cells: Sequence[str]) -> str:
        pairs = zip(sides, map(html.escape, cells), strict=True)
        texts = [f'<{tag} style="text-align:{side};{look}">{cell}</{tag}>' for side, cell in pairs]
        return f"<tr>{''.join(texts)}</tr>"

    rows = "".join(format_row("td", row) for row in _list_cells(frame))
    return (
        '<div style="overflow-x:auto;margin:0.5em 0"><table class="dataframe">'
        f"<thead>{format_row('th', frame.columns)}</thead><tbody>{rows}</tbody></table></div>"
    )


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
    return float(f"{value:.2g}") if name in ("p", "p Holm") else round(value, 6)
