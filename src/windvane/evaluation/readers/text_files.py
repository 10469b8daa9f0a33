"""Lines of text files, plain or compressed with gzip, and batches of the decisions in them."""

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np

from windvane.errors import FileError
from windvane.evaluation.log_batch import DecisionFeatures, LogBatch
from windvane.evaluation.readers.rows import RowReport

GZIP_MAGIC = b"\x1f\x8b"
MAX_LINE_BYTES = 16 * 2**20  # a longer line is a bad row
BUFFER_BYTES = 2**18
MAX_BATCH_BYTES = 16 * 2**20  # text of the features
Item = TypeVar("Item")


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
        with path.open("rb") as file, _decompress(file) as stream:
            return stream.read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise FileError(f"{path}: the compressed file is damaged at its beginning") from None
    except OSError as error:
        raise FileError(f"{path}: the file cannot be read ({error.strerror})") from None


def _decompress(file: BinaryIO) -> BinaryIO:
    """Give the content of a file; gzip is known by its first two bytes."""
    magic = file.read(2)
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if magic == GZIP_MAGIC else file  # type: ignore[return-value]


class LogRow(NamedTuple):
    """One decision of a log, before it is checked."""

    event_id: str
    time: float  # seconds since 1970
    reward: float  # NaN: no reward is known yet
    chosen: int  # place of the chosen action among those offered
    probabilities: Sequence[float]  # of all offered actions; NaN: not logged
    is_eligible: Sequence[bool]  # of all offered actions; False: excluded by the request
    line: int  # of the file
    read_features: Callable[[], DecisionFeatures]
    text_bytes: int  # memory that the text of its features takes
    multiplicity: float = 1.0  # how many decisions this row stands for
    is_defaulted: bool = False  # whether the reward is the default reward


class BatchBuilder:
    """Rows of one file, until there are enough for a batch."""

    def __init__(self, source: str, batch_rows: int) -> None:
        self.source = source
        self.batch_rows = batch_rows
        self._clear()

    def _clear(self) -> None:
        self._rows: list[LogRow] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether a batch should be made now."""
        return len(self._rows) >= self.batch_rows or self._bytes >= MAX_BATCH_BYTES

    def add(self, row: LogRow) -> None:
        """Add a decision."""
        self._rows.append(row)
        self._bytes += row.text_bytes

    def build(self) -> LogBatch:
        """Make a batch of all rows since the last one."""
        rows = self._rows
        readers = [row.read_features for row in rows]  # all that a batch keeps of its rows
        sizes = [len(row.probabilities) for row in rows]
        batch = LogBatch(
            event_ids=[row.event_id for row in rows],
            times=np.array([row.time for row in rows], np.float64),
            rewards=np.array([row.reward for row in rows], np.float64),
            chosen=np.array([row.chosen for row in rows], np.int64),
            starts=np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
            probabilities=np.array(_flatten(row.probabilities for row in rows), np.float64),
            is_eligible=np.array(_flatten(row.is_eligible for row in rows), np.bool_),
            multiplicities=np.array([row.multiplicity for row in rows], np.float64),
            is_defaulted=np.array([row.is_defaulted for row in rows], np.bool_),
            is_degraded=np.zeros(len(rows), np.bool_),
            lines=np.array([row.line for row in rows], np.int64),
            source=self.source,
            read_features=lambda place: readers[place](),
        )
        self._clear()
        return batch


def _flatten(lists: Iterable[Sequence[Item]]) -> list[Item]:
    return list(chain.from_iterable(lists))


def parse_time(text: str) -> float:
    """Seconds since 1970 of a time in ISO 8601, in UTC if it names no zone; raises ValueError.

    >>> parse_time("1970-01-02T00:00:00.5Z"), parse_time("1970-01-02 01:00:00+01:00")
    (86400.5, 86400.0)
    """
    time = datetime.fromisoformat(text)
    try:
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except OverflowError as error:  # a zone that leads before year 1
        raise ValueError(str(error)) from None
