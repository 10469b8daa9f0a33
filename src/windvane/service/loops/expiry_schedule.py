"""When the waiting decisions of a loop can expire, so that an idle loop needs no searches."""

import heapq

from windvane.service.clock import MICROSECONDS_PER_SECOND, ClockStep


class ExpirySchedule:
    """The seconds in which a loop made decisions that may still wait for their reward.

    A decision that got its reward stays in the schedule until its wait is over: a search for
    expired decisions that finds none is harmless. One entry stands for all decisions of a second.
    """

    def __init__(self) -> None:
        self._seconds: set[int] = set()
        self._queue: list[int] = []  # a heap of the same seconds
        self._last_added = -1

    def add(self, at_us: int) -> None:
        """Add a decision that was made at a time and waits for its reward."""
        second = at_us // MICROSECONDS_PER_SECOND
        if second != self._last_added:
            self._last_added = second
            if second not in self._seconds:
                self._seconds.add(second)
                heapq.heappush(self._queue, second)

    def is_due(self, before_us: int) -> bool:
        """Whether a decision made before a time may wait for its reward."""
        return bool(self._queue) and self._queue[0] * MICROSECONDS_PER_SECOND < before_us

    def step(self, step: ClockStep) -> None:
        """Add the times to which a step of service time moves the waits of earlier decisions."""
        for second in list(self._seconds):
            first = second * MICROSECONDS_PER_SECOND
            if first <= step.before_us:
                self.add(first + step.length_us)
                self.add(first + step.length_us + MICROSECONDS_PER_SECOND - 1)

    def remove_before(self, before_us: int) -> None:
        """Remove the decisions made before a time, once none of them waits any more."""
        while self._queue and (self._queue[0] + 1) * MICROSECONDS_PER_SECOND <= before_us:
            self._seconds.discard(heapq.heappop(self._queue))
            self._last_added = -1
