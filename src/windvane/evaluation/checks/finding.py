"""A finding about a log, and the interface of what finds it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from windvane.evaluation.log_batch import LogBatch

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """What a check found: how bad it is, a sentence for people, and numbers for programs."""

    name: str
    level: Level
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)


class Check(Protocol):
    """Sums over the batches of a log, from which findings follow."""

    def add(self, batch: LogBatch) -> None:
        """Add the decisions of a batch."""

    def find(self) -> Sequence[Finding]:
        """What was found in all batches."""


def format_share(part: float, whole: float) -> str:
    """Format a share as a percentage.

    >>> format_share(1, 3), format_share(1, 30_000), format_share(2, 2), format_share(0, 0)
    ('33%', '0.0033%', '100%', '0%')
    """
    percent = 100.0 * part / whole if whole else 0.0
    return f"{percent:.0f}%" if percent >= 10.0 else f"{percent:.2g}%"
