"""Columns of polars frames as arrays, and slices of Parquet files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from windvane.errors import FileError
from windvane.types import Booleans, Floats, Places

if TYPE_CHECKING:
    import polars as pl

MICROSECONDS_PER_SECOND = 1e6


@contextmanager
def explain_polars_errors(path: Path) -> Iterator[None]:
    """Raise what polars finds wrong with a file as a FileError of one line."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).split("\n", 1)[0][:200]
        raise FileError(f"{path}: the file cannot be read ({reason})") from None


def read_parquet_schema(path: Path) -> "pl.Schema":
    """Read the names and types of the columns of a file."""
    import polars as pl

    with explain_polars_errors(path):
        return pl.scan_parquet(path).collect_schema()


def count_parquet_rows(path: Path) -> int:
    """Count the rows of a file, from its metadata."""
    import polars as pl

    with explain_polars_errors(path):
        return int(pl.scan_parquet(path).select(pl.len()).collect().item())


def read_parquet_slice(path: Path, names: Sequence[str], first: int, count: int) -> "pl.DataFrame":
    """Read some rows of some columns; only the row groups concerned are read."""
    import polars as pl

    with explain_polars_errors(path):
        return pl.scan_parquet(path).slice(first, count).select(names).collect()


def to_floats(column: "pl.Series") -> Floats:
    """A column of numbers; null is NaN."""
    import polars as pl

    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def to_seconds(column: "pl.Series") -> Floats:
    """A column of times as seconds since 1970; null is NaN."""
    import polars as pl

    microseconds = column.dt.timestamp("us").cast(pl.Float64)
    return to_floats(microseconds / MICROSECONDS_PER_SECOND)


def to_booleans(frame: "pl.DataFrame", name: str | None) -> Booleans:
    """A column of booleans; null is false, and so is a column that does not exist."""
    import polars as pl

    if name is None or name not in frame.columns:
        return np.zeros(len(frame), np.bool_)
    return frame[name].cast(pl.Boolean).fill_null(False).to_numpy()


def flatten_lists(column: "pl.Series") -> tuple[Floats, Places]:
    """All numbers of a column of lists, and how many each row has; null is NaN, or no numbers."""
    counts = column.list.len().fill_null(0).to_numpy().astype(np.int64)
    flat = column.filter(column.list.len() > 0).explode()
    return to_floats(flat), counts
