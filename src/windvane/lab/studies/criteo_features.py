"""From sampled impressions to two pools of arms and a parameter.

sample → one-hot → truncated SVD to d → linear regression of the click → pools. The one-hot matrix
X is sparse, and every later step uses only XᵀX, so memory stays bounded and the decomposition is
exact. The two protocols differ as the paper's text and its released code do:

| protocol   | rows sampled  | features                        | target       |
|------------|---------------|---------------------------------|--------------|
| `released` | 200 000       | one-hot, and the click itself   | 2·click − 1  |
| `paper`    | a tenth       | one-hot                         | click        |

The intercept of the regression is reported and is no part of the parameter. A missing category is
a category.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from windvane.errors import FileError
from windvane.types import Floats

if TYPE_CHECKING:
    from scipy import sparse

FEATURES = ("campaign", "cat1", "cat2", "cat3", "cat4", "cat5", "cat6", "cat8", "cat9")
COLUMNS = ("click", *FEATURES)  # the columns that are needed
POOL_ROWS = 10_000


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
    source: str  # the file's name, or STAND_IN


def sample_rows(
    batches: Iterable[pl.DataFrame], rows: float, seed: int
) -> tuple[pl.DataFrame, int]:
    """Draw rows uniformly without replacement in one pass, and count all rows.

    `rows` is a number of rows, or a share of them if below 1. Each row gets a uniform key; the
    rows with the smallest keys are kept.
    """
    rng = np.random.default_rng([seed, 1])
    kept = pl.DataFrame()
    seen = 0
    limit = 1.0
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
    pools = {}
    for dim in dims:
        fit = _regress(onehot, spread[:dim], axes[:, :dim], target)
        pools[dim] = Pools(
            np.ascontiguousarray(clicked[:, :dim]),
            np.ascontiguousarray(other[:, :dim]),
            *fit,
            rows=click.size,
            sampled=click.size,
            click_rate=float(click.mean()),
            repeated=any(half.size < POOL_ROWS for half in halves),
            source=source,
        )
    return pools


def _encode_one_hot(table: pl.DataFrame, click: Floats | None) -> "sparse.csr_array":
    """Make one column for each value of each feature, one for a missing value, and the click."""
    from scipy import sparse  # imported late: it is slow to load, and pools are kept on disk

    places = []
    width = 0
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
    spread = spread[::-1]
    axes = axes[:, ::-1]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(dim)]
    return spread, axes * np.sign(largest)  # the same sign on every machine


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
