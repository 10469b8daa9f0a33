"""A check of event ids: whether a decision is in the log twice."""

from collections.abc import Sequence

from windvane.evaluation.checks.finding import Finding, Level, format_share
from windvane.evaluation.log_batch import LogBatch

MAX_REMEMBERED = 1_000_000  # ids; later decisions are compared with these only
FAILURE_SHARE = 0.01


class EventIdCheck:
    """Counts ids that came before; remembers a hash of each id, up to a limit."""

    def __init__(self, max_remembered: int = MAX_REMEMBERED) -> None:
        self.max_remembered = max_remembered
        self.rows = self.repeated = self.empty = 0
        self._hashes: set[int] = set()

    def add(self, batch: LogBatch) -> None:
        """Add the decisions of a batch."""
        self.rows += batch.size
        hashes = self._hashes
        for event_id in batch.event_ids:
            if not event_id:
                self.empty += 1
                continue
            code = hash(event_id)
            if code in hashes:
                self.repeated += 1
            elif len(hashes) < self.max_remembered:
                hashes.add(code)

    def find(self) -> Sequence[Finding]:
        """What was found in all batches."""
        level: Level = "ok"
        text = "no event id occurs twice"
        if self.repeated:
            level = "failure" if self.repeated > FAILURE_SHARE * self.rows else "warning"
            share = format_share(self.repeated, self.rows)
            text = f"{self.repeated} decisions ({share}) have the event id of an earlier one"
        if self.empty:
            text += f"; {self.empty} have no id"
        if len(self._hashes) >= self.max_remembered:
            text += f" (compared with the first {self.max_remembered:,} ids only)"
        numbers = {"repeated": self.repeated, "empty": self.empty, "compared": len(self._hashes)}
        return [Finding("event ids", level, text, numbers)]
