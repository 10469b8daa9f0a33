"""The durable event log of the service, on SQLite or PostgreSQL with the same queries.

`LogReader` reads: every method queries the database at once, in the thread of the caller, which may
be any. `Store` also writes, by a thread of its own process; the commands use it. The service
writes through another process (`WriterClient`). Both ways, writes are operations in group commits.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sqlalchemy import ColumnElement, Executable, Select, func, select
from sqlalchemy.exc import SQLAlchemyError

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.store.database import (
    explain_old_version,
    make_engine,
    map_error,
    open_for_writing,
    resolve_url,
)
from windvane.service.store.files.backup import copy_database
from windvane.service.store.files.data_directory import save_progress
from windvane.service.store.rows import (
    DecisionRow,
    Funnel,
    HalfLifeChange,
    Key,
    Lesson,
    LogPosition,
    LoopRow,
    RewardedDecision,
    RewardRow,
    SettingsChange,
    Snapshot,
)
from windvane.service.store.schema import (
    ACTION_IDS,
    DECISIONS_WITH_OFFERS,
    FIRST_KIND,
    LEARNED_REWARD,
    SNAPSHOT_PART_BYTES,
    clock,
    counters,
    decisions,
    half_life_changes,
    keys,
    lessons,
    loops,
    offers,
    positions,
    rewards,
    settings_log,
    snapshot_parts,
    snapshots,
    waiting,
)
from windvane.service.store.writer.group_commit import Operation, Result, WriterThread

BATCH_ROWS = 1000


class TimeSpan(NamedTuple):
    """The times of the first and the last decision of a loop."""

    since: int
    until: int


class SnapshotKey(NamedTuple):
    """The id of a snapshot, and the id of the last lesson that it contains."""

    id: int
    lesson: int


class LogReader:
    """Reads the log in a data directory, or at a URL such as postgresql://user@host/name."""

    def __init__(self, location: str | PathLike[str]) -> None:
        self.url = resolve_url(location)
        self._read_engine = make_engine(self.url, writes=False)

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
        """Close all connections to the database."""
        self._read_engine.dispose()

    def fetch_all(self, query: Executable) -> Sequence[Any]:
        """Run a query and return all its rows; raises a StoreError if that fails."""
        try:
            with self._read_engine.connect() as connection:
                return connection.execute(query).all()
        except Exception as error:
            raise self._explain_error(error) from None

    def _explain_error(self, error: Exception) -> StoreError:
        """Make the StoreError of a failed query, which may need tables of a later version."""
        store_error = map_error(error)
        if store_error.kind == "refused":
            with suppress(SQLAlchemyError), self._read_engine.connect() as connection:
                return explain_old_version(connection) or store_error
        return store_error

    def find_loop(self, name: str) -> LoopRow | None:
        """Find a loop by its name; returns None if there is none."""
        query = select(loops).where(loops.c.name == name)
        return next((LoopRow(*row) for row in self.fetch_all(query)), None)

    def list_loops(self) -> list[LoopRow]:
        """List all loops, oldest first."""
        return [LoopRow(*row) for row in self.fetch_all(select(loops).order_by(loops.c.id))]

    def list_half_life_changes(self, loop: int) -> list[HalfLifeChange]:
        """The changes of the half-life that leads, in the order of the log."""
        columns = half_life_changes.c["lesson", "at", "seconds"]
        query = select(*columns).where(half_life_changes.c.loop == loop).order_by("lesson")
        return [HalfLifeChange(*row) for row in self.fetch_all(query)]

    def list_settings_changes(self, loop: int) -> list[SettingsChange]:
        """List all settings that a loop ever had, oldest first."""
        columns = settings_log.c["id", "at", "settings", "by", "lesson"]
        query = select(*columns).where(settings_log.c.loop == loop).order_by(settings_log.c.id)
        return [SettingsChange(*row) for row in self.fetch_all(query)]

    def read_funnel(self, loop: int) -> Funnel:
        """Read the counts of what became of a loop's decisions and rewards."""
        query = select(*counters.c[Funnel._fields]).where(counters.c.loop == loop)
        return next((Funnel(*row) for row in self.fetch_all(query)), Funnel())

    def find_decision(self, loop: int, event_id: str) -> DecisionRow | None:
        """Find the decision of an event; returns None if there is none."""
        query = _select_decisions(DecisionRow._fields).where(
            decisions.c.loop == loop, decisions.c.event_id == event_id
        )
        return next((DecisionRow(*row) for row in self.fetch_all(query)), None)

    def list_rewards(self, loop: int, event_id: str) -> list[RewardRow]:
        """List all rewards of an event, of any status, oldest first."""
        query = (
            select(*rewards.c[RewardRow._fields])
            .where(rewards.c.loop == loop, rewards.c.event_id == event_id)
            .order_by(rewards.c.id)
        )
        return [RewardRow(*row) for row in self.fetch_all(query)]

    def find_last_round(self, loop: int) -> int | None:
        """Find the round of the last decision in the log; returns None if there is none."""
        query = (
            select(decisions.c.round)
            .where(decisions.c.loop == loop)
            .order_by(decisions.c.id.desc())
            .limit(1)
        )
        return next((row.round for row in self.fetch_all(query)), None)

    def read_positions(self, loop: int | None = None) -> dict[int, LogPosition]:
        """Read how far the logs of all loops, or of one, have got, by the id of the loop."""
        query = select(positions.c.loop, *positions.c[LogPosition._fields])
        if loop is not None:
            query = query.where(positions.c.loop == loop)
        return {id_: LogPosition(*position) for id_, *position in self.fetch_all(query)}

    def find_oldest_waits(self) -> dict[int, int]:
        """Find since when the oldest decision of each loop waits for its reward, by loop id."""
        oldest = select(func.min(waiting.c.at)).where(waiting.c.loop == loops.c.id)
        query = select(loops.c.id, oldest.correlate(loops).scalar_subquery())
        return {loop: at for loop, at in self.fetch_all(query) if at is not None}

    def list_waiting_times(self, loop: int | None = None) -> list[tuple[int, int]]:
        """List when decisions were made that wait for a reward, to the second, by loop.

        All decisions of one second and one loop give one row: the id of the loop, and the time.
        """
        second = waiting.c.at // MICROSECONDS_PER_SECOND
        query = select(waiting.c.loop, second).distinct()
        if loop is not None:
            query = query.where(waiting.c.loop == loop)
        return [(id_, at * MICROSECONDS_PER_SECOND) for id_, at in self.fetch_all(query)]

    def find_time_span(self, loop: int) -> TimeSpan | None:
        """Find the times of the first and the last decision; returns None if there is none."""
        ends = (func.min(decisions.c.at), func.max(decisions.c.at))
        of_loop = decisions.c.loop == loop
        # As two subqueries, each end is found in the index.
        query = select(*(select(end).where(of_loop).scalar_subquery() for end in ends))
        ((since, until),) = self.fetch_all(query)
        return None if since is None else TimeSpan(since, until)

    def find_newest_time(self) -> int | None:
        """Find the newest service time in the log; returns None if there is none.

        Service time never goes back, so the last row of a table has the newest time. Times that
        commands write do not count: they are of the wall clock.
        """
        stored = [row.at for row in self.fetch_all(select(clock.c.at))]
        for table in (decisions, rewards, lessons):
            last = select(table.c.at).order_by(table.c.id.desc()).limit(1)
            stored += [row.at for row in self.fetch_all(last)]
        return max(stored, default=None)

    def iterate_decisions(
        self,
        loop: int,
        since: int | None = None,
        until: int | None = None,
        with_payloads: bool = True,
        batch: int = BATCH_ROWS,
    ) -> Iterator[list[RewardedDecision]]:
        """Iterate over the decisions made in [since, until), in batches, ordered by id.

        Without payloads, the action ids and the request are left empty, which is much faster.
        """
        selected = is_made_between(loop, since, until)
        ends = select(func.min(decisions.c.id), func.max(decisions.c.id)).where(selected)
        ((first, last),) = self.fetch_all(ends)
        if first is None:
            return
        query = _select_logged_decisions(with_payloads).where(selected, decisions.c.id <= last)
        query = query.order_by(decisions.c.id).limit(batch)
        after = first - 1
        while rows := self.fetch_all(query.where(decisions.c.id > after)):
            yield [_to_rewarded_decision(row, with_payloads) for row in rows]
            after = rows[-1].id

    def list_recent_decisions(self, loop: int, limit: int) -> list[RewardedDecision]:
        """List the last decisions, newest first, without payloads."""
        query = _select_logged_decisions(with_payloads=False).where(decisions.c.loop == loop)
        rows = self.fetch_all(query.order_by(decisions.c.id.desc()).limit(limit))
        return [_to_rewarded_decision(row, with_payloads=False) for row in rows]

    def find_last_lesson_time(self, loop: int) -> int | None:
        """Find the time of the last lesson in the log; returns None if there is none."""
        query = select(lessons.c.at).where(lessons.c.loop == loop)
        rows = self.fetch_all(query.order_by(lessons.c.id.desc()).limit(1))
        return next((row.at for row in rows), None)

    def iterate_lessons(
        self, loop: int, after: int = 0, batch: int = BATCH_ROWS
    ) -> Iterator[list[Lesson]]:
        """Iterate over the lessons with an id greater than `after`, in batches, ordered by id.

        The belief of a loop is a fold over these lessons in this order.
        """
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
        while rows := self.fetch_all(query.where(lessons.c.id > after)):
            yield [Lesson(*row) for row in rows]
            after = rows[-1].id

    def count_lessons(self, loop: int) -> int:
        """Count the lessons of a loop that the log still has."""
        query = select(func.count()).select_from(lessons).where(lessons.c.loop == loop)
        return int(self.fetch_all(query)[0][0])

    def find_snapshot(self, loop: int) -> Snapshot | None:
        """Find the last snapshot of a loop; returns None if there is none."""
        return next((self.read_snapshot(loop, key) for key in self.list_snapshots(loop)), None)

    def list_snapshots(self, loop: int) -> list[SnapshotKey]:
        """List the snapshots of a loop, the last one first, without their content."""
        query = select(*snapshots.c["id", "lesson"]).where(snapshots.c.loop == loop)
        rows = self.fetch_all(query.order_by(snapshots.c.id.desc()))
        return [SnapshotKey(*row) for row in rows]

    def read_snapshot(self, loop: int, key: SnapshotKey) -> Snapshot:
        """Read one of the snapshots of a loop."""
        query = select(*snapshots.c["lesson", "blob", "at"]).where(snapshots.c.id == key.id)
        rows = self.fetch_all(query)
        if not rows:
            raise StoreError(f"store: the snapshot {key.id} was deleted", "refused")
        return self._join_snapshot(loop, *rows[0])

    def _join_snapshot(self, loop: int, lesson: int, blob: bytes, at: int) -> Snapshot:
        """Join the parts of a snapshot."""
        parts = [blob]
        if len(blob) == SNAPSHOT_PART_BYTES:
            query = (
                select(snapshot_parts.c.blob)
                .where(snapshot_parts.c.loop == loop, snapshot_parts.c.at == at)
                .order_by(snapshot_parts.c.place)
            )
            parts += (row.blob for row in self.fetch_all(query))
        return Snapshot(lesson, b"".join(parts), at)

    def list_keys(self) -> list[Key]:
        """List all API keys, oldest first, including expired ones."""
        return [Key(*row) for row in self.fetch_all(select(keys).order_by(keys.c.id))]

    def backup(self, path: str | PathLike[str]) -> None:
        """Copy the log to a file, as of one moment, while others read and write it."""
        if self.url.get_backend_name() != "sqlite":
            message = "store: a PostgreSQL database is backed up with pg_dump"
            raise StoreError(message, "unsupported")
        copy_database(Path(self.url.database or ""), Path(path))


class Store(LogReader):
    """Reads and writes the log, by a thread of this process; creates the log if there is none."""

    def __init__(self, location: str | PathLike[str]) -> None:
        super().__init__(location)
        self._write_engine = open_for_writing(self.url)
        self._writer = WriterThread(self._write_engine)

    def close(self) -> None:
        """Write all waiting operations, then close all connections."""
        self._writer.close()
        save_progress(self._read_engine)
        self._write_engine.dispose()
        super().close()

    @property
    def commit_count(self) -> int:
        """How many groups were committed."""
        return self._writer.commit_count

    @property
    def waiting_count(self) -> int:
        """How many operations wait to be written."""
        return self._writer.waiting_count

    def submit(self, operation: Operation[Result]) -> Future[Result]:
        """Queue an operation; the future resolves once it is on disk, or fails with a StoreError.

        The future cannot be cancelled. Raises a StoreError at once if too many operations wait, or
        if the store is closed.
        """
        return self._writer.submit(operation)


def is_made_between(loop: int, since: int | None, until: int | None) -> ColumnElement[bool]:
    """The condition that a decision of a loop was made in [since, until)."""
    selected = decisions.c.loop == loop
    if since is not None:
        selected &= decisions.c.at >= since
    if until is not None:
        selected &= decisions.c.at < until
    return selected


# The large columns of a decision, and what a decision that is read without them has instead.
PAYLOAD_COLUMNS: dict[str, str | bytes | None] = {
    "actions": "",
    "request": "",
    "offer": None,
    "offer_at": None,
}
LIGHT_COLUMNS = [name for name in DecisionRow._fields if name not in PAYLOAD_COLUMNS]


def _select_logged_decisions(with_payloads: bool) -> Select[Any]:
    """Select decisions, the sum of their lessons, and whether that is the default reward."""
    names = DecisionRow._fields if with_payloads else LIGHT_COLUMNS
    return _select_decisions(names).add_columns(LEARNED_REWARD, FIRST_KIND)


def _select_decisions(names: Sequence[str]) -> Select[Any]:
    """Select fields of decisions; the payloads of a decision with an offer are in the offer."""
    if not set(names) & set(PAYLOAD_COLUMNS):
        return select(*decisions.c[tuple(names)])
    of_offer = {"actions": ACTION_IDS, "offer": offers.c.actions}
    columns = [of_offer[name] if name in of_offer else decisions.c[name] for name in names]
    return select(*columns).select_from(DECISIONS_WITH_OFFERS)


def _to_rewarded_decision(row: Sequence[Any], with_payloads: bool) -> RewardedDecision:
    """The decision of a row of `_select_logged_decisions`, with its reward."""
    *columns, reward, first_kind = row
    if with_payloads:
        decision = DecisionRow(*columns)
    else:
        fields: dict[str, Any] = dict(zip(LIGHT_COLUMNS, columns, strict=True))
        decision = DecisionRow(**(PAYLOAD_COLUMNS | fields))
    return RewardedDecision(decision, reward=reward, defaulted=first_kind == "default")
