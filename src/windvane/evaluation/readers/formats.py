"""`open_log`: opens a log of any format that Windvane reads; the format is found by its bytes."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from windvane.errors import FileError, SettingError
from windvane.evaluation.readers.file_log import FileLog, FileReader, find_files
from windvane.evaluation.readers.line_stream import read_start

FORMATS = {
    "windvane": "the Parquet file of `windvane export`",
    "dsjson": "JSON lines of Vowpal Wabbit and Azure AI Personalizer",
    "vw": "text of Vowpal Wabbit, cb_adf or cb",
    "csv": "CSV, with columns mapped by name",
    "parquet": "Parquet, with columns mapped by name",
    "obd": "CSV of the Open Bandit Dataset",
}
TEXT_FORMATS = ("dsjson", "vw")  # read without polars
TABLES = ("csv", "parquet")
TABLE_ENDINGS = (".csv", ".tsv")


def open_log(
    paths: Sequence[str | Path],
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    strict: bool = False,
) -> FileLog:
    """Open a log in files: paths, directories and glob patterns; gzip is known by its bytes.

    The files are of one format and are read in the order of their first decisions. `columns` maps
    what a log needs to the columns of CSV and Parquet files, see `column_mapping`. A row that
    cannot be used is counted and named in `bad_rows`; with `strict` it raises a FileError.
    """
    if format not in ("auto", *FORMATS):
        raise SettingError(f"open_log: format must be auto, {_list_formats()}, got {format!r}")
    files = _leave_out_items(find_files(paths))
    name = _find_format(files[0], columns) if format == "auto" else format
    if columns and name not in TABLES:
        raise SettingError(f"open_log: columns must be given for csv and parquet only, got {name}")
    return FileLog(files, _make_reader(name, files, columns), strict)


def _find_format(path: Path, columns: Mapping[str, str] | None) -> str:
    """Find the format of a file by its first bytes, its columns and its ending."""
    from windvane.evaluation.readers.open_bandit import is_open_bandit
    from windvane.evaluation.readers.table_files import is_parquet, read_columns
    from windvane.evaluation.readers.vw_text import looks_like_vw
    from windvane.evaluation.readers.windvane_parquet import is_windvane_export

    if is_parquet(path):
        _require_polars(path)
        is_own = is_windvane_export(list(read_columns(path))) and not columns
        return "windvane" if is_own else "parquet"
    start = read_start(path)
    if start.lstrip().startswith(b"{"):
        return "dsjson"
    if path.name.removesuffix(".gz").endswith(TABLE_ENDINGS) or columns:
        _require_polars(path)
        return "obd" if is_open_bandit(list(read_columns(path))) and not columns else "csv"
    if looks_like_vw(start):
        return "vw"
    what = "is empty" if not start else "is of no format that is known by its bytes"
    raise FileError(f"{path}: the file {what}; give the format: {_list_formats()}")


def _require_polars(path: Path) -> None:
    if find_spec("polars") is None:
        raise SettingError(f"{path}: polars is missing: pip install 'windvane[lab]'")


def _make_reader(name: str, files: Sequence[Path], columns: Mapping[str, str] | None) -> FileReader:
    if name not in TEXT_FORMATS:
        _require_polars(files[0])
    if name == "windvane":
        from windvane.evaluation.readers.windvane_parquet import WindvaneParquetReader

        return WindvaneParquetReader()
    if name == "dsjson":
        from windvane.evaluation.readers.dsjson import DsjsonReader

        return DsjsonReader()
    if name == "vw":
        from windvane.evaluation.readers.vw_text import VwTextReader

        return VwTextReader(files)
    if name == "obd":
        from windvane.evaluation.readers.open_bandit import OpenBanditReader

        return OpenBanditReader(files)
    from windvane.evaluation.readers.table import TableReader

    return TableReader(files, columns)


def _leave_out_items(files: list[Path]) -> list[Path]:
    """Leave out the file of the Open Bandit Dataset that describes its items."""
    from windvane.evaluation.readers.open_bandit import ITEM_FILE

    logs = [file for file in files if file.name != ITEM_FILE]
    return logs or files


def _list_formats() -> str:
    return ", ".join(FORMATS)
