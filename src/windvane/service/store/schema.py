"""The tables of the log; `rows.py` has the Python types of their rows.

Times are whole microseconds since 1970; the caller supplies them, the store reads no clock. Ids
always increase, even after rows were deleted, and every order is the order of ids. Rows of
`decisions` are large and are written once, so the decisions that still wait for their reward are
listed in a small table of their own, `waiting`. The answer of a decision is not stored, because it
can be rebuilt from the other columns.

A page with several slots is one decision. Its columns `chosen` and `probabilities` are those of the
first slot, `slots` has all slots, and `features` those of the chosen actions of all slots.
"""

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
    select,
    text,
)
from sqlalchemy.schema import SchemaItem

from windvane.service.store.rows import Funnel

SCHEMA_VERSION = 1
metadata = MetaData()
Id = BigInteger().with_variant(Integer, "sqlite")


def _define_table(name: str, *parts: SchemaItem) -> Table:
    id_column: Column[int] = Column("id", Id, primary_key=True)
    return Table(name, metadata, id_column, *parts, sqlite_autoincrement=True)


def _make_loop_column() -> Column[int]:
    return Column("loop", Id, ForeignKey("loops.id"), nullable=False)


def _make_time_column(name: str = "at", nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


schema_version = Table("windvane_schema", metadata, Column("version", Integer, nullable=False))

loops = _define_table(
    "loops",
    Column("name", Text, nullable=False, unique=True),
    Column("settings", Text, nullable=False),
    _make_time_column("created"),
)

settings_log = _define_table(
    "settings_log",
    _make_loop_column(),
    _make_time_column(),
    Column("settings", Text, nullable=False),
    Column("by", Text, nullable=False),
    Column("lesson", Id, nullable=False),  # id of the last one learned under the settings before
    Index("settings_log_of_loop", "loop", "id"),
)

decisions = _define_table(
    "decisions",
    _make_loop_column(),
    Column("event_id", Text, nullable=False),
    Column("round", BigInteger, nullable=False),
    _make_time_column(),
    Column("mode", Text, nullable=False),
    Column("deferred", Boolean, nullable=False),
    Column("degraded", Boolean, nullable=False),
    _make_time_column("activated_at", nullable=True),
    Column("chosen", Integer, nullable=False),
    Column("features", LargeBinary),  # of the chosen action, encoded; NULL: never learned from
    Column("probabilities", LargeBinary, nullable=False),  # float64, one for each action
    Column("actions", Text, nullable=False),  # JSON list of action ids; empty with an offer
    Column("request", Text, nullable=False),  # JSON, as the client sent it, without the offer
    Column("offer", Id),  # id in `offers`
    Column("offer_at", Integer),  # how many characters of the request stand before the offer
    Column("slots", LargeBinary),  # of a page, see `Page`; NULL: no page, one action was chosen
    UniqueConstraint("loop", "event_id"),
    Index("decisions_of_loop", "loop", "id"),
    Index("decisions_at", "loop", "at"),
)

# The ids of offers may be used again, so that writing an offer that is known changes no page.
offers = Table(
    "offers",
    metadata,
    Column("id", Id, primary_key=True),
    _make_loop_column(),
    Column("hash", LargeBinary, nullable=False),  # of the actions
    _make_time_column("last_used"),  # to the hour, see PutDecision
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
    _make_time_column(),  # since when the decision waits: its time, moved by steps of service time
    Index("waiting_since", "loop", "at"),
    sqlite_with_rowid=False,
)

rewards = _define_table(
    "rewards",
    _make_loop_column(),
    Column("event_id", Text, nullable=False),
    Column("request_id", Text),
    Column("value", Float(53), nullable=False),
    _make_time_column(),
    Column("status", Text, nullable=False),
    Column("slot", Text, nullable=False, server_default=""),  # its id; empty: of all there is
    UniqueConstraint("loop", "event_id", "slot", "request_id"),
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
    _make_loop_column(),
    Column("decision", Id, ForeignKey("decisions.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("value", Float(53), nullable=False),
    _make_time_column(),
    Column("slot", Integer),  # place on a page, or `WHOLE_PAGE`; NULL: of one chosen action
    Index("lessons_of_loop", "loop", "id"),
    Index("lessons_of_decision", "decision"),
)

snapshots = _define_table(
    "snapshots",
    _make_loop_column(),
    Column("lesson", Id, nullable=False),
    Column("blob", LargeBinary, nullable=False),
    _make_time_column(),
    Index("snapshots_of_loop", "loop", "id"),
)

SNAPSHOT_PART_BYTES = 1 << 20  # bytes of a snapshot in one row
snapshot_parts = Table(  # what a snapshot has beyond its first part, which is in `snapshots`
    "snapshot_parts",
    metadata,
    Column("loop", Id, primary_key=True, autoincrement=False),
    Column("at", BigInteger, primary_key=True, autoincrement=False),  # time of the snapshot
    Column("place", Integer, primary_key=True, autoincrement=False),  # from 1
    Column("blob", LargeBinary, nullable=False),
)

# Evaluations: what was asked, and what was found.
RUNNING, CANCELED = "Running", "Canceled"  # values of `status`; see `evaluations/evaluations.py`
evaluations = _define_table(
    "evaluations",
    _make_loop_column(),
    Column("key", Text, nullable=False),  # the id on the wire
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),  # "Manual" or "Auto"
    Column("contract", Text, nullable=False),  # JSON
    Column("status", Text, nullable=False),  # "Running", or how it ended
    _make_time_column("created"),
    _make_time_column("ended", nullable=True),
    Column("outcome", Text),  # JSON without time series: the optimal policy, or why it failed
    UniqueConstraint("loop", "key"),
    Index("evaluations_of_loop", "loop", "id"),
)

EVALUATION_PART_BYTES = 1 << 20  # bytes of a result in one row
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
    _make_time_column("created"),
    _make_time_column("expires", nullable=True),
)

clock = Table("clock", metadata, _make_time_column())  # at most one row: the service's last time

# How far the log of each loop has got. A group commit locks the rows of its loops, so that the
# lessons of a loop get their ids in the order of commits, whichever server writes them.
positions = Table(
    "positions",
    metadata,
    Column("loop", Id, ForeignKey("loops.id"), primary_key=True, autoincrement=False),
    Column("lesson", Id, nullable=False),  # id of the last lesson
    Column("change", Id, nullable=False),  # id of the last change of settings
    Column("deleted_lesson", Id, nullable=False),  # the largest id of a lesson that was deleted
    Column("next_round", BigInteger, nullable=False),  # the first that no server has taken
)

# The servers that share the log, and which of them does the work that one server does for all.
servers = Table(
    "servers",
    metadata,
    Column("id", Text, primary_key=True),  # random, of one process
    Column("name", Text, nullable=False),  # host and process id, for operators
    _make_time_column("seen"),  # the last heartbeat, by the clock of the database
    _make_time_column("settled_until"),  # service time: no earlier decision will be withdrawn
)

lease = Table(  # at most one row
    "lease",
    metadata,
    Column("place", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("server", Text, nullable=False),  # id of the leader
    _make_time_column("until"),  # by the clock of the database
)

counters = Table(  # what became of the decisions and rewards of each loop: see `Funnel`
    "counters",
    metadata,
    Column("loop", Id, ForeignKey("loops.id"), primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in Funnel._fields),
)

DECISIONS_WITH_OFFERS = decisions.outerjoin(offers, offers.c.id == decisions.c.offer)
ACTION_IDS = func.coalesce(offers.c.ids, decisions.c.actions).label("actions")

# What the lessons of a decision add up to, and the first of their kinds in alphabetical order.
_of_decision = lessons.c.decision == decisions.c.id
LEARNED_REWARD = select(func.sum(lessons.c.value)).where(_of_decision).scalar_subquery()
FIRST_KIND = select(func.min(lessons.c.kind)).where(_of_decision).scalar_subquery()
