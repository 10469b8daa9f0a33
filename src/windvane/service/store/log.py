"""The durable log of the service, on SQLite or PostgreSQL with the same queries.

Writing goes through `submit` and is grouped (writer.py); reading happens at once, in the caller's
thread, whichever it is. The store reads no clock.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sqlalchemy import Executable, Select, func, select

from windvane.errors import StoreError
from windvane.service.store.backup import copy
from windvane.service.store.database import engine, location, opened
from windvane.service.store.database_errors import explained
from windvane.service.store.group_commit import Operation, Result, Writer
from windvane.service.store.schema import (
    Change,
    Decision,
    Funnel,
    Key,
    Lesson,
    Logged,
    Loop,
    Reward,
    Snapshot,
    counters,
    decisions,
    keys,
    lessons,
    loops,
    rewards,
    settings_log,
    snapshots,
)

HEAVY = ("actions", "answer", "request")  # what a log of many decisions can do without


class Span(NamedTuple):
    """The times of the first and the last decision of a loop."""

    since: int
    until: int


class Log:
    """The log in a directory, or at a URL such as postgresql://user@host/name, to be read."""

    def __init__(self, where: str | PathLike[str]) -> None:
        self.url = location(where)
        self._reading = engine(self.url, writes=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the database."""
        self._reading.dispose()

    def loop(self, name: str) -> Loop | None:
        """The loop of a name."""
        query = select(loops).where(loops.c.name == name)
        return next((Loop(*row) for row in self._read(query)), None)

    def loops(self) -> list[Loop]:
        """All loops, oldest first."""
        return [Loop(*row) for row in self._read(select(loops).order_by(loops.c.id))]

    def changes(self, loop: int) -> list[Change]:
        """Every setting that a loop ever had, oldest first."""
        columns = settings_log.c["id", "at", "settings", "by", "lesson"]
        query = select(*columns).where(settings_log.c.loop == loop).order_by(settings_log.c.id)
        return [Change(*row) for row in self._read(query)]

    def funnel(self, loop: int) -> Funnel:
        """What became of all decisions and rewards."""
        query = select(*counters.c[Funnel._fields]).where(counters.c.loop == loop)
        return next((Funnel(*row) for row in self._read(query)), Funnel())

    def decision(self, loop: int, event_id: str) -> Decision | None:
        """The decision of an event."""
        query = select(*decisions.c[Decision._fields]).where(
            decisions.c.loop == loop, decisions.c.event_id == event_id
        )
        return next((Decision(*row) for row in self._read(query)), None)

    def rewards(self, loop: int, event_id: str) -> list[Reward]:
        """All rewards that came for an event, whatever became of them."""
        query = (
            select(*rewards.c[Reward._fields])
            .where(rewards.c.loop == loop, rewards.c.event_id == event_id)
            .order_by(rewards.c.id)
        )
        return [Reward(*row) for row in self._read(query)]

    def last_round(self, loop: int) -> int | None:
        """The round of the last decision in the log; deleted ones are forgotten."""
        query = (
            select(decisions.c.round)
            .where(decisions.c.loop == loop)
            .order_by(decisions.c.id.desc())
            .limit(1)
        )
        return next((row[0] for row in self._read(query)), None)

    def span(self, loop: int) -> Span | None:
        """From when to when the log of a loop reaches."""
        ends = (func.min(decisions.c.at), func.max(decisions.c.at))  # as two questions: by index
        ours = decisions.c.loop == loop
        query = select(*(select(end).where(ours).scalar_subquery() for end in ends))
        ((since, until),) = self._read(query)
        return None if since is None else Span(since, until)

    def log(
        self,
        loop: int,
        since: int | None = None,
        until: int | None = None,
        whole: bool = True,
        batch: int = 1000,
    ) -> Iterator[list[Logged]]:
        """Decisions made in [since, until) with what was learned from them, in batches by id.

        Without `whole` the texts and the answer are left empty, which is faster by far.
        """
        ours = decisions.c.loop == loop
        if since is not None:
            ours &= decisions.c.at >= since
        if until is not None:
            ours &= decisions.c.at < until
        ends = select(func.min(decisions.c.id), func.max(decisions.c.id)).where(ours)
        ((first, last),) = self._read(ends)
        if first is None:
            return
        query = _logged(whole).where(ours, decisions.c.id <= last)
        query = query.order_by(decisions.c.id).limit(batch)
        after = first - 1
        while rows := self._read(query.where(decisions.c.id > after)):
            yield [_as_logged(row, whole) for row in rows]
            after = rows[-1].id

    def recent(self, loop: int, limit: int) -> list[Logged]:
        """The last decisions, newest first, without texts and answer."""
        query = _logged(whole=False).where(decisions.c.loop == loop)
        rows = self._read(query.order_by(decisions.c.id.desc()).limit(limit))
        return [_as_logged(row, whole=False) for row in rows]

    def learned_at(self, loop: int) -> int | None:
        """When the last lesson was taught."""
        query = select(lessons.c.at).where(lessons.c.loop == loop)
        rows = self._read(query.order_by(lessons.c.id.desc()).limit(1))
        return next((row.at for row in rows), None)

    def lessons(self, loop: int, after: int = 0, batch: int = 1000) -> Iterator[list[Lesson]]:
        """What is to be learned after a lesson, in order, in batches."""
        query = (
            select(
                *lessons.c["id", "decision", "kind", "value", "at"],
                *decisions.c["round", "at", "features"],
            )
            .join(decisions, decisions.c.id == lessons.c.decision)
            .where(lessons.c.loop == loop)
            .order_by(lessons.c.id)
            .limit(batch)
        )
        while rows := self._read(query.where(lessons.c.id > after)):
            yield [Lesson(*row) for row in rows]
            after = rows[-1].id

    def snapshot(self, loop: int) -> Snapshot | None:
        """The last snapshot that was taken."""
        query = (
            select(*snapshots.c["lesson", "blob", "at"])
            .where(snapshots.c.loop == loop)
            .order_by(snapshots.c.id.desc())
            .limit(1)
        )
        return next((Snapshot(*row) for row in self._read(query)), None)

    def keys(self) -> list[Key]:
        """All keys, expired ones too."""
        return [Key(*row) for row in self._read(select(keys).order_by(keys.c.id))]

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy the log as it is at one moment, while others go on; a file is whole or not there."""
        if self.url.get_backend_name() != "sqlite":
            message = "store: a PostgreSQL database is backed up with pg_dump"
            raise StoreError(message, "unsupported")
        copy(Path(self.url.database or ""), Path(path))

    def _read(self, query: Executable) -> Sequence[Any]:
        try:
            with self._reading.connect() as connection:
                return connection.execute(query).all()
        except Exception as error:
            raise explained(error) from None


class Store(Log):
    """A log that is also written, by a thread of this process; made where there is none."""

    def __init__(self, where: str | PathLike[str]) -> None:
        super().__init__(where)
        self._writing = opened(self.url)
        self._writer = Writer(self._writing)

    def close(self) -> None:
        """Write what waits, then let go of the database."""
        self._writer.close()
        self._writing.dispose()
        super().close()

    @property
    def commits(self) -> int:
        """How many groups were written."""
        return self._writer.commits

    @property
    def waiting(self) -> int:
        """How many operations wait to be written."""
        return self._writer.waiting

    def submit(self, operation: Operation[Result]) -> Future[Result]:
        """Have it written; the future resolves once it is on disk, or fails with a StoreError.

        It cannot be cancelled. With too many waiting, or closed, this raises the error at once.
        """
        return self._writer.submit(operation)


def _logged(whole: bool) -> Select[Any]:
    of_it = lessons.c.decision == decisions.c.id
    return select(
        *decisions.c[tuple(_fields(whole))],
        select(func.sum(lessons.c.value)).where(of_it).scalar_subquery(),
        select(func.min(lessons.c.kind)).where(of_it).scalar_subquery(),
    )


def _fields(whole: bool) -> list[str]:
    return [name for name in Decision._fields if whole or name not in HEAVY]


def _as_logged(row: Sequence[Any], whole: bool) -> Logged:
    blank: dict[str, Any] = {} if whole else {"actions": "", "answer": b"", "request": ""}
    made = Decision(**blank, **dict(zip(_fields(whole), row, strict=False)))
    return Logged(made, reward=row[-2], defaulted=row[-1] == "default")
