"""The application: for every request check its key and its limits, answer, count, log a failure."""

import logging
import re
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cached_property
from types import SimpleNamespace
from typing import NamedTuple
from urllib.parse import quote
from uuid import uuid4

from starlette.requests import Request
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from windvane.service.api.auth import Keyring, TrustedProxies
from windvane.service.api.events import EventEndpoint
from windvane.service.api.request_limits import (
    CONNECTION,
    Connection,
    CostlyRequests,
    KeyLimitError,
    LargeRequests,
    RateLimit,
    check_headers,
    count_unread_bytes,
)
from windvane.service.api.requests import (
    JSON_MEDIA_TYPE,
    ApiError,
    get_header,
    get_loop_name,
    refuse_path,
    to_api_error,
    unavailable,
)
from windvane.service.api.routes import (
    PREFIX,
    Match,
    find_needed_role,
    list_methods,
    match_endpoint,
)
from windvane.service.json_logging import hide_passwords
from windvane.service.traces import Tracing

MAX_LOGGED_PATH_LENGTH = 200
READINESS_PATH = "/readyz"
CLOSE = (b"connection", b"close")  # the header of the last answer on a connection
CONTENT_TYPE = (b"content-type", JSON_MEDIA_TYPE.encode())
MAX_REPEATED_ID_LENGTH = 64  # of a client's id that is repeated in the response
_PREFIX_BYTES = re.compile(b"^" + PREFIX.encode() + b"(?=/)")
_CONTROL_CHARACTERS = re.compile(b"[\x00-\x1f\x7f]")  # not allowed in a header of an answer

logger = logging.getLogger("windvane.service")


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: list[tuple[bytes, bytes]]


class LoadedState(SimpleNamespace):
    """What requests need; Starlette's `State` would be slower to read."""


class Application:
    """The ASGI application as a server calls it.

    The route table finds the endpoint of a request. Starlette's router would try one route after
    the other, which takes 130 µs for a rank request that names a loop.
    """

    is_draining = False  # whether the server is about to stop: every answer closes its connection

    def __init__(
        self,
        lifespan: Callable[["Application"], AbstractAsyncContextManager[None]],
        trusted_proxies: TrustedProxies | None = None,
        rate_limit: RateLimit | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        """`lifespan` fills `state` with service, keyring, metrics and evaluations."""
        self.state = LoadedState()
        self._router = Router(lifespan=lifespan)
        self._proxies = trusted_proxies or None  # None: no proxy is trusted
        self._rate_limit = rate_limit
        self._costly_requests = CostlyRequests()
        self.large_requests = LargeRequests()
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        # None: another server than uvicorn calls the application.
        connection: Connection | None = scope.get("state", {}).get(CONNECTION)
        received_bytes = 0 if connection is None else connection.take_request()
        status, body, headers = await self._answer(scope, receive, received_bytes)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        if connection is not None:
            connection.await_request(count_unread_bytes(scope))

    async def _answer(self, scope: Scope, receive: Receive, received_bytes: int) -> Answer:
        """Answer a request, count it, and log it if it failed."""
        started = time.perf_counter()
        match = match_endpoint(scope["method"], scope["path"])
        scope["path_params"] = {} if match is None else match.path_params
        facts = RequestFacts(scope, match)
        tracing = self._tracing
        span = None if tracing is None else tracing.start_request(scope)
        try:
            check_headers(scope, received_bytes)
            self._admit(facts)
            answer = await self._call_endpoint(facts, receive)
        except Exception as failure:
            answer = facts.note_failure(failure)
        answer.headers.append((b"x-ms-original-url", _build_original_url(scope)))
        if self.is_draining:
            answer.headers.append(CLOSE)
        self._record(facts, answer.status, time.perf_counter() - started)
        if tracing is not None and span is not None:
            route = None if match is None else match.endpoint.path
            loop = _find_loop_name(scope, match)
            tracing.finish_request(span, scope["method"], route, loop, answer.status)
        facts.reason = facts.defect = None  # its traceback has this frame, and so these facts
        return answer

    def _admit(self, facts: "RequestFacts") -> None:
        """Refuse a request without the key that it needs, or beyond the rate of its key.

        Before the loops are loaded, every request is refused.
        """
        scope = facts.scope
        if self._proxies:
            self._proxies.apply(scope)
        role = find_needed_role(scope["method"], facts.match)
        keyring: Keyring | None = getattr(self.state, "keyring", None)
        if keyring is None:
            raise unavailable("the loops are not loaded yet; try again")
        key = keyring.check(scope, role)
        facts.key_id = None if key is None else key.id
        if self._rate_limit is not None and role is not None:
            self._rate_limit.take(facts.key_id)

    async def _call_endpoint(self, facts: "RequestFacts", receive: Receive) -> Answer:
        scope, match = facts.scope, facts.match
        if match is None:
            raise refuse_path(list_methods(scope["path"]))
        endpoint, handler = match.endpoint, match.endpoint.handler
        if isinstance(handler, EventEndpoint):
            body = await handler.answer(self.state.service, scope, receive)
            return _build_json_answer(handler.status, body, [])
        turn = self._costly_requests.enter(facts.key_id) if endpoint.is_costly else nullcontext()
        async with turn:
            response = await handler(Request(scope, receive))
        return Answer(response.status_code, bytes(response.body), response.raw_headers)

    def _record(self, facts: "RequestFacts", status: int, seconds: float) -> None:
        scope = facts.scope
        if (metrics := getattr(self.state, "metrics", None)) is not None:
            metrics.count(*_label(scope, facts.match), status, seconds)
        if status < 400 and facts.reason is None:
            return
        if status == 429:
            self.state.metrics.count_limited(facts.key_id, facts.limit)
        is_expected = not self.is_loaded or (self.is_draining and scope["path"] == READINESS_PATH)
        if not is_expected and (facts.defect is not None or status in (401, 403) or status >= 500):
            facts.log(status, seconds)

    @property
    def is_loaded(self) -> bool:
        """Whether the loops are loaded and requests are answered."""
        return hasattr(self.state, "keyring")


class RequestFacts:
    """What is known of a request for the metrics and for the messages of the service."""

    def __init__(self, scope: Scope, match: Match | None) -> None:
        self.scope = scope
        self.match = match
        self.key_id: int | None = None
        self.reason: Exception | None = None  # why the request failed
        self.defect: Exception | None = None  # the same, if the service is to blame

    def note_failure(self, failure: Exception) -> Answer:
        """Note why the request failed; returns the answer to it."""
        error = to_api_error(failure)
        self.reason = failure
        self.defect = failure if error.status == 500 else None
        named = error.headers | {"x-request-id": self.request_id}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        return _build_json_answer(error.status, error.encode(), headers)

    @cached_property
    def request_id(self) -> str:
        """The id by which the client and the messages name a request that failed.

        It is the client's id, or a new one if that is missing, long or unprintable.
        """
        client_id = (get_header(self.scope, b"x-ms-client-request-id") or b"").decode("latin-1")
        is_short = 0 < len(client_id) <= MAX_REPEATED_ID_LENGTH
        is_usable = is_short and client_id.isascii() and client_id.isprintable()
        return client_id if is_usable else uuid4().hex

    @property
    def limit(self) -> str:
        """The limit that an answer with status 429 is counted by."""
        return self.reason.limit if isinstance(self.reason, KeyLimitError) else "work"

    def log(self, status: int, seconds: float) -> None:
        scope = self.scope
        facts = {
            "request": self.request_id,
            "client": scope["client"][0] if scope.get("client") else None,
            "method": scope["method"],
            "path": scope["path"][:MAX_LOGGED_PATH_LENGTH],
            "status": status,
            "ms": round(seconds * 1e3, 3),
        }
        if self.reason is not None and self.defect is None:
            facts["reason"] = hide_passwords(str(self.reason) or type(self.reason).__name__)
        level = logging.ERROR if self.defect is not None or status == 500 else logging.WARNING
        logger.log(level, "a request failed", exc_info=self.defect, extra={"facts": facts})


def _build_json_answer(status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> Answer:
    """An answer whose body is JSON, or empty."""
    if body:
        headers += CONTENT_TYPE, (b"content-length", b"%d" % len(body))
    return Answer(status, body, headers)


def _label(scope: Scope, match: Match | None) -> tuple[str, str | None]:
    """The operation and the loop by which a request is counted."""
    if match is None or match.endpoint.metric == "other":
        return "other", None
    return match.endpoint.metric, _find_loop_name(scope, match)


def _find_loop_name(scope: Scope, match: Match | None) -> str:
    """The loop of a request; empty if it has none, or names different ones."""
    if match is None or not match.endpoint.per_loop:
        return ""
    try:
        return get_loop_name(scope)
    except ApiError:
        return ""


def _build_original_url(scope: Scope) -> bytes:
    """The URL without the prefix of loop and version, for the header `x-ms-original-url`.

    The JavaScript client picks the types of a response by it.
    """
    host = get_header(scope, b"host") or b""
    path = _PREFIX_BYTES.sub(b"", scope.get("raw_path") or quote(scope["path"]).encode())
    url = b"%s://%s%s" % (scope["scheme"].encode(), host, path)
    return _CONTROL_CHARACTERS.sub(b"", url)
