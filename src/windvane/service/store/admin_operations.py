"""What else the log keeps: loops and their settings, snapshots, keys; and how it is shortened."""

from dataclasses import dataclass

from sqlalchemy import and_, delete, exists, func, insert, select, update

from windvane.errors import StoreError
from windvane.service.store.group_commit import Operation, Work
from windvane.service.store.schema import (
    Change,
    Funnel,
    Key,
    Loop,
    counters,
    decisions,
    keys,
    lessons,
    loops,
    rewards,
    settings_log,
    snapshots,
    waiting,
)


@dataclass(frozen=True, slots=True)
class PutLoop(Operation[Loop]):
    """A new loop, with the first entry of its settings log."""

    name: str
    settings: str
    at: int
    by: str

    def do(self, work: Work) -> Loop:
        if work.connection.scalar(select(loops.c.id).where(loops.c.name == self.name)):
            raise StoreError(f"store: there is a loop {self.name!r} already", "refused")
        row = {"name": self.name, "settings": self.settings, "created": self.at}
        number = work.connection.execute(insert(loops).returning(loops.c.id), row).scalar_one()
        work.connection.execute(insert(counters), {"loop": number} | Funnel()._asdict())
        PutSettings(number, self.settings, self.at, self.by).do(work)
        return Loop(number, self.name, self.settings, self.at)


@dataclass(frozen=True, slots=True)
class PutSettings(Operation[Change]):
    """New settings of a loop; which lessons were learned under the old ones is recorded."""

    loop: int
    settings: str
    at: int
    by: str

    def do(self, work: Work) -> Change:
        change = update(loops).where(loops.c.id == self.loop).values(settings=self.settings)
        if work.connection.execute(change).rowcount == 0:
            raise StoreError(f"store: there is no loop with the id {self.loop}", "refused")
        learned = select(func.max(lessons.c.id)).where(lessons.c.loop == self.loop)
        held = select(func.max(snapshots.c.lesson)).where(snapshots.c.loop == self.loop)
        both = (work.connection.scalar(last) or 0 for last in (learned, held))
        lesson = max(both)  # of lessons that were deleted, the snapshot knows
        row = {"loop": self.loop, "at": self.at, "settings": self.settings, "by": self.by}
        new = insert(settings_log).returning(settings_log.c.id)
        number = work.connection.execute(new, row | {"lesson": lesson}).scalar_one()
        return Change(number, self.at, self.settings, self.by, lesson)


@dataclass(frozen=True, slots=True)
class PutSnapshot(Operation[None]):
    """A belief after a lesson; of older snapshots only the last few stay."""

    loop: int
    lesson: int
    blob: bytes
    at: int
    keep: int = 3

    def do(self, work: Work) -> None:
        row = {"loop": self.loop, "lesson": self.lesson, "blob": self.blob, "at": self.at}
        work.connection.execute(insert(snapshots), row)
        _prune(work, self.loop, self.keep)


@dataclass(frozen=True, slots=True)
class DeleteLogs(Operation[int]):
    """Delete decisions made before a time, with their rewards; how many went is returned.

    What was learned stays: only lessons that the last snapshot holds are deleted, so take one
    before. At most `limit` go at a time, so that others can write in between: repeat until 0.
    """

    loop: int
    before: int
    limit: int = 1000
    even_waiting: bool = False

    def do(self, work: Work) -> int:
        held = (
            select(snapshots.c.lesson)
            .where(snapshots.c.loop == self.loop)
            .order_by(snapshots.c.id.desc())
            .limit(1)
        )
        safe = work.connection.scalar(held) or 0
        old = and_(
            decisions.c.loop == self.loop,
            decisions.c.at < self.before,
            ~exists().where(lessons.c.decision == decisions.c.id, lessons.c.id > safe),
        )
        if not self.even_waiting:
            old &= ~exists().where(
                waiting.c.loop == self.loop, waiting.c.decision == decisions.c.id
            )
        lost = and_(
            rewards.c.loop == self.loop,
            rewards.c.status == "orphan",
            rewards.c.at < self.before,
        )
        gone = work.connection.execute(
            select(*decisions.c["id", "event_id"]).where(old).limit(self.limit)
        ).all()
        ids, events = [row.id for row in gone], [row.event_id for row in gone]
        for statement in (
            delete(lessons).where(lessons.c.decision.in_(ids)),
            delete(waiting).where(waiting.c.loop == self.loop, waiting.c.decision.in_(ids)),
            delete(rewards).where(rewards.c.loop == self.loop, rewards.c.event_id.in_(events)),
            delete(decisions).where(decisions.c.id.in_(ids)),
            delete(rewards).where(lost),
        ):
            work.connection.execute(statement)
        _prune(work, self.loop, 1)  # older ones lack lessons that are gone now
        return len(gone)


@dataclass(frozen=True, slots=True)
class PutKey(Operation[Key]):
    """A key that is known by its hash."""

    role: str
    hash: str
    created: int
    expires: int | None = None

    def do(self, work: Work) -> Key:
        row = {
            "role": self.role,
            "hash": self.hash,
            "created": self.created,
            "expires": self.expires,
        }
        number = work.connection.execute(insert(keys).returning(keys.c.id), row).scalar_one()
        return Key(number, self.role, self.hash, self.created, self.expires)


@dataclass(frozen=True, slots=True)
class ExpireKey(Operation[bool]):
    """A key that is valid until then; False if there is none of that id."""

    id: int
    expires: int

    def do(self, work: Work) -> bool:
        change = update(keys).where(keys.c.id == self.id).values(expires=self.expires)
        return work.connection.execute(change).rowcount == 1


def _prune(work: Work, loop: int, keep: int) -> None:
    stay = (
        select(snapshots.c.id)
        .where(snapshots.c.loop == loop)
        .order_by(snapshots.c.id.desc())
        .limit(keep)
    )
    work.connection.execute(
        delete(snapshots).where(snapshots.c.loop == loop, snapshots.c.id.not_in(stay))
    )
