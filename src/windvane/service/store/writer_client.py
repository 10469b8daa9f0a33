"""The service's end of the process that writes: it is started, fed, waited for and replaced."""

import asyncio
import contextlib
import logging
import math
import socket
import subprocess
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from windvane.errors import StoreError
from windvane.service.processes import command, environment
from windvane.service.store.database import location
from windvane.service.store.group_commit import ROOM, Operation, closed, crowded
from windvane.service.store.writer_process import (
    KINDS,
    Frames,
    Order,
    framed,
    pack,
    read_reports,
    read_result,
)

Result = TypeVar("Result")
RUN = "from windvane.service.store.writer_process import main; main()"
START = 30.0  # seconds that it may take to be ready
GRACE = 10.0  # seconds in which it has to write its last
AGAIN = 1.0  # seconds between two attempts to replace one that ended
MOST_BYTES = 1 << 28  # that may wait to be sent; the largest snapshots have about as many
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
log = logging.getLogger("windvane.service")
read_start = msgspec.msgpack.Decoder(tuple[str, str] | None).decode


class Waiting(NamedTuple):
    """Who waits for an operation, and whom to tell first what came of it."""

    kind: int
    future: "asyncio.Future[Any]"
    then: Callable[[Any], None] | None
    alarm: asyncio.TimerHandle | None  # when patience is over


class Apart(asyncio.Protocol):
    """Takes operations in the thread of an event loop, and has them written by a process.

    Where that process ends, what waits for it fails, and another one is started.
    """

    def __init__(self, where: str) -> None:
        self._where = location(where).render_as_string(hide_password=False)
        self._frames = Frames()
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: dict[int, Waiting] = {}
        self._due: list[bytes] = []
        self._number = 0
        self._closing = False
        self._replacing: asyncio.Task[None] | None = None
        self.commits = 0

    async def start(self) -> None:
        """Start the process; it is ready when this returns."""
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._frames = Frames()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                command(RUN, str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment(),
            )
        transport, _ = await loop.create_unix_connection(lambda: self, sock=ours)
        transport.write(framed(self._where.encode()))
        try:
            await asyncio.wait_for(asyncio.shield(self._started), START)
            if self._ended.done():  # no sooner ready than gone
                raise gone()
        except BaseException:
            transport.close()
            await self._end()
            raise
        self._transport = transport

    @property
    def process(self) -> int:
        """The id of the process that writes."""
        return 0 if self._process is None else self._process.pid

    @property
    def waiting(self) -> int:
        """How many operations are not yet on disk."""
        return len(self._waiting)

    def submit(
        self,
        operation: Operation[Result],
        then: Callable[[Result | StoreError], None] | None = None,
        patience: float | None = None,
    ) -> "asyncio.Future[Result]":
        """Have it written; the future resolves once it is on disk.

        Before, `then` is told what came of it, in the order of the log, whoever still waits. After
        so many seconds of patience the future fails with a TimeoutError; what the process has not
        begun to write by then it leaves.
        """
        if self._closing:
            raise closed()
        if self._transport is None:
            raise gone()
        if len(self._waiting) >= ROOM:
            raise crowded(ROOM)
        if self._transport.get_write_buffer_size() > MOST_BYTES:
            raise StoreError("store: too much waits to be written, no more is taken", "busy")
        loop = asyncio.get_running_loop()
        kind = NUMBERS[type(operation)]
        self._number += 1
        try:
            until = math.inf if patience is None else time.monotonic() + 0.75 * patience
            order = Order(self._number, kind, until, pack(operation))
        except UnicodeEncodeError as reason:
            raise StoreError(f"store: the operation fails ({reason})", "refused") from None
        if not self._due:
            loop.call_soon(self._send)
        self._due += order.parts()
        future: asyncio.Future[Result] = loop.create_future()
        alarm = None if patience is None else loop.call_later(patience, give_up, future)
        self._waiting[self._number] = Waiting(kind, future, then, alarm)
        return future

    async def close(self) -> None:
        """Have everything written, then let the process end."""
        self._closing = True
        if self._replacing is not None:
            self._replacing.cancel()
        if self._transport is not None:
            self._send()
            self._transport.write_eof()
            await asyncio.wait([self._ended], timeout=GRACE)
        if self._process is not None:
            if not self._ended.done():
                log.error("the process that writes does not end; what it was given may be lost")
            await self._end()

    async def _end(self) -> None:
        """See the process end, which has nothing left to do."""
        if self._process is not None:
            if not self._ended.done():
                self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _send(self) -> None:
        if self._transport is not None and self._due:
            self._transport.write(b"".join(self._due))
        self._due.clear()

    def data_received(self, data: bytes) -> None:
        for message in self._frames.take(data):
            if self._started.done():
                self._take_in(message)
            elif error := read_start(message):
                self._started.set_exception(StoreError(*error))
            else:
                self._started.set_result(None)

    def _take_in(self, message: bytes) -> None:
        self.commits += 1
        for number, result, error in read_reports(message):
            one = self._waiting.pop(number)
            if one.alarm is not None:
                one.alarm.cancel()
            if error is not None:
                _fail(one, StoreError(*error))
                continue
            told = read_result[one.kind](result)
            _tell(one, told)
            if not one.future.done():
                one.future.set_result(told)

    def connection_lost(self, reason: Exception | None) -> None:
        wrote, self._transport = self._transport is not None, None
        if not self._started.done():
            self._started.set_exception(gone())
        self._ended.set_result(None)
        waiting, self._waiting = self._waiting, {}
        self._due.clear()
        for one in waiting.values():
            _fail(one, gone())
        if wrote and not self._closing:
            log.error("the process that writes has ended; another one is started")
            self._replacing = asyncio.get_running_loop().create_task(self._replace())

    async def _replace(self) -> None:
        while self._transport is None:
            await self._end()
            with contextlib.suppress(StoreError, OSError, TimeoutError):
                await self.start()
                break
            await asyncio.sleep(AGAIN)
        self._replacing = None


def give_up(future: "asyncio.Future[Any]") -> None:
    """Let nobody wait any longer."""
    if not future.done():
        future.set_exception(TimeoutError())


def gone() -> StoreError:
    return StoreError("store: the process that writes has ended", "unreachable")


def _tell(one: Waiting, told: object) -> None:
    """A defect in whoever is told keeps nobody else from being told."""
    if one.then is not None:
        try:
            one.then(told)
        except Exception:
            log.exception("what was written could not be learned")


def _fail(one: Waiting, error: StoreError) -> None:
    _tell(one, error)
    if not one.future.done():
        one.future.set_exception(error)
        one.future.exception()  # seen: often nobody waits
