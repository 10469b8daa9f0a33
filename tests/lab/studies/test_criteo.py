"""The paper's data: files in the real format are read, sampled and reduced."""

import gzip
import hashlib
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from windvane.errors import FileError, SettingError
from windvane.lab.experiments import TaskProgress
from windvane.lab.studies import criteo
from windvane.lab.studies.criteo import (
    COLUMNS,
    FEATURES,
    STAND_IN,
    Pools,
    load_pools,
    read_impressions,
    reduce_features,
    sample_rows,
)

ROWS = 4000


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    return criteo.generate_impressions(seed=3, rows=ROWS)


@pytest.fixture
def file(tmp_path: Path, frame: pl.DataFrame) -> Path:
    return write_file(tmp_path / "data.tsv.gz", frame)


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "POOL_ROWS", 500)


def write_file(path: Path, frame: pl.DataFrame) -> Path:
    path.write_bytes(gzip.compress(frame.write_csv(separator="\t").encode()))
    return path


def write_edited(path: Path, frame: pl.DataFrame, line: int, column: str, value: str) -> Path:
    """The frame as a file with one value replaced; the header is line 1."""
    lines = [row.split("\t") for row in frame.write_csv(separator="\t").splitlines()]
    lines[line - 1][lines[0].index(column)] = value
    path.write_bytes(gzip.compress("\n".join("\t".join(row) for row in lines).encode()))
    return path


def same(one: Pools, two: Pools) -> bool:
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(one, two, strict=True))


# Reading


@pytest.mark.parametrize("chunk", [1000, 1 << 25])
def test_read_gives_every_row_once_for_any_chunk(
    file: Path, frame: pl.DataFrame, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(criteo, "CHUNK_BYTES", chunk)
    batches = list(read_impressions(file))
    assert (len(batches) > 100) == (chunk == 1000)
    assert pl.concat(batches).equals(frame.select(COLUMNS).cast(pl.Int64))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_columns_may_stand_in_any_order_and_lines_end_either_way(
    tmp_path: Path, frame: pl.DataFrame, ending: str
) -> None:
    text = frame.select(sorted(frame.columns)).write_csv(separator="\t", line_terminator=ending)
    (tmp_path / "x.gz").write_bytes(gzip.compress(text.removesuffix(ending).encode()))
    assert pl.concat(read_impressions(tmp_path / "x.gz")).equals(
        frame.select(COLUMNS).cast(pl.Int64)
    )


def test_a_missing_category_is_read_as_missing(tmp_path: Path, frame: pl.DataFrame) -> None:
    for value in ("", "NA", "nan"):
        table = pl.concat(
            read_impressions(write_edited(tmp_path / "x.gz", frame, 5, "cat3", value))
        )
        assert table["cat3"].is_null().arg_true().to_list() == [3]


def test_progress_ends_at_the_size_of_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "CHUNK_BYTES", 10_000)
    reports: list[TaskProgress] = []
    for _ in read_impressions(file, reports.append):
        pass
    size = file.stat().st_size
    assert reports[-1] == ("reading", size, size, "bytes")
    assert reports == sorted(reports)
    assert len(reports) > 10


def refusal_of(path: Path) -> str:
    with pytest.raises(FileError) as caught:
        list(read_impressions(path))
    message = str(caught.value)
    assert message.startswith(f"criteo: {path}")
    assert "\n" not in message
    return message.removeprefix(f"criteo: {path}")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal_of(tmp_path / "none.gz").startswith(" does not exist; Criteo publishes criteo_")
    with pytest.raises(FileError, match=r"none\.gz does not exist"):
        load_pools(tmp_path / "none.gz", cache=tmp_path)
    assert refusal_of(tmp_path) == " cannot be read (Is a directory)"
    with pytest.raises(FileError, match="cannot be read"):
        load_pools(tmp_path, cache=tmp_path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(tmp_path: Path, file: Path, share: float) -> None:
    whole = file.read_bytes()
    (tmp_path / "cut.gz").write_bytes(whole[: int(share * len(whole))])
    assert refusal_of(tmp_path / "cut.gz") == " is truncated: the gzip stream ends too early"


def test_damage_is_refused(tmp_path: Path, file: Path) -> None:
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    (tmp_path / "bad.gz").write_bytes(whole)
    assert refusal_of(tmp_path / "bad.gz").startswith((" is damaged or not gzip: ", ", line "))


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        (b"", " is empty"),
        (gzip.compress(b"", mtime=0), " is empty"),
        (gzip.compress("\t".join(COLUMNS).encode() + b"\n", mtime=0), " has a header and no rows"),
        (b"click\tcampaign\n1\t2\n", " is damaged or not gzip: Not a gzip"),
    ],
)
def test_a_file_without_rows_is_refused(tmp_path: Path, content: bytes, refusal: str) -> None:
    (tmp_path / "x.gz").write_bytes(content)
    assert refusal_of(tmp_path / "x.gz").startswith(refusal)


def test_missing_and_doubled_columns_are_named(tmp_path: Path, frame: pl.DataFrame) -> None:
    path = write_file(tmp_path / "x.gz", frame.drop("cat4", "click"))
    assert (
        refusal_of(path)
        == " lacks the columns click, cat4; criteo_attribution_dataset.tsv.gz has them"
    )
    path = write_file(tmp_path / "x.gz", frame.rename({"campaign": "Campaign"}))
    assert (
        refusal_of(path) == " lacks the column campaign; criteo_attribution_dataset.tsv.gz has them"
    )
    path = write_edited(tmp_path / "x.gz", frame, 1, "cat7", "cat1")
    assert refusal_of(path) == " has more than one column cat1"


@pytest.mark.parametrize("chunk", [1000, 1 << 25])
def test_a_wrong_value_is_named_with_its_line(
    tmp_path: Path, frame: pl.DataFrame, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(criteo, "CHUNK_BYTES", chunk)
    path = write_edited(tmp_path / "x.gz", frame, 3000, "cat5", "blue")
    assert refusal_of(path) == ", line 3000: cat5 must be a whole number, got 'blue'"
    path = write_edited(tmp_path / "x.gz", frame, 2000, "click", "2")
    assert refusal_of(path) == ", line 2000: click must be 0 or 1, got 2"
    path = write_edited(tmp_path / "x.gz", frame, ROWS + 1, "click", "")
    assert refusal_of(path) == f", line {ROWS + 1}: click must be 0 or 1, got None"
    path = write_edited(tmp_path / "x.gz", frame, 9, "cat7", "blue")  # a column that nobody needs
    assert sum(len(batch) for batch in read_impressions(path)) == ROWS


# Sampling


def number_rows(rows: int, size: int) -> Iterator[pl.DataFrame]:
    """Batches of rows that carry their own number as campaign."""
    for start in range(0, rows, size):
        number = np.arange(start, min(start + size, rows))
        yield pl.DataFrame({"click": number % 2, **dict.fromkeys(FEATURES, number)})


@pytest.mark.parametrize(
    ("rows", "rows_or_share", "count"),
    [(5000, 700, 700), (5000, 0.1, 500), (57, 0.1, 6), (40, 700, 40)],
)
def test_sample_has_the_exact_size_for_any_batches(
    rows: int, rows_or_share: float, count: int
) -> None:
    whole, seen = sample_rows(number_rows(rows, rows), rows_or_share, 7)
    parts, _ = sample_rows(number_rows(rows, 137), rows_or_share, 7)
    assert seen == rows
    assert whole["campaign"].n_unique() == len(whole) == count
    assert whole.equals(parts)


@pytest.mark.parametrize("rows_or_share", [20, 0.1])
def test_every_row_is_sampled_equally_often(rows_or_share: float) -> None:
    drawn = [
        sample_rows(number_rows(200, 60), rows_or_share, seed)[0]["campaign"] for seed in range(500)
    ]
    counts = np.bincount(np.concatenate([numbers.to_numpy() for numbers in drawn]), minlength=200)
    assert np.abs(counts - 50).max() < 5 * math.sqrt(500 * 0.1 * 0.9)


# Reducing


def dense(table: pl.DataFrame) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The one-hot columns as the definition has them."""
    parts = []
    for name in FEATURES:
        column = table[name].fill_null(-5).to_numpy()
        parts.append((column[:, None] == np.unique(column)).astype(np.float64))
    return np.hstack(parts)


@pytest.mark.parametrize("protocol", ["released", "paper"])
@pytest.mark.parametrize("dim", [1, 6])
def test_reduction_agrees_with_a_dense_svd_and_least_squares(
    frame: pl.DataFrame, protocol: str, dim: int
) -> None:
    table = frame.head(300).with_columns(cat2=pl.col("cat2").replace({frame["cat2"][0]: None}))
    click = table["click"].to_numpy().astype(np.float64)
    onehot = dense(table)
    if protocol == "released":
        onehot = np.hstack([onehot, click[:, None]])
    target = 2 * click - 1 if protocol == "released" else click
    left, singular, _ = np.linalg.svd(onehot, full_matrices=False)
    scores = left[:, :dim] * singular[:dim]
    fitted = np.column_stack([scores, np.ones(len(table))])
    answer = np.linalg.lstsq(fitted, target)[0]
    rest = target - fitted @ answer

    reduced = reduce_features(table, [dim], protocol, 1, "x")[dim]
    signs = np.sign(answer[:dim]) * np.sign(
        reduced.theta
    )  # a singular vector has no sign of its own
    assert reduced.theta * signs == pytest.approx(answer[:dim], rel=1e-6)
    assert reduced.intercept == pytest.approx(answer[-1])
    assert reduced.r2 == pytest.approx(1 - rest.var() / target.var())
    for pool, rows in ((reduced.clicked, scores[click == 1]), (reduced.other, scores[click == 0])):
        gap = np.abs((pool * signs)[:, None] - rows).max(axis=2)  # (POOL_ROWS, n)
        assert gap.min(axis=1).max() < 1e-6


def test_fewer_dimensions_are_the_first_of_more(frame: pl.DataFrame) -> None:
    reduced = reduce_features(frame, [3, 8], "paper", 1, "x")
    assert np.abs(reduced[3].clicked) == pytest.approx(np.abs(reduced[8].clicked[:, :3]), abs=1e-9)
    assert reduced[3].r2 < reduced[8].r2


def test_pools_hold_different_rows_unless_there_are_too_few(
    frame: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks = int(frame["click"].to_numpy().sum())
    monkeypatch.setattr(criteo, "POOL_ROWS", clicks)  # every clicked row once
    one, two = (reduce_features(frame, [8], "paper", seed, "x")[8] for seed in (1, 2))
    assert not one.repeated
    assert not np.array_equal(one.clicked, two.clicked)
    assert np.sort(one.clicked, axis=0) == pytest.approx(np.sort(two.clicked, axis=0))
    monkeypatch.setattr(criteo, "POOL_ROWS", clicks + 1)
    short = reduce_features(frame, [8], "paper", 1, "x")[8]
    assert short.repeated
    assert len(short.clicked) == len(short.other) == clicks + 1


def test_data_that_cannot_be_reduced_is_refused(frame: pl.DataFrame) -> None:
    none = frame.filter(pl.col("click") == 0)
    with pytest.raises(FileError, match=r"f needs clicked and other rows, 0 of \d+ are clicked"):
        reduce_features(none, [3], "paper", 1, "f")
    same_rows = frame.with_columns(pl.lit(1).alias(name) for name in FEATURES)
    with pytest.raises(FileError, match="f has 18 one-hot columns, too few for dim 20"):
        reduce_features(same_rows, [20], "paper", 1, "f")


def test_released_protocol_reads_the_label_and_the_paper_does_not(tmp_path: Path) -> None:
    released, paper = (
        load_pools(None, (20,), way, 1, tmp_path)[20] for way in ("released", "paper")
    )
    assert np.linalg.norm(released.theta) == pytest.approx(2, abs=0.02)
    assert released.r2 > 0.99
    assert released.clicked @ released.theta + released.intercept == pytest.approx(1, abs=0.5)
    assert released.other @ released.theta + released.intercept == pytest.approx(-1, abs=0.5)
    assert 0.01 < paper.r2 < 0.2
    assert (released.sampled, paper.sampled) == (200_000, released.rows // 10)
    assert released.click_rate == pytest.approx(0.36, abs=0.01)


# The cache


def test_a_hit_has_the_same_bytes_and_leaves_the_file_alone(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_pools(file, (3, 5), cache=tmp_path / "cache")
    monkeypatch.setattr(criteo, "read_impressions", None)
    again = load_pools(file, (5, 3), cache=tmp_path / "cache")
    assert list(again) == [5, 3]
    for dim in (3, 5):
        assert same(first[dim], again[dim])
        assert [type(a) for a in first[dim]] == [type(a) for a in again[dim]]
    assert first[3].source == "data.tsv.gz (not the published file)"
    assert first[3].rows == first[3].sampled == ROWS


def test_seed_protocol_and_file_each_have_their_own_entry(
    file: Path, tmp_path: Path, frame: pl.DataFrame
) -> None:
    cache = tmp_path / "cache"
    load_pools(file, (3,), cache=cache)
    load_pools(file, (3,), cache=cache, seed=2)
    load_pools(file, (3,), "paper", cache=cache)
    write_file(file, frame.tail(ROWS - 1))
    assert load_pools(file, (3,), cache=cache)[3].rows == ROWS - 1
    os.utime(file, (1, 1))
    load_pools(file, (3,), cache=cache)
    assert len(list(cache.iterdir())) == 5


@pytest.mark.parametrize("damage", ["cut", "flip", "foreign", "empty"])
def test_a_corrupted_cache_is_built_again(file: Path, tmp_path: Path, damage: str) -> None:
    first = load_pools(file, (3,), cache=tmp_path / "cache")[3]
    (entry,) = (tmp_path / "cache").iterdir()
    whole = bytearray(entry.read_bytes())
    if damage == "flip":
        whole[5000] ^= 0xFF
    if damage == "foreign":
        np.savez(entry, clicked=np.ones(3))
        whole = bytearray(entry.read_bytes())
    entry.write_bytes(whole[: {"cut": 9000, "empty": 0}.get(damage, len(whole))])
    assert same(load_pools(file, (3,), cache=tmp_path / "cache")[3], first)
    assert len(entry.read_bytes()) > 20_000
    assert [place.name for place in (tmp_path / "cache").iterdir()] == [entry.name]


def test_a_cache_that_cannot_be_written_is_done_without(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    assert load_pools(file, (3,), cache=tmp_path / "taken")[3].rows == ROWS


def test_the_cache_is_where_the_system_keeps_caches(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    load_pools(file, (3,))
    assert len(list((tmp_path / "home" / "windvane").glob("criteo-*.npz"))) == 1


def test_options_outside_their_range_are_refused(file: Path) -> None:
    with pytest.raises(SettingError, match="protocol must be released or paper, got 'text'"):
        load_pools(file, (3,), "text")
    with pytest.raises(SettingError, match="criteo: dim must be a whole number >= 1, got 0"):
        load_pools(file, (0,))
    with pytest.raises(SettingError, match="criteo: seed must be a whole number >= 0, got -1"):
        load_pools(file, seed=-1)


# The stand-in


def test_stand_in_has_the_columns_and_shares_of_the_file() -> None:
    frame = criteo.generate_impressions(rows=200_000)
    assert {*COLUMNS} <= {*frame.columns}
    for name, size in criteo.CARDINALITY.items():
        assert 0.25 * size < frame[name].n_unique() <= size
    assert frame["click"].to_numpy().mean() == pytest.approx(0.36, abs=0.01)
    shares = frame["campaign"].value_counts(sort=True)["count"] / 200_000
    assert shares[0] > 0.05  # a few campaigns are seen often, most are not
    assert shares[300] < 0.001
    by_campaign = frame.group_by("campaign").agg(pl.col("click").mean(), pl.len())
    rates = by_campaign.filter(pl.col("len") > 1000)["click"].to_numpy()
    assert rates.max() - rates.min() > 0.1  # by chance alone about 0.05


def test_stand_in_categories_hang_together() -> None:
    frame = criteo.generate_impressions(rows=50_000)
    pair = (
        frame.group_by("cat1", "cat8")
        .len()
        .join(frame.group_by("cat1").agg(one=pl.len()), on="cat1")
    )
    pair = pair.join(frame.group_by("cat8").agg(two=pl.len()), on="cat8")
    chance = pair["one"] * pair["two"] / 50_000
    chi2 = ((pair["len"] - chance) ** 2 / chance).sum()
    assert chi2 > 10 * 8 * 10  # (9 − 1)(11 − 1) degrees of freedom if they did not


def test_a_seed_draws_rows_of_one_population() -> None:
    one, two = (criteo.generate_impressions(seed, 20_000) for seed in (1, 2))
    assert one.equals(criteo.generate_impressions(1, 20_000))
    assert not one.equals(two)
    assert set(one["cat1"]) == set(two["cat1"])
    rates = [frame["click"].to_numpy().mean() for frame in (one, two)]
    assert rates[0] == pytest.approx(rates[1], abs=0.02)


def test_stand_in_data_is_labelled_in_results(
    tmp_path: Path, frame: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(criteo, "generate_impressions", lambda: frame)
    pools = load_pools(None, (3,), cache=tmp_path / "cache")[3]
    assert (pools.source, pools.rows) == (STAND_IN, ROWS)
    monkeypatch.setattr(criteo, "generate_impressions", None)  # the second time, it is not called
    assert load_pools(None, (3,), cache=tmp_path / "cache")[3].source == STAND_IN


# The published file


HEADER = [
    *("timestamp", "uid", "campaign", "conversion", "conversion_timestamp", "conversion_id"),
    *("attribution", "click", "click_pos", "click_nb", "cost", "cpo", "time_since_last_click"),
    *(f"cat{k}" for k in range(1, 10)),
]
PUBLISHED_ROWS = 16_468_027
MEASURE = """if True:
    import resource, sys
    from windvane.lab.studies import criteo
    criteo.CHUNK_BYTES, sampled = int(sys.argv[2]), int(sys.argv[3])
    table, rows = criteo.sample_rows(criteo.read_impressions(sys.argv[1]), sampled, seed=1)
    print(rows, len(table), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def write_published_format(path: Path, rows: int, block: int) -> Path:
    """Write a file with all columns of the published one; the same block of rows comes again."""
    frame = criteo.generate_impressions(seed=3, rows=block)
    numbers = pl.int_range(block, eager=True)
    others = {name: numbers for name in HEADER if name not in frame.columns}
    table = frame.with_columns(**{**others, "cost": 1e-6 * numbers}).select(HEADER)
    with open(path, "wb") as file:
        file.write(gzip.compress("\t".join(HEADER).encode() + b"\n"))
        whole = gzip.compress(table.write_csv(separator="\t", include_header=False).encode(), 1)
        for _ in range(rows // block):
            file.write(whole)
        rest = table.head(rows % block).write_csv(separator="\t", include_header=False)
        file.write(gzip.compress(rest.encode(), 1))
    return path


def measure_reading(path: Path, chunk: int, sampled: int) -> tuple[int, int, int]:
    """The rows of a file, those that were sampled, and the largest memory in MiB."""
    words = [sys.executable, "-c", MEASURE, str(path), str(chunk), str(sampled)]
    output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    rows, kept, peak = map(int, output.split())
    return rows, kept, peak


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Rows that are not sampled would take 80 bytes each: 64 MB more in the longer file."""
    short = write_published_format(tmp_path / "short.gz", 100_000, 50_000)
    long = write_published_format(tmp_path / "long.gz", 900_000, 50_000)
    first = measure_reading(short, 1 << 20, 5000)
    second = measure_reading(long, 1 << 20, 5000)
    assert (first[:2], second[:2]) == ((100_000, 5000), (900_000, 5000))
    assert second[2] - first[2] < 25


def test_a_file_of_the_published_size_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """As many rows and columns as the published file has, without the file."""
    file = write_published_format(tmp_path / "whole.tsv.gz", PUBLISHED_ROWS, 500_000)
    rows, kept, peak = measure_reading(file, criteo.CHUNK_BYTES, 200_000)
    assert (rows, kept) == (PUBLISHED_ROWS, 200_000)
    assert peak < 1000


def test_only_the_published_file_has_no_note(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size and checksum decide, not the name."""
    whole = file.read_bytes()
    monkeypatch.setattr(criteo, "PUBLISHED_BYTES", len(whole))
    load = partial(load_pools, file, (3,), cache=tmp_path / "cache")
    assert load()[3].source == "data.tsv.gz (not the published file)"
    monkeypatch.setattr(criteo, "PUBLISHED_SHA256", hashlib.sha256(whole).hexdigest())
    assert load()[3].source == "data.tsv.gz"


def test_a_web_page_or_an_archive_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    for start in (b"<!DOCTYPE html>", b"PK\x03\x04", b"version https://git-lfs.github.com/spec/v1"):
        (tmp_path / "x.gz").write_bytes(start + b"\n" * 100)
        assert refusal_of(tmp_path / "x.gz").startswith(" is damaged or not gzip: Not a gzip")
