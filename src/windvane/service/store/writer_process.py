"""The writer process: it receives operations over a socket, commits them and sends the results.

Python runs one thread at a time, and making decisions keeps the process of the service busy. The
writer process ends when the service closes the socket, after it has written all that it received.
"""

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
from windvane.service.store.service_lock import open_as_service
from windvane.service.store.wal_checkpoint import CheckpointThread
from windvane.service.store.writer_protocol import (
    MessageSplitter,
    WriteReply,
    add_size,
    decode_operation,
    decode_request,
    encode,
)

LOCK_TIMEOUT_SECONDS = 5.0  # for the writer of a previous service to end
RECEIVE_BYTES = 1 << 20  # in one call


def main() -> None:
    """Write for the service at the other end of the socket whose number is the first argument."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the service, which ends this process
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)


def serve(channel: socket.socket) -> None:
    """Receive the URL of the database, lock and open the database, then write."""
    splitter = MessageSplitter()
    committed = threading.Event()
    messages: list[bytes] = []
    while not messages:
        data = channel.recv(RECEIVE_BYTES)
        if not data:
            return
        messages += splitter.feed(data)
    url = make_url(messages[0].decode())  # not an argument: other users can read those
    lock_is_lost = threading.Event()
    try:
        with open_as_service(url, LOCK_TIMEOUT_SECONDS, lock_is_lost) as engine:
            channel.sendall(add_size(encode(None)))
            with run_checkpoints(url, committed):
                write_requests(channel, splitter, engine, committed, lock_is_lost)
    except StoreError as error:
        channel.sendall(add_size(encode((str(error), error.kind))))
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


def write_requests(
    channel: socket.socket,
    splitter: MessageSplitter,
    engine: Engine,
    committed: threading.Event,
    lock_is_lost: threading.Event,
) -> None:
    """Write all requests that have arrived as one group, until the service closes the socket.

    If the service was killed, nobody reads the replies, and all that it sent is still written: the
    last requests may withdraw decisions that were sent before. Nothing is written after the lock of
    the service is lost, because another service may have it.
    """
    while data := _receive(channel):
        requests = [decode_request(message) for message in splitter.feed(data)]
        operations = [
            QueuedOperation(
                decode_operation[request.type_code](request.operation),
                request.number,
                request.deadline,
            )
            for request in requests
        ]
        for first in range(0, len(operations), MAX_GROUP_OPERATIONS):
            group = operations[first : first + MAX_GROUP_OPERATIONS]
            outcomes = commit_group(engine, group)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                send_replies(channel, outcomes)
            if lock_is_lost.is_set():
                return
            committed.set()


def _receive(channel: socket.socket) -> bytes:
    """Receive what has arrived; empty at the end of the stream."""
    try:
        return channel.recv(RECEIVE_BYTES)
    except ConnectionResetError:  # reported once if the service ended with unread replies
        return channel.recv(RECEIVE_BYTES)


def send_replies(channel: socket.socket, outcomes: list[Outcome]) -> None:
    """Send the outcomes of a group to the service."""
    channel.sendall(add_size(encode([_make_reply(outcome) for outcome in outcomes])))


def _make_reply(outcome: Outcome) -> WriteReply:
    error = None if outcome.error is None else (str(outcome.error), outcome.error.kind)
    return WriteReply(outcome.ticket, msgspec.Raw(encode(outcome.result)), error)
