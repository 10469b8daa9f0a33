"""Result frames as text for a terminal and as HTML for a notebook."""

import html

import polars as pl

from windvane._terminal.tables import Cell, format_cell, format_table


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
