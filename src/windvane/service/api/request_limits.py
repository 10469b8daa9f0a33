"""Limits on what a client may ask for: rates, costly and large requests at once, header bytes.

Without keys all clients share one allowance.

uvicorn calls the application once it has all headers of a request. Until then nobody checks a key,
so endless headers would take all memory, and silent clients all connections. `Connection` stands
between the socket and uvicorn's protocol, as an asyncio protocol of its own, and uses nothing else
of uvicorn. The application finds it in the scope of each request and says when it has the headers
and when it has answered.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self, TypeVar

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windvane.service.api.requests import (
    BODY_IS_READ,
    MAX_BODY_BYTES,
    ApiError,
    bad_request,
    get_header,
    unavailable,
)

BURST_SECONDS = 1.0  # of requests that a client may send at once after a pause
# The default executor of a machine with one core has five threads: one stays free for the service.
MAX_COSTLY_RUNNING = 4
MAX_COSTLY_PER_KEY = 16  # running and waiting ones
COSTLY_RETRY_SECONDS = 1
MAX_SMALL_BODY_BYTES = 1 << 15
MAX_HELD_BYTES = 1 << 24  # of all large bodies whose requests are not answered yet
HEADERS_TIMEOUT_SECONDS = 30.0  # from the first byte of a request until its headers are complete
MAX_HEADER_BYTES = 1 << 16
MAX_READ_BYTES = 1 << 18  # of one system call of uvloop, in which a body follows the headers
Result = TypeVar("Result")
CONNECTION = "connection"  # the name in the state of a scope


class KeyLimitError(ApiError):
    """An answer with status 429 that says when to try again; metrics count it by `limit`."""

    def __init__(self, limit: str, message: str, retry_after_seconds: int) -> None:
        headers = {"retry-after": str(retry_after_seconds)}
        super().__init__(429, "TooManyRequests", message, headers=headers)
        self.limit = limit


class RateLimit:
    """A token bucket for each key; each request takes one token."""

    def __init__(
        self, requests_per_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = requests_per_second
        self._capacity = max(1.0, requests_per_second * BURST_SECONDS)
        self._clock = clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # tokens of each key, at a time

    def take(self, key_id: Hashable) -> None:
        now = self._clock()
        tokens, at = self._buckets.get(key_id, (self._capacity, now))
        tokens = min(self._capacity, tokens + (now - at) * self._rate)
        if tokens < 1.0:
            self._buckets[key_id] = tokens, now
            wait = math.ceil((1.0 - tokens) / self._rate)
            message = f"a key may send {self._rate:g} requests a second; try again in {wait} s"
            raise KeyLimitError("rate", message, wait)
        self._buckets[key_id] = tokens - 1.0, now


class CostlyRequests:
    """Requests that take long: a few run at a time, and the others wait."""

    def __init__(self) -> None:
        self._running = asyncio.Semaphore(MAX_COSTLY_RUNNING)
        self._count_by_key: Counter[Hashable] = Counter()  # running and waiting ones

    @asynccontextmanager
    async def enter(self, key_id: Hashable) -> AsyncIterator[None]:
        """Wait until a costly request may run; refuse it if too many of its key run or wait."""
        if self._count_by_key[key_id] >= MAX_COSTLY_PER_KEY:
            message = (
                f"a key may have {MAX_COSTLY_PER_KEY} costly requests at once; try again later"
            )
            raise KeyLimitError("costly", message, COSTLY_RETRY_SECONDS)
        self._count_by_key[key_id] += 1
        try:
            async with self._running:
                yield
        finally:
            self._count_by_key[key_id] -= 1
            if not self._count_by_key[key_id]:
                del self._count_by_key[key_id]


class HeldBody:
    """Counts the bytes of one body, once it is large, until the request is answered."""

    def __init__(self, requests: "LargeRequests") -> None:
        self._requests = requests
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_large:
            self._requests.held_bytes -= self._size

    @property
    def is_large(self) -> bool:
        """Whether small requests may overtake this one."""
        return self._size > MAX_SMALL_BODY_BYTES

    def take(self, count: int) -> None:
        """Count more bytes; refuse the request if large bodies have too many bytes already."""
        was_large = self.is_large
        self._size += count
        if self.is_large:
            self._requests.held_bytes += count if was_large else self._size
            if self._requests.held_bytes > MAX_HELD_BYTES:
                raise unavailable("too many large requests wait; try again")


class LargeRequests:
    """Rank requests with large bodies: one is worked on at a time, while small ones overtake it.

    The bytes of all large bodies, rewards included, are bounded.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()  # of a large request, until it is answered
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="windvane large requests")
        self.held_bytes = 0

    def hold(self) -> HeldBody:
        """Hold a body until the request is answered."""
        return HeldBody(self)

    async def run(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Call a function in the one thread of large requests."""
        event_loop = asyncio.get_running_loop()
        return await event_loop.run_in_executor(self._thread, partial(function, *arguments))


class Connection(asyncio.Protocol):
    """Passes bytes on to uvicorn; closes a connection with endless or slow headers."""

    def __init__(self, app_state: dict[str, Any], **options: Any) -> None:
        """Take the arguments that uvicorn gives its protocols."""
        self._http = HttpToolsProtocol(app_state={**app_state, CONNECTION: self}, **options)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_waiting = True  # for the headers of a request
        self._begun_at = time.monotonic()  # inf: no byte of the next request has arrived
        self._received_bytes = 0  # while it waits
        self._max_bytes = MAX_HEADER_BYTES + MAX_READ_BYTES

    def take_request(self) -> int:
        """Note that all headers of a request are there; returns how many bytes came with them."""
        self._is_waiting = False
        return self._received_bytes

    def await_request(self, unread_bytes: int) -> None:
        """Wait for the next request, after the rest of a body that nobody has read.

        uvicorn closes a connection without bytes after its time to keep alive.
        """
        self._is_waiting = True
        self._begun_at = math.inf
        self._received_bytes = 0
        self._max_bytes = MAX_HEADER_BYTES + MAX_READ_BYTES + unread_bytes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._http.connection_made(transport)
        self._check_time()

    def data_received(self, data: bytes) -> None:
        if self._is_waiting:
            if not self._received_bytes:
                self._begun_at = min(self._begun_at, time.monotonic())
            self._received_bytes += len(data)
            if self._received_bytes > self._max_bytes:
                self._close()
                return
        self._http.data_received(data)

    def _check_time(self) -> None:
        """Close the connection if its headers take too long, or look again later."""
        now = time.monotonic()
        begun_at = min(self._begun_at, now) if self._is_waiting else now
        rest = begun_at + HEADERS_TIMEOUT_SECONDS - now
        if rest <= 0:
            self._close()
        else:
            self._timer = asyncio.get_running_loop().call_later(rest, self._check_time)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._http.connection_lost(exc)

    def eof_received(self) -> None:
        self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()


def check_headers(scope: Scope, received_bytes: int) -> None:
    """Refuse a request with too many bytes of headers; `received_bytes` may include its body."""
    if received_bytes > MAX_HEADER_BYTES:
        size = len(scope["raw_path"]) + len(scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])  # ": ", "\r\n"
        if size > MAX_HEADER_BYTES:
            message = f"the headers must have at most {MAX_HEADER_BYTES} bytes"
            raise bad_request("BadRequest", message)


def count_unread_bytes(scope: Scope) -> int:
    """How many bytes of the body of an answered request may still come."""
    if BODY_IS_READ in scope:
        return 0
    if get_header(scope, b"transfer-encoding") is not None:
        return MAX_BODY_BYTES
    return int(get_header(scope, b"content-length") or 0)  # the parser has checked it
