"""The paper's data: from the Criteo file to two pools of arms and a parameter.

read → sample → one-hot → truncated SVD to d → linear regression of the click → pools. The one-hot
matrix X is sparse and everything after it follows from XᵀX, so memory stays bounded and the
decomposition is exact. Protocols differ as the paper's text and its released code do:

| protocol   | rows sampled  | features                        | target       |
|------------|---------------|---------------------------------|--------------|
| `released` | 200 000       | one-hot, and the click itself   | 2·click − 1  |
| `paper`    | a tenth       | one-hot                         | click        |

The intercept of the regression is reported, and no part of the parameter. A missing category is a
category of its own. Without the file, generated data takes its place and every result says so.
"""

import gzip
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import sparse
from scipy.sparse.linalg import eigsh

from windvane import validation
from windvane.errors import FileError, SettingError
from windvane.lab.studies.criteo_standin import STAND_IN, is_stand_in, stand_in, write_stand_in
from windvane.types import Floats

__all__ = ["STAND_IN", "Pools", "load", "read", "reduce", "sample", "stand_in", "write_stand_in"]

FEATURES = ("campaign", "cat1", "cat2", "cat3", "cat4", "cat5", "cat6", "cat8", "cat9")
NEEDED = ("click", *FEATURES)
POOL = 10_000  # arms in each pool
CHUNK = 1 << 25  # bytes of text parsed at a time
HEAD = 1 << 20  # bytes that tell one file from another
VERSION = 1  # of what the cache holds

Progress = Callable[[int, int], None]  # bytes done, bytes in all


class Protocol(NamedTuple):
    """How one reading of the experiment prepares its data."""

    rows: float  # a number of rows, or a share of them when below 1
    click_left_in: bool
    signed: bool  # regress 2·click − 1 instead of click


PROTOCOLS = {"released": Protocol(200_000, True, True), "paper": Protocol(0.1, False, False)}


class Pools(NamedTuple):
    """What the experiment draws its arms and rewards from."""

    clicked: Floats  # (POOL, d) reduced features of impressions that were clicked
    other: Floats  # (POOL, d) of impressions that were not
    theta: Floats  # (d,)
    intercept: float
    r2: float  # share of the target's variance that the regression explains
    rows: int  # in the file
    sampled: int
    click_rate: float  # among the sampled
    repeated: bool  # a pool had to be drawn with replacement
    source: str  # the file's name, or STAND_IN


def load(
    path: str | PathLike[str] | None = None,
    dims: Sequence[int] = (10, 20, 50),
    protocol: str = "released",
    seed: int = 1,
    cache: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> dict[int, Pools]:
    """Pools for each dimension, from the cache or else from one pass over the file.

    Without a path the stand-in data is used; without a cache, `$XDG_CACHE_HOME/windvane`.
    """
    if protocol not in PROTOCOLS:
        raise SettingError(f"criteo: protocol must be released or paper, got {protocol!r}")
    for dim in dims:
        validation.whole("criteo", "dim", dim)
    validation.whole("criteo", "seed", seed, least=0)
    source, mark = _identity(path)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    where = Path(home) / "windvane" if cache is None else Path(cache)
    places = {dim: where / _name(mark, protocol, seed, dim) for dim in dims}
    found = {dim: _recall(places[dim], dim) for dim in dims}
    if missing := [dim for dim, known in found.items() if known is None]:
        batches = [stand_in()] if path is None else read(path, progress)
        table, rows = sample(batches, PROTOCOLS[protocol].rows, seed)
        for dim, made in reduce(table, missing, protocol, seed, source).items():
            found[dim] = made._replace(rows=rows)
            _keep(places[dim], made._replace(rows=rows))
    return {dim: pools for dim, pools in found.items() if pools is not None}


def read(path: str | PathLike[str], progress: Progress | None = None) -> Iterator[pl.DataFrame]:
    """The needed columns of a gzipped, tab-separated file, some 200 000 rows at a time."""
    who = f"criteo: {os.fspath(path)}"
    try:
        with open(path, "rb") as raw, gzip.GzipFile(fileobj=raw) as text:
            total = os.fstat(raw.fileno()).st_size
            header = text.readline(HEAD)
            _check_header(who, header)
            rest, line = b"", 2
            while chunk := text.read(CHUNK):
                whole, end, rest = (rest + chunk).rpartition(b"\n")
                if end:
                    yield (batch := _parse(who, header, whole, line))
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


def sample(batches: Iterable[pl.DataFrame], rows: float, seed: int) -> tuple[pl.DataFrame, int]:
    """Rows drawn uniformly without replacement in one pass, and how many there were to draw from.

    Each row gets a uniform key; the rows with the smallest keys are kept.
    """
    rng = np.random.default_rng([seed, 1])
    kept, seen, limit = pl.DataFrame(), 0, 1.0
    for batch in batches:
        keys = pl.Series("key", rng.random(len(batch)))
        batch = batch.select(NEEDED).with_columns(keys).filter(pl.col("key") < limit)
        kept = batch if kept.is_empty() else kept.vstack(batch)
        seen += len(keys)
        if rows < 1:
            limit = rows + 8 * np.sqrt(rows / seen)  # eight standard errors above the last key
        elif len(kept) > 2 * rows:
            kept = kept.bottom_k(int(rows), by="key")
            limit = float(kept["key"].to_numpy().max())
    wanted = round(rows * seen) if rows < 1 else int(rows)
    if len(kept) > wanted:
        kept = kept.bottom_k(wanted, by="key")
    return kept.sort("key").drop("key"), seen


def reduce(
    table: pl.DataFrame, dims: Sequence[int], protocol: str, seed: int, source: str
) -> dict[int, Pools]:
    """Reduce sampled impressions to d features each, and regress the click on them.

    X = USVᵀ,  arms = X·V_d,  (θ, c) = argmin Σ (y − ⟨V_dᵀx, θ⟩ − c)²
    """
    way = PROTOCOLS[protocol]
    click = table["click"].to_numpy().astype(np.float64)  # (n,)
    halves = [np.flatnonzero(click == 1), np.flatnonzero(click == 0)]
    if not all(half.size for half in halves):
        told = f"{halves[0].size} of {click.size} are clicked"
        raise FileError(f"criteo: {source} needs clicked and other rows, {told}")
    onehot = _one_hot(table, click if way.click_left_in else None)  # (n, m)
    spread, axes = _decompose(onehot, max(dims), source)  # (d,), (m, d)
    target = 2 * click - 1 if way.signed else click
    rng = np.random.default_rng([seed, 2])
    drawn = [onehot[rng.choice(half, POOL, replace=half.size < POOL)] for half in halves]
    clicked, other = (rows @ axes for rows in drawn)
    made = {}
    for dim in dims:
        fit = _regress(onehot, spread[:dim], axes[:, :dim], target)
        made[dim] = Pools(
            np.ascontiguousarray(clicked[:, :dim]),
            np.ascontiguousarray(other[:, :dim]),
            *fit,
            rows=click.size,
            sampled=click.size,
            click_rate=float(click.mean()),
            repeated=any(half.size < POOL for half in halves),
            source=source,
        )
    return made


def _one_hot(table: pl.DataFrame, click: Floats | None) -> sparse.csr_array:
    """One column for each value of each feature, one for its absence, and the click if given."""
    places, width = [], 0
    for name in FEATURES:
        codes = table[name].rank("dense").fill_null(0).to_numpy()  # values count from 1
        places.append(codes.astype(np.int32) + np.int32(width))
        width += int(codes.max()) + 1
    values = np.ones((len(table), len(places) + (click is not None)))
    if click is not None:
        places.append(np.full(click.size, width, np.int32))
        values[:, -1] = click
        width += 1
    starts = np.arange(len(values) + 1, dtype=np.int32) * np.int32(values.shape[1])
    filled = (values.ravel(), np.stack(places, axis=1).ravel(), starts)
    return sparse.csr_array(filled, shape=(len(values), width))


def _decompose(onehot: sparse.csr_array, dim: int, source: str) -> tuple[Floats, Floats]:
    """The d largest eigenvalues S² of XᵀX, largest first, and their eigenvectors V."""
    width = onehot.shape[1]
    if dim >= width:
        raise FileError(f"criteo: {source} has {width} one-hot columns, too few for dim {dim}")
    spread, axes = eigsh(onehot.T @ onehot, k=dim, v0=np.ones(width))
    spread, axes = spread[::-1], axes[:, ::-1]
    heaviest = axes[np.abs(axes).argmax(axis=0), np.arange(dim)]
    return spread, axes * np.sign(heaviest)  # a sign that any machine agrees on


def _regress(
    onehot: sparse.csr_array, spread: Floats, axes: Floats, target: Floats
) -> tuple[Floats, float, float]:
    """θ, the intercept and R², from moments of the reduced features alone.

    (S² − n·m·mᵀ)·θ = VᵀXᵀy − n·m·ȳ,  m = the mean reduced feature
    """
    rows, average = target.size, float(target.mean())
    mean = axes.T @ onehot.sum(axis=0) / rows  # (d,)
    shared = axes.T @ (onehot.T @ target) - rows * average * mean  # (d,)
    inner = np.diag(spread) - rows * np.outer(mean, mean)  # (d, d)
    theta: Floats = np.linalg.lstsq(inner, shared)[0]
    explained = float(theta @ shared) / float(((target - average) ** 2).sum())
    return theta, average - float(mean @ theta), explained


def _check_header(who: str, header: bytes) -> None:
    if not header:
        raise FileError(f"{who} is empty")
    names = header.decode("utf-8", "replace").rstrip("\r\n").split("\t")
    if missing := [name for name in NEEDED if name not in names]:
        raise FileError(f"{who} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}")
    if twice := [name for name in NEEDED if names.count(name) > 1]:
        raise FileError(f"{who} has more than one column {', '.join(twice)}")


def _parse(who: str, header: bytes, text: bytes, line: int) -> pl.DataFrame:
    """Rows of whole numbers, from text whose first line has this number in its file."""
    try:
        batch = _rows(header + text, pl.Int64)
    except pl.exceptions.PolarsError as reason:
        raw = _rows(header + text, pl.String)
        for name in NEEDED:
            number = raw[name].str.strip_chars().cast(pl.Int64, strict=False)
            if (bad := number.is_null() & raw[name].is_not_null()).any():
                told = f"{name} must be a whole number, got {raw[name].filter(bad)[0]!r}"
                raise FileError(f"{who}, line {line + _first(bad)}: {told}") from None
        raise FileError(f"{who} cannot be read ({str(reason).splitlines()[0]})") from None
    if (bad := ~batch["click"].is_in([0, 1]).fill_null(False)).any():
        told = f"click must be 0 or 1, got {batch['click'].filter(bad)[0]}"
        raise FileError(f"{who}, line {line + _first(bad)}: {told}")
    return batch


def _rows(lines: bytes, kind: type[pl.DataType]) -> pl.DataFrame:
    return pl.read_csv(
        lines,
        separator="\t",
        columns=list(NEEDED),
        schema_overrides=dict.fromkeys(NEEDED, kind),
        null_values=["", "NA", "NaN", "nan", "null"],
        quote_char=None,
        encoding="utf8-lossy",
    )


def _first(flags: pl.Series) -> int:
    return int(flags.arg_true()[0])


def _identity(path: str | PathLike[str] | None) -> tuple[str, list[str | int]]:
    """What the data is called in every output, and what tells it from other data."""
    if path is None:
        return STAND_IN, [STAND_IN]
    try:
        with open(path, "rb") as file:
            head, facts = file.read(HEAD), os.fstat(file.fileno())
    except FileNotFoundError:
        raise FileError(f"criteo: {os.fspath(path)} does not exist") from None
    except OSError as reason:
        raise FileError(f"criteo: {os.fspath(path)} cannot be read ({reason.strerror})") from None
    name = STAND_IN if is_stand_in(head) else Path(path).name
    return name, [name, facts.st_size, facts.st_mtime_ns, hashlib.sha256(head).hexdigest()]


def _name(mark: list[str | int], protocol: str, seed: int, dim: int) -> str:
    key = json.dumps([VERSION, mark, protocol, seed, dim])
    return f"criteo-{hashlib.sha256(key.encode()).hexdigest()[:20]}.npz"


def _recall(place: Path, dim: int) -> Pools | None:
    """What the cache holds, or None where there is nothing or nothing sound."""
    try:
        with open(place, "rb") as file, np.load(file, allow_pickle=False) as held:
            kept = {name: held[name] for name in Pools._fields}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    pools = Pools(**{name: value if value.ndim else value.item() for name, value in kept.items()})
    return pools if pools.clicked.shape == pools.other.shape == (POOL, dim) else None


def _keep(place: Path, pools: Pools) -> None:
    draft = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    with suppress(OSError):  # a cache that cannot be written costs time, not truth
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with open(draft, "wb") as file:
                np.savez(file, **pools._asdict())
            os.replace(draft, place)
        finally:
            draft.unlink(missing_ok=True)
