"""Read the Criteo file, and say what is wrong with a file that cannot be read."""

import gzip
import os
import zlib
from collections.abc import Callable, Iterator
from os import PathLike

import polars as pl

from windvane.errors import FileError

FEATURES = ("campaign", "cat1", "cat2", "cat3", "cat4", "cat5", "cat6", "cat8", "cat9")
COLUMNS = ("click", *FEATURES)  # the columns that are needed
CHUNK_BYTES = 1 << 25  # of text, parsed at a time
MAX_HEADER_BYTES = 1 << 20

ReportBytes = Callable[[int, int], None]  # bytes done, bytes in total


def read_impressions(
    path: str | PathLike[str], progress: ReportBytes | None = None
) -> Iterator[pl.DataFrame]:
    """Read the needed columns of a gzipped, tab-separated file, about 200 000 rows at a time."""
    who = f"criteo: {os.fspath(path)}"
    try:
        with open(path, "rb") as raw, gzip.GzipFile(fileobj=raw) as text:
            total = os.fstat(raw.fileno()).st_size
            header = text.readline(MAX_HEADER_BYTES)
            _check_header(who, header)
            rest = b""
            line = 2
            while chunk := text.read(CHUNK_BYTES):
                lines, end, rest = (rest + chunk).rpartition(b"\n")
                if end:
                    batch = _parse(who, header, lines, line)
                    yield batch
                    line += len(batch)
                if progress:
                    progress(raw.tell(), total)
            if rest:
                yield _parse(who, header, rest, line)
            elif line == 2:
                raise FileError(f"{who} has a header and no rows")
    except FileNotFoundError:
        raise FileError(f"{who} does not exist") from None
    except EOFError:
        raise FileError(f"{who} is truncated: the gzip stream ends too early") from None
    except (gzip.BadGzipFile, zlib.error) as reason:
        raise FileError(f"{who} is damaged or not gzip: {reason}") from None
    except OSError as reason:
        raise FileError(f"{who} cannot be read ({reason.strerror})") from None


def _check_header(who: str, header: bytes) -> None:
    if not header:
        raise FileError(f"{who} is empty")
    names = header.decode("utf-8", "replace").rstrip("\r\n").split("\t")
    if missing := [name for name in COLUMNS if name not in names]:
        raise FileError(f"{who} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    if repeated := [name for name in COLUMNS if names.count(name) > 1]:
        raise FileError(f"{who} has more than one column {', '.join(repeated)}")


def _parse(who: str, header: bytes, text: bytes, line: int) -> pl.DataFrame:
    """Parse rows of whole numbers; `line` is the line number of the first row in the file."""
    try:
        batch = _read_rows(header + text, pl.Int64)
    except pl.exceptions.PolarsError as reason:
        raw = _read_rows(header + text, pl.String)
        for name in COLUMNS:
            number = raw[name].str.strip_chars().cast(pl.Int64, strict=False)
            if (bad := number.is_null() & raw[name].is_not_null()).any():
                fault = f"{name} must be a whole number, got {raw[name].filter(bad)[0]!r}"
                raise FileError(f"{who}, line {line + _first_true(bad)}: {fault}") from None
        raise FileError(f"{who} cannot be read ({str(reason).splitlines()[0]})") from None
    if (bad := ~batch["click"].is_in([0, 1]).fill_null(False)).any():
        fault = f"click must be 0 or 1, got {batch['click'].filter(bad)[0]}"
        raise FileError(f"{who}, line {line + _first_true(bad)}: {fault}")
    return batch


def _read_rows(lines: bytes, kind: type[pl.DataType]) -> pl.DataFrame:
    return pl.read_csv(
        lines,
        separator="\t",
        columns=list(COLUMNS),
        schema_overrides=dict.fromkeys(COLUMNS, kind),
        null_values=["", "NA", "NaN", "nan", "null"],
        quote_char=None,
        encoding="utf8-lossy",
    )


def _first_true(flags: pl.Series) -> int:
    return int(flags.arg_true()[0])
