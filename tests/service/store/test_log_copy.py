"""A log is copied whole to another database, also if the copy is killed again and again."""

import contextlib
import random
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from store_helpers import create_loop, fill_every_table, make_decision, put_decision, put_reward
from windvane.errors import StoreError
from windvane.service.store.database import make_engine, resolve_url
from windvane.service.store.files import log_copy
from windvane.service.store.files.log_copy import (
    COPIED_TABLES,
    TABLES_OF_SERVERS,
    copy_log,
    read_last_ids,
)
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.files.withdrawal_file import open_withdrawal_file
from windvane.service.store.log import LogReader, Store
from windvane.service.store.schema import (
    decisions,
    lessons,
    metadata,
    schema_version,
    snapshot_parts,
)
from windvane.service.store.writer.loop_operations import ExpireKey

KILLED_COPY = """
import os, signal, sys
from windvane.service.store.files import log_copy
source, target, batches = sys.argv[1], sys.argv[2], int(sys.argv[3])
log_copy.BATCH_ROWS = 3
def report(table, done, total):
    global batches
    batches -= 1
    if batches < 0:
        os.kill(os.getpid(), signal.SIGKILL)
log_copy.copy_log(source, target, report)
"""
DECISION_COUNT = 40
MEBIBYTE = 1 << 20

Place = Callable[[str, str], str]


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A function that returns where a new log can be: on a kind of database, under a name."""

    def make(kind: str, name: str) -> str:
        if kind == "sqlite":
            return str(tmp_path / name)
        create: Callable[[], str] = request.getfixturevalue("postgresql")
        return create()

    return make


@pytest.fixture(
    params=[(a, b) for a in ("sqlite", "postgresql") for b in ("sqlite", "postgresql")],
    ids=lambda pair: f"{pair[0]}-to-{pair[1]}",
)
def pair(request: pytest.FixtureRequest, place: Place) -> tuple[str, str]:
    """A log with rows in every table, and where its copy goes."""
    source, target = request.param
    return make_log(place(source, "source")), place(target, "target")


@pytest.fixture
def short_pair(place: Place) -> tuple[str, str]:
    """The same on SQLite."""
    return make_log(place("sqlite", "source")), place("sqlite", "target")


def make_log(where: str) -> str:
    """A log with rows in every table, whose last decision and lesson were deleted."""
    fill_every_table(where)
    with Store(where) as store:
        loop = create_loop(store, "home")
        for number in range(DECISION_COUNT):
            store.write(put_decision(loop, f"e{number}"))
            store.write(put_reward(loop, f"e{number}", number / 7))
        with store._write_engine.begin() as connection:
            for table in (lessons, decisions):
                newest = select(table.c.id).order_by(table.c.id.desc()).limit(1).scalar_subquery()
                connection.execute(table.delete().where(table.c.id == newest))
    return where


def read_all(where: str) -> dict[str, Any]:
    """All rows of all tables, the last ids, and the version."""
    engine = make_engine(resolve_url(where), writes=False)
    try:
        with engine.connect() as connection:
            content: dict[str, Any] = {
                table.name: sorted(map(repr, connection.execute(select(table))))
                for table in COPIED_TABLES
            }
            content["last ids"] = read_last_ids(connection, COPIED_TABLES)
            content["version"] = connection.scalar(select(schema_version.c.version))
            return content
    finally:
        engine.dispose()


def copy_silently(source: str, target: str) -> dict[str, int]:
    return copy_log(source, target, lambda *_: None)


def test_every_table_is_copied_or_tells_of_running_servers() -> None:
    copied = {table.name for table in COPIED_TABLES}
    others = {table.name for table in (*TABLES_OF_SERVERS, schema_version)}
    assert set(metadata.tables) == copied | others
    assert not copied & others


def test_a_copy_has_every_row_and_goes_on_with_later_ids(pair: tuple[str, str]) -> None:
    source, target = pair
    counts = copy_silently(source, target)
    assert all(counts.values()), counts  # every table was tested
    expected = read_all(source)
    assert read_all(target) == expected
    assert {name: len(expected[name]) for name in counts} == counts
    with Store(target) as copy, Store(source) as original:
        for store in (copy, original):
            loop = store.find_loop("home")
            assert loop is not None
            store.write(put_decision(loop.id, "later"))
            assert store.write(put_reward(loop.id, "later")).status == "learned"
    assert read_all(target) == read_all(source)
    assert read_all(target)["last ids"]["lessons"] > expected["last ids"]["lessons"]


def test_a_copy_that_is_killed_again_and_again_is_finished(pair: tuple[str, str]) -> None:
    source, target = pair
    before = read_all(source)
    draw = random.Random(5)
    for _ in range(2):
        command = [sys.executable, "-c", KILLED_COPY, source, target, str(draw.randrange(2, 8))]
        assert subprocess.run(command).returncode == -signal.SIGKILL
        with pytest.raises(StoreError, match="has an unfinished copy of a log; run windvane mig"):
            Store(target)
        with LogReader(target) as reader, contextlib.suppress(StoreError):
            reader.list_loops()
    reports: list[int] = []
    copy_log(source, target, lambda _, done, total: reports.append(done))
    assert reports[0] > 10  # rows of the earlier runs are not copied again
    assert reports == sorted(reports)
    assert read_all(target) == read_all(source) == before


def interrupt(source: str, target: str) -> None:
    """Begin a copy and stop it after the first rows."""

    def stop(table: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy_log(source, target, stop)


def put_key_expiry(store: Store) -> None:
    assert store.write(ExpireKey(2, 99))


def put_another_decision(store: Store) -> None:
    store.write(put_decision(1, "between"))


@pytest.mark.parametrize("change", [put_key_expiry, put_another_decision])
def test_a_copy_is_not_finished_from_a_source_that_has_changed(
    change: Callable[[Store], None], short_pair: tuple[str, str]
) -> None:
    source, target = short_pair
    interrupt(source, target)
    with Store(source) as store:
        change(store)
    before = read_all(target)
    with pytest.raises(StoreError, match="unfinished copy of another log"):
        copy_silently(source, target)
    assert read_all(target) == before


def test_a_target_with_other_rows_is_refused_and_keeps_them(pair: tuple[str, str]) -> None:
    source, target = pair
    with Store(target) as store:
        create_loop(store, "other")
    before = read_all(target)
    with pytest.raises(StoreError, match=r"has rows in .*name an empty database"):
        copy_silently(source, target)
    assert read_all(target) == before


def test_an_empty_log_is_a_target(pair: tuple[str, str]) -> None:
    source, target = pair
    with Store(target):
        pass
    copy_silently(source, target)
    assert read_all(target) == read_all(source)


def test_no_log_is_copied_while_a_service_runs_on_either_end(pair: tuple[str, str]) -> None:
    for busy in pair:
        with (
            hold_service_lock(resolve_url(busy), 0.0),
            pytest.raises(StoreError, match="another service runs on"),
        ):
            copy_silently(*pair)
    copy_silently(*pair)


def test_a_source_without_a_log_is_refused(place: Place) -> None:
    target = place("sqlite", "target")
    for source in (place("sqlite", "nothing"), place("postgresql", "nothing")):
        with pytest.raises(StoreError, match="there is no log in"):
            copy_silently(source, target)
    assert not Path(target).exists()


def test_a_source_with_decisions_to_withdraw_is_refused(short_pair: tuple[str, str]) -> None:
    source, target = short_pair
    file = open_withdrawal_file(resolve_url(source))
    slot = file.add(make_decision(1, "first")._replace(features=None))
    file.close()
    with pytest.raises(StoreError, match="1 decisions of the log are still to be withdrawn"):
        copy_silently(source, target)
    file = open_withdrawal_file(resolve_url(source))
    file.remove(slot)
    file.close()
    copy_silently(source, target)


def test_a_copy_that_lost_a_row_is_noticed(
    short_pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = short_pair
    read = log_copy._read_batches

    def lose(reader: Any, table: Any, after: Any) -> Iterator[list[dict[str, Any]]]:
        for rows in read(reader, table, after):
            yield rows[1:] if table is lessons else rows

    monkeypatch.setattr(log_copy, "_read_batches", lose)
    with pytest.raises(StoreError, match="lessons has 40 rows, and its copy has 39"):
        copy_silently(source, target)
    with pytest.raises(StoreError, match="unfinished copy"):
        Store(target)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_memory_of_a_copy_is_bounded(kind: str, place: Place) -> None:
    """32 MiB of parts of snapshots are copied within less than two thirds of that."""
    source, target = place(kind, "source"), place("sqlite", "target")
    with Store(source):
        pass
    engine = make_engine(resolve_url(source), writes=True)
    draw = random.Random(1)
    for number in range(32):
        part = {"loop": 1, "at": 1, "place": number, "blob": draw.randbytes(MEBIBYTE)}
        with engine.begin() as connection:
            connection.execute(insert(snapshot_parts), part)
    engine.dispose()
    tracemalloc.start()
    try:
        copy_silently(source, target)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read_all(target) == read_all(source)
    assert peak < 20 * MEBIBYTE, peak / MEBIBYTE
