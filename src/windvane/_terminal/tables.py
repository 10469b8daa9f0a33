"""Aligned text tables for the command line, the same on a terminal and in a pipe."""

from collections.abc import Mapping, Sequence

Cell = str | int | float | bool | None


def format_cell(value: Cell) -> str:
    """Format one cell: four or five digits, yes or no, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.5g}"
    return str(value)


def format_table(rows: Sequence[Mapping[str, Cell]]) -> str:
    """Format rows as a table; the first row's keys are the columns, numbers are right-aligned."""
    titles = list(rows[0])
    cells = [[format_cell(row[title]) for title in titles] for row in rows]
    widths = [max(len(row[i]) for row in [titles, *cells]) for i in range(len(titles))]
    right = [all(is_number(row[title]) for row in rows) for title in titles]

    def format_line(values: Sequence[str]) -> str:
        padded = [
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(values, widths, right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join(
        [
            format_line(titles),
            format_line(["─" * width for width in widths]),
            *map(format_line, cells),
        ]
    )


def is_number(value: Cell) -> bool:
    """Whether a cell is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
