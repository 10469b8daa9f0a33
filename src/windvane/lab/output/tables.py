"""Tables of results, as text and as HTML; standings, and statistics over replications."""

import html
import math
from typing import Any, NamedTuple

import polars as pl

from windvane._terminal.tables import Cell, format_cell, format_table
from windvane.types import Floats

FIXED_COLUMNS = ("rank", "policy", "score %", "±")  # all others are worlds


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean, or 0 for a single value."""
    return float(values.std(ddof=1) / math.sqrt(values.size)) if values.size > 1 else 0.0


def format_text(frame: pl.DataFrame) -> str:
    """Return a frame as an aligned table, with rounded numbers."""
    return format_table(_round_rows(frame))


def format_html(frame: pl.DataFrame) -> str:
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


class Standing(NamedTuple):
    """How a policy did."""

    name: str
    score: float  # mean share over the worlds
    error: float  # standard error of the score over replications
    shares: dict[str, float]  # by world

    def row(self, rank: int) -> dict[str, Cell]:
        """Return the standing as a row of a table, in per cent."""
        shares = {title: round(100.0 * share, 1) for title, share in self.shares.items()}
        score = round(100.0 * self.score, 1)
        error = round(100.0 * self.error, 2)
        return {"rank": rank, "policy": self.name, "score %": score, "±": error, **shares}


def from_row(row: dict[str, Any]) -> Standing:
    """Return the standing that a row in per cent stands for."""
    shares = {title: share / 100.0 for title, share in row.items() if title not in FIXED_COLUMNS}
    return Standing(row["policy"], row["score %"] / 100.0, row["±"] / 100.0, shares)
