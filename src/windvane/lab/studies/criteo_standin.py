"""Stand-in data: generated impressions with the columns of the Criteo file.

Each impression belongs to a latent segment. A segment changes the Zipf law of every column, so that
the columns depend on each other. A click depends on the segment and on the categories. The
constants are set so that the reduced features have the norms that the paper's authors printed for
the real file.
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
MONTH_SECONDS = 30 * 24 * 3600
ROWS_PER_BLOCK = 500_000  # written at a time

SEGMENTS = 5
ZIPF_EXPONENT = 1.2  # a category's weight falls as rank^−ZIPF_EXPONENT
SEGMENT_SPREAD = 1.5  # standard deviation of the log weight that a segment adds to a category
CLICK_SPREAD = 0.2  # standard deviation of the log odds of a click that a category adds

Codes = npt.NDArray[np.int64]


def generate_impressions(seed: int = 1, rows: int = 500_000) -> pl.DataFrame:
    """Generate impressions; a seed selects the rows, and the population is always the same.

    P(c | segment g) ∝ rank(c)^−a · exp(s·z_gc),  a = ZIPF_EXPONENT, s = SEGMENT_SPREAD
    log odds of a click = Σ effects + constant
    """
    validation.whole("stand_in", "rows", rows)
    shape = np.random.default_rng(0)  # the same for every seed
    names = np.random.default_rng(1)  # the same for every seed
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
    return pl.DataFrame({**columns, **_draw_other_columns(rng, click)}).select(COLUMNS)


def write_stand_in(path: str | PathLike[str], rows: int = 500_000, seed: int = 1) -> None:
    """Write stand-in impressions in the format of the real file, labelled in its gzip header."""
    blocks = -(-validation.whole("write_stand_in", "rows", rows) // ROWS_PER_BLOCK)
    with (
        open(path, "wb") as raw,
        gzip.GzipFile(STAND_IN, "wb", compresslevel=1, fileobj=raw, mtime=0) as file,
    ):
        for block in range(blocks):
            frame = generate_impressions(
                seed + block, min(ROWS_PER_BLOCK, rows - block * ROWS_PER_BLOCK)
            )
            later = (pl.col("timestamp") + block * MONTH_SECONDS) // blocks
            text = frame.with_columns(timestamp=later).write_csv(
                separator="\t", include_header=block == 0
            )
            file.write(text.encode())


def is_stand_in(head: bytes) -> bool:
    """Whether `write_stand_in` wrote the gzip file that begins with these bytes."""
    return head[10:].startswith(STAND_IN.encode() + b"\0")


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
    low = -20.0
    high = 20.0
    sample = odds[:20_000]
    for _ in range(40):
        middle = (low + high) / 2
        above = np.mean(1 / (1 + np.exp(-sample - middle))) > CLICK_RATE
        low, high = (low, middle) if above else (middle, high)
    probability: Floats = 1 / (1 + np.exp(-odds - low))
    return probability


def _draw_other_columns(
    rng: np.random.Generator, click: npt.NDArray[np.bool_]
) -> dict[str, object]:
    """Draw the columns that the experiment does not read; −1 means none, as in the real file."""
    rows = click.size
    timestamp = np.sort(rng.integers(MONTH_SECONDS, size=rows))
    conversion = rng.random(rows) < np.where(click, 0.08, 0.03)
    attribution = conversion & click
    clicks = rng.geometric(0.5, rows)
    return {
        "timestamp": timestamp,
        "uid": rng.integers(30_000_000, size=rows),
        "conversion": conversion.astype(np.int8),
        "conversion_timestamp": np.where(
            conversion, timestamp + rng.integers(MONTH_SECONDS, size=rows), -1
        ),
        "conversion_id": np.where(conversion, rng.integers(30_000_000, size=rows), -1),
        "attribution": attribution.astype(np.int8),
        "click": click.astype(np.int8),
        "click_pos": np.where(attribution, rng.integers(clicks), -1),
        "click_nb": np.where(attribution, clicks, -1),
        "cost": np.round(rng.lognormal(-8.5, 1.0, rows), 12),
        "cpo": np.round(rng.lognormal(-2.0, 0.8, rows), 12),
        "time_since_last_click": np.where(
            rng.random(rows) < 0.4, rng.integers(MONTH_SECONDS, size=rows), -1
        ),
    }
