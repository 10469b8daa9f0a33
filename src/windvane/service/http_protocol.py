"""uvicorn's HTTP protocol with fewer system calls and with bounds on requests.

This module, `event_protocol.py` and `server.py` alone extend uvicorn's classes.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_TIMEOUT_SECONDS = 30  # in which all of a request must arrive
MAX_HEADER_BYTES = 1 << 16  # of request line and headers together


class BufferedTransport:
    """A transport that sends all writes of one turn of the event loop in one system call.

    A second system call for the body of a response would cost as much as a whole decision.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.is_closing = transport.is_closing  # every response asks
        self._parts: list[bytes] = []
        self._call_soon = asyncio.get_running_loop().call_soon

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn of the event loop."""
        if not self._parts:
            self._call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send what was written, then close."""
        self._flush()
        self._transport.close()

    def write_now(self, data: bytes) -> None:
        """Send bytes after all that was written."""
        if self._parts:
            self.write(data)
        elif not self.is_closing():
            self._transport.write(data)

    def _flush(self) -> None:
        if self._parts and not self.is_closing():
            self._transport.write(b"".join(self._parts))
        self._parts.clear()


class BoundedProtocol(HttpToolsProtocol):
    """HTTP over a buffered transport; closes connections with endless headers or slow requests.

    Both would otherwise take all memory or all connections before a key is checked.
    """

    bytes_beside_body = 0  # of the request that arrives now
    is_complete = False  # whether no part of a request is missing
    seconds_waiting = 0  # for the missing part of a request
    seconds_idle: int | None = None  # since the last response; None: a request is answered

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(BufferedTransport(transport))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        self.is_complete = False
        self.seconds_idle = None
        self.bytes_beside_body += len(data)
        super().data_received(data)
        if self.bytes_beside_body > MAX_HEADER_BYTES:
            self.send_400_response(f"The headers must have at most {MAX_HEADER_BYTES} bytes.")

    def on_message_begin(self) -> None:
        self.is_complete = False  # also if the request begins where another one has ended
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self.bytes_beside_body -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.is_complete = True
        self.seconds_waiting = 0
        self.bytes_beside_body = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, as uvicorn does, but without a timer for every response."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.seconds_idle = 0

    def tick(self) -> None:
        """Close a connection without requests, or with one that takes too long to arrive.

        Called every second.
        """
        self.seconds_waiting = 0 if self.is_complete else self.seconds_waiting + 1
        if self.seconds_waiting > REQUEST_TIMEOUT_SECONDS:
            self.transport.close()
        if self.seconds_idle is not None:
            self.seconds_idle += 1
            if self.seconds_idle > self.timeout_keep_alive:
                self.transport.close()
