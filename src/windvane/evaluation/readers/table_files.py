"""The rows of CSV and Parquet files as frames, and the types of their columns."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windvane.errors import SettingError
from windvane.evaluation.readers.csv_frames import iterate_csv_frames
from windvane.evaluation.readers.frame_columns import (
    count_parquet_rows,
    read_parquet_schema,
    read_parquet_slice,
)
from windvane.evaluation.readers.line_stream import read_start
from windvane.evaluation.readers.row_report import RowReport
from windvane.types import Places

if TYPE_CHECKING:
    import polars as pl

PARQUET_MAGIC = b"PAR1"
TYPES_FROM_ROWS = 10_000  # of a CSV file
NEARLY_ALL = 0.99  # of the values of a column; the rows of the others are bad


class TableFrame(NamedTuple):
    """Rows of a file."""

    frame: "pl.DataFrame"
    lines: Places
    share: float  # of the file, read so far


def is_parquet(path: Path) -> bool:
    """Whether a file is a Parquet file."""
    return read_start(path, len(PARQUET_MAGIC)) == PARQUET_MAGIC


def read_columns(path: Path) -> "dict[str, pl.DataType]":
    """Read the names and types of the columns; those of a CSV file follow from its first rows."""

    if is_parquet(path):
        return dict(read_parquet_schema(path))
    first = next(iterate_csv_frames(path, RowReport(), TYPES_FROM_ROWS))
    return {name: _find_type(first.frame[name]) for name in first.frame.columns}


def _find_type(column: "pl.Series") -> "pl.DataType":
    """The type of a column of texts: numbers or booleans if nearly all of its values are."""
    import polars as pl

    texts = column.drop_nulls().str.strip_chars()
    least = NEARLY_ALL * len(texts)
    if not len(texts):
        return pl.String()
    if texts.cast(pl.Float64, strict=False).count() >= least:
        return pl.Float64()
    if texts.str.to_lowercase().is_in(["true", "false"]).sum() >= least:
        return pl.Boolean()
    return pl.String()


def iterate_frames(
    path: Path, names: Sequence[str], report: RowReport, batch_rows: int
) -> Iterator[TableFrame]:
    """Read some columns of a file, some rows at a time; the texts of CSV are not converted."""
    if not is_parquet(path):
        for frame, lines, share in iterate_csv_frames(path, report, batch_rows):
            _require_columns(path, names, frame.columns)
            yield TableFrame(frame.select(names), np.array(lines, np.int64), share)
        return
    _require_columns(path, names, read_parquet_schema(path).names())
    total = count_parquet_rows(path)
    for first in range(0, total, batch_rows):
        frame = read_parquet_slice(path, names, first, batch_rows)
        numbers = np.arange(first + 1, first + 1 + len(frame))
        yield TableFrame(frame, numbers, (first + len(frame)) / total)


def _require_columns(path: Path, names: Sequence[str], present: Sequence[str]) -> None:
    if missing := [name for name in names if name not in present]:
        raise SettingError(f"columns: {path} must have the column {missing[0]!r}")
