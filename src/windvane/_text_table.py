"""Plain aligned tables, the same on a screen and in a pipe."""

from collections.abc import Mapping, Sequence

Cell = str | int | float | bool | None


def text(value: Cell) -> str:
    """A cell as people read it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.5g}"
    return str(value)


def table(rows: Sequence[Mapping[str, Cell]]) -> str:
    """Columns by the keys of the first row, numbers to the right."""
    titles = list(rows[0])
    cells = [[text(row[title]) for title in titles] for row in rows]
    widths = [max(len(line[i]) for line in [titles, *cells]) for i in range(len(titles))]
    right = [all(_is_number(row[title]) for row in rows) for title in titles]

    def line(values: Sequence[str]) -> str:
        padded = [
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(values, widths, right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(titles), line(["─" * width for width in widths]), *map(line, cells)])


def _is_number(value: Cell) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
