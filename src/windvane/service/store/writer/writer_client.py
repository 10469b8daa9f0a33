"""The service's end of the writer process: it starts, feeds, awaits and replaces that process."""

import asyncio
import logging
import math
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from windvane.errors import StoreError
from windvane.service.store.database import resolve_url
from windvane.service.store.writer.group_commit import OUTDATED, TOO_LONG, Operation
from windvane.service.store.writer.log_news import LogNews
from windvane.service.store.writer.writer_protocol import (
    MessageSplitter,
    WriteReply,
    add_size,
    build_command,
    build_environment,
    decode_message,
    decode_result,
    decode_start,
    encode,
)

Result = TypeVar("Result")
WRITER_CODE = "from windvane.service.store.writer.writer_process import main; main()"
MAX_WAITING_OPERATIONS = 4096
START_TIMEOUT_SECONDS = 30.0
CLOSE_TIMEOUT_SECONDS = 10.0  # until the writer must have written all that it received
RESTART_INTERVAL_SECONDS = 1.0  # between two attempts to replace a writer that ended
MAX_UNSENT_BYTES = 1 << 28  # about as many as the largest snapshot has
ENOUGH_OPERATIONS = 16  # in one message: they are sent although more may come
MAX_GATHERING_SECONDS = 0.004  # longest wait for more operations of one message
DEADLINE_SHARE = 0.75  # of the timeout, so that the reply comes before the timeout
NOT_FAILURES = ("refused", OUTDATED, "gone", "closed")  # of one operation, or of the service's end
START = "start"  # the kind of failure of a writer process that cannot start
QUIET_SECONDS = 10.0  # since the last failure, if the kind has worked since
UNTRIED_SECONDS = 60.0  # since the last failure, if nobody has tried the kind since
ENDED = "store: the writer process has ended"
VAGUE_REASONS = (ENDED, f"store: {TOO_LONG}")
logger = logging.getLogger("windvane.service")


class PendingOperation(NamedTuple):
    """An operation that is not yet on disk: who waits for it, and who is called first."""

    type: type[Operation[Any]]
    future: "asyncio.Future[Any]"
    on_result: Callable[[Any], None] | None
    timer: asyncio.TimerHandle | None


class WriterClient(asyncio.Protocol):
    """Takes operations in the thread of an event loop and has the writer process write them.

    If that process ends, the pending operations fail and a new process is started.
    """

    def __init__(self, location: str) -> None:
        self._url = resolve_url(location).render_as_string(hide_password=False)
        self._splitter = MessageSplitter()
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._pending: dict[int, PendingOperation] = {}
        self._unsent: list[bytes] = []
        self._send_until = 0.0  # on the monotonic clock: when the unsent operations must be sent
        self._last_number = 0
        self._closing = False
        self._replacement: asyncio.Task[None] | None = None
        self.commit_count = 0
        self.failures = WriteFailures()
        # Called before a new writer process gets operations: another service may have written.
        self.on_replacement: Callable[[], Awaitable[None]] | None = None
        # Called with what other processes have written, before the replies of the same commit.
        self.on_news: Callable[[LogNews], None] | None = None

    async def start(self) -> None:
        """Start the writer process; it is ready when this returns."""
        await self._start_process()

    @property
    def is_ready(self) -> bool:
        """Whether there is a writer process that takes operations."""
        return self._transport is not None

    async def _start_process(self, is_replacement: bool = False) -> None:
        """Start a writer process, and give it operations once the service is ready for it."""
        # To ask for the running loop takes a system call, which is too much for every operation.
        self._loop = loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = loop.create_future()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._splitter = MessageSplitter()
        own_end, self._process = start_writer_process(self._url)
        transport, _ = await loop.create_unix_connection(lambda: self, sock=own_end)
        try:
            await asyncio.wait_for(asyncio.shield(self._started), START_TIMEOUT_SECONDS)
            if is_replacement and self.on_replacement is not None:
                await self.on_replacement()
            if self._ended.done():  # it ended right after it had become ready
                raise _make_ended_error()
        except BaseException:
            transport.close()
            await self._end_process()
            raise
        self._transport = transport

    @property
    def process_id(self) -> int:
        """The id of the writer process; 0 before the first start."""
        return 0 if self._process is None else self._process.pid

    @property
    def waiting_count(self) -> int:
        """How many operations are not yet on disk."""
        return len(self._pending)

    def submit(
        self,
        operation: Operation[Result],
        on_result: Callable[[Result | StoreError], None] | None = None,
        timeout: float | None = None,
    ) -> "asyncio.Future[Result]":
        """Send an operation to the writer; the future resolves once the operation is on disk.

        Before the future resolves, `on_result` is called with the result or the error, in the order
        of the log, even if the future is no longer awaited. After `timeout` seconds the future
        fails with a TimeoutError; the writer skips an operation that it has not begun by then.
        """
        if (error := self._find_reason_to_refuse()) is not None:
            self._note_failure(type(operation), error)
            raise error
        self._last_number += 1
        deadline = math.inf if timeout is None else time.monotonic() + DEADLINE_SHARE * timeout
        try:
            request = add_size(encode((self._last_number, deadline, operation)))
        except UnicodeEncodeError as error:
            raise StoreError(f"store: the operation failed ({error})", "refused") from None
        if not self._unsent:
            self._send_until = time.monotonic() + MAX_GATHERING_SECONDS
            self._loop.call_soon(self._send_if_quiet, 1)
        self._unsent.append(request)
        future: asyncio.Future[Result] = self._loop.create_future()
        number = self._last_number
        timer = None if timeout is None else self._loop.call_later(timeout, self._time_out, number)
        self._pending[number] = PendingOperation(type(operation), future, on_result, timer)
        return future

    def _find_reason_to_refuse(self) -> StoreError | None:
        if self._closing:
            return StoreError("store: the log is closed", "closed")
        if self._transport is None:
            return _make_ended_error()
        if len(self._pending) >= MAX_WAITING_OPERATIONS:
            what = f"{MAX_WAITING_OPERATIONS} operations"
        elif self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            what = "too many bytes"
        else:
            return None
        return StoreError(f"store: {what} wait to be written, no more are accepted", "busy")

    def _note_failure(self, kind: type[Operation[Any]], error: StoreError) -> None:
        if error.kind not in NOT_FAILURES:
            reason = str(error)
            is_vague = reason in VAGUE_REASONS
            self.failures.add(kind.__name__, reason, is_vague)

    def _time_out(self, number: int) -> None:
        pending = self._pending.get(number)
        if pending is not None and not pending.future.done():
            self.failures.add(pending.type.__name__, TOO_LONG, is_vague=True)
            pending.future.set_exception(TimeoutError())
            pending.future.exception()  # marks it as retrieved: it may be no longer awaited

    async def close(self) -> None:
        """Have all pending operations written, then let the writer process end."""
        self._closing = True
        if self._replacement is not None:
            self._replacement.cancel()
        if self._transport is not None:
            self._send()
            self._transport.write_eof()
            await asyncio.wait([self._ended], timeout=CLOSE_TIMEOUT_SECONDS)
        if self._process is not None:
            if not self._ended.done():
                logger.error("the writer process does not end; its last operations may be lost")
            await self._end_process()

    async def _end_process(self) -> None:
        """Kill the writer process if it still has its socket open, and wait for its end."""
        if self._process is not None:
            if not self._ended.done():
                self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _send_if_quiet(self, count_before: int) -> None:
        """Send what waits, unless there is more of it since the last turn of the event loop.

        Then the next turn may bring even more. A commit costs the same for one operation and for
        many, and so does a message.
        """
        count = len(self._unsent)
        if count_before < count < ENOUGH_OPERATIONS and time.monotonic() < self._send_until:
            self._loop.call_soon(self._send_if_quiet, count)
        else:
            self._send()

    def _send(self) -> None:
        if self._transport is not None and self._unsent:
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        for message in self._splitter.feed(data):
            if self._started.done():
                self._handle_message(message)
            elif error := decode_start(message):
                self._started.set_exception(StoreError(*error))
            else:
                self._started.set_result(None)

    def _handle_message(self, message: bytes) -> None:
        news, replies = decode_message(message)
        if self.on_news is not None:
            for each in news:
                self.on_news(each)
        if replies:
            self.commit_count += 1
            self._handle_replies(replies)

    def _handle_replies(self, replies: list[WriteReply]) -> None:
        failures = self.failures
        has_failures = bool(failures.counts)
        for number, encoded_result, error in replies:
            pending = self._pending.pop(number)
            if pending.timer is not None:
                pending.timer.cancel()
            if error is not None:
                store_error = StoreError(*error)
                self._note_failure(pending.type, store_error)
                _fail(pending, store_error)
                continue
            if has_failures:
                failures.note_success(pending.type.__name__)
            result = decode_result[pending.type](encoded_result)
            _call_on_result(pending, result)
            if not pending.future.done():
                pending.future.set_result(result)

    def connection_lost(self, error: Exception | None) -> None:
        was_ready = self._transport is not None
        self._transport = None
        if not self._started.done():
            self._started.set_exception(_make_ended_error())
        self._ended.set_result(None)
        failed = list(self._pending.values())
        self._pending = {}
        self._unsent.clear()
        for pending in failed:
            self._note_failure(pending.type, _make_ended_error())
            _fail(pending, _make_ended_error())
        if was_ready and not self._closing:
            logger.error("the writer process has ended; a new one is started")
            self._replacement = asyncio.get_running_loop().create_task(self._replace())

    async def _replace(self) -> None:
        while self._transport is None:
            await self._end_process()
            try:
                await self._start_process(is_replacement=True)
            except Exception as error:
                self.failures.add(START, str(error) or TOO_LONG)
                await asyncio.sleep(RESTART_INTERVAL_SECONDS)
        self.failures.note_success(START)
        self._replacement = None


def start_writer_process(url: str) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    """Start a writer process; returns the service's end of its socket."""
    own_end, writer_end = socket.socketpair()
    with writer_end:
        process = subprocess.Popen(
            build_command(WRITER_CODE, str(writer_end.fileno())),
            pass_fds=[writer_end.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=build_environment(),
        )
    try:
        own_end.sendall(add_size(url.encode()))
    except OSError:  # the process has ended already
        own_end.close()
        process.wait()
        raise
    return own_end, process


def _make_ended_error() -> StoreError:
    return StoreError(ENDED, "unreachable")


def _call_on_result(pending: PendingOperation, result: object) -> None:
    """Call `on_result`; a defect in it must not keep other operations from their results."""
    if pending.on_result is not None:
        try:
            pending.on_result(result)
        except Exception:
            logger.exception("the result of a write could not be processed")


def _fail(pending: PendingOperation, error: StoreError) -> None:
    _call_on_result(pending, error)
    if not pending.future.done():
        pending.future.set_exception(error)
        pending.future.exception()  # marks it as retrieved: often it is no longer awaited


class WriteFailures:
    """The kinds of operations that failed lately, by the name of the operation.

    A disk that fails now and then lets most writes through. Therefore one write that works does
    not end the report: every kind of write that failed must have worked again, and the last failure
    must be some time ago.
    """

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
        self.is_log_failing = False
        self.note_recovery(kind)

    def note_recovery(self, kind: str) -> None:
        """Note that a kind of failure has ended, without a write."""
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
