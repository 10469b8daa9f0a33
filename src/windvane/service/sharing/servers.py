"""Sharing a log with other servers: who is there, who leads, and what the others have learned.

Every server folds the same lessons in the same order, so all of them come to the same belief. The
news of the log say when to read it; the positions of the log are read again and again, in case
that news are lost. One server, the leader, does what is done once for all: it closes decisions,
stores snapshots, deletes old decisions and evaluates.
"""

import math
import os
import socket
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from uuid import uuid4

from windvane.service.store.rows import Lesson
from windvane.service.store.writer.server_operations import LEASE_SECONDS, HeartbeatResult

MICROSECONDS = 1e-6  # in seconds
LAG_SECONDS_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class LessonLags:
    """How long lessons of other servers took to arrive, as a histogram; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts = [0] * (len(LAG_SECONDS_BUCKETS) + 1)  # of each bucket alone
        self.seconds = 0.0

    def observe(self, lessons: Iterable[Lesson], now_us: int) -> None:
        """Count lessons that are learned now."""
        with self._lock:
            for lesson in lessons:
                lag = max(now_us - lesson.at, 0) * MICROSECONDS
                self.counts[bisect_left(LAG_SECONDS_BUCKETS, lag)] += 1
                self.seconds += lag

    def find_quantile(self, share: float) -> float | None:
        """The bound of the bucket in which this share of the lessons is reached; None: no lesson.

        Beyond the last bound the answer is infinite.
        """
        total = sum(self.counts)
        reached = 0
        for bound, count in zip((*LAG_SECONDS_BUCKETS, math.inf), self.counts, strict=True):
            reached += count
            if total and reached >= share * total:
                return bound
        return None


class LogSharing:
    """What one server knows about the servers that share its log."""

    def __init__(self, read_seconds: Callable[[], float] = time.monotonic) -> None:
        self.server_id = uuid4().hex
        self.server_name = f"{socket.gethostname()}, process {os.getpid()}"
        self.server_count = 1
        self.settled_until = 0  # service time before which no server withdraws a decision
        self.lags = LessonLags()
        self._read_seconds = read_seconds
        self._leads_until = 0.0

    @property
    def is_leader(self) -> bool:
        """Whether this server holds the lease, by the last heartbeat that the log took."""
        return self._read_seconds() < self._leads_until

    def read_seconds(self) -> float:
        """The clock of the lease, to be read before a heartbeat is sent."""
        return self._read_seconds()

    def note_heartbeat(self, sent_at: float, result: HeartbeatResult) -> None:
        """Take in the result of a heartbeat."""
        self._leads_until = sent_at + LEASE_SECONDS if result.is_leader else 0.0
        self.settled_until = result.settled_until
        self.server_count = result.server_count
