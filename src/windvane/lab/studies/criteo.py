"""The paper's data: the Criteo file, and the pools of arms made from it, cached on disk.

Without the file, generated stand-in data is used, and every result says so.
"""

import gzip
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

import numpy as np
import polars as pl

from windvane import validation
from windvane.errors import FileError, SettingError
from windvane.lab.studies import criteo_features
from windvane.lab.studies.criteo_features import (
    COLUMNS,
    PROTOCOLS,
    Pools,
    reduce_features,
    sample_rows,
)
from windvane.lab.studies.criteo_standin import STAND_IN, generate_impressions, is_stand_in
from windvane.persistence import replace_file

IDENTITY_BYTES = 1 << 20  # the first bytes of a file, which identify it
CACHE_VERSION = 1
CHUNK_BYTES = 1 << 25  # of text, parsed at a time
MAX_HEADER_BYTES = 1 << 20
ReportBytes = Callable[[int, int], None]  # bytes done, bytes in total


def load_pools(
    path: str | PathLike[str] | None = None,
    dims: Sequence[int] = (10, 20, 50),
    protocol: str = "released",
    seed: int = 1,
    cache: str | PathLike[str] | None = None,
    progress: ReportBytes | None = None,
) -> dict[int, Pools]:
    """Return pools for each dimension, from the cache or else from one pass over the file.

    Without a path, stand-in data is used. The default cache is `$XDG_CACHE_HOME/windvane`.
    """
    if protocol not in PROTOCOLS:
        raise SettingError(f"criteo: protocol must be released or paper, got {protocol!r}")
    for dim in dims:
        validation.whole("criteo", "dim", dim)
    validation.whole("criteo", "seed", seed, least=0)
    source, identity = _identify(path)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "windvane" if cache is None else Path(cache)
    entries = {dim: folder / _entry_name(identity, protocol, seed, dim) for dim in dims}
    pools = {dim: _read_entry(entries[dim], dim) for dim in dims}
    if missing := [dim for dim, cached in pools.items() if cached is None]:
        batches = [generate_impressions()] if path is None else read_impressions(path, progress)
        table, rows = sample_rows(batches, PROTOCOLS[protocol].rows, seed)
        for dim, reduced in reduce_features(table, missing, protocol, seed, source).items():
            pools[dim] = reduced._replace(rows=rows)
            _write_entry(entries[dim], reduced._replace(rows=rows))
    return {dim: pool for dim, pool in pools.items() if pool is not None}


def _identify(path: str | PathLike[str] | None) -> tuple[str, list[str | int]]:
    """Return the name of the data in every output, and values that identify its content."""
    if path is None:
        return STAND_IN, [STAND_IN]
    try:
        with open(path, "rb") as file:
            head = file.read(IDENTITY_BYTES)
            status = os.fstat(file.fileno())
    except FileNotFoundError:
        raise FileError(f"criteo: {os.fspath(path)} does not exist") from None
    except OSError as reason:
        raise FileError(f"criteo: {os.fspath(path)} cannot be read ({reason.strerror})") from None
    name = STAND_IN if is_stand_in(head) else Path(path).name
    return name, [name, status.st_size, status.st_mtime_ns, hashlib.sha256(head).hexdigest()]


def _entry_name(identity: list[str | int], protocol: str, seed: int, dim: int) -> str:
    key = json.dumps([CACHE_VERSION, identity, protocol, seed, dim])
    return f"criteo-{hashlib.sha256(key.encode()).hexdigest()[:20]}.npz"


def _read_entry(path: Path, dim: int) -> Pools | None:
    """Return the pools in a cache file, or None if there is no valid file."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            fields = {name: arrays[name] for name in Pools._fields}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    pools = Pools(**{name: value if value.ndim else value.item() for name, value in fields.items()})
    return (
        pools
        if pools.clicked.shape == pools.other.shape == (criteo_features.POOL_ROWS, dim)
        else None
    )


def _write_entry(path: Path, pools: Pools) -> None:
    with suppress(OSError):  # without a cache, the next run takes longer and gives the same pools
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as draft, open(draft, "wb") as file:
            np.savez(file, **pools._asdict())


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
