"""Frames of CSV and Parquet files, a bounded number of rows at a time, and their columns as arrays.

The fields of a CSV file are separated by commas, tabs or semicolons, whichever the header has most.
A field in quotes may hold separators and line breaks. With semicolons, a number may have a decimal
comma.
"""

import csv
import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from windvane.errors import FileError, SettingError
from windvane.evaluation.readers.file_log import Line, LineStream, is_parquet
from windvane.evaluation.readers.rows import RowReport
from windvane.types import Booleans, Floats, Places

SEPARATORS = ",\t;"
MAX_RECORD_LINES = 100  # a longer record has a quote that is not closed
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
TYPES_FROM_ROWS = 10_000  # first rows of a CSV file
DECIMAL_COMMA = r"^([-+]?\d*),(\d+(?:[eE][-+]?\d+)?)$"
PROBED_ROWS = 16  # of a Parquet file with lists, to learn how long they are
MAX_SLICE_VALUES = 2_000_000  # in the lists of a column
NEARLY_ALL = 0.99  # share of a column's values that fit its type; other rows are bad


@contextmanager
def explain_polars_errors(path: Path) -> Iterator[None]:
    """Raise what polars finds wrong with a file as a FileError of one line."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).split("\n", 1)[0][:200]
        raise FileError(f"{path}: the file cannot be read ({reason})") from None


def read_parquet_schema(path: Path) -> pl.Schema:
    with explain_polars_errors(path):
        return pl.scan_parquet(path).collect_schema()


def read_parquet_slice(path: Path, names: Sequence[str], first: int, count: int) -> pl.DataFrame:
    """Read some rows of some columns; only the row groups concerned are read."""
    with explain_polars_errors(path):
        return pl.scan_parquet(path).slice(first, count).select(names).collect()


class TableFrame(NamedTuple):
    """Rows of a file; all columns of a CSV file are texts."""

    frame: pl.DataFrame
    lines: Places  # the line of each row
    share: float  # of the file, read so far
    has_decimal_commas: bool = False  # whether 0,5 is a number


def iterate_parquet_slices(
    path: Path, names: Sequence[str], batch_rows: int
) -> Iterator[TableFrame]:
    """Read some columns of a file slice by slice.

    A small file can hold long lists, so that the rows of a slice follow from the lists before.
    """
    schema = read_parquet_schema(path)
    lists = [name for name in names if isinstance(schema[name], pl.List)]
    with explain_polars_errors(path):
        total = int(pl.scan_parquet(path).select(pl.len()).collect().item())
    count, first = batch_rows, 0
    if lists:
        count = _fit_rows(read_parquet_slice(path, lists, 0, PROBED_ROWS), lists, batch_rows)
    while first < total:
        frame = read_parquet_slice(path, names, first, count)
        numbers = np.arange(first + 1, first + 1 + len(frame))
        yield TableFrame(frame, numbers, (first + len(frame)) / total)
        first += count
        if lists:
            count = min(2 * count, _fit_rows(frame, lists, batch_rows))


def _fit_rows(frame: pl.DataFrame, lists: Sequence[str], batch_rows: int) -> int:
    """How many rows with lists such as those of a frame have `MAX_SLICE_VALUES` in a column."""
    most = max(1, *(int(frame[name].list.len().sum()) for name in lists))
    return max(1, min(len(frame) * MAX_SLICE_VALUES // most, batch_rows))


def parse_numbers(texts: pl.Series, has_decimal_commas: bool) -> pl.Series:
    """Parse numbers; true is 1 and false is 0; null is no number."""
    if has_decimal_commas:
        texts = texts.str.replace(DECIMAL_COMMA, "${1}.${2}")
    numbers = texts.cast(pl.Float64, strict=False)
    if numbers.null_count() == texts.null_count():
        return numbers
    truths = texts.str.to_lowercase().replace_strict(
        {"true": 1.0, "false": 0.0}, default=None, return_dtype=pl.Float64
    )
    return numbers.fill_null(truths)


def to_floats(column: pl.Series) -> Floats:
    """A column of numbers; null is NaN."""
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def to_booleans(frame: pl.DataFrame, name: str | None) -> Booleans:
    """A column of booleans; null is false, and so is a column that does not exist."""
    if name is None or name not in frame.columns:
        return np.zeros(len(frame), np.bool_)
    return frame[name].cast(pl.Boolean).fill_null(False).to_numpy()


def find_eligible(
    excluded: pl.Series | None, starts: Places, list_ids: Callable[[int], Sequence[str]]
) -> Booleans:
    """Which actions of all rows are not in the lists of excluded ids."""
    is_eligible = np.ones(starts[-1], np.bool_)
    if excluded is not None:
        for row in np.flatnonzero((excluded.list.len().fill_null(0) > 0).to_numpy()).tolist():
            ids = set(excluded[row])
            offered = list_ids(row)[: starts[row + 1] - starts[row]]
            first = starts[row]
            is_eligible[first : first + len(offered)] = [id_ not in ids for id_ in offered]
    return is_eligible


def flatten_lists(column: pl.Series) -> tuple[Floats, Places]:
    """All numbers of a column of lists, and how many each row has; null is NaN, or no numbers."""
    counts = column.list.len().fill_null(0).to_numpy().astype(np.int64)
    flat = column.filter(column.list.len() > 0).explode()
    return to_floats(flat), counts


class Header(NamedTuple):
    """The first line of a file."""

    names: list[str]
    separator: str

    def describe_size(self, count: int) -> str:
        """Why a row with another number of fields is bad."""
        return f"a row must have {len(self.names)} fields, got {count}"


def parse_header(path: Path, text: bytes) -> Header:
    line = text.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace")
    separator = max(SEPARATORS, key=line.count)
    try:
        names = next(csv.reader([line], delimiter=separator), [])
    except csv.Error as error:
        raise FileError(f"{path}: the first line must name the columns ({error})") from None
    if not names:
        raise FileError(f"{path}: the first line must name the columns, got nothing")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FileError(f"{path}: the names of the columns must differ, got {twice!r} twice")
    return Header(names, separator)


def iterate_csv_frames(path: Path, report: RowReport, batch_rows: int) -> Iterator[TableFrame]:
    """Read a file; a row with too few or too many fields is reported and left out."""
    stream = LineStream(path, report)
    lines = iter(stream)
    first = next(lines, None)
    header = parse_header(path, b"" if first is None else first.text)
    records: list[Line] = []
    for record in _join_lines(path, lines, report):
        records.append(record)
        if len(records) >= batch_rows:
            yield _make_frame(path, header, records, report, stream.share)
            records = []
    yield _make_frame(path, header, records, report, 1.0)


def _join_lines(path: Path, lines: Iterator[Line], report: RowReport) -> Iterator[Line]:
    """Join lines until every quote is closed, to one row each; empty lines are left out."""
    again: deque[Line] = deque()  # lines after one whose quote is not closed
    open_lines: list[Line] = []
    while True:
        line = again.popleft() if again else next(lines, None)
        if line is not None:
            if not open_lines and b'"' not in line.text:
                if line.text:
                    yield line
                continue
            open_lines.append(line)
            text = b"\n".join(each.text for each in open_lines)
            if text.count(b'"') % 2 == 0:
                yield Line(open_lines[0].number, text)
                open_lines = []
        if open_lines and (line is None or len(open_lines) > MAX_RECORD_LINES):
            report.refuse(str(path), open_lines[0].number, "a quote must be closed")
            again.extendleft(reversed(open_lines[1:]))
            open_lines = []
        elif line is None:
            return


def _make_frame(
    path: Path, header: Header, records: Sequence[Line], report: RowReport, share: float
) -> TableFrame:
    has_quotes = any(b'"' in record.text for record in records)
    parse = _parse_quoted if has_quotes else _parse_plain
    frame, lines = parse(path, header, records, report)
    return TableFrame(frame, np.array(lines, np.int64), share, header.separator == ";")


def _parse_plain(
    path: Path, header: Header, records: Sequence[Line], report: RowReport
) -> tuple[pl.DataFrame, list[int]]:
    """Parse rows without quotes."""
    separator = header.separator.encode()
    expected = len(header.names) - 1
    good = []
    for record in records:
        count = record.text.count(separator)
        if count != expected:
            report.refuse(str(path), record.number, header.describe_size(count + 1))
            continue
        try:
            record.text.decode("utf-8")
            good.append(record)
        except UnicodeDecodeError:
            report.refuse(str(path), record.number, "the line must be text in UTF-8")
    schema = dict.fromkeys(header.names, pl.String())
    if not good:
        return pl.DataFrame(schema=schema), []
    text = b"\n".join(record.text for record in good)
    with explain_polars_errors(path):
        frame = pl.read_csv(
            io.BytesIO(text),
            has_header=False,
            separator=header.separator,
            quote_char=None,
            schema=schema,
        )
    return frame, [record.number for record in good]


def _parse_quoted(
    path: Path, header: Header, records: Sequence[Line], report: RowReport
) -> tuple[pl.DataFrame, list[int]]:
    """Parse rows of which some have quotes."""
    rows, lines = [], []
    for record in records:
        try:
            text = record.text.decode("utf-8")
            row = next(csv.reader(io.StringIO(text), delimiter=header.separator, strict=True))
        except UnicodeDecodeError:
            report.refuse(str(path), record.number, "the line must be text in UTF-8")
            continue
        except csv.Error as error:
            report.refuse(str(path), record.number, f"the quotes cannot be read ({error})")
            continue
        if len(row) != len(header.names):
            report.refuse(str(path), record.number, header.describe_size(len(row)))
            continue
        rows.append([field or None for field in row])
        lines.append(record.number)
    schema = dict.fromkeys(header.names, pl.String())
    return pl.DataFrame(rows, schema=schema, orient="row"), lines


def to_polars(source: object) -> pl.LazyFrame:
    """A frame of any library as one of polars."""
    if isinstance(source, pl.LazyFrame):
        return source
    if isinstance(source, pl.DataFrame):
        return source.lazy()
    try:
        return pl.DataFrame(source).lazy()  # type: ignore[arg-type]
    except ImportError as missing:  # pandas needs pyarrow for its Arrow interface
        message = f"{missing.name} is missing: pip install pyarrow, or give a frame of polars"
        raise SettingError(f"open_log: {message}") from None
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        reason = str(error).split("\n", 1)[0][:200]
        raise SettingError(f"open_log: the frame cannot be read ({reason})") from None


def read_columns(path: Path) -> dict[str, pl.DataType]:
    """Read the names and types of the columns; those of a CSV file follow from its first rows."""
    if is_parquet(path):
        return dict(read_parquet_schema(path))
    first = next(iterate_csv_frames(path, RowReport(), TYPES_FROM_ROWS))
    return {
        name: _find_type(first.frame[name], first.has_decimal_commas)
        for name in first.frame.columns
    }


def _find_type(column: pl.Series, has_decimal_commas: bool) -> pl.DataType:
    """The type of a column of texts: numbers or booleans if nearly all of its values are."""
    texts = column.drop_nulls().str.strip_chars()
    least = NEARLY_ALL * len(texts)
    if not len(texts):
        return pl.String()
    if texts.str.to_lowercase().is_in(["true", "false"]).sum() >= least:
        return pl.Boolean()
    if parse_numbers(texts, has_decimal_commas).count() >= least:
        return pl.Float64()
    return pl.String()


def iterate_frames(
    path: Path, names: Sequence[str], report: RowReport, batch_rows: int
) -> Iterator[TableFrame]:
    """Read some columns of a file, some rows at a time; the texts of CSV are not converted."""
    if not is_parquet(path):
        for part in iterate_csv_frames(path, report, batch_rows):
            _require_columns(path, names, part.frame.columns)
            yield part._replace(frame=part.frame.select(names))
        return
    _require_columns(path, names, read_parquet_schema(path).names())
    yield from iterate_parquet_slices(path, names, batch_rows)


def _require_columns(path: Path, names: Sequence[str], present: Sequence[str]) -> None:
    if missing := [name for name in names if name not in present]:
        raise SettingError(f"columns: {path} must have the column {missing[0]!r}")
