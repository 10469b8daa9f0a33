"""The protocol between the service and its writer process, over a socket pair.

Every message is preceded by its size. The service first sends the URL of the database, and the
writer replies with None when it is ready, or with an error. Then the service sends write requests,
and the writer replies to each after the commit, in the order of the log. If several servers share
the log, it also sends the news of the log.
"""

import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args

import msgspec

import windvane
from windvane.service.store import evaluations
from windvane.service.store.writer import (
    decision_operations,
    loop_operations,
    reward_operations,
    server_operations,
)
from windvane.service.store.writer.group_commit import Operation
from windvane.service.store.writer.log_news import LogNews

OPERATION_MODULES = (
    decision_operations,
    evaluations,
    loop_operations,
    reward_operations,
    server_operations,
)
SENT_OPERATIONS: set[type[Operation[Any]]] = {
    each
    for module in OPERATION_MODULES
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Operation) and each is not Operation
}
_SIZE = struct.Struct("<I")  # bytes of the message that follows

ErrorParts = tuple[str, str]  # the sentence and the kind of a StoreError


# An operation to write, with the number by which the reply refers to it, and its deadline on the
# monotonic clock: after it the writer skips the operation.
WriteRequest = tuple[int, float, Operation[Any]]


class WriteReply(NamedTuple):
    """The encoded result of the request with this number, or its error."""

    number: int
    result: msgspec.Raw
    error: ErrorParts | None


class WriterMessage(NamedTuple):
    """What the writer sends after a commit, or when another server has written."""

    news: list[LogNews]
    replies: list[WriteReply]


def _find_result_type(operation_type: type[Operation[Any]]) -> Any:
    """The type X of a class that is derived from `Operation[X]`."""
    (base,) = vars(operation_type)["__orig_bases__"]
    return get_args(base)[0]


encode = msgspec.msgpack.Encoder().encode
decode_start = msgspec.msgpack.Decoder(ErrorParts | None).decode
decode_request: Callable[[bytes], WriteRequest] = msgspec.msgpack.Decoder(
    tuple[int, float, Union[*SENT_OPERATIONS]]  # type: ignore[valid-type]
).decode
decode_message = msgspec.msgpack.Decoder(WriterMessage).decode
decode_result: dict[type[Operation[Any]], Callable[[bytes | msgspec.Raw], Any]] = {
    kind: msgspec.msgpack.Decoder(_find_result_type(kind)).decode for kind in SENT_OPERATIONS
}


def add_size(message: bytes) -> bytes:
    """Put the size of a message in front of it."""
    return _SIZE.pack(len(message)) + message


class MessageSplitter:
    """Splits a stream of bytes into messages.

    Both ends use it: the writer takes all messages that have arrived as one group, and the service
    resolves the futures of a reply in the same iteration of its event loop, without the task and
    the extra wakeups that a StreamReader needs.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0  # bytes of all pieces
        self._needed = _SIZE.size  # bytes until the next message, or its size, is complete

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in bytes, and yield the messages that are complete by now.

        Pieces are joined once, when a message is complete: a large message takes linear time.
        """
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self._needed:
            return
        stream = data if len(self._pieces) == 1 else b"".join(self._pieces)
        start, needed = 0, _SIZE.size
        while start + needed <= len(stream):
            end = start + _SIZE.size + _SIZE.unpack_from(stream, start)[0]
            if end > len(stream):
                needed = end - start
                break
            yield stream[start + _SIZE.size : end]
            start = end
        rest = stream[start:]
        self._pieces = [rest] if rest else []
        self._size = len(rest)
        self._needed = needed


def build_command(code: str, *arguments: str) -> list[str]:
    """The command line that runs code in a child Python, which ignores the working directory."""
    return [sys.executable, "-P", "-c", code, *arguments]


def build_environment() -> dict[str, str]:
    """This process's environment, with this package first on PYTHONPATH."""
    root = str(Path(windvane.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": paths}
