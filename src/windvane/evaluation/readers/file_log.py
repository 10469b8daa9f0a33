"""A log in files: finds them, reads them in the order of time, and counts what was read."""

import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from windvane.errors import FileError
from windvane.evaluation.log_batch import BadRow, LogBatch
from windvane.evaluation.readers.row_checks import check_rows
from windvane.evaluation.readers.row_report import RowReport

BATCH_ROWS = 20_000
FITTED_WARNING = (
    "the log has no probabilities: they were estimated from how often each action was chosen, "
    "and every estimate is biased if the choices depended on the context"
)
NO_TIMES_WARNING = "the log has no times: the number of a decision is its time"


class FilePart(NamedTuple):
    """Decisions of a file before they are checked, and the share of the file that was read."""

    batch: LogBatch
    share: float


class FileReader(Protocol):
    """Reads the files of one format."""

    @property
    def has_times(self) -> bool:
        """Whether the files have times; if not, the number of a decision is its time."""

    @property
    def has_fitted_probabilities(self) -> bool:
        """Whether the probabilities are estimated from the log."""

    def prepare(self) -> None:
        """Find what must be known of all files before the first can be read."""

    def read_parts(self, path: Path, report: RowReport, batch_rows: int) -> Iterator[FilePart]:
        """Read a file; rows without the form of the format are reported and left out."""


@runtime_checkable
class HasProgress(Protocol):
    """A log that knows how far it was read."""

    progress: float  # the share of the log that was read in the present pass, in [0, 1]
    on_progress: Callable[[float], None] | None  # is called with every new share


@runtime_checkable
class HasNotes(Protocol):
    """A log that tells how it was read."""

    @property
    def has_times(self) -> bool:
        """Whether the log has times; if not, the number of a decision is its time."""

    @property
    def notes(self) -> Mapping[str, int]:
        """How many rows were read in a special way, by what was done with them."""

    @property
    def warnings(self) -> Sequence[str]:
        """What every result from this log must say."""


class FileLog:
    """A log in one or more files of one format."""

    def __init__(self, paths: Sequence[Path], reader: FileReader, strict: bool = False) -> None:
        self.paths = list(paths)
        self.reader = reader
        self.strict = strict
        self.progress = 0.0
        self.on_progress: Callable[[float], None] | None = None
        self._report = RowReport(strict)
        self._is_ordered = len(self.paths) == 1

    @property
    def description(self) -> str:
        """The file, or how many files there are."""
        if len(self.paths) == 1:
            return str(self.paths[0])
        return f"{len(self.paths)} files, {self.paths[0]} to {self.paths[-1]}"

    @property
    def has_fitted_probabilities(self) -> bool:
        """Whether the log has no propensities and they were estimated from it."""
        return self.reader.has_fitted_probabilities

    @property
    def warnings(self) -> Sequence[str]:
        """What every result from this log must say."""
        return [
            *([FITTED_WARNING] if self.reader.has_fitted_probabilities else []),
            *([] if self.reader.has_times else [NO_TIMES_WARNING]),
        ]

    @property
    def bad_rows(self) -> Sequence[BadRow]:
        """The first rows that could not be used, as far as the log was read."""
        return self._report.bad_rows

    @property
    def bad_row_count(self) -> int:
        """How many rows could not be used, as far as the log was read."""
        return self._report.bad_row_count

    @property
    def has_times(self) -> bool:
        """Whether the files have times; if not, the number of a decision is its time."""
        return self.reader.has_times

    @property
    def notes(self) -> Mapping[str, int]:
        """How many rows were read in a special way, by what was done with them."""
        return self._report.notes

    def iterate_batches(self) -> Iterator[LogBatch]:
        """Read the decisions file by file, the file with the earliest decision first."""
        if not self._is_ordered and self.reader.has_times:
            self.paths = self._order_by_first_time()
            self._is_ordered = True
        report = self._report = RowReport(self.strict)
        self.reader.prepare()
        sizes = [path.stat().st_size for path in self.paths]
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

    def _order_by_first_time(self) -> list[Path]:
        """Order the files by the time of their first good row; those without one come last."""
        first_times = [self._find_first_time(path) for path in self.paths]
        order = sorted(range(len(self.paths)), key=lambda place: (first_times[place], place))
        return [self.paths[place] for place in order]

    def _find_first_time(self, path: Path) -> float:
        self.reader.prepare()
        report = RowReport()
        for batch, _ in self.reader.read_parts(path, report, 1):
            checked = check_rows(batch, report)
            if checked.size:
                return float(checked.times[0])
        return float("inf")


def find_files(paths: Sequence[str | Path]) -> list[Path]:
    """Find the files that paths, directories and glob patterns name, each once, ordered by name.

    All files in a directory belong to the log, those in its directories too; hidden ones do not.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
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
    if not path.is_dir():
        return [path]
    return sorted(
        file
        for file in path.rglob("*")
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
