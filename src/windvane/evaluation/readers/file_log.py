"""`open_log`: a log in files of one format, which is found by their bytes, in the order of time.

Lines end with LF, CR LF, or, if a file begins without any LF, with CR.
"""

import glob
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from windvane.errors import FileError, SettingError
from windvane.evaluation.log_batch import LogBatch
from windvane.evaluation.readers.rows import IGNORED_FILES, ReportedLog, RowReport, check_rows
from windvane.persistence import check_parquet_path

BATCH_ROWS = 20_000
FORMATS = {  # the module and the class of the reader, which are loaded when a log is opened
    "windvane": ("windvane_parquet", "WindvaneParquetReader"),
    "dsjson": ("dsjson", "DsjsonReader"),
    "vw": ("vw_text", "VwTextReader"),
    "csv": ("table", "TableReader"),
    "parquet": ("table", "TableReader"),
    "obd": ("table", "OpenBanditReader"),
}
FORMAT_NAMES = ", ".join(FORMATS)
TEXT_FORMATS = ("dsjson", "vw")  # read without polars
TABLES = ("csv", "parquet")
TABLE_ENDINGS = (".csv", ".tsv")
ITEM_FILE = "item_context.csv"  # of the Open Bandit Dataset, beside its log
PARQUET_MAGIC = b"PAR1"
GZIP_MAGIC = b"\x1f\x8b"
IGNORED_STARTS = (".", "_")  # of files and folders in a directory: hidden, _SUCCESS, _delta_log
IGNORED_ENDINGS = (".md", ".crc")
MAX_LINE_BYTES = 16 * 2**20  # a longer line is a bad row
BUFFER_BYTES = 2**18


class Line(NamedTuple):
    """A line without its end."""

    number: int  # from 1
    text: bytes


class LineStream:
    """The lines of a file; `share` is how much of the file was read."""

    def __init__(self, path: Path, report: RowReport) -> None:
        self.path = path
        self.report = report
        self.share = 0.0

    def __iter__(self) -> Iterator[Line]:
        number = 0
        try:
            size = max(self.path.stat().st_size, 1)
            with self.path.open("rb", buffering=BUFFER_BYTES) as file, _decompress(file) as stream:
                while text := stream.readline(MAX_LINE_BYTES):
                    number += 1
                    if len(text) == MAX_LINE_BYTES and not text.endswith(b"\n"):
                        self._skip_line(stream, number)
                        continue
                    if number % 256 == 1:
                        self.share = min(file.tell() / size, 1.0)
                    yield Line(number, text.rstrip(b"\r\n"))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = f"the compressed file is damaged after this line ({error})"
            self.report.refuse(str(self.path), number, reason)
        except OSError as error:
            raise FileError(f"{self.path}: the file cannot be read ({error.strerror})") from None
        self.share = 1.0

    def _skip_line(self, stream: BinaryIO, number: int) -> None:
        while (rest := stream.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
            pass
        reason = f"a line must have at most {MAX_LINE_BYTES} bytes"
        self.report.refuse(str(self.path), number, reason)


def read_start(path: Path, size: int = 2**16) -> bytes:
    """Read the first bytes of a file, after decompression."""
    try:
        with path.open("rb", buffering=BUFFER_BYTES) as file, _decompress(file) as stream:
            return stream.read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise FileError(f"{path}: the compressed file is damaged at its beginning") from None
    except OSError as error:
        raise FileError(f"{path}: the file cannot be read ({error.strerror})") from None


def _decompress(file: BinaryIO) -> BinaryIO:
    """Give the content of a file; gzip is known by its first two bytes."""
    magic = file.read(2)
    file.seek(0)
    stream = gzip.GzipFile(fileobj=file) if magic == GZIP_MAGIC else file
    start = stream.peek(BUFFER_BYTES)  # type: ignore[union-attr]
    if b"\r" in start and b"\n" not in start and not start.startswith(PARQUET_MAGIC):
        return io.BufferedReader(_LineFeeds(stream), BUFFER_BYTES)  # type: ignore[arg-type, type-var]
    return stream  # type: ignore[return-value]


class _LineFeeds(io.RawIOBase):
    """A stream with LF for each CR."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        text = self._stream.read(len(buffer)).replace(b"\r", b"\n")
        buffer[: len(text)] = text
        return len(text)


def is_parquet(path: Path) -> bool:
    if read_start(path, len(PARQUET_MAGIC)) != PARQUET_MAGIC:
        return False
    check_parquet_path(path)
    return True


class FilePart(NamedTuple):
    """Decisions of a file before they are checked, and the share of the file that was read."""

    batch: LogBatch
    share: float


class FileReader:
    """Reads the files of one format."""

    has_times = True  # if not, the number of a decision is its time
    has_fitted_probabilities = False  # whether the probabilities are estimated from the log
    has_event_ids = True  # if not, the place of a decision in its file is its event id

    def __init__(self, paths: Sequence[Path], columns: Mapping[str, str] | None = None) -> None:
        self.paths = list(paths)

    def measure(self, path: Path) -> int:
        """The size of a file, for the progress."""
        return path.stat().st_size

    def with_columns(
        self, names: Sequence[str], rewards: Sequence[str], features: Sequence[str]
    ) -> "FileReader":
        """A reader that keeps columns, all `names` and `rewards`, and `features` if there are."""
        if missing := [*names, *rewards]:
            message = f"only CSV, Parquet and frames have columns, got {missing[0]!r}"
            raise SettingError(f"open_log: {message}")
        return self

    def prepare(self) -> None:
        """Find what must be known of all files before the first can be read, if anything."""

    def read_parts(self, path: Path, report: RowReport, batch_rows: int) -> Iterator[FilePart]:
        """Read a file; rows without the form of the format are reported and left out."""
        raise NotImplementedError


class FileLog(ReportedLog):
    """A log in one or more files of one format."""

    def __init__(self, paths: Sequence[Path], reader: FileReader, strict: bool = False) -> None:
        self.paths = list(paths)
        self.reader = reader
        self.strict = strict
        self.progress = 0.0  # the share of the log that was read in the present pass, in [0, 1]
        self.on_progress: Callable[[float], None] | None = None  # is called with every new share
        self.ignored_files = 0  # of the directories
        self.has_times, self.has_event_ids = reader.has_times, reader.has_event_ids
        self.has_fitted_probabilities = reader.has_fitted_probabilities
        self._report = RowReport(strict)
        self._is_ordered = len(self.paths) == 1

    @property
    def description(self) -> str:
        """The file, or how many files there are."""
        if len(self.paths) == 1:
            return str(self.paths[0])
        return f"{len(self.paths)} files, {self.paths[0]} to {self.paths[-1]}"

    def with_columns(
        self, names: Sequence[str], rewards: Sequence[str], features: Sequence[str]
    ) -> "FileLog":
        """The same log with more columns of its table; the first of `rewards` is the reward."""
        other = copy(self)
        other.reader = self.reader.with_columns(names, rewards, features)
        return other

    def iterate_slots(self) -> Iterator[LogBatch]:
        """Read all slots file by file, the file with the earliest decision first."""
        if not self._is_ordered and self.reader.has_times:
            self.paths = sorted(self.paths, key=self._find_first_time)
            self._is_ordered = True
        report = self._report = RowReport(self.strict)
        report.note(IGNORED_FILES, self.ignored_files)
        self.reader.prepare()
        sizes = [self.reader.measure(path) for path in self.paths]
        total, before, row_count = max(sum(sizes), 1), 0, 0
        self._advance(0.0)
        for path, size in zip(self.paths, sizes, strict=True):
            for batch, share in self.reader.read_parts(path, report, BATCH_ROWS):
                checked = check_rows(batch, report)
                self._advance((before + share * size) / total)
                if not self.reader.has_times:
                    times = np.arange(row_count, row_count + checked.size, dtype=np.float64)
                    checked = checked._replace(times=times)
                row_count += checked.size
                if checked.size:
                    yield checked
            before += size
            self._advance(before / total)

    def _advance(self, progress: float) -> None:
        self.progress = progress
        if self.on_progress is not None:
            self.on_progress(progress)

    def _find_first_time(self, path: Path) -> float:
        """The time of the first good row; those without one come last."""
        self.reader.prepare()
        report = RowReport()
        for batch, _ in self.reader.read_parts(path, report, 1):
            checked = check_rows(batch, report)
            if checked.size:
                return float(checked.times[0])
        return float("inf")


def find_files(paths: Sequence[str | Path]) -> list[Path]:
    """Find the files that paths, directories and glob patterns name, each once, ordered by name.

    All files in a directory belong to the log, those in its directories too, but hidden
    ones, those whose names start with _, and texts about the data do not.
    """
    all_files: dict[Path, None] = {}
    for path in paths:
        text = str(path)
        if Path(text).exists():
            matches = [Path(text)]
        else:
            matches = [Path(match) for match in sorted(glob.glob(text, recursive=True))]
        files = [file for match in matches for file in _list_files(match)]
        if not files:
            raise FileError(f"open_log: there must be a file at {text}, got none")
        all_files |= dict.fromkeys(files)
    if not all_files:
        raise FileError("open_log: at least one path must be given, got none")
    return list(all_files)


def _list_files(path: Path) -> list[Path]:
    if path.is_dir():
        return [file for file, is_log in _sift_folder(path) if is_log]
    if not path.is_file():
        message = "must be a file or a directory, got a pipe or a device: write it to a file first"
        raise FileError(f"open_log: {path} {message}")
    return [path]


def _sift_folder(folder: Path) -> Iterator[tuple[Path, bool]]:
    """All files of a folder, and whether each is not hidden and can be a log by its name."""
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        is_hidden = any(part.startswith(IGNORED_STARTS) for part in file.relative_to(folder).parts)
        is_text = file.name.lower().startswith("readme") or file.suffix in IGNORED_ENDINGS
        yield file, not (is_hidden or is_text)


def _as_list(paths: object) -> Sequence[str | Path]:
    listed = [paths] if isinstance(paths, str | Path) else paths
    if not isinstance(listed, list | tuple) or not all(isinstance(p, str | Path) for p in listed):
        message = "must be paths, or a frame of polars, pandas or pyarrow"
        raise SettingError(f"open_log: the log {message}, got {type(paths).__name__}")
    return listed


def open_log(
    paths: object,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    strict: bool = False,
) -> FileLog:
    """Open a log in files: paths, directories and glob patterns; gzip is known by its bytes.

    Or open a frame as a log: a DataFrame or LazyFrame of polars, a DataFrame of pandas, a Table of
    pyarrow, or another object with the Arrow interface `__arrow_c_stream__`.

    The files are of one format and are read in the order of their first decisions. `columns` maps
    what a log needs, such as "action", to the columns of CSV and Parquet files. A row that
    cannot be used is counted and named in `bad_rows`; with `strict` it raises a FileError.
    """
    if format not in ("auto", *FORMATS):
        raise SettingError(f"open_log: format must be auto, {FORMAT_NAMES}, got {format!r}")
    if hasattr(paths, "__arrow_c_stream__") or hasattr(paths, "collect_schema"):
        _require_polars("open_log")
        from windvane.evaluation.readers.table import FrameReader

        return FileLog([Path("the frame")], FrameReader(paths, columns), strict)
    found = find_files(_as_list(paths))
    files = [file for file in found if file.name != ITEM_FILE] or found
    name = _find_format(files[0], columns) if format == "auto" else format
    if columns and name not in TABLES:
        raise SettingError(f"open_log: columns must be given for csv and parquet only, got {name}")
    if name not in TEXT_FORMATS:
        _require_polars(files[0])
    module, kind = FORMATS[name]
    make_reader = getattr(import_module(f"windvane.evaluation.readers.{module}"), kind)
    log = FileLog(files, make_reader(files, columns), strict)
    folders = [folder for path in _as_list(paths) if (folder := Path(path)).is_dir()]
    log.ignored_files = sum(not is_log for each in folders for _, is_log in _sift_folder(each))
    return log


def _find_format(path: Path, columns: Mapping[str, str] | None) -> str:
    """Find the format of a file by its first bytes, its columns and its ending."""
    from windvane.evaluation.readers.vw_text import looks_like_vw

    if is_parquet(path):
        _require_polars(path)
        from windvane.evaluation.readers.frames import read_columns
        from windvane.evaluation.readers.windvane_parquet import is_windvane_export

        is_own = is_windvane_export(list(read_columns(path))) and not columns
        return "windvane" if is_own else "parquet"
    start = read_start(path)
    if b"\0" in start.split(b"\n", 1)[0]:
        raise FileError(f"{path}: the first line must be text in UTF-8, got NUL bytes (UTF-16?)")
    if start.lstrip().startswith(b"{"):
        return "dsjson"
    if path.name.removesuffix(".gz").endswith(TABLE_ENDINGS) or columns:
        _require_polars(path)
        from windvane.evaluation.readers.frames import read_columns
        from windvane.evaluation.readers.table import is_open_bandit

        return "obd" if is_open_bandit(list(read_columns(path))) and not columns else "csv"
    if looks_like_vw(start):
        return "vw"
    what = "is empty" if not start else "is of no format that is known by its bytes"
    raise FileError(f"{path}: the file {what}; give the format: {FORMAT_NAMES}")


def _require_polars(path: Path | str) -> None:
    if find_spec("polars") is None:
        raise SettingError(f"{path}: polars is missing: pip install 'windvane[lab]'")
