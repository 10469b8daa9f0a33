"""The operations on loops, settings, snapshots and API keys, and the deletion of old decisions."""

from msgspec.structs import asdict, replace
from sqlalchemy import Connection, and_, delete, exists, func, insert, select, tuple_, update

from windvane.errors import StoreError
from windvane.service.store.rows import Funnel, Key, LogPosition, LoopRow, SettingsChange
from windvane.service.store.schema import (
    CANCELED,
    RUNNING,
    SNAPSHOT_PART_BYTES,
    counters,
    decisions,
    evaluation_parts,
    evaluations,
    keys,
    lessons,
    loops,
    metadata,
    positions,
    rewards,
    settings_log,
    snapshot_parts,
    snapshots,
    waiting,
)
from windvane.service.store.writer.decision_operations import delete_unused_offers
from windvane.service.store.writer.group_commit import Operation, Transaction
from windvane.service.store.writer.server_operations import PutClock

KEPT_SNAPSHOTS = 3  # of a loop
SNAPSHOTS_BEFORE_DELETION = 2  # each contains all lessons that are deleted
INCREMENTAL = 2  # the value of the pragma auto_vacuum
STEP_PAGES = 64  # 256 kB: a step takes a few milliseconds
USED_PAGES_PER_SPARE_PAGE = 20  # spare pages are kept, so that a steady log does not move pages


class PutLoop(Operation[LoopRow], frozen=True):
    """Create a loop, with zero counters and the first entry of its settings log."""

    name: str
    settings: str
    at: int
    by: str

    def run(self, transaction: Transaction) -> LoopRow:
        if transaction.connection.scalar(select(loops.c.id).where(loops.c.name == self.name)):
            raise StoreError(f"store: there is a loop {self.name!r} already", "refused")
        row = {"name": self.name, "settings": self.settings, "created": self.at}
        statement = insert(loops).returning(loops.c.id)
        loop_id = transaction.connection.execute(statement, row).scalar_one()
        transaction.connection.execute(insert(counters), {"loop": loop_id} | Funnel()._asdict())
        transaction.positions[loop_id] = LogPosition()
        start = {"loop": loop_id} | LogPosition()._asdict()
        transaction.connection.execute(insert(positions), start)
        PutSettings(loop_id, self.settings, self.at, self.by).run(transaction)
        return LoopRow(loop_id, self.name, self.settings, self.at)


class PutSettings(Operation[SettingsChange], frozen=True):
    """Change the settings of a loop, and record the last lesson learned under the old ones."""

    loop: int
    settings: str
    at: int
    by: str
    change: int = 0  # id of the change of settings that these were made of

    def run(self, transaction: Transaction) -> SettingsChange:
        transaction.check_change(self.loop, self.change)
        change = update(loops).where(loops.c.id == self.loop).values(settings=self.settings)
        transaction.connection.execute(change)
        position = transaction.positions[self.loop]
        statement = insert(settings_log).returning(settings_log.c.id)
        row = asdict(self) | {"lesson": position.lesson}
        del row["change"]
        change_id = transaction.connection.execute(statement, row).scalar_one()
        transaction.positions[self.loop] = position._replace(change=change_id)
        return SettingsChange(
            change_id, self.at, self.settings, self.by, position.lesson, previous=position.change
        )


class DeleteLoop(Operation[None], frozen=True):
    """Delete a loop: its name is free, and nothing is read of it or written to it any more.

    Its rows stay until `PurgeLoops` deletes them in slices; ids are never used again.
    """

    loop: int
    at: int  # service time, which must not be lost with the rows

    def run(self, transaction: Transaction) -> None:
        del transaction.positions[self.loop]
        no_name = f"deleted {self.loop}"  # no loop can have a space in its name
        is_running = and_(evaluations.c.loop == self.loop, evaluations.c.status == RUNNING)
        for statement in (
            delete(positions).where(positions.c.loop == self.loop),
            update(loops).where(loops.c.id == self.loop).values(name=no_name),
            update(evaluations).where(is_running).values(status=CANCELED),
        ):
            transaction.connection.execute(statement)
        PutClock(self.at).run(transaction)


_TABLES_OF_LOOPS = [  # a table stands before those that its rows refer to
    table for table in reversed(metadata.sorted_tables) if "loop" in table.c
]


class PurgeLoops(Operation[bool], frozen=True):
    """Delete some rows of a deleted loop; returns whether there may be more.

    At most `limit` rows are deleted at a time, so that other operations can be written in between:
    repeat until the result is False.
    """

    limit: int = 250
    blob_limit: int = 4  # of rows that may have a megabyte

    def run(self, transaction: Transaction) -> bool:
        has_position = exists().where(positions.c.loop == loops.c.id)
        deleted = select(loops.c.id).where(~has_position).limit(1)
        # Another server may be deleting rows of the loop.
        loop = transaction.connection.scalar(deleted.with_for_update(skip_locked=True))
        if loop is None:
            return False
        of_loop = select(evaluations.c.id).where(evaluations.c.loop == loop)
        conditions = {evaluation_parts: evaluation_parts.c.evaluation.in_(of_loop)}
        conditions |= {table: table.c.loop == loop for table in _TABLES_OF_LOOPS}
        for table, condition in conditions.items():
            limit = self.blob_limit if "blob" in table.c else self.limit
            key = tuple_(*table.primary_key)
            some = select(*table.primary_key).where(condition).limit(limit)
            if transaction.connection.execute(delete(table).where(key.in_(some))).rowcount:
                return True
        transaction.connection.execute(delete(loops).where(loops.c.id == loop))
        return True


class PutSnapshotPart(Operation[None], frozen=True):
    """Write a part of a large snapshot, before `PutSnapshot` writes the first part.

    The parts are written one by one, so that the operations of other loops can be written in
    between. Parts without a snapshot count for nothing, and the next snapshot deletes them.
    """

    loop: int
    at: int
    place: int
    blob: bytes

    def run(self, transaction: Transaction) -> None:
        key = {"loop": self.loop, "at": self.at, "place": self.place}
        transaction.connection.execute(delete(snapshot_parts).filter_by(**key))
        transaction.connection.execute(insert(snapshot_parts), asdict(self))


class PutSnapshot(Operation[None], frozen=True):
    """Write the belief of a loop after a lesson, and delete all but the newest snapshots.

    If the snapshot is larger than `SNAPSHOT_PART_BYTES`, `blob` is its first part.
    """

    loop: int
    lesson: int
    blob: bytes
    at: int

    def run(self, transaction: Transaction) -> None:
        transaction.connection.execute(insert(snapshots), asdict(self))
        _prune_snapshots(transaction, self.loop, KEPT_SNAPSHOTS)


class DeleteLogs(Operation[int], frozen=True):
    """Delete decisions made before a time, the oldest first, with their rewards and offers.

    Returns how many decisions were deleted.

    The belief is unaffected: only lessons that the last two snapshots contain are deleted, so that
    either of them can be damaged. Take two snapshots first. At most `limit` decisions are deleted
    at a time, so that other operations can be written in between: repeat until the result is 0.
    """

    loop: int
    before: int
    limit: int = 250
    include_waiting: bool = False
    change: int = 0  # id of the change of settings that `before` follows from

    def run(self, transaction: Transaction) -> int:
        transaction.check_change(self.loop, self.change)
        last_snapshots = (
            select(snapshots.c.lesson)
            .where(snapshots.c.loop == self.loop)
            .order_by(snapshots.c.id.desc())
            .limit(SNAPSHOTS_BEFORE_DELETION)
        )
        contained = transaction.connection.scalars(last_snapshots).all()
        last_contained = min(contained, default=0)
        is_old = and_(
            decisions.c.loop == self.loop,
            decisions.c.at < self.before,
            ~exists().where(lessons.c.decision == decisions.c.id, lessons.c.id > last_contained),
        )
        if not self.include_waiting:
            is_old &= ~exists().where(
                waiting.c.loop == self.loop, waiting.c.decision == decisions.c.id
            )
        old_orphans = delete(rewards).where(
            rewards.c.loop == self.loop, rewards.c.status == "orphan", rewards.c.at < self.before
        )
        oldest = select(*decisions.c["id", "event_id"]).where(is_old).order_by(decisions.c.at)
        rows = transaction.connection.execute(oldest.limit(self.limit)).all()
        if rows:
            ids = [row.id for row in rows]
            self._note_deleted(transaction, ids)
            of_events = rewards.c.event_id.in_([row.event_id for row in rows])
            for statement in (
                delete(lessons).where(lessons.c.decision.in_(ids)),
                delete(waiting).where(waiting.c.loop == self.loop, waiting.c.decision.in_(ids)),
                delete(rewards).where(rewards.c.loop == self.loop, of_events),
                delete(decisions).where(decisions.c.id.in_(ids)),
            ):
                transaction.connection.execute(statement)
        transaction.connection.execute(old_orphans)
        delete_unused_offers(transaction, self.loop, self.limit)
        # Older snapshots need lessons that were deleted just now.
        _prune_snapshots(transaction, self.loop, SNAPSHOTS_BEFORE_DELETION)
        return len(rows)

    def _note_deleted(self, transaction: Transaction, decision_ids: list[int]) -> None:
        """Remember the last lesson that is deleted: a server that lacks it needs a snapshot."""
        # PostgreSQL would search the maximum through all lessons.
        of_decisions = select(lessons.c.id).where(lessons.c.decision.in_(decision_ids))
        deleted = max(transaction.connection.scalars(of_decisions), default=0)
        position = transaction.positions[self.loop]
        if deleted > position.deleted_lesson:
            transaction.positions[self.loop] = position._replace(deleted_lesson=deleted)


class ReclaimSpace(Operation[bool], frozen=True):
    """Give some free pages back to the file system; returns whether more are left to give.

    SQLite keeps the pages of deleted rows for new ones, and gives them back in small steps beside
    the traffic; the file itself becomes smaller at the next checkpoint that no commit overtakes.
    PostgreSQL uses the space again by itself (autovacuum).
    """

    limit: int = STEP_PAGES

    def run(self, transaction: Transaction) -> bool:
        connection = transaction.connection
        if connection.dialect.name != "sqlite":
            return False
        if _read_pragma(connection, "auto_vacuum") != INCREMENTAL:
            return False
        free_pages = _read_pragma(connection, "freelist_count")
        used_pages = _read_pragma(connection, "page_count") - free_pages
        excess = free_pages - used_pages // USED_PAGES_PER_SPARE_PAGE
        if excess <= 0:
            return False
        cursor = connection.connection.cursor()
        for _ in range(min(excess, self.limit)):  # Python's driver stops after the first page
            cursor.execute("PRAGMA incremental_vacuum(1)")
        cursor.close()
        return excess > self.limit


def _read_pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


class PutKey(Operation[Key], frozen=True):
    """Add an API key, of which the log holds only the hash."""

    role: str
    hash: str
    created: int
    expires: int | None = None

    def run(self, transaction: Transaction) -> Key:
        statement = insert(keys).returning(keys.c.id)
        key_id = transaction.connection.execute(statement, asdict(self)).scalar_one()
        return Key(key_id, self.role, self.hash, self.created, self.expires)


class ExpireKey(Operation[bool], frozen=True):
    """Set the time at which an API key expires; returns False if there is no key with this id."""

    id: int
    expires: int

    def run(self, transaction: Transaction) -> bool:
        change = update(keys).where(keys.c.id == self.id).values(expires=self.expires)
        return transaction.connection.execute(change).rowcount == 1


def _prune_snapshots(transaction: Transaction, loop: int, keep: int) -> None:
    of_loop = snapshots.c.loop == loop
    newest = select(snapshots.c.id).where(of_loop).order_by(snapshots.c.id.desc()).limit(keep)
    old = delete(snapshots).where(of_loop, snapshots.c.id.not_in(newest))
    transaction.connection.execute(old)
    is_kept = snapshot_parts.c.at.in_(select(snapshots.c.at).where(of_loop))
    last = select(func.max(snapshots.c.at)).where(of_loop).scalar_subquery()
    # Another server may be writing the parts of a later snapshot.
    is_abandoned = snapshot_parts.c.at < last
    transaction.connection.execute(
        delete(snapshot_parts).where(snapshot_parts.c.loop == loop, ~is_kept, is_abandoned)
    )


def split_snapshot(snapshot: PutSnapshot) -> list[PutSnapshotPart | PutSnapshot]:
    """The operations that write a snapshot of any size, in order."""
    size = SNAPSHOT_PART_BYTES
    parts: list[PutSnapshotPart | PutSnapshot] = [
        PutSnapshotPart(snapshot.loop, snapshot.at, place, snapshot.blob[start : start + size])
        for place, start in enumerate(range(size, len(snapshot.blob), size), 1)
    ]
    return [*parts, replace(snapshot, blob=snapshot.blob[:size])]
