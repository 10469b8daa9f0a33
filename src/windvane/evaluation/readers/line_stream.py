"""Lines of a text file, plain or compressed with gzip, with the share of the file that was read."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from windvane.errors import FileError
from windvane.evaluation.readers.row_report import RowReport

GZIP_MAGIC = b"\x1f\x8b"
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
