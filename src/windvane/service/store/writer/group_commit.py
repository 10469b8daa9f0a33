"""Group commit: all waiting operations are written in one transaction, one commit and one fsync.

An operation describes what to write and can be run again after a rollback. Its result is delivered
only after the commit that contains it, so an acknowledged write survives a crash. Results are
delivered in the order in which the operations were written.

A transaction first locks the positions of its loops, in the order of their ids. Servers that share
a log on PostgreSQL therefore write to a loop one after the other, and never wait for each other in
a circle. A loop without a position was deleted: nothing is written to it any more.
"""

import math
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import msgspec
from sqlalchemy import Connection

from windvane.errors import StoreError
from windvane.service.store.database import is_database_failure, map_error
from windvane.service.store.rows import LogPosition

Result = TypeVar("Result")

MAX_GROUP_OPERATIONS = 512  # in one transaction
TOO_LONG = "the log takes too long"
OUTDATED = "outdated"  # kind of error: the operation follows from settings that were changed


class Transaction(NamedTuple):
    """An open transaction: its connection, and what it changes in the counts of each loop."""

    connection: Connection
    driver: sqlite3.Connection | None  # SQLite's own; None: another database
    counter_changes: Counter[tuple[int, str]]  # by loop id and field of `Funnel`
    positions: dict[int, LogPosition]  # by loop id, of the loops that the operations name

    def insert_many(
        self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]
    ) -> None:
        """Insert many rows with one call of the driver, much faster than row by row."""
        marks = ", ".join(["?"] * len(columns))
        self.execute_many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)

    def execute_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute a statement once for each row; `?` marks a value."""
        if not rows:
            return
        if self.driver is not None:
            self.driver.executemany(statement, rows)
        else:
            self.connection.exec_driver_sql(statement.replace("?", "%s"), list(rows))

    def fetch_all(self, statement: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        """Execute a query and return its rows; `?` marks a value."""
        if self.driver is not None:
            return self.driver.execute(statement, values).fetchall()
        return self.connection.exec_driver_sql(statement.replace("?", "%s"), tuple(values)).all()

    def check_change(self, loop: int, change: int) -> None:
        """Refuse what follows from other settings than those of the last change; 0: of any."""
        if change and change != self.positions[loop].change:
            message = f"store: the settings of the loop {loop} were changed meanwhile"
            raise StoreError(message, OUTDATED)


class Phase(IntEnum):
    """The order of batchable operations in a group: a reward finds a decision of its own group."""

    DECISION = 1
    ACTIVATION = 2
    REWARD = 3


class Operation(
    msgspec.Struct, Generic[Result], frozen=True, array_like=True, tag=True, tag_field="operation"
):
    """A description of something to write. A subclass defines `run`, or `run_batch` for batches."""

    phase: ClassVar[Phase | None] = None  # of a batchable operation

    @property
    def loop_id(self) -> int | None:
        """The loop whose log this operation writes; None if it writes to none."""
        return getattr(self, "loop", None)

    @property
    def batch_key(self) -> tuple[Phase, int] | None:
        """The phase and the loop; operations with equal keys are written together, in their order.

        None: the operation runs alone and keeps its place in the group.
        """
        loop = self.loop_id
        return None if self.phase is None or loop is None else (self.phase, loop)

    def run(self, transaction: Transaction) -> Result:
        raise NotImplementedError

    @classmethod
    def run_batch(cls, transaction: Transaction, batch: Sequence[Self]) -> Sequence[Result]:
        """Write operations of one batch; returns their results in the same order."""
        return [operation.run(transaction) for operation in batch]


class QueuedOperation(NamedTuple):
    """An operation with a ticket that identifies it to its submitter: a future or a number.

    After the deadline, in seconds of the monotonic clock, the operation is not committed any more.
    """

    operation: Operation[Any]
    ticket: Any
    deadline: float = math.inf


Batch = list[QueuedOperation]
Begin = Callable[[], AbstractContextManager[Connection]]  # begins a transaction, and ends it


class WriteOutcome(NamedTuple):
    """The result of the operation with this ticket, or its error."""

    ticket: Any
    result: Any
    error: StoreError | None


def make_gone_error(loop: int) -> StoreError:
    """The error of an operation on a loop that was deleted."""
    return StoreError(f"store: there is no loop with the id {loop}", "gone")


class _DeadlinePassedError(Exception):
    """The deadline of an operation passed while its transaction was open."""


def commit_group(begin: Begin, group: list[QueuedOperation]) -> list[WriteOutcome]:
    """Write a group in one transaction.

    If an operation fails, the group is rolled back and written again with a savepoint for each
    operation, so that only the faulty ones fail. If the database itself fails, all fail. Operations
    whose deadline passes before the commit are not written.
    """
    late: list[WriteOutcome] = []
    while True:
        now = time.monotonic()
        late += [_make_late_outcome(queued) for queued in group if queued.deadline < now]
        group = [queued for queued in group if queued.deadline >= now]
        if not group:
            return late
        try:
            return late + _commit_or_fail(begin, group)
        except _DeadlinePassedError:
            continue


def _commit_or_fail(begin: Begin, group: list[QueuedOperation]) -> list[WriteOutcome]:
    """Write a group, or the error of each operation if the database fails."""
    batches = _split_into_batches(group)
    deadline = min(queued.deadline for queued in group)
    for run in (_run_together, _run_one_by_one):
        try:
            return _commit(begin, batches, run, deadline)
        except _DeadlinePassedError:
            raise
        except Exception as error:
            failure = map_error(error)
            if is_database_failure(failure):
                break
    return [WriteOutcome(queued.ticket, None, failure) for queued in group]


def _make_late_outcome(queued: QueuedOperation) -> WriteOutcome:
    return WriteOutcome(queued.ticket, None, StoreError(f"store: {TOO_LONG}", "locked"))


def _split_into_batches(group: list[QueuedOperation]) -> list[Batch]:
    """Sort each run of batchable operations by batch key; all others keep their place.

    No operation of a group was acknowledged before the last one arrived, so clients cannot observe
    the order among them. Sorting lets each batch be written with a few statements.
    """
    batches: list[Batch] = []
    run: dict[tuple[Phase, int], Batch] = {}
    for queued in group:
        key = queued.operation.batch_key
        if key is not None:
            run.setdefault(key, []).append(queued)
        else:
            batches += (run[key] for key in sorted(run))
            run = {}
            batches.append([queued])
    batches += (run[key] for key in sorted(run))
    return batches


def _commit(
    begin: Begin,
    batches: list[Batch],
    run: Callable[[Transaction, Batch], Iterator[WriteOutcome]],
    deadline: float,
) -> list[WriteOutcome]:
    with begin() as connection:
        transaction = Transaction(connection, _get_sqlite_driver(connection), Counter(), {})
        before = _lock_positions(transaction, batches)
        transaction.positions.update(before)
        outcomes: list[WriteOutcome] = []
        for batch in batches:
            loop = batch[0].operation.loop_id  # of all operations of the batch
            if loop is None or loop in transaction.positions:
                outcomes += run(transaction, batch)
            else:
                gone = make_gone_error(loop)
                outcomes += (WriteOutcome(queued.ticket, None, gone) for queued in batch)
        _update_counters(transaction)
        _update_positions(transaction, before)
        if time.monotonic() > deadline:
            raise _DeadlinePassedError
    return outcomes


def _run_together(transaction: Transaction, batch: Batch) -> Iterator[WriteOutcome]:
    """Write a batch as a whole; an error spoils the whole transaction."""
    operations = [queued.operation for queued in batch]
    results = operations[0].run_batch(transaction, operations)
    for queued, result in zip(batch, results, strict=True):
        yield WriteOutcome(queued.ticket, result, None)


def _run_one_by_one(transaction: Transaction, batch: Batch) -> Iterator[WriteOutcome]:
    """Write each operation in a savepoint of its own; an error fails that operation alone."""
    for operation, ticket, _ in batch:
        counts_before = transaction.counter_changes.copy()
        positions_before = transaction.positions.copy()
        try:
            with transaction.connection.begin_nested():
                (result,) = operation.run_batch(transaction, [operation])
            yield WriteOutcome(ticket, result, None)
        except Exception as error:
            store_error = map_error(error)
            if is_database_failure(store_error):
                raise
            transaction.counter_changes.clear()
            transaction.counter_changes.update(counts_before)
            transaction.positions.clear()
            transaction.positions.update(positions_before)
            yield WriteOutcome(ticket, None, store_error)


_POSITION_COLUMNS = ", ".join(LogPosition._fields)
_SET_POSITION = f"UPDATE positions SET ({_POSITION_COLUMNS}) = (?, ?, ?, ?) WHERE loop = ?"


def _lock_positions(transaction: Transaction, batches: list[Batch]) -> dict[int, LogPosition]:
    """Lock how far the logs of the loops have got, until the transaction ends."""
    loops = {queued.operation.loop_id for batch in batches for queued in batch} - {None}
    if not loops:
        return {}
    query = (
        f"SELECT loop, {_POSITION_COLUMNS} FROM positions WHERE loop IN ({list_marks(loops)}) "
        "ORDER BY loop"
    )
    if transaction.connection.dialect.name != "sqlite":  # SQLite locks the whole database
        query += " FOR UPDATE"
    rows = transaction.fetch_all(query, sorted(loops))
    return {loop: LogPosition(*position) for loop, *position in rows}


def _update_positions(transaction: Transaction, before: dict[int, LogPosition]) -> None:
    rows = [
        (*position, loop)
        for loop, position in sorted(transaction.positions.items())
        if position != before.get(loop)
    ]
    transaction.execute_many(_SET_POSITION, rows)


def _update_counters(transaction: Transaction) -> None:
    """Add what has changed to the counters of each loop."""
    changes: dict[int, dict[str, int]] = {}
    for (loop, name), more in sorted(transaction.counter_changes.items()):
        if more:
            changes.setdefault(loop, {})[name] = more
    for loop, amounts in changes.items():
        sums = ", ".join(f'"{name}" = "{name}" + ?' for name in amounts)
        row = (*amounts.values(), loop)
        transaction.execute_many(f"UPDATE counters SET {sums} WHERE loop = ?", [row])


def list_marks(values: Collection[object]) -> str:
    """As many marks of values as there are values, for a list in a statement."""
    return ", ".join(["?"] * len(values))


def _get_sqlite_driver(connection: Connection) -> sqlite3.Connection | None:
    """The driver's connection to an SQLite database; None if it is another database.

    A statement of the writer costs SQLAlchemy three times as much as SQLite.
    """
    if connection.dialect.name != "sqlite":
        return None
    driver: sqlite3.Connection | None = connection.connection.driver_connection
    return driver
