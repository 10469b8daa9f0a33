"""For every request: check its key and its limits, count it, log a failure."""

import logging
import re
import time
from urllib.parse import quote
from uuid import uuid4

from starlette.datastructures import State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windvane.service.api.auth import Keyring
from windvane.service.api.endpoint import Role
from windvane.service.api.errors import ApiError, to_api_error, unavailable
from windvane.service.api.proxies import TrustedProxies
from windvane.service.api.request_limits import (
    CostlyRequests,
    KeyLimitError,
    RateLimit,
    Slot,
)
from windvane.service.api.requests import get_header, get_loop_name
from windvane.service.api.responses import send_response
from windvane.service.api.routes import PREFIX, Match, match_endpoint, needed_role
from windvane.service.monitoring.metrics import Metrics
from windvane.service.redaction import hide_passwords
from windvane.service.tracing import Tracing

MAX_LOGGED_PATH_LENGTH = 200
READINESS_PATH = "/readyz"
MAX_REQUEST_ID_LENGTH = 64  # of a client's id that is repeated in the response
_PREFIX_BYTES = re.compile(b"^" + PREFIX.encode() + b"(?=/)")

logger = logging.getLogger("windvane.service")


class RequestMiddleware:
    """The application as a server calls it."""

    is_draining = False  # whether the server is about to stop: every answer closes its connection

    def __init__(
        self,
        app: ASGIApp,
        trusted_proxies: TrustedProxies | None = None,
        rate_limit: RateLimit | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.app = app
        self.state = State()  # service, keyring and metrics, once they are loaded
        self._proxies = trusted_proxies
        self._rate_limit = rate_limit
        self._costly_requests = CostlyRequests()
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        request_id = ""
        slot: Slot | None = None
        span = None if self._tracing is None else self._tracing.start_request(scope)

        async def send_with_headers(message: Message) -> None:
            nonlocal status, request_id
            if message["type"] == "http.response.start":
                if slot is not None:
                    slot.release()  # the work is done, and a client may read slowly
                status = message["status"]
                message["headers"].append((b"x-ms-original-url", _build_original_url(scope)))
                if self.is_draining:
                    message["headers"].append((b"connection", b"close"))
                if status >= 400:
                    request_id = _get_request_id(scope)
                    message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        reason: Exception | None = None
        defect = None
        key_id = None
        match = match_endpoint(scope["method"], scope["path"])
        hot = match.endpoint.hot_handler if match is not None else None
        if match is not None:
            scope["path_params"] = match.path_params
        try:
            if self._proxies:
                self._proxies.apply(scope)
            role = needed_role(scope["method"], match)
            key_id = self._check_key(scope, role)
            if self._rate_limit is not None and role is not None:
                self._rate_limit.take(key_id)
            if match is not None and match.endpoint.is_costly:
                slot = await self._costly_requests.enter(key_id)
            # Hot requests skip Starlette's router, which tries one route after the other: a rank
            # request takes 12 µs outside the service, with the router 24 µs, or 130 µs if it names
            # a loop.
            await (hot or self.app)(scope, receive, send_with_headers)
        except Exception as failure:
            reason = failure
            error = to_api_error(failure)
            defect = failure if error.status == 500 else None
            if not status:
                pairs = [(name.encode(), value.encode()) for name, value in error.headers.items()]
                await send_response(send_with_headers, error.status, error.encode(), pairs)
        finally:
            if slot is not None:
                slot.release()
        seconds = time.perf_counter() - started
        self._count(scope, match, status, seconds)
        if span is not None:
            route = None if match is None else match.endpoint.path
            span.finish(scope["method"], route, _find_loop_name(scope, match), status)
        if status == 429:
            limit = reason.limit if isinstance(reason, KeyLimitError) else "work"
            self.state.metrics.count_limited(key_id, limit)
        is_expected = not self.is_loaded or (self.is_draining and scope["path"] == READINESS_PATH)
        if not is_expected and (defect is not None or status in (401, 403) or status >= 500):
            facts = {
                "request": request_id,
                "client": scope["client"][0] if scope.get("client") else None,
                "method": scope["method"],
                "path": scope["path"][:MAX_LOGGED_PATH_LENGTH],
                "status": status,
                "ms": round(seconds * 1e3, 3),
            }
            if reason is not None and defect is None:
                facts["reason"] = hide_passwords(str(reason) or type(reason).__name__)
            level = logging.ERROR if defect is not None or status == 500 else logging.WARNING
            logger.log(level, "a request failed", exc_info=defect, extra={"facts": facts})

    @property
    def is_loaded(self) -> bool:
        """Whether the loops are loaded and requests are answered."""
        return hasattr(self.state, "keyring")

    def _count(self, scope: Scope, match: Match | None, status: int, seconds: float) -> None:
        """Count a request, once there are metrics."""
        metrics: Metrics | None = getattr(self.state, "metrics", None)
        if metrics is None:
            return
        if match is None or match.endpoint.hot_handler is None:
            metrics.count("other", None, status, seconds)
            return
        loop = _find_loop_name(scope, match)
        metrics.count(match.endpoint.metric, loop, status, seconds)

    def _check_key(self, scope: Scope, role: Role | None) -> int | None:
        """Return the id of the request's key; refuse a request without the key that it needs.

        Before the loops are loaded, every request is refused.
        """
        keyring: Keyring | None = getattr(self.state, "keyring", None)
        if keyring is None:
            raise unavailable("the loops are not loaded yet; try again")
        key = keyring.check(scope, role)
        return None if key is None else key.id


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
    return b"%s://%s%s" % (scope["scheme"].encode(), host, path)


def _get_request_id(scope: Scope) -> str:
    """The client's id of a request, or a new one if that is missing, long or unprintable."""
    client_id = (get_header(scope, b"x-ms-client-request-id") or b"").decode("latin-1")
    is_usable = (
        0 < len(client_id) <= MAX_REQUEST_ID_LENGTH
        and client_id.isascii()
        and client_id.isprintable()
    )
    return client_id if is_usable else uuid4().hex
