"""The durable event log of the service, on SQLite or PostgreSQL with the same queries.

`LogReader` reads: every method queries the database at once, in the thread of the caller, which may
be any. `Store` also writes; the commands use it. The service writes through another process
(`WriterClient`). Both ways, writes are operations in group commits.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from os import PathLike
from typing import Any, NamedTuple, Self

from sqlalchemy import ColumnElement, Executable, func, select
from sqlalchemy.exc import SQLAlchemyError

from windvane.errors import StoreError
from windvane.service.store.database import (
    explain_old_version,
    make_engine,
    map_error,
    open_for_writing,
    read_database_us,
    resolve_url,
)
from windvane.service.store.files.data_directory import save_progress
from windvane.service.store.rows import (
    DecisionRow,
    Funnel,
    Key,
    Lesson,
    LogPosition,
    LoopRow,
    RewardRow,
    SettingsChange,
    pick_features,
)
from windvane.service.store.schema import (
    ACTION_IDS,
    DECISIONS_WITH_OFFERS,
    clock,
    counters,
    decisions,
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
from windvane.service.store.writer.group_commit import (
    Operation,
    QueuedOperation,
    Result,
    commit_group,
    make_gone_error,
)

BATCH_ROWS = 1000

_SELECT_LOOPS = select(loops).join(positions)  # a loop without a position was deleted

_IN_OFFER = {"actions": ACTION_IDS, "offer": offers.c.actions}
SELECT_DECISIONS = select(  # the fields of `DecisionRow`
    *(_IN_OFFER[name] if name in _IN_OFFER else decisions.c[name] for name in DecisionRow._fields)
).select_from(DECISIONS_WITH_OFFERS)


class TimeSpan(NamedTuple):
    """The times of the first and the last decision of a loop."""

    since: int
    until: int


class SnapshotKey(NamedTuple):
    """The id and the time of a snapshot, and the id of the last lesson that it contains."""

    id: int
    lesson: int
    at: int


class LogReader:
    """Reads the log in a data directory, or at a URL such as postgresql://user@host/name."""

    def __init__(self, location: str | PathLike[str]) -> None:
        self.url = resolve_url(location)
        self._read_engine = make_engine(self.url, writes=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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

    def fetch_value(self, query: Executable) -> Any:
        """The first value of the first row of a query; None if there is no row."""
        return next((row[0] for row in self.fetch_all(query)), None)

    def _explain_error(self, error: Exception) -> StoreError:
        """Make the StoreError of a failed query, which may need tables of a later version."""
        store_error = map_error(error)
        if store_error.kind == "refused":
            with suppress(SQLAlchemyError), self._read_engine.connect() as connection:
                return explain_old_version(connection) or store_error
        return store_error

    def find_loop(self, name: str) -> LoopRow | None:
        query = _SELECT_LOOPS.where(loops.c.name == name)
        return next((LoopRow(*row) for row in self.fetch_all(query)), None)

    def list_loops(self) -> list[LoopRow]:
        return [LoopRow(*row) for row in self.fetch_all(_SELECT_LOOPS.order_by(loops.c.id))]

    def list_settings_changes(self, loop: int) -> list[SettingsChange]:
        """List all settings that a loop ever had, oldest first; every loop has some."""
        columns = settings_log.c["id", "at", "settings", "by", "lesson"]
        query = select(*columns).where(settings_log.c.loop == loop).order_by(settings_log.c.id)
        if rows := self.fetch_all(query):
            return [SettingsChange(*row) for row in rows]
        if self.read_positions(loop):  # a deleted loop has none
            raise StoreError("store: the log has no settings of the loop", "damaged")
        raise make_gone_error(loop)

    def read_funnel(self, loop: int) -> Funnel:
        """Read the counts of what became of a loop's decisions and rewards."""
        query = select(*counters.c[Funnel._fields]).where(counters.c.loop == loop)
        return next((Funnel(*row) for row in self.fetch_all(query)), Funnel())

    def find_decision(self, loop: int, event_id: str) -> DecisionRow | None:
        if "\0" in event_id:  # PostgreSQL refuses a query with it
            return None
        query = SELECT_DECISIONS.where(decisions.c.loop == loop, decisions.c.event_id == event_id)
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

    def find_time_span(self, loop: int) -> TimeSpan | None:
        """Find the times of the first and the last decision; returns None if there is none."""
        ends = (func.min(decisions.c.at), func.max(decisions.c.at))
        of_loop = decisions.c.loop == loop
        # As two subqueries, each end is found in the index.
        query = select(*(select(end).where(of_loop).scalar_subquery() for end in ends))
        ((since, until),) = self.fetch_all(query)
        return None if since is None else TimeSpan(since, until)

    def read_database_us(self) -> int:
        """The clock of the database, in microseconds since 1970."""
        try:
            with self._read_engine.connect() as connection:
                return read_database_us(connection)
        except Exception as error:
            raise self._explain_error(error) from None

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

    def iterate_lessons(
        self, loop: int, after: int = 0, batch: int = BATCH_ROWS
    ) -> Iterator[list[Lesson]]:
        """Iterate over the lessons with an id greater than `after`, in batches, ordered by id.

        The belief of a loop is a fold over these lessons in this order.
        """
        query = (
            select(
                *lessons.c["slot", "id", "decision", "kind", "value", "at"],
                *decisions.c["round", "at", "features"],
            )
            .join(decisions, decisions.c.id == lessons.c.decision)
            .where(lessons.c.loop == loop)
            .order_by(lessons.c.id)
            .limit(batch)
        )
        while rows := self.fetch_all(query.where(lessons.c.id > after)):
            yield [_read_lesson(*row) for row in rows]
            after = rows[-1].id

    def count_lessons(self, loop: int) -> int:
        return int(self.fetch_value(select(func.count()).where(lessons.c.loop == loop)))

    def list_snapshots(self, loop: int) -> list[SnapshotKey]:
        """List the snapshots of a loop, the last one first, without their content."""
        query = select(*snapshots.c[SnapshotKey._fields]).where(snapshots.c.loop == loop)
        rows = self.fetch_all(query.order_by(snapshots.c.id.desc()))
        return [SnapshotKey(*row) for row in rows]

    def read_snapshot(self, loop: int, key: SnapshotKey) -> bytes:
        first = self.fetch_value(select(snapshots.c.blob).where(snapshots.c.id == key.id))
        if first is None:
            raise StoreError(f"store: the snapshot {key.id} was deleted", "refused")
        query = (
            select(snapshot_parts.c.blob)
            .where(snapshot_parts.c.loop == loop, snapshot_parts.c.at == key.at)
            .order_by(snapshot_parts.c.place)
        )
        return b"".join([first, *(row.blob for row in self.fetch_all(query))])

    def list_keys(self) -> list[Key]:
        """List all API keys, oldest first, including expired ones."""
        return [Key(*row) for row in self.fetch_all(select(keys).order_by(keys.c.id))]


def _read_lesson(slot: int | None, *columns: Any) -> Lesson:
    lesson = Lesson(*columns)
    if slot is None:
        return lesson
    return lesson._replace(features=pick_features(lesson.features, slot), slot=slot)


class Store(LogReader):
    """Reads and writes the log in the thread of the caller; creates the log if there is none."""

    def __init__(self, location: str | PathLike[str]) -> None:
        super().__init__(location)
        self._write_engine = open_for_writing(self.url)

    def close(self) -> None:
        save_progress(self._read_engine)
        self._write_engine.dispose()
        super().close()

    def write(self, operation: Operation[Result]) -> Result:
        """Write an operation; it is on disk when this returns, or a StoreError is raised."""
        [result] = self.write_group([operation])
        if isinstance(result, StoreError):
            raise result
        written: Result = result
        return written

    def write_group(self, operations: Sequence[Operation[Any]]) -> list[Any]:
        """Write operations in one commit; returns the result or the StoreError of each of them."""
        group = [QueuedOperation(operation, place) for place, operation in enumerate(operations)]
        outcomes = sorted(commit_group(self._write_engine.begin, group), key=attrgetter("ticket"))
        return [outcome.error or outcome.result for outcome in outcomes]


def is_made_between(loop: int, since: int | None, until: int | None) -> ColumnElement[bool]:
    """The condition that a decision of a loop was made in [since, until)."""
    selected = decisions.c.loop == loop
    if since is not None:
        selected &= decisions.c.at >= since
    if until is not None:
        selected &= decisions.c.at < until
    return selected
