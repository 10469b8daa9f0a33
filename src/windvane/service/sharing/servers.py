"""Sharing a log with other servers: who is there, who leads, and which rounds each may use."""

import asyncio
import math
import os
import socket
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from uuid import uuid4

from windvane.service.clock import DatabaseClock
from windvane.service.store.rows import Lesson
from windvane.service.store.writer.server_operations import (
    LEASE_SECONDS,
    LOST_AFTER_SECONDS,
    HeartbeatResult,
    RoundRange,
)

MICROSECONDS = 1e-6  # in seconds
MAX_SKEW_SECONDS = 5.0  # between two clocks, or the smallest wait of a loop if that is shorter
LAG_SECONDS_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
FIRST_BLOCK_ROUNDS = 16  # a loop with little traffic leaves few rounds unused
MAX_BLOCK_ROUNDS = 1024
ROUNDS_LEFT_SHARE = 0.5  # of a block, at which the next one is asked for
TakeBlock = Callable[[int], Awaitable[RoundRange]]  # takes so many rounds from the log


class LessonLags:
    """How long lessons of other servers took to arrive, as a histogram; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts = [0] * (len(LAG_SECONDS_BUCKETS) + 1)  # of each bucket alone
        self.seconds = 0.0

    def observe(self, lessons: Iterable[Lesson], now_us: int) -> None:
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

    def __init__(
        self,
        read_seconds: Callable[[], float] = time.monotonic,
        clock: DatabaseClock | None = None,
    ) -> None:
        self.clock = clock or DatabaseClock()
        self.server_id = uuid4().hex
        self.server_name = f"{socket.gethostname()}, process {os.getpid()}"
        self.server_count = 1
        self.settled_until = 0  # service time before which no server withdraws a decision
        self.lags = LessonLags()
        self.read_seconds = read_seconds  # the clock of the lease
        self._leads_until = 0.0

    @property
    def is_leader(self) -> bool:
        """Whether this server holds the lease, by the last heartbeat that the log took."""
        return self.read_seconds() < self._leads_until

    def bound_time(self, now_us: int) -> int:
        """Service time now, or that of the slowest server if its clock is far behind.

        What is over by this time is over by the clocks of all servers.
        """
        tolerance = round((MAX_SKEW_SECONDS + LOST_AFTER_SECONDS) / MICROSECONDS)
        is_far_ahead = 0 < self.settled_until < now_us - tolerance
        return self.settled_until if is_far_ahead else now_us

    def note_heartbeat(self, sent_at: float, result: HeartbeatResult) -> None:
        self._leads_until = sent_at + LEASE_SECONDS if result.is_leader else 0.0
        self.settled_until = result.settled_until
        self.server_count = result.server_count


class RoundSupply:
    """Gives out rounds, in ascending order, in the thread of the event loop."""

    def __init__(self, take_block: TakeBlock) -> None:
        self._take_block = take_block
        self._blocks: deque[RoundRange] = deque()
        self._next_count = FIRST_BLOCK_ROUNDS
        self._taking: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many rounds are left."""
        return sum(block.stop - block.start for block in self._blocks)

    async def take(self) -> int:
        """The next round; waits for a block if there is none."""
        while not self._blocks:
            await asyncio.shield(self._start_taking())
        block = self._blocks.popleft()
        if block.start + 1 < block.stop:
            self._blocks.appendleft(RoundRange(block.start + 1, block.stop))
        if self.count < ROUNDS_LEFT_SHARE * self._next_count / 2:
            self._start_taking()
        return block.start

    def drain(self) -> list[RoundRange]:
        """Take all rounds that are left, the last ones first."""
        blocks = [*reversed(self._blocks)]
        self._blocks.clear()
        return blocks

    def _start_taking(self) -> "asyncio.Task[None]":
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
            self._taking.add_done_callback(_ignore_failure)
        return self._taking

    async def _take(self) -> None:
        block = await self._take_block(self._next_count)
        self._blocks.append(block)
        self._next_count = min(2 * self._next_count, MAX_BLOCK_ROUNDS)


def _ignore_failure(task: "asyncio.Task[None]") -> None:
    """Mark a failure as seen: a decision that waits for the block gets the failure too."""
    if not task.cancelled():
        task.exception()
