"""Writing in groups: what waits goes into one transaction, one commit, one fsync.

An operation is a description of what to write; it can be run again after a rollback. What comes of
it is told after the commit that holds it, in the order in which the operations were written.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import Any, Generic, NamedTuple, Self, TypeVar

from sqlalchemy import Connection, Engine, bindparam, update

from windvane.errors import StoreError
from windvane.service.store.database_errors import explained, is_everyones
from windvane.service.store.schema import Funnel, counters

Result = TypeVar("Result")

ROOM = 4096  # operations that may wait
GROUP = 512  # operations of one transaction


class Work(NamedTuple):
    """A transaction under way: its connection, and what it adds to the counters of each loop."""

    connection: Connection
    counts: Counter[tuple[int, str]]

    def put(self, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows as the driver takes them, which is many times as fast as one by one."""
        marks = ", ".join(["?"] * len(columns))
        self.many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)

    def many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a statement for every row; ? marks a value."""
        if self.connection.dialect.paramstyle != "qmark":
            statement = statement.replace("?", "%s")
        if rows:
            self.connection.exec_driver_sql(statement, list(rows))


class Operation(Generic[Result]):
    """Something to write, and what the writing yields."""

    def place(self) -> tuple[int, int]:
        """(0, 0): alone, where it stands; else its turn among its neighbours, and its loop."""
        return (0, 0)

    def do(self, work: Work) -> Result:
        raise NotImplementedError

    @classmethod
    def run(cls, work: Work, batch: Sequence[Self]) -> Sequence[Result]:
        """The results of several operations of one kind and one loop, in order."""
        return [operation.do(work) for operation in batch]


class Entry(NamedTuple):
    """An operation, and by what whoever waits for it knows it."""

    operation: Operation[Any]
    ticket: Any


class Outcome(NamedTuple):
    """What came of the operation of a ticket."""

    ticket: Any
    result: Any
    error: StoreError | None


class Writer:
    """Takes operations from any thread and writes them in groups from its own."""

    def __init__(self, engine: Engine, room: int = ROOM) -> None:
        self._engine = engine
        self._room = room
        self._ready = threading.Condition()
        self._queue: list[Entry] = []
        self._closing = False
        self.commits = 0
        self._thread = threading.Thread(target=self._work, name="windvane writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many operations wait for the next group."""
        return len(self._queue)

    def submit(self, operation: Operation[Result]) -> Future[Result]:
        """Have it written; the future cannot be cancelled, and resolves after the commit."""
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()
        with self._ready:
            if self._closing:
                raise closed()
            if len(self._queue) >= self._room:
                raise crowded(self._room)
            self._queue.append(Entry(operation, future))
            if len(self._queue) == 1:
                self._ready.notify()
        return future

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._ready:
                while not self._queue and not self._closing:
                    self._ready.wait()
                group, self._queue = self._queue[:GROUP], self._queue[GROUP:]
            if not group:
                return
            outcomes = written(self._engine, group)
            self.commits += any(outcome.error is None for outcome in outcomes)
            for future, result, error in outcomes:
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)


def closed() -> StoreError:
    return StoreError("store: it is closed", "closed")


def crowded(room: int) -> StoreError:
    return StoreError(f"store: {room} operations wait to be written, no more are taken", "busy")


def written(engine: Engine, group: list[Entry]) -> list[Outcome]:
    """Write a group in one transaction; an operation that fails by itself does so alone."""
    try:
        try:
            return _commit(engine, in_turn(group), together)
        except Exception as error:
            if is_everyones(explained(error)):
                raise
            return _commit(engine, in_turn(group), one_by_one)  # whose fault is it?
    except Exception as error:
        return [Outcome(entry.ticket, None, explained(error)) for entry in group]


def _commit(
    engine: Engine, group: list[Entry], how: Callable[[Work, list[Entry]], Iterator[Outcome]]
) -> list[Outcome]:
    with engine.begin() as connection:
        work = Work(connection, Counter())
        outcomes = list(how(work, group))
        _count(work)
    return outcomes


def in_turn(group: list[Entry]) -> list[Entry]:
    """Decisions before activations before rewards, loop by loop; all else stays where it stands.

    None of a group was answered before the others came, so any order is as true as theirs, and
    this one lets a kind be written with a few statements for all.
    """
    ordered: list[Entry] = []
    for _, run in groupby(group, lambda entry: entry.operation.place() == (0, 0)):
        ordered += sorted(run, key=lambda entry: entry.operation.place())
    return ordered


def together(work: Work, group: list[Entry]) -> Iterator[Outcome]:
    """Each kind in one go; an error spoils the transaction."""
    for (kind, _), run in groupby(group, lambda e: (type(e.operation), e.operation.place())):
        batch = list(run)
        results = kind.run(work, [entry.operation for entry in batch])
        for entry, result in zip(batch, results, strict=True):
            yield Outcome(entry.ticket, result, None)


def one_by_one(work: Work, group: list[Entry]) -> Iterator[Outcome]:
    """Each under a savepoint of its own; an error is its own."""
    for operation, ticket in group:
        before = work.counts.copy()
        try:
            with work.connection.begin_nested():
                (result,) = operation.run(work, [operation])
            yield Outcome(ticket, result, None)
        except Exception as error:
            reason = explained(error)
            if is_everyones(reason):
                raise
            work.counts.clear()
            work.counts.update(before)
            yield Outcome(ticket, None, reason)


_ADD = (
    update(counters)
    .where(counters.c.loop == bindparam("of_loop"))
    .values({name: counters.c[name] + bindparam(f"more_{name}") for name in Funnel._fields})
)


def _count(work: Work) -> None:
    loops = sorted({loop for loop, _ in work.counts})
    rows = [
        {"of_loop": loop} | {f"more_{name}": work.counts[loop, name] for name in Funnel._fields}
        for loop in loops
    ]
    if rows:
        work.connection.execute(_ADD, rows)
