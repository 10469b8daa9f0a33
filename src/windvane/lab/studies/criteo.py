"""The paper's data: from the Criteo file to two pools of arms and a parameter, cached on disk.

sample → one-hot → truncated SVD to d → linear regression of the click → pools. The one-hot matrix
X is sparse, and every later step uses only XᵀX, so memory stays bounded and the decomposition is
exact. The two protocols differ as the paper's text and its released code do:

| protocol   | rows sampled  | features                        | target       |
|------------|---------------|---------------------------------|--------------|
| `released` | 200 000       | one-hot, and the click itself   | 2·click − 1  |
| `paper`    | a tenth       | one-hot                         | click        |

The intercept of the regression is reported and is no part of the parameter. A missing category is
a category.

Without the file, stand-in impressions are generated, and every result says so. Each of them belongs
to a latent segment. A segment changes the Zipf law of every column, so that the columns depend on
each other. A click depends on the segment and on the categories. The constants are set so that the
reduced features have the norms that the paper's authors printed for the real file.
"""

import gzip
import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from windvane import validation
from windvane.errors import FileError, SettingError
from windvane.lab.experiments import Report, TaskProgress
from windvane.persistence import check_regular, replace_file
from windvane.types import Floats

if TYPE_CHECKING:
    from scipy import sparse

IDENTITY_BYTES = 1 << 20  # the first bytes of a file, which identify it
CACHE_VERSION = 1
CHUNK_BYTES = 1 << 25  # of text, parsed at a time
MAX_HEADER_BYTES = 1 << 20
FEATURES = ("campaign", "cat1", "cat2", "cat3", "cat4", "cat5", "cat6", "cat8", "cat9")
COLUMNS = ("click", *FEATURES)  # the columns that are needed
POOL_ROWS = 10_000

STAND_IN = "stand-in data (not Criteo)"
PUBLISHED_NAME = "criteo_attribution_dataset.tsv.gz"
PUBLISHED_BYTES = 653_015_824
PUBLISHED_SHA256 = "94ac7a465564349bc7ba008602211d5990a3c53cc133abc0aadef61ea2391a98"
PUBLISHED_AT = "https://huggingface.co/datasets/criteo/criteo-attribution-dataset"
NOT_PUBLISHED = " (not the published file)"  # after the name of a file of another size or content
CATEGORIES = (675, 9, 70, 1829, 21, 51, 30, 11, 30, 57_000)  # of each feature, and of cat7
CARDINALITY = dict(zip((*FEATURES, "cat7"), CATEGORIES, strict=True))
CLICK_RATE = 0.36
SEGMENTS = 5
ZIPF_EXPONENT = 1.2  # a category's weight falls as rank^−ZIPF_EXPONENT
SEGMENT_SPREAD = 1.5  # standard deviation of the log weight that a segment adds to a category
CLICK_SPREAD = 0.2  # standard deviation of the log odds of a click that a category adds
Codes = npt.NDArray[np.int64]


class DataProtocol(NamedTuple):
    """How a protocol prepares its data."""

    rows: float  # a number of rows, or a share of them if below 1
    click_is_feature: bool
    signed_target: bool  # regress 2·click − 1 instead of click


PROTOCOLS = {
    "released": DataProtocol(200_000, click_is_feature=True, signed_target=True),
    "paper": DataProtocol(0.1, click_is_feature=False, signed_target=False),
}


class Pools(NamedTuple):
    """The arms of the experiment, its parameter, and facts about the data."""

    clicked: Floats  # (POOL_ROWS, d) reduced features of impressions that were clicked
    other: Floats  # (POOL_ROWS, d) of impressions that were not clicked
    theta: Floats  # (d,)
    intercept: float
    r2: float  # share of the target's variance that the regression explains
    rows: int  # in the file
    sampled: int
    click_rate: float  # of the sampled rows
    repeated: bool  # a pool had to be drawn with replacement
    source: str  # the file's name, with NOT_PUBLISHED if it is another file, or STAND_IN


def load_pools(
    path: str | PathLike[str] | None = None,
    dims: Sequence[int] = (10, 20, 50),
    protocol: str = "released",
    seed: int = 1,
    cache: str | PathLike[str] | None = None,
    progress: Report | None = None,
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
    keys = {dim: json.dumps([CACHE_VERSION, identity, protocol, seed, dim]) for dim in dims}
    names = {dim: hashlib.sha256(key.encode()).hexdigest()[:20] for dim, key in keys.items()}
    entries = {dim: folder / f"criteo-{name}.npz" for dim, name in names.items()}
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
    with _explain_errors(path):
        check_regular(path)
        with open(path, "rb") as file:
            head = file.read(IDENTITY_BYTES)
            status = os.fstat(file.fileno())
            file.seek(0)
            is_published = status.st_size == PUBLISHED_BYTES and (
                hashlib.file_digest(file, "sha256").hexdigest() == PUBLISHED_SHA256
            )
    name = Path(path).name + ("" if is_published else NOT_PUBLISHED)
    return name, [name, status.st_size, status.st_mtime_ns, hashlib.sha256(head).hexdigest()]


@contextmanager
def _explain_errors(path: str | PathLike[str]) -> Iterator[None]:
    """Turn the errors of reading a file into one sentence."""
    who = f"criteo: {os.fspath(path)}"
    try:
        yield
    except FileNotFoundError:
        raise FileError(
            f"{who} does not exist; Criteo publishes {PUBLISHED_NAME} at {PUBLISHED_AT}"
        ) from None
    except EOFError:
        raise FileError(f"{who} is truncated: the gzip stream ends too early") from None
    except (gzip.BadGzipFile, zlib.error) as reason:
        raise FileError(f"{who} is damaged or not gzip: {reason}") from None
    except OSError as reason:
        raise FileError(f"{who} cannot be read ({reason.strerror})") from None


def _read_entry(path: Path, dim: int) -> Pools | None:
    """Return the pools in a cache file, or None if there is no valid file."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            fields = {name: arrays[name] for name in Pools._fields}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    pools = Pools(**{name: value if value.ndim else value.item() for name, value in fields.items()})
    return pools if pools.clicked.shape == pools.other.shape == (POOL_ROWS, dim) else None


def _write_entry(path: Path, pools: Pools) -> None:
    with suppress(OSError):  # without a cache, the next run takes longer and gives the same pools
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as draft, open(draft, "wb") as file:
            np.savez(file, **pools._asdict())


def read_impressions(
    path: str | PathLike[str], progress: Report | None = None
) -> Iterator[pl.DataFrame]:
    """Read the needed columns of a gzipped, tab-separated file, about 200 000 rows at a time."""
    who = f"criteo: {os.fspath(path)}"
    with _explain_errors(path), open(path, "rb") as raw, gzip.GzipFile(fileobj=raw) as text:
        total = os.fstat(raw.fileno()).st_size
        header = text.readline(MAX_HEADER_BYTES)
        _check_header(who, header)
        rest, line = b"", 2
        while chunk := text.read(CHUNK_BYTES):
            lines, end, rest = (rest + chunk).rpartition(b"\n")
            if end:
                batch = _parse(who, header, lines, line)
                yield batch
                line += len(batch)
            if progress:
                progress(TaskProgress("reading", raw.tell(), total, "bytes"))
        if rest:
            yield _parse(who, header, rest, line)
        elif line == 2:
            raise FileError(f"{who} has a header and no rows")


def _check_header(who: str, header: bytes) -> None:
    if not header:
        raise FileError(f"{who} is empty")
    names = header.decode("utf-8", "replace").rstrip("\r\n").split("\t")
    if missing := [name for name in COLUMNS if name not in names]:
        columns = f"column{'s' * (len(missing) > 1)} {', '.join(missing)}"
        raise FileError(f"{who} lacks the {columns}; {PUBLISHED_NAME} has them")
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
                raise FileError(f"{who}, line {line + bad.arg_true()[0]}: {fault}") from None
        raise FileError(f"{who} cannot be read ({str(reason).splitlines()[0]})") from None
    if (bad := ~batch["click"].is_in([0, 1]).fill_null(False)).any():
        fault = f"click must be 0 or 1, got {batch['click'].filter(bad)[0]}"
        raise FileError(f"{who}, line {line + bad.arg_true()[0]}: {fault}")
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


def sample_rows(
    batches: Iterable[pl.DataFrame], rows: float, seed: int
) -> tuple[pl.DataFrame, int]:
    """Draw rows uniformly without replacement in one pass, and count all rows.

    `rows` is a number of rows, or a share of them if below 1. Each row gets a uniform key; the
    rows with the smallest keys are kept.
    """
    rng = np.random.default_rng([seed, 1])
    kept, seen, limit = pl.DataFrame(), 0, 1.0
    for batch in batches:
        keys = pl.Series("key", rng.random(len(batch)))
        batch = batch.select(COLUMNS).with_columns(keys).filter(pl.col("key") < limit)
        kept = batch if kept.is_empty() else kept.vstack(batch)
        seen += len(keys)
        if rows < 1:
            limit = rows + 8 * np.sqrt(rows / seen)  # eight standard errors above the last key
        elif len(kept) > 2 * rows:
            kept = kept.bottom_k(int(rows), by="key")
            limit = float(kept["key"].to_numpy().max())
    count = round(rows * seen) if rows < 1 else int(rows)
    if len(kept) > count:
        kept = kept.bottom_k(count, by="key")
    return kept.sort("key").drop("key"), seen


def reduce_features(
    table: pl.DataFrame, dims: Sequence[int], protocol: str, seed: int, source: str
) -> dict[int, Pools]:
    """Reduce sampled impressions to d features each, and regress the click on these.

    X = USVᵀ,  arms = X·V_d,  (θ, c) = argmin Σ (y − ⟨V_dᵀx, θ⟩ − c)²
    """
    settings = PROTOCOLS[protocol]
    click = table["click"].to_numpy().astype(np.float64)  # (n,)
    halves = [np.flatnonzero(click == 1), np.flatnonzero(click == 0)]
    if not all(half.size for half in halves):
        count = f"{halves[0].size} of {click.size} are clicked"
        raise FileError(f"criteo: {source} needs clicked and other rows, {count}")
    onehot = _encode_one_hot(table, click if settings.click_is_feature else None)  # (n, m)
    spread, axes = _decompose(onehot, max(dims), source)  # (d,), (m, d)
    target = 2 * click - 1 if settings.signed_target else click
    rng = np.random.default_rng([seed, 2])
    pool_rows = [
        onehot[rng.choice(half, POOL_ROWS, replace=half.size < POOL_ROWS)] for half in halves
    ]
    clicked, other = (rows @ axes for rows in pool_rows)
    return {
        dim: Pools(
            np.ascontiguousarray(clicked[:, :dim]),
            np.ascontiguousarray(other[:, :dim]),
            *_regress(onehot, spread[:dim], axes[:, :dim], target),
            rows=click.size,
            sampled=click.size,
            click_rate=float(click.mean()),
            repeated=any(half.size < POOL_ROWS for half in halves),
            source=source,
        )
        for dim in dims
    }


def _encode_one_hot(table: pl.DataFrame, click: Floats | None) -> "sparse.csr_array":
    """Make one column for each value of each feature, one for a missing value, and the click."""
    from scipy import sparse  # imported late: it is slow to load, and pools are kept on disk

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
    parts = (values.ravel(), np.stack(places, axis=1).ravel(), starts)
    return sparse.csr_array(parts, shape=(len(values), width))


def _decompose(onehot: "sparse.csr_array", dim: int, source: str) -> tuple[Floats, Floats]:
    """Return the d largest eigenvalues S² of XᵀX, largest first, and their eigenvectors V."""
    from scipy.sparse.linalg import eigsh

    width = onehot.shape[1]
    if dim >= width:
        raise FileError(f"criteo: {source} has {width} one-hot columns, too few for dim {dim}")
    spread, axes = eigsh(onehot.T @ onehot, k=dim, v0=np.ones(width))
    axes = axes[:, ::-1]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(dim)]
    return spread[::-1], axes * np.sign(largest)  # the same sign on every machine


def _regress(
    onehot: "sparse.csr_array", spread: Floats, axes: Floats, target: Floats
) -> tuple[Floats, float, float]:
    """Return θ, the intercept and R², computed from moments of the reduced features.

    (S² − n·m·mᵀ)·θ = VᵀXᵀy − n·m·ȳ,  m = the mean reduced feature
    """
    rows = target.size
    average = float(target.mean())
    mean = axes.T @ onehot.sum(axis=0) / rows  # (d,)
    shared = axes.T @ (onehot.T @ target) - rows * average * mean  # (d,)
    inner = np.diag(spread) - rows * np.outer(mean, mean)  # (d, d)
    theta: Floats = np.linalg.lstsq(inner, shared)[0]
    explained = float(theta @ shared) / float(((target - average) ** 2).sum())
    return theta, average - float(mean @ theta), explained


def generate_impressions(seed: int = 1, rows: int = 500_000) -> pl.DataFrame:
    """Generate impressions; a seed selects the rows, and the population is always the same.

    P(c | segment g) ∝ rank(c)^−a · exp(s·z_gc),  a = ZIPF_EXPONENT, s = SEGMENT_SPREAD
    log odds of a click = Σ effects + constant
    """
    validation.whole("stand_in", "rows", rows)
    shape, names = (np.random.default_rng(place) for place in (0, 1))  # the same for every seed
    rng = np.random.default_rng([validation.whole("stand_in", "seed", seed, least=0), 3])
    weight = np.arange(1.0, SEGMENTS + 1) ** -0.5
    segment = rng.choice(SEGMENTS, rows, p=weight / weight.sum())
    odds = shape.normal(0.0, 2 * CLICK_SPREAD, SEGMENTS)[segment]
    columns: dict[str, Codes] = {}
    for name, size in CARDINALITY.items():
        code = _draw_categories(rng, segment, _cumulative_laws(shape, size))
        odds += shape.normal(0.0, CLICK_SPREAD, size)[code] if name != "cat7" else 0.0
        columns[name] = names.choice(33_000_000, size, replace=False)[code]
    click = rng.random(rows) < _click_probability(odds)
    return pl.DataFrame({"click": click.astype(np.int8), **columns})


def _cumulative_laws(shape: np.random.Generator, size: int) -> Floats:
    """Return the running sums of P(c | g), one segment a row."""
    tilt = np.exp(SEGMENT_SPREAD * shape.standard_normal((SEGMENTS, size)))
    law: Floats = np.cumsum(np.arange(1.0, size + 1) ** -ZIPF_EXPONENT * tilt, axis=1)
    return law / law[:, -1:]


def _draw_categories(rng: np.random.Generator, segment: Codes, laws: Floats) -> Codes:
    chance = rng.random(segment.size)
    code = np.empty(segment.size, np.int64)
    for g, law in enumerate(laws):
        own = segment == g
        code[own] = np.searchsorted(law, chance[own], side="right")
    return code


def _click_probability(odds: Floats) -> Floats:
    """Return 1/(1 + e^−(odds + c)), with c such that the average is the click rate."""
    low, high, sample = -20.0, 20.0, odds[:20_000]
    for _ in range(40):
        middle = (low + high) / 2
        above = np.mean(1 / (1 + np.exp(-sample - middle))) > CLICK_RATE
        low, high = (low, middle) if above else (middle, high)
    probability: Floats = 1 / (1 + np.exp(-odds - low))
    return probability
