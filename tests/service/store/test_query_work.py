"""Queries and writes touch few rows of a large log: the work is counted, not timed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from store_helpers import SECOND, find_snapshot, put_decision, put_reward
from windvane.service.store import decision_queries
from windvane.service.store.decision_queries import read_stream_page
from windvane.service.store.log import Store
from windvane.service.store.monitoring_queries import (
    count_observations,
    find_first_decision,
    find_last_lesson_times,
    list_decision_summaries,
    list_recent_decisions,
    list_recent_requests,
)
from windvane.service.store.writer.decision_operations import Activate, Expire
from windvane.service.store.writer.group_commit import Operation
from windvane.service.store.writer.loop_operations import DeleteLogs, PutSnapshot
from windvane.service.store.writer.reward_operations import RewardTerms

ROW_COUNT = 20_000
MAX_STEPS = ROW_COUNT  # of SQLite's virtual machine: a scan takes several steps for each row
MAX_ROWS = ROW_COUNT // 10  # that the nodes of PostgreSQL's plans return or filter
END = ROW_COUNT * 1000
MIDDLE = f"e{ROW_COUNT * 3 // 4}"
INSERT_MANY = f"""
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROW_COUNT})
INSERT INTO {{table}} ({{columns}}) SELECT {{values}} FROM n
"""


def insert_many_rows(store: Store, loop: int) -> None:
    """Insert decisions, each with a reward and a lesson; all are also listed as waiting."""
    columns = "loop, event_id, round, at, mode, deferred, degraded, activated_at, chosen, "
    columns += "features, probabilities, actions, request"
    values = f"{loop}, 'e' || i, i, i * 1000, 'Online', false, false, i * 1000, 0, "
    values += "CAST('12345678' AS {blob}), CAST('12345678' AS {blob}), '[\"a\"]', '{{}}'"
    blob = "BLOB" if store.url.get_backend_name() == "sqlite" else "BYTEA"
    with store._write_engine.begin() as connection:
        for table, columns_, values_ in (
            ("decisions", columns, values.format(blob=blob)),
            ("rewards", "loop, event_id, value, at, status", f"{loop}, 'e' || i, 1, i, 'learned'"),
            ("lessons", "loop, decision, kind, value, at", f"{loop}, i, 'observe', 1, i"),
        ):
            connection.exec_driver_sql(
                INSERT_MANY.format(table=table, columns=columns_, values=values_)
            )
        connection.exec_driver_sql(
            f"INSERT INTO waiting (loop, decision, at) SELECT {loop}, id, at FROM decisions"
        )
        connection.exec_driver_sql("ANALYZE")


class WorkCounter:
    """Counts the steps of SQLite's virtual machine, or the rows that PostgreSQL reads."""

    def __init__(self, store: Store) -> None:
        self.work = 0
        self.is_sqlite = store.url.get_backend_name() == "sqlite"
        self.limit = MAX_STEPS if self.is_sqlite else MAX_ROWS
        for engine in (store._read_engine, store._write_engine):
            if self.is_sqlite:
                event.listen(engine, "checkout", self._count_steps)
            else:
                event.listen(engine, "before_cursor_execute", self._count_rows)

    @contextmanager
    def expect_little(self, name: str) -> Iterator[None]:
        self.work = 0
        yield
        assert 0 < self.work < self.limit, f"{name}: {self.work}"

    def _count_steps(self, connection: Any, *_: object) -> None:
        def add_step() -> None:
            self.work += 1

        connection.set_progress_handler(add_step, 1)

    def _count_rows(
        self, connection: Any, _: object, statement: str, parameters: Any, *rest: Any
    ) -> None:
        is_select = statement.lstrip().startswith("SELECT")
        first = parameters[0] if rest[-1] else parameters  # rest[-1]: many rows in one call
        with connection.connection.cursor() as cursor:
            if not is_select:
                cursor.execute("SAVEPOINT counted")
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", first)
            (plans,) = cursor.fetchone()
            if not is_select:
                cursor.execute("ROLLBACK TO counted")
        self.work += sum(count_plan_rows(plan["Plan"]) for plan in plans)


def count_plan_rows(node: dict[str, Any]) -> int:
    """The rows that a plan reads from tables, including those that a filter removes."""
    rows = 1 + sum(map(count_plan_rows, node.get("Plans", ())))
    reasons = ("Filter", "Index Recheck", "Join Filter")
    rows_of_loop = node["Actual Rows"] + sum(
        node.get(f"Rows Removed by {reason}", 0) for reason in reasons
    )
    return rows + int(node["Actual Loops"] * rows_of_loop)


def test_queries_read_few_rows_of_many(
    store: Store, loop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_many_rows(store, loop)
    counter = WorkCounter(store)
    queries: dict[str, Callable[[], object]] = {
        "decision": lambda: store.find_decision(loop, MIDDLE),
        "rewards": lambda: store.list_rewards(loop, MIDDLE),
        "last round": lambda: store.find_last_round(loop),
        "funnel": lambda: store.read_funnel(loop),
        "snapshot": lambda: find_snapshot(store, loop),
        "span": lambda: store.find_time_span(loop),
        "lessons": lambda: next(store.iterate_lessons(loop, ROW_COUNT - 10)),
        "last lessons": lambda: find_last_lesson_times(store, [loop]),
        "recent decisions": lambda: list_recent_decisions(store, loop, 10),
        "recent requests": lambda: list_recent_requests(store, loop, 10),
        "summaries": lambda: list_decision_summaries(store, loop, ROW_COUNT - 10, 10),
        "first decision": lambda: find_first_decision(store, loop),
        "stream": lambda: read_stream_page(store, loop, ROW_COUNT - 10, 10),
        "observations": lambda: count_observations(store, loop, ROW_COUNT - 10),
    }
    monkeypatch.setattr(decision_queries, "BATCH_ROWS", 10)
    queries["export"] = lambda: next(decision_queries.iterate_batches(store, loop))
    queries["late export"] = lambda: next(decision_queries.iterate_batches(store, loop, END - 9000))
    for name, query in queries.items():
        with counter.expect_little(name):
            query()


def test_writes_read_few_rows_of_many(store: Store, loop: int) -> None:
    insert_many_rows(store, loop)
    counter = WorkCounter(store)
    operations: tuple[Operation[Any], ...] = (
        put_decision(loop, "new"),
        put_reward(loop, MIDDLE, at=ROW_COUNT * 750 + SECOND),
        put_reward(loop, MIDDLE, at=ROW_COUNT * 750 + SECOND, request="again"),
        Activate(loop, MIDDLE, END, RewardTerms(SECOND)),
        Expire(loop, 1, 0.0, 1),
        PutSnapshot(loop, ROW_COUNT * 2, b"", 1),
        DeleteLogs(loop, 1),
        DeleteLogs(loop, END, limit=20, include_waiting=True),
        DeleteLogs(loop, 20_000, limit=20),
    )
    for operation in operations:
        with counter.expect_little(repr(operation)):
            store.write(operation)
