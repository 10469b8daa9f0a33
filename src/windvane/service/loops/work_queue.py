"""The work on one loop in order: short work at once, long work in a thread.

All loops share one event loop. Compiled code runs without the GIL, so that long work in a thread
leaves the event loop free for the others. Choosing and learning of one loop never overlap: while
work of a loop is in the thread, all further work of that loop waits behind it.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from windvane.service.errors import ServiceError

MAX_WAITING_WORK = 1000  # of one loop; beyond it requests are refused
RETRY_AFTER_SECONDS = 1
LONG_WORK_THREADS = 4  # so many loops can do long work at the same time, on any machine

Result = TypeVar("Result")
logger = logging.getLogger("windvane.service")
_threads = ThreadPoolExecutor(LONG_WORK_THREADS, thread_name_prefix="windvane work")


class WorkQueue:
    """Calls functions one after the other, in the order in which they came.

    Every method is called in the thread of the event loop.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._is_running = False  # whether a thread calls the waiting functions

    @property
    def waiting_count(self) -> int:
        """How many functions wait to be called."""
        return len(self._waiting)

    def check_room(self) -> None:
        """Refuse a request if too much work waits already."""
        if len(self._waiting) >= MAX_WAITING_WORK:
            message = f"{len(self._waiting)} requests of this loop wait, no more are accepted"
            raise ServiceError("too many", message, "loop", RETRY_AFTER_SECONDS)

    def can_run_now(self, is_long: bool) -> bool:
        """Whether a function can be called at once: it is short, and nothing waits before it."""
        return not (is_long or self._is_running)

    def run(self, function: Callable[[], None], is_long: bool) -> None:
        """Call a function, at once if possible; nobody waits for it."""
        if self.can_run_now(is_long):
            function()
        else:
            self._append(function).add_done_callback(_log_failure)

    async def call(self, function: Callable[[], Result], is_long: bool) -> Result:
        """Call a function, at once if possible, and return its result."""
        if self.can_run_now(is_long):
            return function()
        # Traces find the request in its context.
        return await asyncio.wrap_future(self._append(partial(copy_context().run, function)))

    async def wait(self) -> None:
        """Wait until all work that came before is done."""
        if self._is_running:
            await self.call(_do_nothing, is_long=False)

    def _append(self, function: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()
        self._waiting.append((function, future))
        if not self._is_running:
            self._start()
        return future

    def _start(self) -> None:
        self._is_running = True
        _threads.submit(self._work, asyncio.get_running_loop())

    def _work(self, event_loop: asyncio.AbstractEventLoop) -> None:
        """Call the functions that wait now, in a thread; then it is the turn of another loop."""
        for _ in range(len(self._waiting)):
            function, future = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except Exception as reason:
                future.set_exception(reason)
            del function, future  # the traceback of an error has this frame: a cycle
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            event_loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if self._waiting:  # appended while the thread worked
            self._start()
        else:
            self._is_running = False


def _do_nothing() -> None:
    """Mark a place in the queue."""


def _log_failure(future: Future[Any]) -> None:
    if (error := future.exception()) is not None:
        logger.error("the result of a write could not be processed", exc_info=error)
