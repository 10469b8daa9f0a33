"""The operations that store service time."""

from dataclasses import dataclass
from typing import ClassVar

from sqlalchemy import insert, select, update

from windvane.service.store.group_commit import Operation, Transaction
from windvane.service.store.schema import clock, waiting


@dataclass(frozen=True, slots=True)
class PutClock(Operation[None]):
    """Store service time, so that the next start of the service knows it; it never goes back."""

    result: ClassVar[type] = type(None)

    at: int

    def run(self, transaction: Transaction) -> None:
        stored = transaction.connection.scalar(select(clock.c.at))
        if stored is None:
            transaction.connection.execute(insert(clock), {"at": self.at})
        elif stored < self.at:
            transaction.connection.execute(update(clock).values(at=self.at))


@dataclass(frozen=True, slots=True)
class StepClock(Operation[None]):
    """Record a step of service time, and let no decision wait for less time because of it.

    Only the time from which a decision waits moves with the step; the time of the decision itself
    stays. Decisions made after the step are not moved, so a repetition of this operation has no
    further effect.
    """

    result: ClassVar[type] = type(None)

    before: int  # service time just before the step
    length: int  # microseconds

    def run(self, transaction: Transaction) -> None:
        moved = update(waiting).where(waiting.c.at <= self.before)
        transaction.connection.execute(moved.values(at=waiting.c.at + self.length))
        PutClock(self.before + self.length).run(transaction)
