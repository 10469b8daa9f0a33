"""`open_log`: opens a log of any format that Windvane reads; the format is found by its bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from windvane.errors import FileError, SettingError
from windvane.evaluation.readers.file_log import FileLog, FileReader, find_files
from windvane.evaluation.readers.line_stream import read_start

PARQUET_MAGIC = b"PAR1"
FORMATS = {
    "windvane": "Parquet file of `windvane export`",
    "dsjson": "JSON lines of Vowpal Wabbit and Personalizer",
}


def open_log(
    paths: Sequence[str | Path],
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    strict: bool = False,
) -> FileLog:
    """Open a log in files: paths, directories and glob patterns; gzip is known by its bytes.

    The files are of one format and are read in the order of their first decisions. A row that
    cannot be used is counted and named in `bad_rows`; with `strict` it raises a FileError.
    """
    files = find_files(paths)
    name = find_format(files[0]) if format == "auto" else format
    return FileLog(files, _make_reader(name), strict)


def find_format(path: Path) -> str:
    """Find the format of a file by its first bytes and its ending."""
    start = read_start(path)
    if start.startswith(PARQUET_MAGIC):
        from windvane.evaluation.readers.frame_columns import read_parquet_schema
        from windvane.evaluation.readers.windvane_parquet import is_windvane_export

        if is_windvane_export(read_parquet_schema(path).names()):
            return "windvane"
    elif start.lstrip().startswith(b"{"):
        return "dsjson"
    raise FileError(f"{path}: the format is not known; give one of {', '.join(FORMATS)}")


def _make_reader(name: str) -> FileReader:
    if name == "windvane":
        from windvane.evaluation.readers.windvane_parquet import WindvaneParquetReader

        return WindvaneParquetReader()
    if name == "dsjson":
        from windvane.evaluation.readers.dsjson import DsjsonReader

        return DsjsonReader()
    raise SettingError(
        f"open_log: format must be auto or one of {', '.join(FORMATS)}, got {name!r}"
    )
