"""Group commits: one commit for many operations, their order, and which operations fail."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from sqlalchemy import event

from store_helpers import (
    FailHalfway,
    count_rows,
    create_loop,
    put_decision,
    put_reward,
)
from windvane.errors import StoreError
from windvane.service.store.database import open_for_writing
from windvane.service.store.log import Store
from windvane.service.store.writer.group_commit import (
    Operation,
    QueuedOperation,
    Transaction,
    commit_group,
)
from windvane.service.store.writer.loop_operations import PutLoop, PutSettings


def test_all_operations_of_a_group_share_one_commit(store: Store, loop: int) -> None:
    commits: list[object] = []
    event.listen(store._write_engine, "commit", commits.append)
    decisions = [put_decision(loop, f"e{i}") for i in range(50)]
    rewards = [put_reward(loop, f"e{i}") for i in range(50)]
    results = store.write_group([*decisions, *rewards])
    assert all(result.is_new for result in results[:50])
    assert all(result.status == "learned" for result in results[50:])
    assert len(commits) == 1


def test_a_group_keeps_the_order_of_each_kind(store: Store, loop: int) -> None:
    events = [f"e{i}" for i in range(40)]
    ranks = [put_decision(loop, event) for event in events]
    results = store.write_group([*ranks, *(put_reward(loop, event) for event in reversed(events))])
    assert all(result.is_new for result in results[:40])
    learned = [result.lessons[0] for result in results[40:]]
    assert [lesson.decision for lesson in learned] == list(range(len(events), 0, -1))
    ids = [lesson.id for lesson in learned]
    assert ids == sorted(ids)
    assert [lesson for batch in store.iterate_lessons(loop, batch=7) for lesson in batch] == [
        lesson._replace(previous=0, change=0) for lesson in learned
    ]
    assert [lesson.previous for lesson in learned] == [0, *ids[:-1]]


def test_a_reward_finds_a_decision_of_the_same_group(store: Store, loop: int) -> None:
    early, _ = store.write_group([put_reward(loop, "e"), put_decision(loop, "e")])
    assert early.status == "learned"


def test_a_settings_change_keeps_its_place_between_rewards(store: Store, loop: int) -> None:
    store.write_group([put_decision(loop, "a"), put_decision(loop, "b")])
    change_settings = PutSettings(loop, '{"dim": 3}', 1, "test")
    before, change, after = store.write_group(
        [put_reward(loop, "a"), change_settings, put_reward(loop, "b")]
    )
    assert before.lessons[0].id <= change.lesson < after.lessons[0].id


def test_an_operation_that_fails_does_not_affect_the_others(store: Store, loop: int) -> None:
    first, broken, taken, last, unknown, invalid = store.write_group(
        [
            put_decision(loop, "a"),
            FailHalfway(loop),
            PutLoop("home", "{}", 0, "test"),
            put_reward(loop, "a"),
            put_decision(loop + 99, "a"),
            put_reward(loop, "\ud800"),
        ]
    )
    assert first.is_new
    assert last.status == "learned"
    for failed, kind in ((broken, "refused"), (taken, "refused"), (unknown, "gone")):
        assert isinstance(failed, StoreError)
        assert failed.kind == kind
    assert isinstance(invalid, StoreError)
    assert str(taken) == "store: there is a loop 'home' already"
    assert store.read_funnel(loop) == count_rows(store, loop)
    assert store.read_funnel(loop).ranked == 1


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
        [error] = store.write_group([put_decision(loop, "a")])
        assert time.monotonic() - started < 19
        assert isinstance(error, StoreError)
        assert error.kind == "locked"
        assert "\n" not in str(error)
    assert store.write(put_decision(loop, "a")).is_new
    assert store.read_funnel(loop).ranked == 1


def test_a_full_disk_fails_the_group_and_recovers(tmp_path: Path) -> None:
    def allow(pages: int) -> None:
        with store._write_engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    with Store(tmp_path) as store:
        loop = create_loop(store)
        store.write(put_decision(loop, "before"))
        allow(1)  # fewer than exist: none can be added
        errors = store.write_group([put_decision(loop, f"e{i}") for i in range(200)])
        assert {getattr(error, "kind", None) for error in errors} == {"full"}
        assert store.find_decision(loop, "e0") is None
        allow(1_000_000)
        assert store.write(put_decision(loop, "e0")).is_new
        assert store.read_funnel(loop).ranked == 2


def test_a_lost_server_connection_fails_soon_and_is_restored(postgresql: Callable[[], str]) -> None:
    import psycopg

    where = postgresql()
    with Store(where) as store:
        loop = create_loop(store)
        with psycopg.connect(where, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        [cut] = store.write_group([put_decision(loop, "a")])
        assert getattr(cut, "is_new", False) or cut.kind == "unreachable"
        assert store.write(put_decision(loop, "b")).is_new


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
