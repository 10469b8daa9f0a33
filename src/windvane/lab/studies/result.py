"""What every study returns: its numbers as polars frames, a figure, and the files of both."""

import base64
import html
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from windvane.lab.output import panels, tables
from windvane.lab.output.panels import Panel

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

CSS_PIXELS_PER_INCH = 96


class StudyResult(ABC):
    """The result of a study.

    A result does not change after it was made. Two results are equal if `save` writes the same
    numbers for both. `print` shows the tables that the command prints, and a notebook shows the
    tables and the figure.
    """

    picture: ClassVar[str]  # the name of the picture files, without .png and .pdf

    @property
    @abstractmethod
    def tables(self) -> "dict[str, pl.DataFrame]":
        """The frames that `print` and a notebook show, by their attribute's name."""

    @abstractmethod
    def describe(self) -> str:
        """Return one line that says what was played."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and settings as the command prints them with --json."""

    @abstractmethod
    def figure(self) -> "Figure":
        """Draw the figure."""

    @classmethod
    @abstractmethod
    def read(cls, folder: Path) -> Self:
        """Read the result that `save` wrote to a folder."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the numbers to a folder."""

    def save(self, folder: str | PathLike[str]) -> list[Path]:
        """Write numbers and pictures to a folder, and return the paths of the pictures."""
        self.write(Path(folder))
        return self.save_figure(folder)

    def save_figure(self, folder: str | PathLike[str]) -> list[Path]:
        """Write the figure as PNG and as PDF to a folder, and return both paths."""
        from windvane._terminal.figures import save_figure

        return save_figure(self.figure(), Path(folder), self.picture)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.describe()}>"

    def __str__(self) -> str:
        return "\n\n".join(tables.format_text(frame) for frame in self.tables.values())

    def _repr_html_(self) -> str:
        title = f"<b>{type(self).__name__}</b>: {html.escape(self.describe())}"
        shown = "".join(tables.format_html(frame) for frame in self.tables.values())
        return f"<div><p>{title}</p>{shown}{self._html_picture()}</div>"

    def _html_picture(self) -> str:
        figure = self.figure()
        picture = BytesIO()
        figure.savefig(picture, format="png", metadata={"Software": None})
        data = base64.b64encode(picture.getvalue()).decode()
        width = round(figure.get_figwidth() * CSS_PIXELS_PER_INCH)
        return (
            f'<img alt="{html.escape(self.describe())}" style="width:{width}px;max-width:100%" '
            f'src="data:image/png;base64,{data}">'
        )


class PanelResult(StudyResult):
    """The result of a study that plays policies in worlds, one panel a world."""

    panels: tuple[Panel, ...]

    @property
    @abstractmethod
    def note(self) -> str:
        """The note in the corner of the figure."""

    @cached_property
    def curves(self) -> "pl.DataFrame":
        """The regret of every replication: panel, policy, replication, rounds, regret."""
        return panels.to_frame(self.panels)

    def figure(self) -> "Figure":
        """Draw regret over rounds: mean and 10–90 % band of every policy, one panel a world."""
        from windvane.lab.output.figures import draw_regret

        return draw_regret(self.panels, self.note)

    def write(self, folder: Path) -> None:
        """Write curves.parquet and summary.json."""
        from windvane.lab.output.panels import write_panels

        summary: Mapping[str, Any] = {**self.to_dict(), "note": self.note, "kind": self.picture}
        write_panels(folder, self.panels, summary)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PanelResult) or not super().__eq__(other):
            return NotImplemented if type(other) is not type(self) else False
        changes = [panel.changes for panel in self.panels]
        return self.curves.equals(other.curves) and changes == [p.changes for p in other.panels]

    __hash__ = None


def count_noun(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun, such as "1 world" or "3 policies"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
