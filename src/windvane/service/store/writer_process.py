"""The writer process: it receives operations over sockets, commits them and sends the results.

Python runs one thread at a time, and making decisions keeps a process busy. The writer process
writes for one process that decides, or for several. It ends when all of them have closed their
sockets, after it has written all that it received.
"""

import selectors
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import msgspec
from sqlalchemy import URL, Engine, make_url

from windvane.errors import StoreError
from windvane.service.store.database import make_engine
from windvane.service.store.group_commit import (
    MAX_GROUP_OPERATIONS,
    Outcome,
    QueuedOperation,
    commit_group,
)
from windvane.service.store.kept_connection import KeptConnection
from windvane.service.store.log_news import LogNews, NotificationThread, collect_news
from windvane.service.store.service_lock import open_as_service
from windvane.service.store.wal_checkpoint import CheckpointThread
from windvane.service.store.writer_channel import RECEIVE_BYTES, WriterChannel
from windvane.service.store.writer_protocol import (
    MessageSplitter,
    WriteReply,
    WriteRequest,
    WriterMessage,
    add_size,
    decode_operation,
    encode,
)

LOCK_TIMEOUT_SECONDS = 5.0  # for the writer of a previous service to end
READY = add_size(encode(None))  # the first message to every process


def main() -> None:
    """Write for the service at the other end of the socket whose number is the first argument.

    The second argument, if there is one, is the number of a socket that listens for the processes
    that decide. Then the first socket only says how long the service lives.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the service, which ends this process
        signal.signal(number, signal.SIG_IGN)
    with ExitStack() as stack:
        service, *listening = (
            stack.enter_context(socket.socket(fileno=int(number))) for number in sys.argv[1:]
        )
        serve(service, listening[0] if listening else None)


def serve(service: socket.socket, listening: socket.socket | None = None) -> None:
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
            with run_checkpoints(url, committed):
                writer = Writer(engine, committed, lock_is_lost)
                writer.add_channel(WriterChannel(service, splitter, decides=listening is None))
                writer.run(listening)
    except StoreError as error:
        service.setblocking(True)
        with suppress(BrokenPipeError, ConnectionResetError):  # the service was killed meanwhile
            service.sendall(add_size(encode((str(error), error.kind))))
    except (BrokenPipeError, ConnectionResetError):
        return  # the service has ended before the writer was ready


@contextmanager
def run_checkpoints(url: URL, committed: threading.Event) -> Iterator[None]:
    """Run a checkpoint thread beside the writer, if the database is SQLite."""
    if url.get_backend_name() != "sqlite":
        yield
        return
    engine = make_engine(url, writes=False)
    thread = CheckpointThread(engine, committed)
    try:
        yield
    finally:
        thread.close()
        engine.dispose()


class Ticket(NamedTuple):
    """The channel of a request, and the number that the process at its end gave the request."""

    channel: WriterChannel
    number: int


class Writer:
    """Writes all requests that have arrived as one group, again and again.

    If a process was killed, nobody reads its replies, and all that it sent is still written: its
    last requests may withdraw decisions that were sent before. Nothing is written after the lock of
    the service is lost.
    """

    def __init__(
        self, engine: Engine, committed: threading.Event, lock_is_lost: threading.Event
    ) -> None:
        self._engine = engine
        self._connection = KeptConnection(engine)
        self._committed = committed
        self._lock_is_lost = lock_is_lost
        self._selector = selectors.DefaultSelector()
        self._channels: list[WriterChannel] = []
        self._deciders: list[WriterChannel] = []  # those of processes that decide
        self._foreign_news: deque[LogNews] = deque()  # of other servers, from another thread
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_write.setblocking(False)

    def add_channel(self, channel: WriterChannel) -> None:
        """Write for one more process."""
        self._channels.append(channel)
        self._deciders = [channel for channel in self._channels if channel.decides]
        self._selector.register(channel.connection, selectors.EVENT_READ, channel)

    def run(self, listening: socket.socket | None) -> None:
        """Write until every process has closed its socket, or the lock is lost."""
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        if listening is not None:
            self._selector.register(listening, selectors.EVENT_READ)
        notifications = None
        if self._engine.url.get_backend_name() == "postgresql":
            notifications = NotificationThread(self._engine.url, self._take_foreign_news)
        try:
            while self._channels and not self._lock_is_lost.is_set():
                self._run_once(notifications)
        finally:
            self._connection.close()
            if notifications is not None:
                notifications.close()

    def _run_once(self, notifications: NotificationThread | None) -> None:
        operations: list[QueuedOperation] = []
        for key, events in self._selector.select():
            channel = key.data
            if key.fileobj is self._wake_read:
                self._wake_read.recv(RECEIVE_BYTES)
                self._forward_foreign_news()
            elif channel is None:
                self._accept(key.fileobj)
            else:
                if events & selectors.EVENT_WRITE:
                    self._send(channel)
                if events & selectors.EVENT_READ:
                    operations += self._receive(channel)
        for first in range(0, len(operations), MAX_GROUP_OPERATIONS):
            group = operations[first : first + MAX_GROUP_OPERATIONS]
            outcomes = commit_group(self._connection.begin, group)
            shares_news = notifications is not None or len(self._deciders) > 1
            news = collect_news(group, outcomes) if shares_news else []
            self.send_outcomes(outcomes, news)
            if self._lock_is_lost.is_set():
                return
            self._committed.set()
            if notifications is not None and news:
                notifications.announce(news)

    def _accept(self, listening: object) -> None:
        assert isinstance(listening, socket.socket)
        connection, _ = listening.accept()
        connection.sendall(READY)
        self.add_channel(WriterChannel(connection))

    def _receive(self, channel: WriterChannel) -> list[QueuedOperation]:
        requests = channel.receive()
        if requests is None:
            self._selector.unregister(channel.connection)
            self._channels.remove(channel)
            channel.connection.close()
            self._deciders = [channel for channel in self._channels if channel.decides]
            return []
        return [_queue_operation(channel, request) for request in requests]

    def send_outcomes(self, outcomes: Sequence[Outcome], news: list[LogNews]) -> None:
        """Send the outcomes of a group to their processes, and the news to all of them."""
        replies: dict[WriterChannel, list[WriteReply]] = {channel: [] for channel in self._deciders}
        for outcome in outcomes:
            channel, number = outcome.ticket
            if channel in replies:
                replies[channel].append(_make_reply(number, outcome))
        if len(self._deciders) == 1:
            news = []  # the replies have all lessons
        to_all = msgspec.Raw(encode(news))
        for channel, own_replies in replies.items():
            if own_replies or news:
                self._send(channel, encode(WriterMessage(to_all, own_replies)))

    def _send(self, channel: WriterChannel, message: bytes | None = None) -> None:
        had_unsent = channel.has_unsent
        if message is None:
            channel.flush()
        else:
            channel.send(message)
        if channel.has_unsent != had_unsent and channel in self._channels:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_unsent else 0)
            self._selector.modify(channel.connection, events, channel)

    def _take_foreign_news(self, news: LogNews) -> None:
        """Keep news of another server; called in the thread of the notifications."""
        self._foreign_news.append(news)
        with suppress(BlockingIOError):  # it has been woken often enough
            self._wake_write.send(b".")

    def _forward_foreign_news(self) -> None:
        news = [self._foreign_news.popleft() for _ in range(len(self._foreign_news))]
        message = encode(WriterMessage(msgspec.Raw(encode(news)), []))
        for channel in self._deciders:
            self._send(channel, message)


def _queue_operation(channel: WriterChannel, request: WriteRequest) -> QueuedOperation:
    operation = decode_operation[request.type_code](request.operation)
    return QueuedOperation(operation, Ticket(channel, request.number), request.deadline)


def _make_reply(number: int, outcome: Outcome) -> WriteReply:
    error = None if outcome.error is None else (str(outcome.error), outcome.error.kind)
    return WriteReply(number, outcome.result, error)
