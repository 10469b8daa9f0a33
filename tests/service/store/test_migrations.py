"""The tables of a log are brought to a later version: here to a made-up one."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select, text, update

from store_helpers import create_loop, fill_every_table, put_decision, put_reward, read_every_table
from windvane.errors import StoreError
from windvane.service.store import database
from windvane.service.store.files import log_copy
from windvane.service.store.files.log_copy import restore_backup, write_backup
from windvane.service.store.log import LogReader, Store
from windvane.service.store.schema import SCHEMA_VERSION, schema_version

NEXT_VERSION = SCHEMA_VERSION + 1
NOTES = text("SELECT name, note FROM loops ORDER BY id")
KILLED_OPENING = """
import os, signal, sys
from windvane.service.store import database
from windvane.service.store.log import Store
def migrate_and_die(connection):
    connection.exec_driver_sql("ALTER TABLE loops ADD COLUMN note TEXT")
    os.kill(os.getpid(), signal.SIGKILL)
database.MIGRATIONS[database.SCHEMA_VERSION] = migrate_and_die
database.SCHEMA_VERSION += 1
Store(sys.argv[1])
"""


def add_notes(connection: Connection) -> None:
    """A migration: a new column, with a value for each row."""
    connection.exec_driver_sql("ALTER TABLE loops ADD COLUMN note TEXT")
    connection.exec_driver_sql("UPDATE loops SET note = 'about ' || name")


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Windvane of the next schema version."""
    monkeypatch.setattr(database, "SCHEMA_VERSION", NEXT_VERSION)
    monkeypatch.setattr(log_copy, "SCHEMA_VERSION", NEXT_VERSION)
    monkeypatch.setitem(database.MIGRATIONS, SCHEMA_VERSION, add_notes)
    return monkeypatch


@pytest.fixture
def old_log(where: str) -> str:
    """Where a log of this version is, with rows in every table."""
    fill_every_table(where)
    return where


def read_version(where: str) -> int:
    with LogReader(where) as log:
        ((version,),) = log.fetch_all(select(schema_version.c.version))
    return int(version)


def read_notes(where: str) -> list[tuple[Any, ...]]:
    with LogReader(where) as log:
        return [tuple(row) for row in log.fetch_all(NOTES)]


def test_every_older_version_has_a_migration() -> None:
    assert list(database.MIGRATIONS) == list(range(database.OLDEST_VERSION, SCHEMA_VERSION))


def test_a_log_is_migrated_once_keeps_its_rows_and_is_written(
    old_log: str, next_version: pytest.MonkeyPatch
) -> None:
    before = read_every_table(old_log)
    for _ in range(2):
        Store(old_log).close()
        assert read_version(old_log) == NEXT_VERSION
        assert read_notes(old_log) == [("default", "about default"), ("shop", "about shop")]
        assert read_every_table(old_log) == before
    with Store(old_log) as store:
        loop = create_loop(store, "new")
        store.write(put_decision(loop, "event"))
        assert store.write(put_reward(loop, "event")).status == "learned"


def test_a_migration_that_fails_leaves_the_log_as_it_was(
    old_log: str, next_version: pytest.MonkeyPatch
) -> None:
    def fail(connection: Connection) -> None:
        add_notes(connection)
        raise RuntimeError("halfway")

    before = read_every_table(old_log)
    with next_version.context() as patch:
        patch.setitem(database.MIGRATIONS, SCHEMA_VERSION, fail)
        with pytest.raises(StoreError, match="halfway"):
            Store(old_log)
    assert read_version(old_log) == SCHEMA_VERSION
    assert read_every_table(old_log) == before
    Store(old_log).close()  # the column is not there yet
    assert read_version(old_log) == NEXT_VERSION


def test_a_migration_that_is_killed_leaves_the_log_as_it_was(old_log: str) -> None:
    before = read_every_table(old_log)
    command = [sys.executable, "-c", KILLED_OPENING, old_log]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    assert read_version(old_log) == SCHEMA_VERSION
    assert read_every_table(old_log) == before
    with pytest.raises(StoreError, match="note"):
        read_notes(old_log)


def test_a_reader_of_a_log_that_is_not_migrated_gets_a_sentence(
    old_log: str, next_version: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match=r"has version 1 .* migrates it") as refused:
        read_notes(old_log)
    assert refused.value.kind == "older"


def test_a_backup_is_restored_and_migrated(
    tmp_path: Path, next_version: pytest.MonkeyPatch
) -> None:
    with next_version.context() as patch:
        patch.setattr(database, "SCHEMA_VERSION", SCHEMA_VERSION)
        fill_every_table(str(tmp_path / "data"))
    with LogReader(tmp_path / "data") as log:
        write_backup(log, tmp_path / "backup")
    again = str(tmp_path / "again")
    restore_backup(tmp_path / "backup", again)
    assert read_version(again) == SCHEMA_VERSION
    Store(again).close()
    assert read_version(again) == NEXT_VERSION
    assert read_every_table(again) == read_every_table(str(tmp_path / "data"))


def test_a_source_of_a_copy_is_migrated(
    old_log: str, tmp_path: Path, next_version: pytest.MonkeyPatch
) -> None:
    target = str(tmp_path / "target")
    log_copy.copy_log(old_log, target, lambda *_: None)
    assert read_version(old_log) == read_version(target) == NEXT_VERSION
    assert read_every_table(target) == read_every_table(old_log)


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (NEXT_VERSION, f"version {NEXT_VERSION}, this Windvane reads up to {SCHEMA_VERSION}"),
        (0, "version 0, this Windvane reads from version 1 on"),
    ],
    ids=["newer", "older"],
)
def test_a_log_of_another_version_is_refused_and_nothing_is_written(
    version: int, sentence: str, old_log: str
) -> None:
    with Store(old_log) as store, store._write_engine.begin() as connection:
        connection.execute(update(schema_version).values(version=version))
    before = read_every_table(old_log)
    file = Path(old_log) / "windvane.db"
    content = file.read_bytes() if file.exists() else b""
    with pytest.raises(StoreError, match=sentence) as refused:
        Store(old_log)
    assert refused.value.kind == ("newer" if version else "older")
    assert (file.read_bytes() if file.exists() else b"") == content
    assert read_every_table(old_log) == before
    assert read_version(old_log) == version


def test_a_command_that_is_too_old_for_the_log_says_so(
    tmp_path: Path, run_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with Store(tmp_path) as store, store._write_engine.begin() as connection:
        connection.execute(update(schema_version).values(version=NEXT_VERSION))
    done = run_here("loop", "create", "shop", "--data", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("windvane: store: ")
    assert f"has version {NEXT_VERSION}, this Windvane reads up to" in done.stderr
