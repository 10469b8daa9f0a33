"""Group commits: one commit for many operations, their order, and which operations fail."""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from sqlalchemy import event

from store_helpers import (
    BlockWriter,
    FailHalfway,
    count_rows,
    create_loop,
    hold_writer,
    put_decision,
    put_reward,
)
from windvane.errors import StoreError
from windvane.service.store.database import open_for_writing
from windvane.service.store.log import Store
from windvane.service.store.writer.group_commit import (
    MAX_WAITING_OPERATIONS,
    Operation,
    QueuedOperation,
    Transaction,
    commit_group,
)
from windvane.service.store.writer.loop_operations import PutKey, PutLoop, PutSettings


def test_all_waiting_operations_share_one_commit(store: Store, loop: int) -> None:
    with hold_writer(store):
        commits: list[object] = []
        event.listen(store._write_engine, "commit", commits.append)
        decisions = [store.submit(put_decision(loop, f"e{i}")) for i in range(50)]
        rewards = [store.submit(put_reward(loop, f"e{i}")) for i in range(50)]
        assert len(store._writer._queue) == 100
    assert all(put.result(20).is_new for put in decisions)
    assert all(put.result(20).status == "learned" for put in rewards)
    assert len(commits) == 2  # the blocking operation, and one for all others


def test_a_group_keeps_the_order_of_each_kind(store: Store, loop: int) -> None:
    events = [f"e{i}" for i in range(40)]
    resolved: list[int] = []
    with hold_writer(store):
        ranked = [store.submit(put_decision(loop, event)) for event in events]
        rewarded = [store.submit(put_reward(loop, event)) for event in reversed(events)]
        for put in rewarded:
            put.add_done_callback(lambda put: resolved.append(put.result().lessons[0].id))
    assert all(put.result(20).is_new for put in ranked)
    learned = [put.result(20).lessons[0] for put in rewarded]
    assert [lesson.decision for lesson in learned] == list(range(len(events), 0, -1))
    assert resolved == sorted(resolved) == [lesson.id for lesson in learned]
    assert [lesson for batch in store.iterate_lessons(loop, batch=7) for lesson in batch] == [
        lesson._replace(previous=0, change=0) for lesson in learned
    ]
    before = [0, *(lesson.id for lesson in learned)]
    assert [lesson.previous for lesson in learned] == before[:-1]


def test_a_reward_finds_a_decision_of_the_same_group(store: Store, loop: int) -> None:
    with hold_writer(store):
        early = store.submit(put_reward(loop, "e"))
        store.submit(put_decision(loop, "e"))
    assert early.result(20).status == "learned"


def test_a_settings_change_keeps_its_place_between_rewards(store: Store, loop: int) -> None:
    store.submit(put_decision(loop, "a"))
    store.submit(put_decision(loop, "b")).result(20)
    with hold_writer(store):
        before = store.submit(put_reward(loop, "a"))
        change = store.submit(PutSettings(loop, '{"dim": 3}', 1, "test"))
        after = store.submit(put_reward(loop, "b"))
    assert before.result(20).lessons[0].id <= change.result(20).lesson
    assert change.result(20).lesson < after.result(20).lessons[0].id


def test_an_operation_that_fails_does_not_affect_the_others(store: Store, loop: int) -> None:
    with hold_writer(store):
        first = store.submit(put_decision(loop, "a"))
        broken = store.submit(FailHalfway(loop))
        taken = store.submit(PutLoop("home", "{}", 0, "test"))
        last = store.submit(put_reward(loop, "a"))
        unknown = store.submit(put_decision(loop + 99, "a"))
        invalid = store.submit(put_reward(loop, "\ud800"))
    assert first.result(20).is_new
    assert last.result(20).status == "learned"
    for failed, kind in ((broken, "refused"), (taken, "refused"), (unknown, "gone")):
        error = failed.exception(20)
        assert isinstance(error, StoreError)
        assert error.kind == kind
    assert isinstance(invalid.exception(20), StoreError)
    assert str(taken.exception()) == "store: there is a loop 'home' already"
    assert store.read_funnel(loop) == count_rows(store, loop)
    assert store.read_funnel(loop).ranked == 1


def test_operations_beyond_the_limit_are_refused_at_once(where: str) -> None:
    with Store(where) as store, hold_writer(store):
        for i in range(MAX_WAITING_OPERATIONS):
            store.submit(PutKey("read", f"hash {i}", 0))
        with pytest.raises(StoreError, match="4096 operations wait") as refused:
            store.submit(PutKey("read", "one more", 0))
        assert refused.value.kind == "busy"
    with Store(where) as store:
        assert len(store.list_keys()) == MAX_WAITING_OPERATIONS


def test_closing_writes_waiting_operations_and_refuses_new_ones(where: str) -> None:
    store = Store(where)
    block = BlockWriter()
    store.submit(block)
    waiting = store.submit(PutKey("read", "hash", 0))
    threading.Timer(0.1, block.released.set).start()
    store.close()
    assert waiting.done()
    with pytest.raises(StoreError, match="closed") as refused:
        store.submit(PutKey("read", "late", 0))
    assert refused.value.kind == "closed"
    with Store(where) as again:
        assert [key.hash for key in again.list_keys()] == ["hash"]


def lock_database(where: str) -> AbstractContextManager[object]:
    """Lock the database from another connection."""
    if "://" not in where:
        other = sqlite3.connect(Path(where) / "windvane.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        return closing(other)
    import psycopg

    connection = psycopg.connect(where)
    connection.execute("LOCK TABLE decisions IN ACCESS EXCLUSIVE MODE")
    return closing(connection)


def test_a_locked_database_fails_soon_and_recovers(where: str, store: Store, loop: int) -> None:
    with lock_database(where):
        started = time.monotonic()
        error = store.submit(put_decision(loop, "a")).exception(20)
        assert time.monotonic() - started < 19
        assert isinstance(error, StoreError)
        assert error.kind == "locked"
        assert "\n" not in str(error)
    assert store.submit(put_decision(loop, "a")).result(20).is_new
    assert store.read_funnel(loop).ranked == 1


def test_a_full_disk_fails_the_group_and_recovers(tmp_path: Path) -> None:
    def allow(pages: int) -> None:
        with store._write_engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    with Store(tmp_path) as store:
        loop = create_loop(store)
        store.submit(put_decision(loop, "before")).result(20)
        allow(1)  # fewer than exist: none can be added
        with hold_writer(store):
            decisions = [store.submit(put_decision(loop, f"e{i}")) for i in range(200)]
        errors = [put.exception(20) for put in decisions]
        assert {getattr(error, "kind", None) for error in errors} == {"full"}
        assert store.find_decision(loop, "e0") is None
        allow(1_000_000)
        assert store.submit(put_decision(loop, "e0")).result(20).is_new
        assert store.read_funnel(loop).ranked == 2


def test_a_lost_server_connection_fails_soon_and_is_restored(postgresql: Callable[[], str]) -> None:
    import psycopg

    where = postgresql()
    with Store(where) as store:
        loop = create_loop(store)
        with hold_writer(store), psycopg.connect(where, autocommit=True) as other:
            cut = store.submit(put_decision(loop, "a"))
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        error = cut.exception(20)
        assert error is None or getattr(error, "kind", None) == "unreachable"
        assert store.submit(put_decision(loop, "b")).result(20).is_new


def test_a_missing_server_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be reached") as refused:
        Store(f"postgresql://nobody:secret@/none?host={tmp_path}")
    assert refused.value.kind == "unreachable"
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


class PassDeadline(Operation[None], frozen=True):
    """Takes the group past a deadline, the first time that it runs."""

    clock: list[float]

    def run(self, transaction: Transaction) -> None:
        self.clock[0] = 5.0


def test_an_operation_whose_deadline_passes_in_the_transaction_is_not_committed(
    store: Store, loop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    engine = open_for_writing(store.url)
    group = [
        QueuedOperation(put_decision(loop, "late"), "late", deadline=1.0),
        QueuedOperation(PassDeadline(clock), "slow"),
        QueuedOperation(put_decision(loop, "patient"), "patient", deadline=10.0),
    ]
    outcomes = {outcome.ticket: outcome for outcome in commit_group(engine.begin, group)}
    engine.dispose()
    assert {ticket for ticket, outcome in outcomes.items() if outcome.error} == {"late"}
    assert "too long" in str(outcomes["late"].error)
    assert store.find_decision(loop, "late") is None
    assert store.find_decision(loop, "patient") is not None
    assert store.read_funnel(loop).ranked == 1
