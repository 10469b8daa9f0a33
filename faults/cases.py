"""Cases: which faults are tried on which database, how often, and in which order."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from faults.outcome import Outcome
from faults.stage import Stage

SQLITE, POSTGRESQL = "sqlite", "postgresql"


class Case(NamedTuple):
    """One run of one kind of fault; its seed follows from its name."""

    kind: str
    database: str
    number: int
    amount: int  # of kills, requests, minutes or other faults: see `Kind.unit`

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.database}-{self.number}-{self.amount}"

    @property
    def seed(self) -> int:
        return zlib.crc32(self.name.encode())


class Kind(NamedTuple):
    """A kind of fault, and how a case of it is run."""

    name: str
    unit: str  # what `Case.amount` counts
    run: Callable[[Stage, Case], Outcome]
    total: int  # faults of this kind in a whole run, over all cases
    amount: int  # faults in one case
    databases: Sequence[str] = (SQLITE, POSTGRESQL)
    find_obstacle: Callable[[], str | None] = lambda: None  # why the kind cannot run here


def plan_cases(kinds: Iterable[Kind]) -> list[Case]:
    """All cases; the kinds take turns, so that a run that is cut short has tried every kind."""
    by_kind = []
    for kind in kinds:
        count = -(-kind.total // kind.amount)  # rounded up
        cases = []
        for number in range(count):
            amount = min(kind.amount, kind.total - number * kind.amount)
            database = kind.databases[number % len(kind.databases)]
            cases.append(Case(kind.name, database, number, amount))
        by_kind.append(cases)
    return [case for turn in zip_longest(*by_kind) for case in turn if case is not None]


def parse_case(name: str) -> Case:
    """The case of a name."""
    kind, database, number, amount = name.rsplit("-", 3)
    return Case(kind, database, int(number), int(amount))
