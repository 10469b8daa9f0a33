"""Data that stands in for the Criteo file where that is missing: its columns and its shape.

A few latent segments hold the categories together: each segment tilts the Zipf law of every column
its own way. A click depends on the segment and on the categories. The constants are set so that
the reduced features have the norms that the paper's authors printed for the real file.
"""

import gzip
from os import PathLike

import numpy as np
import numpy.typing as npt
import polars as pl

from windvane import validation
from windvane.types import Floats

STAND_IN = "stand-in data (not Criteo)"
CARDINALITY = {
    "campaign": 675,
    "cat1": 9,
    "cat2": 70,
    "cat3": 1829,
    "cat4": 21,
    "cat5": 51,
    "cat6": 30,
    "cat8": 11,
    "cat9": 30,
    "cat7": 57_000,
}
COLUMNS = (
    *("timestamp", "uid", "campaign", "conversion", "conversion_timestamp", "conversion_id"),
    *("attribution", "click", "click_pos", "click_nb", "cost", "cpo", "time_since_last_click"),
    *(f"cat{i}" for i in range(1, 10)),
)
CLICK_RATE = 0.36
MONTH = 30 * 24 * 3600  # seconds
BLOCK = 500_000  # rows written at a time

SEGMENTS = 5
ZIPF = 1.2  # a category's weight falls as rank^−ZIPF
TILT = 1.5  # spread of the log weight a segment adds to it
EFFECT = 0.2  # spread of the log odds of a click that a category adds

Codes = npt.NDArray[np.int64]


def stand_in(seed: int = 1, rows: int = 500_000) -> pl.DataFrame:
    """Impressions in the columns of the Criteo file; a seed draws rows, never another population.

    P(c | segment g) ∝ rank(c)^−ZIPF · exp(TILT·z_gc),  log odds of a click = Σ effects + constant
    """
    validation.whole("stand_in", "rows", rows)
    shape, names = np.random.default_rng(0), np.random.default_rng(1)  # the same for every seed
    rng = np.random.default_rng([validation.whole("stand_in", "seed", seed, least=0), 3])
    weight = np.arange(1.0, SEGMENTS + 1) ** -0.5
    segment = rng.choice(SEGMENTS, rows, p=weight / weight.sum())
    odds = shape.normal(0.0, 2 * EFFECT, SEGMENTS)[segment]
    named: dict[str, Codes] = {}
    for name, size in CARDINALITY.items():
        code = _categories(rng, segment, _laws(shape, size))
        odds += shape.normal(0.0, EFFECT, size)[code] if name != "cat7" else 0.0
        named[name] = names.choice(33_000_000, size, replace=False)[code]
    click = rng.random(rows) < _chance(odds)
    return pl.DataFrame({**named, **_journeys(rng, click)}).select(COLUMNS)


def write_stand_in(path: str | PathLike[str], rows: int = 500_000, seed: int = 1) -> None:
    """Write stand-in impressions as the real file has them; its gzip header carries the label."""
    blocks = -(-validation.whole("write_stand_in", "rows", rows) // BLOCK)
    with (
        open(path, "wb") as raw,
        gzip.GzipFile(STAND_IN, "wb", compresslevel=1, fileobj=raw, mtime=0) as file,
    ):
        for block in range(blocks):
            frame = stand_in(seed + block, min(BLOCK, rows - block * BLOCK))
            later = (pl.col("timestamp") + block * MONTH) // blocks
            text = frame.with_columns(timestamp=later).write_csv(
                separator="\t", include_header=block == 0
            )
            file.write(text.encode())


def is_stand_in(head: bytes) -> bool:
    """Whether a gzip file that begins so was written by `write_stand_in`."""
    return head[10:].startswith(STAND_IN.encode() + b"\0")


def _laws(shape: np.random.Generator, size: int) -> Floats:
    """Running sums of P(c | g), one segment a row."""
    tilt = np.exp(TILT * shape.standard_normal((SEGMENTS, size)))
    law: Floats = np.cumsum(np.arange(1.0, size + 1) ** -ZIPF * tilt, axis=1)
    return law / law[:, -1:]


def _categories(rng: np.random.Generator, segment: Codes, laws: Floats) -> Codes:
    chance = rng.random(segment.size)
    code = np.empty(segment.size, np.int64)
    for g, law in enumerate(laws):
        own = segment == g
        code[own] = np.searchsorted(law, chance[own], side="right")
    return code


def _chance(odds: Floats) -> Floats:
    """1/(1 + e^−(odds + c)), c such that the average is the click rate."""
    low, high = -20.0, 20.0
    sample = odds[:20_000]
    for _ in range(40):
        middle = (low + high) / 2
        above = np.mean(1 / (1 + np.exp(-sample - middle))) > CLICK_RATE
        low, high = (low, middle) if above else (middle, high)
    chance: Floats = 1 / (1 + np.exp(-odds - low))
    return chance


def _journeys(rng: np.random.Generator, click: npt.NDArray[np.bool_]) -> dict[str, object]:
    """The columns the experiment does not read, plausible and no more; −1 where the file has it."""
    rows = click.size
    timestamp = np.sort(rng.integers(MONTH, size=rows))
    converted = rng.random(rows) < np.where(click, 0.08, 0.03)
    credited = converted & click
    clicks = rng.geometric(0.5, rows)
    return {
        "timestamp": timestamp,
        "uid": rng.integers(30_000_000, size=rows),
        "conversion": converted.astype(np.int8),
        "conversion_timestamp": np.where(converted, timestamp + rng.integers(MONTH, size=rows), -1),
        "conversion_id": np.where(converted, rng.integers(30_000_000, size=rows), -1),
        "attribution": credited.astype(np.int8),
        "click": click.astype(np.int8),
        "click_pos": np.where(credited, rng.integers(clicks), -1),
        "click_nb": np.where(credited, clicks, -1),
        "cost": np.round(rng.lognormal(-8.5, 1.0, rows), 12),
        "cpo": np.round(rng.lognormal(-2.0, 0.8, rows), 12),
        "time_since_last_click": np.where(
            rng.random(rows) < 0.4, rng.integers(MONTH, size=rows), -1
        ),
    }
