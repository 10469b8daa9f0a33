"""The tables of the log, and the Python type of a row of each table.

Times are whole microseconds since 1970; the caller supplies them, the store reads no clock. Ids
always increase, even after rows were deleted, and every order is the order of ids. Rows of
`decisions` are large and are written once, so the decisions that still wait for their reward are
listed in a small table of their own, `waiting`. Decisions of version 1 have no offer, plain
features and their answer. They stay as they are.
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
    func,
    text,
)
from sqlalchemy.schema import SchemaItem

SCHEMA_VERSION = 5
metadata = MetaData()
Id = BigInteger().with_variant(Integer, "sqlite")


def _define_table(name: str, *parts: SchemaItem) -> Table:
    id_column: Column[int] = Column("id", Id, primary_key=True)
    return Table(name, metadata, id_column, *parts, sqlite_autoincrement=True)


def _loop_column() -> Column[int]:
    return Column("loop", Id, ForeignKey("loops.id"), nullable=False)


def _time_column(name: str = "at", nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


schema_version = Table("windvane_schema", metadata, Column("version", Integer, nullable=False))

loops = _define_table(
    "loops",
    Column("name", Text, nullable=False, unique=True),
    Column("settings", Text, nullable=False),
    _time_column("created"),
)

settings_log = _define_table(
    "settings_log",
    _loop_column(),
    _time_column(),
    Column("settings", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column(
        "lesson", Id, nullable=False
    ),  # id of the last lesson learned under the previous settings
    Index("settings_log_of_loop", "loop", "id"),
)

decisions = _define_table(
    "decisions",
    _loop_column(),
    Column("event_id", Text, nullable=False),
    Column("round", BigInteger, nullable=False),
    _time_column(),
    Column("mode", Text, nullable=False),
    Column("deferred", Boolean, nullable=False),
    Column("degraded", Boolean, nullable=False),
    _time_column("activated_at", nullable=True),
    Column("chosen", Integer, nullable=False),
    Column("features", LargeBinary),  # of the chosen action, packed; NULL: never learned from
    Column(
        "probabilities", LargeBinary, nullable=False
    ),  # float64, one for each action of the request
    Column("actions", Text, nullable=False),  # JSON list of action ids; empty with an offer
    Column("answer", LargeBinary, nullable=False),  # empty: it is rebuilt from the other columns
    Column("request", Text, nullable=False),  # JSON, as the client sent it, without the offer
    Column("offer", Id),  # id in `offers`
    Column("offer_at", Integer),  # how many characters of the request stand before the offer
    UniqueConstraint("loop", "event_id"),
    Index("decisions_of_loop", "loop", "id"),
    Index("decisions_at", "loop", "at"),
)

# The ids of offers may be used again, so that writing an offer that is known changes no page.
offers = Table(
    "offers",
    metadata,
    Column("id", Id, primary_key=True),
    _loop_column(),
    Column("hash", LargeBinary, nullable=False),  # of the actions
    _time_column("last_used"),  # to the hour, see offers.py
    Column("ids", Text, nullable=False),  # JSON list of action ids
    Column("actions", Text, nullable=False),  # JSON, as the client sent it
    UniqueConstraint("loop", "hash"),
    Index("offers_last_used", "loop", "last_used"),
)

waiting = Table(
    "waiting",
    metadata,
    Column("loop", Id, primary_key=True),
    Column("decision", Id, primary_key=True, autoincrement=False),
    _time_column(),  # from which the decision waits: its own time, moved by steps of service time
    Index("waiting_since", "loop", "at"),
    sqlite_with_rowid=False,
)

rewards = _define_table(
    "rewards",
    _loop_column(),
    Column("event_id", Text, nullable=False),
    Column("request_id", Text),
    Column("value", Float(53), nullable=False),
    _time_column(),
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

lessons = _define_table(
    "lessons",
    _loop_column(),
    Column("decision", Id, ForeignKey("decisions.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("value", Float(53), nullable=False),
    _time_column(),
    Index("lessons_of_loop", "loop", "id"),
    Index("lessons_of_decision", "decision"),
)

snapshots = _define_table(
    "snapshots",
    _loop_column(),
    Column("lesson", Id, nullable=False),
    Column("blob", LargeBinary, nullable=False),
    _time_column(),
    Index("snapshots_of_loop", "loop", "id"),
)

# Derived from the lessons, for those who read the log: a row that is missing is written again.
half_life_changes = Table(
    "half_life_changes",
    metadata,
    Column("loop", Id, primary_key=True, autoincrement=False),
    Column("lesson", Id, primary_key=True, autoincrement=False),  # after which it leads
    _time_column(),  # of the lesson
    Column("seconds", Float(53)),  # the half-life that leads; NULL: never
)

SNAPSHOT_PART_BYTES = 1 << 20  # of a snapshot in one row
snapshot_parts = Table(  # what a snapshot has beyond its first part, which is in `snapshots`
    "snapshot_parts",
    metadata,
    Column("loop", Id, primary_key=True, autoincrement=False),
    Column("at", BigInteger, primary_key=True, autoincrement=False),  # that of the snapshot
    Column("place", Integer, primary_key=True, autoincrement=False),  # from 1
    Column("blob", LargeBinary, nullable=False),
)

# Evaluations and feature importances: what was asked, and what was found.
evaluations = _define_table(
    "evaluations",
    _loop_column(),
    Column("kind", Text, nullable=False),  # "evaluation" or "importance"
    Column("key", Text, nullable=False),  # the id on the wire
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),  # "Manual" or "Auto"
    Column("contract", Text, nullable=False),  # JSON
    Column("status", Text, nullable=False),  # "Running", or how it ended
    _time_column("created"),
    _time_column("ended", nullable=True),
    Column("outcome", Text),  # JSON without time series: the optimal policy, or why it failed
    UniqueConstraint("loop", "kind", "key"),
    Index("evaluations_of_loop", "loop", "kind", "id"),
)

EVALUATION_PART_BYTES = 1 << 20  # of a result in one row
evaluation_parts = Table(  # the result of an evaluation, compressed JSON
    "evaluation_parts",
    metadata,
    Column("evaluation", Id, primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("blob", LargeBinary, nullable=False),
)

keys = _define_table(
    "keys",
    Column("role", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
    _time_column("created"),
    _time_column("expires", nullable=True),
)

clock = Table("clock", metadata, _time_column())  # at most one row: the service's last time

# How far the log of each loop has got. A group commit locks the rows of its loops, so that the
# lessons of a loop get their ids in the order of commits, whichever server writes them.
positions = Table(
    "positions",
    metadata,
    Column("loop", Id, ForeignKey("loops.id"), primary_key=True, autoincrement=False),
    Column("lesson", Id, nullable=False),  # id of the last lesson
    Column("change", Id, nullable=False),  # id of the last change of settings
    Column("deleted_lesson", Id, nullable=False),  # the largest id of a lesson that was deleted
    Column("next_round", BigInteger, nullable=False),  # that no server has taken
)

# The servers that share the log, and which of them does the work that one server does for all.
servers = Table(
    "servers",
    metadata,
    Column("id", Text, primary_key=True),  # random, of one process
    Column("name", Text, nullable=False),  # host and process id, for operators
    _time_column("seen"),  # the last heartbeat, by the clock of the database
    _time_column("settled_until"),  # service time before which the server withdraws no decision
)

lease = Table(  # at most one row
    "lease",
    metadata,
    Column("place", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("server", Text, nullable=False),  # id of the leader
    _time_column("until"),  # by the clock of the database
)


class Funnel(NamedTuple):
    """Counts of what became of a loop's decisions and rewards since the loop was created.

    Each reward is counted once, under its current status. Deleted rows stay counted.
    """

    ranked: int = 0  # decisions in the log
    activated: int = 0  # decisions that may be learned from
    unactivated: int = 0  # deferred decisions that were not activated within the wait time
    default: int = 0  # decisions that learned the default reward: none came within the wait time
    learned: int = 0  # rewards: the first of its decision
    summed: int = 0  # rewards: added to the first reward of the decision
    extra: int = 0  # rewards: not the first, and only the earliest counts
    held: int = 0  # rewards: of a deferred decision that is not activated yet
    late: int = 0  # rewards: after the wait time
    orphan: int = 0  # rewards: of an event without a decision, so far
    duplicate: int = 0  # rewards: repeated with the same request id
    unlearned: int = 0  # rewards: of a decision without features


counters = Table(
    "counters",
    metadata,
    Column("loop", Id, ForeignKey("loops.id"), primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in Funnel._fields),
)

DECISIONS_WITH_OFFERS = decisions.outerjoin(offers, offers.c.id == decisions.c.offer)
ACTION_IDS = func.coalesce(offers.c.ids, decisions.c.actions).label("actions")


class LoopRow(NamedTuple):
    """A loop: one kind of decision, with its current settings as JSON."""

    id: int
    name: str
    settings: str
    created: int


class SettingsChange(NamedTuple):
    """An entry of a loop's settings log: the new settings and who gave them."""

    id: int
    at: int
    settings: str  # JSON
    by: str
    lesson: int  # id of the last lesson learned under the previous settings
    previous: int = 0  # id of the change of settings before this one, if the writer adds it


class Decision(NamedTuple):
    """A rank request and its answer; the store sets `id` and `activated_at`.

    An empty answer is rebuilt from the other fields when the log is read.
    """

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
    offer: str | None = None  # JSON of the actions, cut out of the request; None: not cut out
    offer_at: int | None = None  # how many characters of the request stand before the offer
    activated_at: int | None = None
    id: int = 0

    @property
    def whole_request(self) -> str:
        """The request as the client sent it."""
        return join_request(self.request, self.offer, self.offer_at)


class Reward(NamedTuple):
    """A reward as the client sent it; `status` is the name of a reward count of `Funnel`."""

    id: int
    event_id: str
    request_id: str | None
    value: float
    at: int
    status: str


class Lesson(NamedTuple):
    """A change of a loop's belief, with what the policy needs of the decision.

    `kind` is "observe" (the reward of the decision), "default" (the default reward) or "amend" (an
    amount that is added to the reward learned before). The writer adds what the log of the loop
    had before the lesson, so that a server notices if it has missed something.
    """

    id: int
    decision: int
    kind: str
    value: float
    at: int
    round: int
    ranked_at: int
    features: bytes
    previous: int = 0  # id of the lesson before this one
    change: int = 0  # id of the last change of settings before this lesson


class LogPosition(NamedTuple):
    """How far the log of a loop has got."""

    lesson: int = 0  # id of the last lesson
    change: int = 0  # id of the last change of settings
    deleted_lesson: int = 0  # the largest id of a lesson that was deleted
    next_round: int = 0  # that no server has taken


class LoggedDecision(NamedTuple):
    """A decision with the reward that was learned for it; None while the decision waits."""

    decision: Decision
    reward: float | None
    defaulted: bool


class Snapshot(NamedTuple):
    """A loop's belief, as bytes, after the lesson with the id `lesson`."""

    lesson: int
    blob: bytes
    at: int


class HalfLifeChange(NamedTuple):
    """Another half-life leads after a lesson (id): it has predicted better, lately."""

    lesson: int
    at: int
    seconds: float | None  # None: never


class EvaluationRow(NamedTuple):
    """An evaluation or a measurement of feature importances, without its result."""

    id: int
    loop: int
    kind: str
    key: str
    name: str
    type: str
    contract: str  # JSON
    status: str
    created: int
    ended: int | None
    outcome: str | None  # JSON


class Key(NamedTuple):
    """An API key; the log holds only its hash."""

    id: int
    role: str
    hash: str
    created: int
    expires: int | None


def join_request(request: str, offer: str | None, offer_at: int | None) -> str:
    """Put an offer back into the request from which it was cut out."""
    if offer is None:
        return request
    return f"{request[:offer_at]}{offer}{request[offer_at:]}"
