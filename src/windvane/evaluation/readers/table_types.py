"""Convert the columns of a table to the types that a log needs; rows that do not fit are reported.

An empty field is null. In a column of numbers `NA`, `null`, `None` and `NaN` are null too.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from windvane.evaluation.readers.column_mapping import ColumnMapping
from windvane.evaluation.readers.row_report import RowReport
from windvane.evaluation.readers.times import parse_time
from windvane.types import Places

if TYPE_CHECKING:
    import polars as pl

NULL_NUMBERS = ("NA", "null", "NULL", "None", "NaN", "nan")
TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_decode_texts = msgspec.json.Decoder(list[str | int]).decode
_decode_numbers = msgspec.json.Decoder(list[float]).decode


class TableRows:
    """Rows of a table that get the types of a log column by column."""

    def __init__(self, path: Path, frame: "pl.DataFrame", lines: Places, report: RowReport) -> None:
        self.path = path
        self.frame = frame
        self.lines = lines
        self.report = report

    def refuse(self, is_bad: "pl.Series", describe: Callable[[int], str]) -> None:
        """Report rows and leave them out; `describe` gives the reason for a row."""
        marks = is_bad.fill_null(False).to_numpy()
        if not marks.any():
            return
        for row in np.flatnonzero(marks).tolist():
            self.report.refuse(str(self.path), int(self.lines[row]), describe(row))
        self.frame = self.frame.filter(~is_bad.fill_null(False))
        self.lines = self.lines[~marks]

    def replace(self, key: str, name: str, column: "pl.Series", demand: str) -> None:
        """Put a converted column in its place; rows in which only it is null are refused."""
        before = self.frame[name]
        self.frame = self.frame.with_columns(column.alias(name))
        self.refuse(
            column.is_null() & before.is_not_null(),
            lambda row: f"{key} must be {demand}, got {str(before[row])[:60]!r} in column {name}",
        )

    def convert_numbers(self, key: str, name: str, is_required: bool = False) -> None:
        """Convert a column to 64-bit floats; NaN becomes null."""
        import polars as pl

        column = self.frame[name]
        if column.dtype == pl.String:
            column = column.str.strip_chars()
            column = column.set(column.is_in(list(NULL_NUMBERS)), None)
            self.frame = self.frame.with_columns(column.alias(name))
        numbers = column.cast(pl.Float64, strict=False).fill_nan(None)
        if column.dtype != pl.String:
            self.frame = self.frame.with_columns(numbers.alias(name))  # NaN is no mistake
        self.replace(key, name, numbers, "a number")
        if is_required:
            self.require(key, name)

    def require(self, key: str, name: str) -> None:
        """Refuse the rows in which a column is null."""
        self.refuse(
            self.frame[name].is_null(), lambda row: f"{key} must be known, got nothing in {name}"
        )

    def convert_texts(self, key: str, name: str) -> None:
        """Convert a column to texts."""
        import polars as pl

        self.replace(key, name, self.frame[name].cast(pl.String, strict=False), "a text")

    def convert_booleans(self, key: str, name: str) -> None:
        """Convert a column to booleans."""
        import polars as pl

        column = self.frame[name]
        if column.dtype == pl.String:
            lower = column.str.to_lowercase()
            column = lower.replace_strict(TRUTHS, default=None, return_dtype=pl.Boolean)
        else:
            column = column.cast(pl.Boolean, strict=False)
        self.replace(key, name, column, "true or false")

    def convert_times(self, name: str, seconds_per_unit: float) -> None:
        """Convert a column to seconds since 1970."""
        import polars as pl

        column = self.frame[name]
        if column.dtype == pl.Date:
            column = column.cast(pl.Datetime("us"))
        if isinstance(column.dtype, pl.Datetime):
            seconds = column.dt.timestamp("us") / 1e6
        elif column.dtype == pl.String:
            numbers = column.str.strip_chars().cast(pl.Float64, strict=False) * seconds_per_unit
            texts = column.to_list()
            if numbers.null_count():
                values = numbers.to_list()
                for row, value in enumerate(values):
                    if value is None:
                        values[row] = _parse_time(texts[row])
                numbers = pl.Series(values, dtype=pl.Float64)
            seconds = numbers
        else:
            seconds = column.cast(pl.Float64, strict=False) * seconds_per_unit
        self.replace("time", name, seconds, "a time in ISO 8601 or a number")
        self.require("time", name)

    def convert_lists(self, key: str, name: str, are_numbers: bool) -> None:
        """Convert a column to lists of numbers, or of texts; a text is read as JSON."""
        import polars as pl

        inner = pl.Float64() if are_numbers else pl.String()
        column = self.frame[name]
        if column.dtype == pl.String:
            decode = _decode_numbers if are_numbers else _decode_texts
            lists = [_decode_list(decode, text) for text in column.to_list()]
            if not are_numbers:
                lists = [None if each is None else list(map(str, each)) for each in lists]
            column = pl.Series(lists, dtype=pl.List(inner))
        else:
            column = column.cast(pl.List(inner), strict=False)
        self.replace(key, name, column, "a list")
        self.require(key, name)


def convert_columns(
    rows: TableRows, mapping: ColumnMapping, kinds: "Mapping[str, pl.DataType]"
) -> None:
    """Convert all mapped columns; `kinds` are the types of the columns with features."""
    rows.convert_texts("action", mapping.action)
    rows.require("action", mapping.action)
    rows.convert_numbers("reward", mapping.reward)
    if mapping.probability:
        rows.convert_numbers("probability", mapping.probability, is_required=True)
    for name in mapping.probability_columns:
        rows.convert_numbers("probabilities", name)
    if mapping.probabilities:
        rows.convert_lists("probabilities", mapping.probabilities, are_numbers=True)
    if mapping.count:
        rows.convert_numbers("count", mapping.count, is_required=True)
    if mapping.actions:
        rows.convert_lists("actions", mapping.actions, are_numbers=False)
    if mapping.excluded:
        rows.convert_lists("excluded", mapping.excluded, are_numbers=False)
    if mapping.time:
        rows.convert_times(mapping.time, mapping.seconds_per_unit)
    if mapping.event_id:
        rows.convert_texts("event_id", mapping.event_id)
    if mapping.multiplicity:
        rows.convert_numbers("multiplicity", mapping.multiplicity, is_required=True)
    if mapping.defaulted:
        rows.convert_booleans("defaulted", mapping.defaulted)
    for name in mapping.context:
        _convert_feature(rows, name, kinds[name])


def _convert_feature(rows: TableRows, name: str, kind: "pl.DataType") -> None:
    if kind.is_numeric():
        rows.convert_numbers("context", name)
    elif kind.is_(_boolean()):
        rows.convert_booleans("context", name)
    elif not kind.is_nested():
        rows.convert_texts("context", name)


def _boolean() -> "pl.DataType":
    import polars as pl

    return pl.Boolean()


def _parse_time(text: str | None) -> float | None:
    try:
        return None if text is None else parse_time(text.strip())
    except ValueError:
        return None


def _decode_list(
    decode: Callable[[str], Sequence[object]], text: str | None
) -> Sequence[object] | None:
    try:
        return None if text is None else decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
