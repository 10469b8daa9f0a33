"""Only the user who runs the service can read its log, lock, backups and exports."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from store_helpers import create_loop, put_decision
from windvane.service.store.database import LOCK_FILE
from windvane.service.store.files.backup import restore_backup
from windvane.service.store.files.parquet_export import export_log
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.log import Store


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
        store.submit(put_decision(loop, "e")).result(20)
        names = {path.name for path in data.iterdir()}
        assert {"windvane.db", "windvane.db-wal", "windvane.db-shm", LOCK_FILE} < names
        assert {read_mode(path) for path in data.iterdir()} == {0o600}
        store.backup(tmp_path / "backup.db")
        export_log(store, "home", tmp_path / "log.parquet")
    restore_backup(tmp_path / "backup.db", tmp_path / "restored")
    for name in ("backup.db", "log.parquet", "restored/windvane.db"):
        assert read_mode(tmp_path / name) == 0o600, name
    assert read_mode(data) == read_mode(tmp_path / "restored") == 0o700


def test_files_of_an_older_version_are_narrowed(tmp_path: Path) -> None:
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
