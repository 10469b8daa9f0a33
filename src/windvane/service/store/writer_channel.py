"""The channel of the writer process: the socket to the service.

Sending never blocks: a service that does not read must not keep the writer from writing.
"""

import socket
from contextlib import suppress

from windvane.service.store.writer_protocol import (
    MessageSplitter,
    WriteRequest,
    add_size,
    decode_request,
)

RECEIVE_BYTES = 1 << 20  # in one call
_BUFFER = memoryview(bytearray(RECEIVE_BYTES))
MAX_UNSENT_BYTES = 1 << 28  # beyond it, the service is given up


class WriterChannel:
    """Receives requests from the service, and sends it messages."""

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
        try:
            data = self._receive_bytes()
        except ConnectionResetError:  # reported once if the other end closed with unread replies
            with suppress(ConnectionResetError):
                return self._split(self._receive_bytes())
            return None
        except BlockingIOError:
            return []
        return self._split(data)

    def _receive_bytes(self) -> bytes:
        """Receive what has arrived, without a new buffer of the largest size for every call."""
        size = self.connection.recv_into(_BUFFER)
        return bytes(_BUFFER[:size])

    def _split(self, data: bytes) -> list[WriteRequest] | None:
        if not data:
            return None
        return [decode_request(message) for message in self._splitter.feed(data)]

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
