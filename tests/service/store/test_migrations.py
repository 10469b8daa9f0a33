"""A log of an older schema version is migrated when it is opened for writing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from old_data.steps import extract
from old_schemas import make_old_log
from store_helpers import create_loop, put_decision, put_reward
from windvane.errors import StoreError
from windvane.service.store import database
from windvane.service.store.files.backup import restore_backup
from windvane.service.store.log import LogReader, Store
from windvane.service.store.schema import SCHEMA_VERSION, clock, schema_version


@pytest.fixture(params=["sqlite", "postgresql"])
def old_log(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a log of schema version 1 is."""
    if request.param == "sqlite":
        return str(extract("service.tar.gz", tmp_path) / "data")
    make: Callable[[], str] = request.getfixturevalue("postgresql")
    where = make()
    make_old_log(where, 1)
    return where


def read_version(log: LogReader) -> int:
    ((version,),) = log.fetch_all(select(schema_version.c.version))
    return int(version)


def test_a_log_of_version_1_is_migrated_and_written(old_log: str) -> None:
    with LogReader(old_log) as reader:
        assert read_version(reader) == 1
        loops = reader.list_loops()
    with Store(old_log) as store:
        assert read_version(store) == SCHEMA_VERSION
        assert store.list_loops() == loops
        loop = create_loop(store, "new")
        store.submit(put_decision(loop, "event")).result(20)
        assert store.submit(put_reward(loop, "event")).result(20).status == "learned"
        assert store.find_decision(loop, "event") is not None
        assert store.fetch_all(select(clock)) == []


def test_a_migration_that_fails_leaves_the_log_as_it_was(
    old_log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: Connection) -> None:
        clock.create(connection)
        raise RuntimeError("halfway")

    with monkeypatch.context() as patch:
        patch.setitem(database.MIGRATIONS, 1, fail)
        with pytest.raises(StoreError, match="halfway"):
            Store(old_log)
    with LogReader(old_log) as reader:
        assert read_version(reader) == 1
    with Store(old_log) as store:
        assert read_version(store) == SCHEMA_VERSION


def test_a_reader_of_a_log_that_is_not_migrated_gets_a_sentence(old_log: str) -> None:
    with LogReader(old_log) as reader:
        with pytest.raises(StoreError, match=r"has version 1 .* migrates it") as refused:
            reader.fetch_all(select(clock))
        assert refused.value.kind == "older"


def test_a_backup_of_version_1_is_restored_and_migrated(tmp_path: Path) -> None:
    old = extract("service.tar.gz", tmp_path / "old")
    restore_backup(old / "backup", tmp_path / "again")
    with LogReader(tmp_path / "again") as reader:
        assert read_version(reader) == 1
    with Store(tmp_path / "again") as store:
        assert read_version(store) == SCHEMA_VERSION
        loop = store.find_loop("default")
        assert loop is not None
        assert sum(map(len, store.iterate_decisions(loop.id))) > 0
