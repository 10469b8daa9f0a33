"""The operations of servers that share a log: rounds, heartbeats, the lease and service time."""

from typing import NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update

from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.store.database import read_database_us
from windvane.service.store.schema import clock, decisions, lease, servers, waiting
from windvane.service.store.writer.group_commit import Operation, Transaction

LEASE_SECONDS = 6.0  # until another server may take the lease
LOST_AFTER_SECONDS = 10.0  # without a heartbeat, a server no longer counts
_LEASE_PLACE = 1


class RoundRange(NamedTuple):
    """Rounds that belong to one server: no other decision of the loop has them."""

    start: int
    stop: int


class TakeRounds(Operation[RoundRange], frozen=True):
    """Take the next rounds of a loop for one server."""

    loop: int
    count: int
    at_least: int  # the first round that the server may take, by what it has read of the log

    def run(self, transaction: Transaction) -> RoundRange:
        position = transaction.positions[self.loop]
        start = max(position.next_round, self.at_least)
        if position.next_round == 0:  # one server has decided so far, in ascending rounds
            of_loop = select(decisions.c.round).where(decisions.c.loop == self.loop)
            last = transaction.connection.scalar(of_loop.order_by(decisions.c.id.desc()).limit(1))
            start = max(start, 0 if last is None else last + 1)
        stop = start + self.count
        transaction.positions[self.loop] = position._replace(next_round=stop)
        return RoundRange(start, stop)


class ReturnRounds(Operation[None], frozen=True):
    """Give rounds back that a server did not use, if no later ones were taken."""

    loop: int
    start: int
    stop: int

    def run(self, transaction: Transaction) -> None:
        position = transaction.positions[self.loop]
        if position.next_round == self.stop:
            transaction.positions[self.loop] = position._replace(next_round=self.start)


class HeartbeatResult(NamedTuple):
    """What a server learns about the others by its heartbeat."""

    is_leader: bool  # until `LEASE_SECONDS` after the heartbeat was sent
    settled_until: int  # service time before which no server withdraws a decision
    server_count: int  # servers whose last heartbeat is not too old, with this one
    database_us: int  # the clock of the database


class Heartbeat(Operation[HeartbeatResult], frozen=True):
    """Say that a server is alive, and take or keep the lease of the leader if it is free."""

    server: str
    name: str
    settled_until: int

    def run(self, transaction: Transaction) -> HeartbeatResult:
        connection = transaction.connection
        leader, until = _lock_leader(connection)
        now = read_database_us(connection)
        row = {"name": self.name, "seen": now, "settled_until": self.settled_until}
        is_own = servers.c.id == self.server
        if connection.execute(update(servers).where(is_own).values(row)).rowcount == 0:
            connection.execute(insert(servers), row | {"id": self.server})
        lost_before = now - round(LOST_AFTER_SECONDS * MICROSECONDS_PER_SECOND)
        connection.execute(delete(servers).where(servers.c.seen < lost_before))
        is_leader = leader == self.server or until < now
        if is_leader:
            until = now + round(LEASE_SECONDS * MICROSECONDS_PER_SECOND)
            connection.execute(update(lease).values(server=self.server, until=until))
        query = select(func.min(servers.c.settled_until), func.count())
        settled_until, count = connection.execute(query).one()
        return HeartbeatResult(is_leader, settled_until, count, now)


class Leave(Operation[None], frozen=True):
    """Say that a server ends: another one may take the lease at once."""

    server: str

    def run(self, transaction: Transaction) -> None:
        leader, _ = _lock_leader(transaction.connection)
        if leader == self.server:
            transaction.connection.execute(update(lease).values(until=0))
        transaction.connection.execute(delete(servers).where(servers.c.id == self.server))


def _lock_leader(connection: Connection) -> tuple[str, int]:
    """Lock the lease until the transaction ends, and read who holds it, and until when."""
    query = select(lease.c.server, lease.c.until).with_for_update()
    row = connection.execute(query).first()
    if row is None:
        free = {"place": _LEASE_PLACE, "server": "", "until": 0}
        connection.execute(insert(lease), free)
        return "", 0
    return row.server, row.until


class PutClock(Operation[None], frozen=True):
    """Store service time, so that the next start of the service knows it; it never goes back."""

    at: int

    def run(self, transaction: Transaction) -> None:
        stored = transaction.connection.scalar(select(clock.c.at))
        if stored is None:
            transaction.connection.execute(insert(clock), {"at": self.at})
        elif stored < self.at:
            transaction.connection.execute(update(clock).values(at=self.at))


class StepClock(Operation[None], frozen=True):
    """Record a step of service time, and let no decision wait for less time because of it.

    Only the time from which a decision waits moves with the step; the time of the decision itself
    stays. Decisions made after the step are not moved, so a repetition of this operation has no
    further effect.
    """

    before: int  # service time just before the step
    length: int  # microseconds

    def run(self, transaction: Transaction) -> None:
        moved = update(waiting).where(waiting.c.at <= self.before)
        transaction.connection.execute(moved.values(at=waiting.c.at + self.length))
        PutClock(self.before + self.length).run(transaction)
