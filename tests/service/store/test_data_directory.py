"""A data directory remembers its log, and only the user who runs the service can read it."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store_helpers import create_loop, put_decision, put_reward
from windvane.errors import StoreError
from windvane.service.api.auth import create_key
from windvane.service.store.database import LOCK_FILE
from windvane.service.store.files.data_directory import get_progress_path, narrow_permissions
from windvane.service.store.files.log_copy import restore_backup, write_backup
from windvane.service.store.files.parquet_export import export_log
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.log import Store


def fill_log(data: Path) -> Path:
    """Write a key, a decision and a lesson; returns the database file."""
    with Store(data) as store:
        loop = create_loop(store)
        store.write(create_key("admin", 0).put)
        store.write(put_decision(loop, "e"))
        assert store.write(put_reward(loop, "e")).status == "learned"
    return data / "windvane.db"


def empty_file(database: Path) -> None:
    database.write_bytes(b"")


def remove_file(database: Path) -> None:
    database.unlink()


def drop_tables(database: Path) -> None:
    database.unlink()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE other (id INTEGER)")


def replace_by_older_copy(database: Path) -> None:
    """Put a log without the key in the place of the log."""
    older = database.parent.parent / "older"
    with Store(older) as store:
        create_loop(store)
    shutil.copy(older / "windvane.db", database)


@pytest.mark.parametrize(
    "damage",
    [empty_file, remove_file, drop_tables, replace_by_older_copy],
    ids=lambda f: f.__name__,
)
def test_a_log_that_has_less_than_before_is_refused_and_can_be_restored(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup.db"
    database = fill_log(data)
    with Store(data) as store:
        write_backup(store, backup)
    damage(database)
    size = database.stat().st_size if database.exists() else None
    with pytest.raises(StoreError) as refused:
        Store(data)
    assert refused.value.kind == "lost"
    assert f"windvane restore FILE --data {data}" in str(refused.value)
    assert f"delete {get_progress_path(database)}" in str(refused.value)
    assert (database.stat().st_size if database.exists() else None) == size  # no table was created
    if size:
        with pytest.raises(StoreError, match="exists; move it away"):
            restore_backup(backup, data)
        database.unlink()
    restore_backup(backup, data)
    with Store(data) as store:
        assert len(store.list_keys()) == 1
        assert [len(batch) for batch in store.iterate_lessons(1)] == [1]


def test_the_operator_can_go_on_with_a_log_as_it_is(tmp_path: Path) -> None:
    database = fill_log(tmp_path)
    replace_by_older_copy(database)
    get_progress_path(database).unlink()
    with Store(tmp_path) as store:
        assert store.list_keys() == []


def test_deleted_rows_do_not_count_as_lost(tmp_path: Path) -> None:
    database = fill_log(tmp_path)
    with closing(sqlite3.connect(database)) as connection:
        for table in ("lessons", "rewards", "waiting", "decisions", "keys"):
            connection.execute(f"DELETE FROM {table}")
        connection.commit()
        connection.execute("VACUUM")
    with Store(tmp_path) as store:
        assert store.find_loop("home") is not None


def test_a_damaged_memory_of_the_log_is_written_again(tmp_path: Path) -> None:
    database = fill_log(tmp_path)
    path = get_progress_path(database)
    before = path.read_bytes()
    path.write_bytes(b"\xff" + before[1:])
    with Store(tmp_path) as store:
        assert len(store.list_keys()) == 1
    assert path.read_bytes() == before
    path.write_bytes(b"\xff")
    empty_file(database)
    with pytest.raises(StoreError, match="has zero bytes, but there was a log"):
        Store(tmp_path)


def test_writes_beside_an_empty_database_are_not_deleted(tmp_path: Path) -> None:
    database = fill_log(tmp_path)
    get_progress_path(database).unlink()
    empty_file(database)
    wal = database.with_name("windvane.db-wal")
    wal.write_bytes(b"writes")
    with pytest.raises(StoreError, match=r"zero bytes, but .*-wal holds writes"):
        Store(tmp_path)
    assert wal.read_bytes() == b"writes"


def test_a_backup_is_not_restored_under_a_running_service(tmp_path: Path) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup.db"
    database = fill_log(data)
    with Store(data) as store:
        write_backup(store, backup)
        url = store.url
    database.unlink()
    with hold_service_lock(url, 0.0), pytest.raises(StoreError, match="another service runs"):
        restore_backup(backup, data)
    assert not database.exists()


def read_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Let new files be readable and writable by everyone, unless the code takes care."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_all_files_are_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store(data) as store, hold_service_lock(store.url, 0.0):
        loop = create_loop(store)
        store.write(put_decision(loop, "e"))
        names = {path.name for path in data.iterdir()}
        assert {"windvane.db", "windvane.db-wal", "windvane.db-shm", LOCK_FILE} < names
        assert {read_mode(path) for path in data.iterdir()} == {0o600}
        write_backup(store, tmp_path / "backup.db")
        export_log(store, "home", tmp_path / "log.parquet")
    restore_backup(tmp_path / "backup.db", tmp_path / "restored")
    for name in ("backup.db", "log.parquet", "restored/windvane.db"):
        assert read_mode(tmp_path / name) == 0o600, name
    assert read_mode(data) == read_mode(tmp_path / "restored") == 0o700


def test_files_that_others_can_read_are_narrowed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Store(data) as store:
        create_loop(store)
        data.chmod(0o755)
        for path in data.iterdir():
            path.chmod(0o644)
        with Store(data):
            assert {read_mode(path) for path in data.iterdir()} == {0o600}
            assert read_mode(data) == 0o700


def test_a_directory_with_files_of_somebody_else_stays_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    other = tmp_path / "notes.txt"
    other.touch(0o644)
    with Store(tmp_path) as store:
        create_loop(store)
    assert (read_mode(tmp_path), read_mode(other)) == (0o755, 0o644)
    assert read_mode(tmp_path / "windvane.db") == 0o600


def test_what_a_link_leads_to_keeps_its_permissions(tmp_path: Path) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    database = fill_log(data)
    database.rename(elsewhere)
    elsewhere.chmod(0o644)
    database.symlink_to(elsewhere)
    narrow_permissions(data, {database.name})
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
