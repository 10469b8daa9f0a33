"""CSV files as frames of texts, a bounded number of rows at a time.

The fields are separated by commas, tabs or semicolons, whichever the header has most. A field in
quotes may hold separators and line breaks.
"""

import csv
import io
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windvane.errors import FileError
from windvane.evaluation.readers.line_stream import Line, LineStream
from windvane.evaluation.readers.row_report import RowReport

if TYPE_CHECKING:
    import polars as pl

SEPARATORS = ",\t;"
MAX_RECORD_LINES = 100  # of a field with line breaks; a longer one has a quote that is not closed
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class CsvFrame(NamedTuple):
    """Rows of a file."""

    frame: "pl.DataFrame"  # texts only
    lines: list[int]  # the line of each row
    share: float  # of the file, read so far


class Header(NamedTuple):
    """The first line of a file."""

    names: list[str]
    separator: str


class Record(NamedTuple):
    """A row as it stands in a file: one line, or more if a field has line breaks."""

    line: int
    text: bytes


def parse_header(path: Path, text: bytes) -> Header:
    """Parse the names of the columns."""
    line = text.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace")
    separator = max(SEPARATORS, key=line.count)
    names = next(csv.reader([line], delimiter=separator), [])
    if not names:
        raise FileError(f"{path}: the first line must name the columns, got nothing")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FileError(f"{path}: the names of the columns must differ, got {twice!r} twice")
    return Header(names, separator)


def iterate_csv_frames(path: Path, report: RowReport, batch_rows: int) -> Iterator[CsvFrame]:
    """Read a file; a row with too few or too many fields is reported and left out."""
    stream = LineStream(path, report)
    lines = iter(stream)
    first = next(lines, None)
    header = parse_header(path, b"" if first is None else first.text)
    records: list[Record] = []
    for record in _join_lines(path, lines, report):
        records.append(record)
        if len(records) >= batch_rows:
            yield _make_frame(path, header, records, report, stream.share)
            records = []
    yield _make_frame(path, header, records, report, 1.0)


def _join_lines(path: Path, lines: Iterator[Line], report: RowReport) -> Iterator[Record]:
    """Join lines until every quote is closed; empty lines are left out."""
    again: deque[Line] = deque()  # lines after one whose quote is not closed
    open_lines: list[Line] = []
    while True:
        line = again.popleft() if again else next(lines, None)
        if line is not None:
            if not open_lines and b'"' not in line.text:
                if line.text:
                    yield Record(*line)
                continue
            open_lines.append(line)
            text = b"\n".join(each.text for each in open_lines)
            if text.count(b'"') % 2 == 0:
                yield Record(open_lines[0].number, text)
                open_lines = []
        if open_lines and (line is None or len(open_lines) > MAX_RECORD_LINES):
            report.refuse(str(path), open_lines[0].number, "a quote must be closed")
            again.extendleft(reversed(open_lines[1:]))
            open_lines = []
        elif line is None:
            return


def _make_frame(
    path: Path, header: Header, records: Sequence[Record], report: RowReport, share: float
) -> CsvFrame:
    has_quotes = any(b'"' in record.text for record in records)
    parse = _parse_quoted if has_quotes else _parse_plain
    frame, lines = parse(path, header, records, report)
    return CsvFrame(frame, lines, share)


def _parse_plain(
    path: Path, header: Header, records: Sequence[Record], report: RowReport
) -> tuple["pl.DataFrame", list[int]]:
    """Parse rows without quotes."""
    import polars as pl

    separator = header.separator.encode()
    expected = len(header.names) - 1
    good = []
    for record in records:
        count = record.text.count(separator)
        if count != expected:
            _refuse_count(path, header, record, count + 1, report)
        elif not _is_text(record.text):
            report.refuse(str(path), record.line, "the line must be text in UTF-8")
        else:
            good.append(record)
    schema = dict.fromkeys(header.names, pl.String())
    if not good:
        return pl.DataFrame(schema=schema), []
    text = b"\n".join(record.text for record in good)
    frame = pl.read_csv(
        io.BytesIO(text),
        has_header=False,
        separator=header.separator,
        quote_char=None,
        schema=schema,
    )
    return frame, [record.line for record in good]


def _parse_quoted(
    path: Path, header: Header, records: Sequence[Record], report: RowReport
) -> tuple["pl.DataFrame", list[int]]:
    """Parse rows of which some have quotes."""
    import polars as pl

    rows, lines = [], []
    for record in records:
        try:
            text = record.text.decode("utf-8")
            row = next(csv.reader(io.StringIO(text), delimiter=header.separator, strict=True))
        except UnicodeDecodeError:
            report.refuse(str(path), record.line, "the line must be text in UTF-8")
            continue
        except csv.Error as error:
            report.refuse(str(path), record.line, f"the quotes cannot be read ({error})")
            continue
        if len(row) != len(header.names):
            _refuse_count(path, header, record, len(row), report)
            continue
        rows.append([field or None for field in row])
        lines.append(record.line)
    schema = dict.fromkeys(header.names, pl.String())
    return pl.DataFrame(rows, schema=schema, orient="row"), lines


def _refuse_count(
    path: Path, header: Header, record: Record, count: int, report: RowReport
) -> None:
    reason = f"a row must have {len(header.names)} fields, got {count}"
    report.refuse(str(path), record.line, reason)


def _is_text(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
