"""The protocol between the service and its writer process, over a socket pair.

Every message is preceded by its size. The service first sends the URL of the database, and the
writer replies with None when it is ready, or with an error. Then the service sends write requests,
and the writer replies to each after the commit, in the order of the log. If several processes
share the log, a message also has the news of the log, before the replies.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from windvane.service.store.writer.decision_operations import (
    Activate,
    Expire,
    PutDecision,
    Withdraw,
)
from windvane.service.store.writer.evaluation_operations import (
    DeleteEvaluation,
    EndEvaluation,
    PutEvaluation,
    PutEvaluationPart,
)
from windvane.service.store.writer.group_commit import Operation
from windvane.service.store.writer.loop_operations import (
    DeleteLogs,
    PutHalfLifeChange,
    PutLoop,
    PutSettings,
    PutSnapshot,
    PutSnapshotPart,
    ReclaimSpace,
)
from windvane.service.store.writer.reward_operations import PutReward, PutRewards
from windvane.service.store.writer.server_operations import (
    Heartbeat,
    Leave,
    PutClock,
    ReturnRounds,
    StepClock,
    TakeRounds,
)

OPERATION_TYPES: tuple[type[Operation[Any]], ...] = (
    PutDecision,
    PutReward,
    Activate,
    Withdraw,
    Expire,
    PutLoop,
    PutSettings,
    PutSnapshot,
    DeleteLogs,
    PutClock,
    StepClock,
    PutSnapshotPart,
    ReclaimSpace,
    PutHalfLifeChange,
    PutEvaluation,
    PutEvaluationPart,
    EndEvaluation,
    DeleteEvaluation,
    TakeRounds,
    ReturnRounds,
    Heartbeat,
    Leave,
    PutRewards,
)
TYPE_CODES = {operation_type: code for code, operation_type in enumerate(OPERATION_TYPES)}
_SIZE = struct.Struct("<I")  # bytes of the message that follows
_REQUEST_HEAD = struct.Struct("<QBd")  # number, type code, deadline
_SIZE_AND_HEAD = struct.Struct("<IQBd")

ErrorParts = tuple[str, str]  # the sentence and the kind of a StoreError


class WriteRequest(NamedTuple):
    """An operation to write, with the number by which the reply refers to it."""

    number: int
    type_code: int  # index in OPERATION_TYPES
    deadline: float  # on the monotonic clock; after it the writer skips the operation
    operation: bytes

    def encode(self) -> bytes:
        """Encode the request with its size, as it is sent."""
        size = _REQUEST_HEAD.size + len(self.operation)
        head = _SIZE_AND_HEAD.pack(size, self.number, self.type_code, self.deadline)
        return head + self.operation


class WriteReply(NamedTuple):
    """The result of the request with this number, or its error."""

    number: int
    result: object
    error: ErrorParts | None


class ReceivedReply(NamedTuple):
    """A `WriteReply` with a result that is not decoded yet."""

    number: int
    result: msgspec.Raw
    error: ErrorParts | None


class WriterMessage(NamedTuple):
    """What the writer sends after a commit, or when another server has written."""

    news: msgspec.Raw  # list[LogNews]
    replies: list[WriteReply]


class _ReceivedMessage(NamedTuple):
    """A `WriterMessage` with results that are not decoded yet."""

    news: msgspec.Raw
    replies: list[ReceivedReply]


def decode_request(message: bytes) -> WriteRequest:
    """Decode a request from a message."""
    number, type_code, deadline = _REQUEST_HEAD.unpack_from(message)
    return WriteRequest(number, type_code, deadline, message[_REQUEST_HEAD.size :])


encode = msgspec.msgpack.Encoder().encode
decode_start = msgspec.msgpack.Decoder(ErrorParts | None).decode
decode_message = msgspec.msgpack.Decoder(_ReceivedMessage).decode
decode_operation = [msgspec.msgpack.Decoder(kind).decode for kind in OPERATION_TYPES]  # by code
decode_result: list[Callable[[bytes | msgspec.Raw], Any]] = [  # by code
    msgspec.msgpack.Decoder(kind.result).decode for kind in OPERATION_TYPES
]


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
