"""Result frames as text for a terminal and as HTML for a notebook."""

import html
from collections.abc import Mapping

import polars as pl

from windvane._text_table import Cell, format_cell, format_table


def format_text(frame: pl.DataFrame) -> str:
    """Return a frame as an aligned table, with rounded numbers."""
    return format_table(_round_rows(frame))


def format_html(frame: pl.DataFrame) -> str:
    """Return a frame as an HTML table, with the same numbers as `format_text`."""
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in frame.columns)
    rows = "".join(f"<tr>{_format_row(row)}</tr>" for row in _round_rows(frame))
    return (
        '<div style="overflow-x:auto"><table class="dataframe">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _format_row(row: Mapping[str, Cell]) -> str:
    return "".join(
        f'<td style="text-align:{"left" if isinstance(cell, str) else "right"}">'
        f"{html.escape(format_cell(cell))}</td>"
        for cell in row.values()
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
    return float(f"{value:.2g}") if name == "p" else round(value, 6)
