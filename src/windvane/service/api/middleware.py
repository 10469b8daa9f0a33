"""What happens to every request: its key is checked, it is counted, a failure is logged."""

import logging
import re
import time
from urllib.parse import quote
from uuid import uuid4

from starlette.datastructures import State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windvane.service.api.auth import Keyring
from windvane.service.api.endpoint import Role
from windvane.service.api.errors import ApiError, to_api_error
from windvane.service.api.requests import get_header, get_loop_name
from windvane.service.api.responses import send_response
from windvane.service.api.routes import PREFIX, match_endpoint, needed_role
from windvane.service.monitoring.metrics import Metrics

MAX_REQUEST_ID_LENGTH = 64  # of a client's id that is repeated in the response
_PREFIX_BYTES = re.compile(b"^" + PREFIX.encode() + b"(?=/)")

logger = logging.getLogger("windvane.service")


class RequestMiddleware:
    """The application as a server calls it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.state = State()  # service, keyring and metrics, once they are loaded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        request_id = ""

        async def send_with_headers(message: Message) -> None:
            nonlocal status, request_id
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-ms-original-url", _build_original_url(scope)))
                if status >= 400:
                    request_id = _get_request_id(scope)
                    message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        defect = None
        match = match_endpoint(scope["method"], scope["path"])
        hot = match.endpoint.hot_handler if match is not None else None
        if match is not None:
            scope["path_params"] = match.path_params
        try:
            self._check_key(scope, needed_role(scope["method"], match))
            # Hot requests skip Starlette's router, which tries one route after the other: a rank
            # request takes 12 µs outside the service, with the router 24 µs, or 130 µs if it names
            # a loop.
            await (hot or self.app)(scope, receive, send_with_headers)
        except Exception as reason:
            error = to_api_error(reason)
            defect = reason if error.status == 500 else None
            if not status:
                pairs = [(name.encode(), value.encode()) for name, value in error.headers.items()]
                await send_response(send_with_headers, error.status, error.encode(), pairs)
        seconds = time.perf_counter() - started
        metrics: Metrics | None = getattr(self.state, "metrics", None)
        if metrics is not None:
            if match is None or hot is None:
                metrics.count("other", None, status, seconds)
            else:
                metrics.count(match.endpoint.metric, get_loop_name(scope), status, seconds)
        if defect is not None or status in (401, 403) or status >= 500:
            facts = {
                "request": request_id,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(seconds * 1e3, 3),
            }
            level = logging.ERROR if defect is not None or status == 500 else logging.WARNING
            logger.log(level, "a request failed", exc_info=defect, extra={"facts": facts})

    def _check_key(self, scope: Scope, role: Role | None) -> None:
        """Refuse a request without the key that it needs, and most before the loops are loaded."""
        keyring: Keyring | None = getattr(self.state, "keyring", None)
        if keyring is not None:
            keyring.check(scope, role)
        elif role is not None:
            raise ApiError(503, "OperationNotAllowed", "the loops are not loaded yet")


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
