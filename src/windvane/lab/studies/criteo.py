"""The paper's data: pools of arms from the Criteo file, cached on disk.

Without the file, generated stand-in data is used, and every result says so.
"""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

import numpy as np

from windvane import validation
from windvane._files import replace_file
from windvane.errors import FileError, SettingError
from windvane.lab.studies import criteo_features
from windvane.lab.studies.criteo_features import PROTOCOLS, Pools, reduce_features, sample_rows
from windvane.lab.studies.criteo_file import ReportBytes, read_impressions
from windvane.lab.studies.criteo_standin import STAND_IN, generate_impressions, is_stand_in

IDENTITY_BYTES = 1 << 20  # the first bytes of a file, which identify it
CACHE_VERSION = 1


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
