"""Writing in groups: one commit for many, order, and failures that stay where they belong."""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from store_helpers import Fail, Hold, count_rows, hold_writer, new_loop, rank, reward
from windvane.errors import StoreError
from windvane.service.store.admin_operations import PutKey, PutLoop, PutSettings
from windvane.service.store.group_commit import MAX_WAITING_OPERATIONS
from windvane.service.store.log import Store


def test_what_waits_is_committed_once(where: str) -> None:
    with Store(where) as store:
        loop = new_loop(store)
        with hold_writer(store):
            before = store.commit_count
            puts = [store.submit(rank(loop, f"e{i}")) for i in range(50)]
            puts_too = [store.submit(reward(loop, f"e{i}")) for i in range(50)]
            assert store.waiting_count == 100
        assert all(put.result(20).is_new for put in puts)
        assert all(put.result(20).status == "learned" for put in puts_too)
        assert store.commit_count == before + 2  # the holding group, and one for all


def test_a_group_keeps_the_order_of_each_kind(where: str) -> None:
    with Store(where) as store:
        loop = new_loop(store)
        events = [f"e{i}" for i in range(40)]
        resolved: list[int] = []
        with hold_writer(store):
            ranked = [store.submit(rank(loop, event)) for event in events]
            rewarded = [store.submit(reward(loop, event)) for event in reversed(events)]
            for put in rewarded:
                put.add_done_callback(lambda put: resolved.append(put.result().lessons[0].id))
        assert all(put.result(20).is_new for put in ranked)
        learned = [put.result(20).lessons[0] for put in rewarded]
        assert [lesson.decision for lesson in learned] == list(range(len(events), 0, -1))
        assert resolved == sorted(resolved) == [lesson.id for lesson in learned]
        assert [
            lesson for batch in store.iterate_lessons(loop, batch=7) for lesson in batch
        ] == learned


def test_a_reward_finds_a_decision_that_came_with_it(where: str) -> None:
    with Store(where) as store:
        loop = new_loop(store)
        with hold_writer(store):
            early = store.submit(reward(loop, "e"))
            store.submit(rank(loop, "e"))
        assert early.result(20).status == "learned"


def test_settings_stay_between_what_came_before_and_after(where: str) -> None:
    with Store(where) as store:
        loop = new_loop(store)
        store.submit(rank(loop, "a"))
        store.submit(rank(loop, "b")).result(20)
        with hold_writer(store):
            before = store.submit(reward(loop, "a"))
            change = store.submit(PutSettings(loop, '{"dim": 3}', 1, "test"))
            after = store.submit(reward(loop, "b"))
        assert before.result(20).lessons[0].id <= change.result(20).lesson
        assert change.result(20).lesson < after.result(20).lessons[0].id


def test_one_that_fails_leaves_the_others_intact(where: str) -> None:
    with Store(where) as store:
        loop = new_loop(store)
        with hold_writer(store):
            first = store.submit(rank(loop, "a"))
            broken = store.submit(Fail(loop))
            taken = store.submit(PutLoop("home", "{}", 0, "test"))
            last = store.submit(reward(loop, "a"))
            unknown = store.submit(rank(loop + 99, "a"))
        assert first.result(20).is_new
        assert last.result(20).status == "learned"
        for failed in (broken, taken, unknown):
            error = failed.exception(20)
            assert isinstance(error, StoreError)
            assert error.kind == "refused"
        assert str(taken.exception()) == "store: there is a loop 'home' already"
        assert store.read_funnel(loop) == count_rows(store, loop)
        assert store.read_funnel(loop).ranked == 1


def test_text_that_cannot_be_stored_fails_alone(where: str) -> None:
    with Store(where) as store:
        loop = new_loop(store)
        with hold_writer(store):
            bad = store.submit(reward(loop, "\ud800"))
            good = store.submit(rank(loop, "good"))
        assert good.result(20).is_new
        assert isinstance(bad.exception(20), StoreError)


def test_too_many_that_wait_are_refused_at_once(where: str) -> None:
    with Store(where) as store, hold_writer(store):
        for i in range(MAX_WAITING_OPERATIONS):
            store.submit(PutKey("read", f"hash {i}", 0))
        with pytest.raises(StoreError, match="4096 operations wait") as refused:
            store.submit(PutKey("read", "one more", 0))
        assert refused.value.kind == "busy"
    with Store(where) as store:
        assert len(store.list_keys()) == MAX_WAITING_OPERATIONS


def test_closing_writes_what_waits_and_takes_no_more(where: str) -> None:
    store = Store(where)
    hold = Hold()
    store.submit(hold)
    waiting = store.submit(PutKey("read", "hash", 0))
    threading.Timer(0.1, hold.released.set).start()
    store.close()
    assert waiting.done()
    with pytest.raises(StoreError, match="closed") as refused:
        store.submit(PutKey("read", "late", 0))
    assert refused.value.kind == "closed"
    with Store(where) as again:
        assert [key.hash for key in again.list_keys()] == ["hash"]


def locked(where: str) -> AbstractContextManager[object]:
    """Someone else holds the database."""
    if "://" not in where:
        other = sqlite3.connect(Path(where) / "windvane.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        return closing(other)
    import psycopg

    connection = psycopg.connect(where)
    connection.execute("LOCK TABLE decisions IN ACCESS EXCLUSIVE MODE")
    return closing(connection)


def test_a_locked_database_fails_soon_and_recovers(where: str) -> None:
    with Store(where) as store:
        loop = new_loop(store)
        with locked(where):
            started = time.monotonic()
            error = store.submit(rank(loop, "a")).exception(20)
            assert time.monotonic() - started < 5
            assert isinstance(error, StoreError)
            assert error.kind == "locked"
            assert "\n" not in str(error)
        assert store.submit(rank(loop, "a")).result(20).is_new
        assert store.read_funnel(loop).ranked == 1


def test_a_full_disk_fails_the_group_and_recovers(tmp_path: Path) -> None:
    def allow(pages: int) -> None:
        with store._write_engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    with Store(tmp_path) as store:
        loop = new_loop(store)
        store.submit(rank(loop, "before")).result(20)
        allow(1)  # no more than there are
        with hold_writer(store):
            puts = [store.submit(rank(loop, f"e{i}")) for i in range(200)]
        errors = [put.exception(20) for put in puts]
        assert {getattr(error, "kind", None) for error in errors} == {"full"}
        assert store.find_decision(loop, "e0") is None
        allow(1_000_000)
        assert store.submit(rank(loop, "e0")).result(20).is_new
        assert store.read_funnel(loop).ranked == 2


def test_a_server_that_goes_away_fails_soon_and_is_found_again(
    postgresql: Callable[[], str],
) -> None:
    import psycopg

    where = postgresql()
    with Store(where) as store:
        loop = new_loop(store)
        with hold_writer(store), psycopg.connect(where, autocommit=True) as other:
            cut = store.submit(rank(loop, "a"))
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        error = cut.exception(20)
        assert error is None or getattr(error, "kind", None) == "unreachable"
        assert store.submit(rank(loop, "b")).result(20).is_new


def test_a_missing_server_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be reached") as refused:
        Store(f"postgresql://nobody:secret@/none?host={tmp_path}")
    assert refused.value.kind == "unreachable"
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
