"""A coroutine that begins at once, and goes on when what it waits for is there.

A task of asyncio begins in the next turn of the event loop and is registered among all tasks. For a
short request both take a noticeable part of the time.
"""

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any


class EagerCall:
    """Runs a coroutine in a context of its own, step by step, in the thread of an event loop.

    The coroutine handles all errors itself. It is no task: `asyncio.current_task` is None in it.
    """

    __slots__ = ("_awaited", "_context", "_coroutine", "_loop")

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._context = contextvars.copy_context()
        self._awaited: asyncio.Future[Any] | None = None

    def start(self) -> None:
        """Run the coroutine until it waits or ends."""
        self._context.run(self._step)

    def cancel(self, msg: str | None = None) -> bool:
        """Cancel what the coroutine waits for, so that it ends with a CancelledError."""
        return self._awaited is not None and self._awaited.cancel(msg)

    def _step(self, _: object = None) -> None:
        """Run the coroutine until it waits or ends; called in its context."""
        self._awaited = None
        try:
            awaited = self._coroutine.send(None)
        except (StopIteration, asyncio.CancelledError):
            return
        if awaited is None:  # it waits for the next turn of the event loop
            self._loop.call_soon(self._step, context=self._context)
            return
        awaited._asyncio_future_blocking = False  # the mark that every user of a future removes
        awaited.add_done_callback(self._step, context=self._context)
        self._awaited = awaited
