"""Which writes fail, for health and metrics.

A disk that fails now and then lets most writes through. Therefore one write that works does not
end the report: every kind of write that failed must have worked again, and the last failure must
be some time ago.
"""

import time
from collections import Counter

QUIET_SECONDS = 10.0  # after the last failure of a kind that has worked since
TOO_LONG = "the log takes too long"
UNTRIED_SECONDS = 60.0  # after the last failure of a kind that nobody has tried since


class WriteFailures:
    """The kinds of operations that failed lately, by the name of the operation."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # all failures, by kind
        self.is_log_failing = False  # whether the last write of any kind failed
        self._reason = ""
        self._failed_at: dict[str, float] = {}  # kinds that have not worked since
        self._last_failure = 0.0

    def add(self, kind: str, reason: str, is_vague: bool = False) -> None:
        """Note that a write failed; a vague reason does not replace that of an earlier failure."""
        self.counts[kind] += 1
        self.is_log_failing = True
        if not (is_vague and self._reason):
            self._reason = reason
        self._last_failure = self._failed_at[kind] = time.monotonic()

    def note_success(self, kind: str) -> None:
        """Note that a write worked."""
        self.is_log_failing = False
        self._failed_at.pop(kind, None)

    def describe(self) -> str | None:
        """The reason of the last failure; None if all writes work."""
        if not self._reason:
            return None
        now = time.monotonic()
        if now - self._last_failure < QUIET_SECONDS:
            return self._reason
        if any(now - failed_at < UNTRIED_SECONDS for failed_at in self._failed_at.values()):
            return self._reason
        self._reason = ""
        self._failed_at.clear()
        return None
