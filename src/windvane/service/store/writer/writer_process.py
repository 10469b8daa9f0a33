"""The writer process: it receives operations over a socket, commits them and sends the results.

Python runs one thread at a time, and making decisions keeps a process busy. The writer process
writes for one process that decides. It ends when that process has closed the socket, after it has
written all that it received.
"""

import selectors
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

import msgspec
from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import SQLAlchemyError

from windvane.errors import StoreError
from windvane.service.store.database import make_engine
from windvane.service.store.files.data_directory import OpenedFiles, save_progress
from windvane.service.store.files.service_lock import open_as_service
from windvane.service.store.writer.group_commit import (
    MAX_GROUP_OPERATIONS,
    QueuedOperation,
    WriteOutcome,
    commit_group,
)
from windvane.service.store.writer.log_news import LogNews, NotificationThread, collect_news
from windvane.service.store.writer.writer_protocol import (
    MessageSplitter,
    WriteReply,
    WriteRequest,
    WriterMessage,
    add_size,
    decode_request,
    encode,
)

LOCK_TIMEOUT_SECONDS = 5.0  # until the writer of a previous service must have ended
READY = add_size(encode(None))  # the first message to the service
RECEIVE_BYTES = 1 << 20  # in one call
_BUFFER = memoryview(bytearray(RECEIVE_BYTES))
MAX_UNSENT_BYTES = 1 << 28  # with more, the service is given up
CHECKPOINT_DELAY_SECONDS = 0.1  # between a commit and its checkpoint
PROGRESS_INTERVAL_SECONDS = 10.0  # between two saves of the progress


def main() -> None:
    """Write for the service at the other end of the socket whose number is the first argument."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the service, which ends this process
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as service:
        serve(service)


def serve(service: socket.socket) -> None:
    """Receive the URL of the database, lock and open the database, then write."""
    splitter = MessageSplitter()
    messages: list[bytes] = []
    while not messages:
        data = service.recv(RECEIVE_BYTES)
        if not data:
            return
        messages += splitter.feed(data)
    url = make_url(messages[0].decode())  # not an argument: other users can read those
    lock_is_lost = threading.Event()
    try:
        with open_as_service(url, LOCK_TIMEOUT_SECONDS, lock_is_lost) as engine:
            service.sendall(READY)
            committed = threading.Event()
            is_sqlite = url.get_backend_name() == "sqlite"
            with CheckpointThread(url, committed) if is_sqlite else nullcontext():
                channel = WriterChannel(service, splitter)
                Writer(engine, channel, committed, lock_is_lost).run()
    except StoreError as error:
        service.setblocking(True)
        with suppress(BrokenPipeError, ConnectionResetError):  # the service was killed meanwhile
            service.sendall(add_size(encode((str(error), error.kind))))
    except (BrokenPipeError, ConnectionResetError):
        return  # the service has ended before the writer was ready


class WriterChannel:
    """Receives requests from the service, and sends it messages.

    Sending never blocks: a service that does not read must not keep the writer from writing.
    """

    def __init__(self, connection: socket.socket, splitter: MessageSplitter) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._splitter = splitter
        self._unsent = bytearray()
        self._is_broken = False  # nobody reads any more

    @property
    def has_unsent(self) -> bool:
        """Whether a part of a message waits until the other end reads."""
        return bool(self._unsent)

    def receive(self) -> list[WriteRequest] | None:
        """The requests that have arrived; None at the end of the stream."""
        for _ in range(2):
            try:
                size = self.connection.recv_into(_BUFFER)
            except BlockingIOError:
                return []
            except ConnectionResetError:  # reported once if the other end left replies unread
                continue
            messages = self._splitter.feed(bytes(_BUFFER[:size]))
            return [decode_request(message) for message in messages] if size else None
        return None

    def send(self, message: bytes) -> None:
        """Send a message, now or as soon as the other end reads."""
        if not self._is_broken:
            self._unsent += add_size(message)
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the other end reads."""
        try:
            while self._unsent:
                del self._unsent[: self.connection.send(self._unsent)]
        except BlockingIOError:
            if len(self._unsent) > MAX_UNSENT_BYTES:
                self.close()
        except (BrokenPipeError, ConnectionResetError):
            self._is_broken = True
            self._unsent.clear()

    def close(self) -> None:
        """Close the socket; what was received before is written all the same."""
        self._is_broken = True
        self._unsent.clear()
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def begin_checked(engine: Engine, files: OpenedFiles) -> Iterator[Connection]:
    """Run a transaction, if the files of the log are still those that were opened."""
    files.check()
    with engine.begin() as connection:
        yield connection
    files.check()  # before anything is acknowledged


class CheckpointThread:
    """Copies committed pages from the write-ahead log into the database soon after a commit.

    If the writer made these checkpoints, some commits would take tens of milliseconds longer, and
    all requests that wait for them too. The thread also saves how far the log has got.
    """

    def __init__(self, url: URL, committed: threading.Event) -> None:
        self._engine = make_engine(url, writes=False)
        self._committed = committed
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._checkpoint_after_commits, name="windvane checkpoint", daemon=True
        )

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        """Stop the thread, wait until it has ended, and save the progress."""
        self._closing.set()
        self._committed.set()
        self._thread.join()
        save_progress(self._engine)
        self._engine.dispose()

    def _checkpoint_after_commits(self) -> None:
        saved_at = time.monotonic()
        while self._committed.wait() and not self._closing.wait(CHECKPOINT_DELAY_SECONDS):
            self._committed.clear()
            try:
                with self._engine.connect() as connection:
                    connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()
            except SQLAlchemyError:  # the writer gets the same error and can report it
                continue
            if time.monotonic() - saved_at >= PROGRESS_INTERVAL_SECONDS:
                save_progress(self._engine)
                saved_at = time.monotonic()


class Writer:
    """Writes all requests that have arrived as one group, again and again.

    If the service was killed, nobody reads the replies, and all that it sent is still written: its
    last requests may withdraw decisions that were sent before. Nothing is written after the lock of
    the service is lost.
    """

    def __init__(
        self,
        engine: Engine,
        channel: WriterChannel,
        committed: threading.Event,
        lock_is_lost: threading.Event,
    ) -> None:
        self._engine = engine
        self._begin = partial(begin_checked, engine, OpenedFiles(engine.url))
        self._channel = channel
        self._is_open = True  # the service may still send requests
        self._committed = committed
        self._lock_is_lost = lock_is_lost
        self._selector = selectors.DefaultSelector()
        self._foreign_news: deque[LogNews] = deque()  # of other servers, from another thread
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_write.setblocking(False)

    def run(self) -> None:
        """Write until the service has closed its socket, or the lock is lost."""
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._selector.register(self._channel.connection, selectors.EVENT_READ)
        notifications = None
        if self._engine.url.get_backend_name() == "postgresql":
            notifications = NotificationThread(self._engine.url, self._take_foreign_news)
        try:
            while self._is_open and not self._lock_is_lost.is_set():
                self._run_once(notifications)
        finally:
            if notifications is not None:
                notifications.close()

    def _run_once(self, notifications: NotificationThread | None) -> None:
        operations: list[QueuedOperation] = []
        for key, events in self._selector.select():
            if key.fileobj is self._wake_read:
                self._wake_read.recv(RECEIVE_BYTES)
                self._forward_foreign_news()
                continue
            if events & selectors.EVENT_WRITE:
                self._send()
            if events & selectors.EVENT_READ:
                operations += self._receive()
        for first in range(0, len(operations), MAX_GROUP_OPERATIONS):
            group = operations[first : first + MAX_GROUP_OPERATIONS]
            outcomes = commit_group(self._begin, group)
            self.send_outcomes(outcomes)
            if self._lock_is_lost.is_set():
                return
            self._committed.set()
            if notifications is not None and (news := collect_news(group, outcomes)):
                notifications.announce(news)

    def _receive(self) -> list[QueuedOperation]:
        requests = self._channel.receive()
        if requests is None:
            self._is_open = False
            return []
        return [
            QueuedOperation(operation, number, deadline) for number, deadline, operation in requests
        ]

    def send_outcomes(self, outcomes: Sequence[WriteOutcome]) -> None:
        """Send the outcomes of a group; the replies have all lessons."""
        self._send(encode(WriterMessage([], [_make_reply(outcome) for outcome in outcomes])))

    def _send(self, message: bytes | None = None) -> None:
        """Send a message, or what the service has not read yet."""
        channel = self._channel
        had_unsent = channel.has_unsent
        if message is None:
            channel.flush()
        else:
            channel.send(message)
        if channel.has_unsent != had_unsent:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_unsent else 0)
            self._selector.modify(channel.connection, events)

    def _take_foreign_news(self, news: LogNews) -> None:
        """Keep news of another server; called in the thread of the notifications."""
        self._foreign_news.append(news)
        with suppress(BlockingIOError):  # it has been woken often enough
            self._wake_write.send(b".")

    def _forward_foreign_news(self) -> None:
        news = [self._foreign_news.popleft() for _ in range(len(self._foreign_news))]
        self._send(encode(WriterMessage(news, [])))


def _make_reply(outcome: WriteOutcome) -> WriteReply:
    error = None if outcome.error is None else (str(outcome.error), outcome.error.kind)
    return WriteReply(outcome.ticket, msgspec.Raw(encode(outcome.result)), error)
