"""The process that writes: operations come in over a socket, what came of them goes back.

Python runs one thread at a time, and deciding keeps it busy; here nothing else runs. It ends when
the socket does, after all that it was given is written.
"""

import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, get_args

import msgspec
from sqlalchemy import URL, Engine, make_url

from windvane.errors import StoreError
from windvane.service.store.admin_operations import DeleteLogs, PutLoop, PutSettings, PutSnapshot
from windvane.service.store.database import alone, engine, opened
from windvane.service.store.decision_operations import (
    Activate,
    Expire,
    PutDecision,
    PutReward,
    Withdraw,
)
from windvane.service.store.group_commit import GROUP, Entry, Operation, Outcome, written
from windvane.service.store.wal_checkpoint import Checkpointer

KINDS: tuple[type[Operation[Any]], ...] = (
    PutDecision,
    PutReward,
    Activate,
    Withdraw,
    Expire,
    PutLoop,
    PutSettings,
    PutSnapshot,
    DeleteLogs,
)
PATIENCE = 5.0  # seconds that the writer of a service before has to end
SIZE = struct.Struct("<I")
HEAD, REST = struct.Struct("<IQBd"), struct.Struct("<QBd")  # of an order, with its size and without
AT_ONCE = 1 << 20  # bytes
pack = msgspec.msgpack.Encoder().encode


class Order(NamedTuple):
    """An operation on its way: a number by which it is known, its kind, what it says."""

    number: int
    kind: int  # a place in KINDS
    until: float  # on the monotonic clock; after that it is not to be written any more
    operation: bytes

    def parts(self) -> tuple[bytes, bytes]:
        """As it goes over the socket, its size first."""
        size = HEAD.size - SIZE.size + len(self.operation)
        return HEAD.pack(size, self.number, self.kind, self.until), self.operation


def read_order(message: bytes) -> Order:
    """An order without its size."""
    number, kind, until = REST.unpack_from(message)
    return Order(number, kind, until, message[REST.size :])


class Report(NamedTuple):
    """What came of it: the result, or the sentence and the word of an error."""

    number: int
    result: msgspec.Raw
    error: tuple[str, str] | None


read_operation = [msgspec.msgpack.Decoder(kind).decode for kind in KINDS]
read_reports = msgspec.msgpack.Decoder(list[Report]).decode
read_result = [
    msgspec.msgpack.Decoder(get_args(kind.__orig_bases__[0])[0]).decode  # type: ignore[attr-defined]
    for kind in KINDS
]


def framed(message: bytes) -> bytes:
    """A message with its size in front."""
    return SIZE.pack(len(message)) + message


class Frames:
    """Messages out of a stream of bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole by now."""
        data, at = self._rest + data if self._rest else data, 0
        while at + SIZE.size <= len(data):
            end = at + SIZE.size + SIZE.unpack_from(data, at)[0]
            if end > len(data):
                break
            yield data[at + SIZE.size : end]
            at = end
        self._rest = data[at:]


def reported(outcome: Outcome) -> Report:
    """An outcome on its way back."""
    error = outcome.error
    told = None if error is None else (str(error), error.kind)
    return Report(outcome.ticket, msgspec.Raw(pack(outcome.result)), told)


@contextmanager
def moving(url: URL, committed: threading.Event) -> Iterator[None]:
    """Move what SQLite has committed into its database, beside the writing."""
    if url.get_backend_name() != "sqlite":
        yield
        return
    reading = engine(url, writes=False)
    mover = Checkpointer(reading, committed)
    try:
        yield
    finally:
        mover.close()
        reading.dispose()


def write(channel: socket.socket, frames: Frames, writing: Engine, came: threading.Event) -> None:
    """Write what comes, all that has come as one group, until no more can come."""
    while data := channel.recv(AT_ONCE):
        orders, at = [read_order(message) for message in frames.take(data)], time.monotonic()
        late = [Outcome(order.number, None, too_late()) for order in orders if order.until < at]
        if late:
            report(channel, late)
        entries = [
            Entry(read_operation[order.kind](order.operation), order.number)
            for order in orders
            if order.until >= at
        ]
        for first in range(0, len(entries), GROUP):
            report(channel, written(writing, entries[first : first + GROUP]))
            came.set()


def report(channel: socket.socket, outcomes: list[Outcome]) -> None:
    """Tell what came of a group."""
    channel.sendall(framed(pack([reported(outcome) for outcome in outcomes])))


def too_late() -> StoreError:
    return StoreError("store: the log takes too long", "locked")


def serve(channel: socket.socket) -> None:
    """Learn where the log is, see that nobody else writes it, then write."""
    frames, committed = Frames(), threading.Event()
    said: list[bytes] = []
    while not said:
        data = channel.recv(AT_ONCE)
        if not data:
            return
        said += frames.take(data)
    url = make_url(said[0].decode())  # not an argument: those everyone can read
    try:
        with alone(url, PATIENCE):
            writing = opened(url)
            try:
                channel.sendall(framed(pack(None)))
                with moving(url, committed):
                    write(channel, frames, writing, committed)
            finally:
                writing.dispose()  # before anyone else is let in
    except StoreError as error:
        channel.sendall(framed(pack((str(error), error.kind))))
    except (BrokenPipeError, ConnectionResetError):
        return  # nobody is left to be told


def main() -> None:
    """Write for whoever has the other end of a socket."""
    for one in (signal.SIGINT, signal.SIGTERM):  # for the service, which ends this one
        signal.signal(one, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        serve(channel)
