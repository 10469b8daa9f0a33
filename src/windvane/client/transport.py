"""How an operation reaches one of the servers: which is tried next, when, and for how long.

All servers of a client share one log, and every request can be repeated: an event is decided once,
and a reward with the same request id counts once. So a request goes to one server after the other
until one answers or the time is over. A server is not trusted: nothing that it does takes longer
than the time-out, and an answer that is too long or cannot be right is no answer.
"""

import asyncio
import random
import time
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NamedTuple, TypeVar

import httpx2 as httpx
import msgspec

from windvane.client.results import ClientError, DeliveryError, RequestError
from windvane.errors import SettingError, shorten
from windvane.settings import check_sequence, of_kind, positive

LOCAL_SERVER = "http://127.0.0.1:8787"
TIMEOUT_SECONDS = 10.0
RANK_TIMEOUT_SECONDS = 1.0
MAX_ANSWER_BYTES = 1 << 24  # of an answer; a page of decisions has some 2 MB
FIRST_PAUSE_SECONDS = 0.05  # at most, after the first failure of a server; then twice as long
MAX_PAUSE_SECONDS = 2.0
RETRIED_STATUSES = frozenset((429, 500, 502, 503, 504))
MAX_RETRY_AFTER_SECONDS = 3600.0
Result = TypeVar("Result")
Operation = Generator["Call", Any, Result]


class Call(NamedTuple):
    """A request to any of the servers."""

    name: str  # of the operation, for messages
    method: str
    path: str
    decode: Callable[[bytes], Any]
    timeout: float  # seconds, for all attempts together
    body: bytes | None = None
    request_id: str = ""
    wait: float = 0.0  # seconds for which a server may let the request wait, beside the timeout


class Attempt(NamedTuple):
    """One try of a request: which server, after which pause, and how long it may take."""

    server: int
    pause_seconds: float
    seconds: float


class Servers:
    """The addresses of the servers, and which of them answered last.

    Threads may share it: a race only changes which server is tried first.
    """

    def __init__(self, urls: str | Sequence[str]) -> None:
        addresses = [urls] if isinstance(urls, str) else check_sequence("Client", "servers", urls)
        if not addresses:
            raise SettingError("Client: there must be at least one server")
        for url in addresses:
            if not isinstance(url, str) or not url.startswith(("http://", "https://")):
                message = "Client: a server must be a URL such as http://127.0.0.1:8787"
                raise SettingError(f"{message}, got {shorten(url)}")
        self.urls = tuple(url.rstrip("/") for url in addresses)
        self._preferred = 0
        self._failed_at = [0.0] * len(addresses)  # 0: its last request was answered

    def list_order(self) -> list[int]:
        """The servers, in the order in which a request tries them.

        The one that answered last comes first, and those that failed come last, the longest ago
        first.
        """
        numbers = range(len(self.urls))
        return sorted(
            numbers,
            key=lambda number: (self._failed_at[number], number != self._preferred, number),
        )

    def note_answer(self, server: int) -> None:
        """Prefer this server from now on."""
        self._failed_at[server] = 0.0
        self._preferred = server

    def note_failure(self, server: int, at: float) -> None:
        """Try this server after the others from now on."""
        self._failed_at[server] = at


class Attempts:
    """The attempts of one request, until `timeout` seconds are over.

    A server may let the request wait for `wait` seconds, which come on top.
    """

    def __init__(
        self,
        servers: Servers,
        timeout: float,
        wait: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._servers = servers
        self._clock = clock
        self._draw = draw
        self._wait = wait
        self._deadline = clock() + timeout + wait
        self._ready_at = dict.fromkeys(servers.list_order(), 0.0)  # when each may be tried
        self._failures = dict.fromkeys(self._ready_at, 0)
        self.reason = "there was no time for a request"  # of the last failure

    def plan_next(self) -> Attempt | None:
        """The next attempt; None if there is no time for another.

        The time that is left, without the wait, is shared equally among the servers that were not
        tried yet.
        """
        now = self._clock()
        server = min(
            self._ready_at,
            key=lambda each: (max(self._ready_at[each], now), self._failures[each]),
        )
        pause = max(self._ready_at[server] - now, 0.0)
        seconds = self._deadline - now - pause
        if seconds <= 0.0:
            return None
        untried = sum(not count for count in self._failures.values())
        wait = min(self._wait, seconds)
        return Attempt(server, pause, wait + (seconds - wait) / max(untried, 1))

    def note_failure(self, attempt: Attempt, reason: str, retry_after: float = 0.0) -> None:
        """The server failed: it is tried again after a pause, at the earliest `retry_after`.

        The pause is drawn uniformly from [0, p], where p doubles with each failure, so that many
        clients do not come back at the same moment.
        """
        now = self._clock()
        server = attempt.server
        self.reason = reason
        longest = min(FIRST_PAUSE_SECONDS * 2.0 ** self._failures[server], MAX_PAUSE_SECONDS)
        self._ready_at[server] = now + max(self._draw() * longest, retry_after)
        self._failures[server] += 1
        self._servers.note_failure(server, now)


def read_retry_after(value: str | None) -> float:
    """The seconds of a header Retry-After, which has seconds or a date; 0 without one."""
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, TypeError, IndexError, OverflowError):  # what its parser raises
            return 0.0
        if date.tzinfo is None:
            date = date.replace(tzinfo=UTC)
        seconds = (date - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS) if seconds == seconds else 0.0


class _ErrorBody(msgspec.Struct):
    code: str = ""
    message: str = ""
    target: str = ""


class _ErrorEnvelope(msgspec.Struct):
    error: _ErrorBody


_decode_error = msgspec.json.Decoder(_ErrorEnvelope).decode


def build_headers(key: str | None) -> dict[str, str]:
    """The headers of every request."""
    headers = {
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",  # what is unpacked would have no bound
    }
    if key is not None:
        if not of_kind("Client", "key", key, str).isascii() or not key.isprintable():
            raise SettingError("Client: a key must have printable ASCII letters")
        headers["authorization"] = f"Bearer {key}"
    return headers


class Connection:
    """The settings of a client, and how its operations reach a server."""

    def __init__(
        self,
        servers: str | Sequence[str] = LOCAL_SERVER,
        *,
        key: str | None = None,
        loop: str = "default",
        timeout: float = TIMEOUT_SECONDS,
        rank_timeout: float = RANK_TIMEOUT_SECONDS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self.loop = loop
        self.timeout = positive("Client", "timeout", timeout)
        self.rank_timeout = positive("Client", "rank_timeout", rank_timeout)
        self._servers = Servers(servers)
        self._headers = build_headers(key)
        if http is None:  # without cookies, which every answer could add to
            http = httpx.AsyncClient(cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])))
        self._http = of_kind("Client", "http", http, httpx.AsyncClient)

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of the servers, in the order in which they were given."""
        return self._servers.urls

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.servers)!r}, loop={self.loop!r})"

    async def _perform(self, operation: Operation[Result]) -> Result:
        """Send the calls of an operation, and return its result."""
        try:
            call = next(operation)
            while True:
                try:
                    answer = await self._send(call)
                except ClientError as error:
                    call = operation.throw(error)
                else:
                    call = operation.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    async def _send(self, call: Call) -> Any:
        attempts = Attempts(self._servers, call.timeout, call.wait)
        while (attempt := attempts.plan_next()) is not None:
            await asyncio.sleep(attempt.pause_seconds)
            try:
                async with asyncio.timeout(attempt.seconds):
                    response, body = await self._exchange(call, self.servers[attempt.server])
                answer = read_answer(call, response, body)
            except (httpx.HTTPError, _AnswerError, TimeoutError) as error:
                retry_after = getattr(error, "retry_after", 0.0)
                attempts.note_failure(attempt, describe_failure(error), retry_after)
            except RequestError:
                self._servers.note_answer(attempt.server)
                raise
            else:
                self._servers.note_answer(attempt.server)
                return answer
        message = f"{call.name}: no server took the request in {call.timeout:g} s"
        raise DeliveryError(f"{message} ({attempts.reason})")

    async def _exchange(self, call: Call, url: str) -> tuple[httpx.Response, bytes]:
        """Send a call to a server; return the response and its body."""
        own = {"x-ms-client-request-id": call.request_id} if call.request_id else {}
        headers = {**self._headers, **own}
        request = httpx.Request(
            call.method,
            url + call.path,
            headers=headers,
            content=call.body,
            extensions={"timeout": {}},  # none for its phases: the whole attempt has one
        )
        response = await self._http.send(request, stream=True)
        body = bytearray()
        try:
            encoding = response.headers.get("content-encoding", "identity")
            if encoding.lower() != "identity":
                raise _AnswerError(f"the answer is encoded as {shorten(encoding)}")
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_ANSWER_BYTES:
                    raise _AnswerError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
            return response, bytes(body)
        finally:
            body.clear()  # an exception keeps this frame until the next garbage collection
            await response.aclose()


class _AnswerError(ClientError):
    """An answer that does not count: the request is repeated, at the earliest `retry_after`."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


def read_answer(call: Call, response: httpx.Response, body: bytes) -> Any:
    """The decoded answer to a call, or the error that the response means."""
    status, error = response.status_code, _describe_error(body)
    message = shorten(error.message or response.reason_phrase or "no reason was given", str)
    if status in RETRIED_STATUSES:
        retry_after = read_retry_after(response.headers.get("retry-after"))
        raise _AnswerError(f"status {status}: {message}", retry_after)
    if not response.is_success:
        text = f"{call.name}: the service refuses the request with status {status}: {message}"
        raise RequestError(text, status, error.code, error.target)
    try:
        return call.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as reason:
        raise _AnswerError(f"the answer cannot be read ({shorten(reason, str)})") from None


def describe_failure(error: Exception) -> str:
    """Why no response came, in a few words."""
    if isinstance(error, _AnswerError):
        return str(error)
    name = type(error).__name__
    return f"{name}: {shorten(error, str)}" if str(error) else name


def _describe_error(body: bytes) -> _ErrorBody:
    try:
        return _decode_error(body).error
    except (msgspec.DecodeError, ValueError, RecursionError):
        return _ErrorBody()
