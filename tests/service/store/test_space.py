"""Deleted decisions give their space back, in small steps."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from store_helpers import create_loop, list_decisions, put_decision, put_reward
from windvane.errors import StoreError
from windvane.service.store.database import resolve_url
from windvane.service.store.files.log_copy import compact_database
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.log import Store
from windvane.service.store.writer.loop_operations import DeleteLogs, PutSnapshot, ReclaimSpace

LAST = 2**62


def fill_and_delete(store: Store, loop: int, deleted: int = LAST) -> None:
    """Write decisions of 2 kB, and delete those made before a time."""
    for number in range(1000):
        put = put_decision(loop, f"e{number}", at=number)
        large = put.decision._replace(request=f"{number}" * 500)
        store.write(type(put)(large, put.terms))
    store.write(put_reward(loop, "e1"))
    store.write(PutSnapshot(loop, LAST, b"", 1))
    while store.write(DeleteLogs(loop, deleted, include_waiting=True)):
        pass


def read_pragma(store: Store, name: str) -> int:
    with store._read_engine.connect() as connection:
        return int(connection.execute(text(f"PRAGMA {name}")).scalar_one())


def test_deleted_decisions_give_their_space_back_in_small_steps(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill_and_delete(store, create_loop(store))
        full = read_pragma(store, "page_count")
        assert full > 300
        steps = 0
        pages = full
        while store.write(ReclaimSpace(limit=32)):
            steps += 1
            left = read_pragma(store, "page_count")
            assert pages - 33 <= left <= pages - 32  # a page of SQLite's own may go with them
            pages = left
        assert steps >= 8
        assert read_pragma(store, "page_count") < full / 4
        assert not store.write(ReclaimSpace())  # nothing to do costs nothing
        loop = store.list_loops()[0].id
        assert store.write(put_decision(loop, "later")).is_new
    assert (tmp_path / "windvane.db").stat().st_size < full * 4096 / 4


def test_a_steady_log_keeps_some_spare_pages(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        fill_and_delete(store, create_loop(store), deleted=20)
        free = read_pragma(store, "freelist_count")
        assert free > 0
        assert not store.write(ReclaimSpace())
        assert read_pragma(store, "freelist_count") == free


def test_a_file_of_another_program_is_compacted_once_and_shrinks_by_itself_then(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with closing(sqlite3.connect(data / "windvane.db")) as other:
        other.execute("CREATE TABLE notes (id)")
    with Store(data) as store:
        assert read_pragma(store, "auto_vacuum") == 0
        loop = create_loop(store, "new")
        fill_and_delete(store, loop)
        assert not store.write(ReclaimSpace())
        decisions = [list_decisions(store, row.id) for row in store.list_loops()]
    before, after = compact_database(data)
    assert after == os.path.getsize(data / "windvane.db") < before
    with Store(data) as store:
        assert read_pragma(store, "auto_vacuum") == 2
        assert [list_decisions(store, row.id) for row in store.list_loops()] == decisions
        fill_and_delete(store, loop)
        assert store.write(ReclaimSpace())


def test_a_log_in_use_is_not_compacted(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with hold_service_lock(resolve_url(tmp_path), 5.0), pytest.raises(StoreError, match="runs on"):
        compact_database(tmp_path)


def test_postgresql_reclaims_space_by_itself(where: str) -> None:
    if "://" not in where:
        return
    with Store(where) as store:
        assert not store.write(ReclaimSpace())
    with pytest.raises(StoreError, match="VACUUM FULL"):
        compact_database(where)
