"""When operations time out, with one timer for all of them.

A timer for each operation would take as long as encoding the operation.
"""

import asyncio
from collections import deque
from collections.abc import Callable


class WriteDeadlines:
    """Calls a function with the number of each operation whose time is over.

    The numbers of operations that were done before are passed too.
    """

    def __init__(self, time_out: Callable[[int], None]) -> None:
        self._time_out = time_out
        self._queues: dict[float, deque[tuple[float, int]]] = {}  # by length, in order of time
        self._timers: dict[float, asyncio.TimerHandle] = {}  # by length

    def add(self, seconds: float, number: int) -> None:
        """Let the time of an operation be over in so many seconds."""
        queue = self._queues.get(seconds)
        if queue is None:
            self._loop = asyncio.get_running_loop()
            queue = self._queues[seconds] = deque()
        loop = self._loop
        at = loop.time() + seconds
        queue.append((at, number))
        if len(queue) == 1:
            self._timers[seconds] = loop.call_at(at, self._run, seconds)

    def _run(self, seconds: float) -> None:
        loop = self._loop
        queue = self._queues[seconds]
        now = loop.time()
        while queue and queue[0][0] <= now:
            self._time_out(queue.popleft()[1])
        if queue:
            self._timers[seconds] = loop.call_at(queue[0][0], self._run, seconds)

    def close(self) -> None:
        """Forget all operations."""
        for timer in self._timers.values():
            timer.cancel()
        self._queues.clear()
        self._timers.clear()
