"""The tables of the service's log, and what a row of each looks like in Python.

Times are whole microseconds since the epoch, given by the caller. Ids only ever grow, also after
rows were deleted; every order is the order of ids. Rows of `decisions` are large and written once:
which of them still wait for their reward stands in a small table of its own.
"""

from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.schema import SchemaItem

VERSION = 1
metadata = MetaData()
Id = BigInteger().with_variant(Integer, "sqlite")


def _table(name: str, *parts: SchemaItem) -> Table:
    number: Column[int] = Column("id", Id, primary_key=True)
    return Table(name, metadata, number, *parts, sqlite_autoincrement=True)


def _of_loop() -> Column[int]:
    return Column("loop", Id, ForeignKey("loops.id"), nullable=False)


def _time(name: str = "at", nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


schema = Table("windvane_schema", metadata, Column("version", Integer, nullable=False))

loops = _table(
    "loops",
    Column("name", Text, nullable=False, unique=True),
    Column("settings", Text, nullable=False),
    _time("created"),
)

settings_log = _table(
    "settings_log",
    _of_loop(),
    _time(),
    Column("settings", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("lesson", Id, nullable=False),  # the last one learned under the settings before
    Index("settings_log_of_loop", "loop", "id"),
)

decisions = _table(
    "decisions",
    _of_loop(),
    Column("event_id", Text, nullable=False),
    Column("round", BigInteger, nullable=False),
    _time(),
    Column("mode", Text, nullable=False),
    Column("deferred", Boolean, nullable=False),
    Column("degraded", Boolean, nullable=False),
    _time("activated_at", nullable=True),
    Column("chosen", Integer, nullable=False),
    Column("features", LargeBinary),  # float64 of the chosen action; null: never learned from
    Column("probabilities", LargeBinary, nullable=False),  # float64, one for each action
    Column("actions", Text, nullable=False),  # JSON, their ids
    Column("answer", LargeBinary, nullable=False),
    Column("request", Text, nullable=False),  # JSON
    UniqueConstraint("loop", "event_id"),
    Index("decisions_of_loop", "loop", "id"),
    Index("decisions_at", "loop", "at"),
)

waiting = Table(
    "waiting",
    metadata,
    Column("loop", Id, primary_key=True),
    Column("decision", Id, primary_key=True, autoincrement=False),
    _time(),
    sqlite_with_rowid=False,
)

rewards = _table(
    "rewards",
    _of_loop(),
    Column("event_id", Text, nullable=False),
    Column("request_id", Text),
    Column("value", Float(53), nullable=False),
    _time(),
    Column("status", Text, nullable=False),
    UniqueConstraint("loop", "event_id", "request_id"),
    Index(
        "rewards_orphan",
        "loop",
        "at",
        sqlite_where=text("status = 'orphan'"),
        postgresql_where=text("status = 'orphan'"),
    ),
)

lessons = _table(
    "lessons",
    _of_loop(),
    Column("decision", Id, ForeignKey("decisions.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("value", Float(53), nullable=False),
    _time(),
    Index("lessons_of_loop", "loop", "id"),
    Index("lessons_of_decision", "decision"),
)

snapshots = _table(
    "snapshots",
    _of_loop(),
    Column("lesson", Id, nullable=False),
    Column("blob", LargeBinary, nullable=False),
    _time(),
    Index("snapshots_of_loop", "loop", "id"),
)

keys = _table(
    "keys",
    Column("role", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
    _time("created"),
    _time("expires", nullable=True),
)


class Funnel(NamedTuple):
    """What became of a loop's decisions and rewards since it was made, deleted ones included."""

    ranked: int = 0
    activated: int = 0
    unactivated: int = 0  # deferred, and the wait is over
    default: int = 0  # learned the default reward, because none came in time
    learned: int = 0  # rewards: the first of its decision
    summed: int = 0  # rewards: added to one learned before
    extra: int = 0  # rewards: after the first, where only the earliest counts
    held: int = 0  # rewards: of a deferred decision that is not activated
    late: int = 0  # rewards: after the wait
    orphan: int = 0  # rewards: of an event that nobody ranked, so far
    duplicate: int = 0  # rewards: sent again with the same request id
    unlearned: int = 0  # rewards: of a decision without features


counters = Table(
    "counters",
    metadata,
    Column("loop", Id, ForeignKey("loops.id"), primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in Funnel._fields),
)


class Loop(NamedTuple):
    """One decision to be made again and again."""

    id: int
    name: str
    settings: str
    created: int


class Change(NamedTuple):
    """Settings as they were given, and the last lesson that was learned under those before."""

    id: int
    at: int
    settings: str
    by: str
    lesson: int


class Decision(NamedTuple):
    """A choice that was made; `id` and `activated_at` are set by the store."""

    loop: int
    event_id: str
    round: int
    at: int
    mode: str
    deferred: bool
    degraded: bool
    chosen: int
    features: bytes | None
    probabilities: bytes
    actions: str
    answer: bytes
    request: str
    activated_at: int | None = None
    id: int = 0


class Reward(NamedTuple):
    """A reward as it came; its status is a field of `Funnel`."""

    id: int
    event_id: str
    request_id: str | None
    value: float
    at: int
    status: str


class Lesson(NamedTuple):
    """What a policy learns: observe and default give a decision its reward, amend adds to it."""

    id: int
    decision: int
    kind: str
    value: float
    at: int
    round: int
    ranked_at: int
    features: bytes


class Logged(NamedTuple):
    """A decision of the log with the reward learned for it, None while it waits."""

    decision: Decision
    reward: float | None
    defaulted: bool


class Snapshot(NamedTuple):
    """A belief after the lesson of that id."""

    lesson: int
    blob: bytes
    at: int


class Key(NamedTuple):
    """A key as its hash."""

    id: int
    role: str
    hash: str
    created: int
    expires: int | None
