"""What every request passes: its key is checked, it is counted, and logged where it fails."""

import logging
import re
import time
from collections.abc import Iterable
from urllib.parse import quote
from uuid import uuid4

from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from windvane.errors import StoreError, WindvaneError
from windvane.service.api.auth import Keyring, challenge, needed
from windvane.service.api.events import Asked, answered, asked, header
from windvane.service.loops.service import Service
from windvane.service.monitoring.metrics import Metrics
from windvane.service.schemas import JSON, WireError, bad

PREFIX = re.compile(rb"^(/loops/[^/]+)?/personalizer(/v1\.[^/]+)?(?=/)")
TYPE = (b"content-type", JSON.encode())
Pairs = Iterable[tuple[bytes, bytes]]
log = logging.getLogger("windvane.service")


class Edge:
    """The application as a server calls it; what is asked all the time takes the short way."""

    def __init__(self, app: Starlette) -> None:
        self.app = app

    @property
    def state(self) -> State:
        """What is loaded: service, keyring and metrics."""
        return self.app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, request_id = time.perf_counter(), 0, ""

        async def answer(message: Message) -> None:
            nonlocal status, request_id
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((b"x-ms-original-url", original(scope)))
                if status >= 400:
                    request_id = id_of(scope)
                    message["headers"].append((b"x-request-id", request_id.encode()))
            await send(message)

        ask, error = asked(scope), None
        try:
            check(self.state, scope, ask)
            if ask is None:
                await self.app(scope, receive, answer)
            else:
                body = await answered(self.state.service, ask, scope, receive)
                status = 201 if body else 204
                await say(send, status, body, ((b"x-ms-original-url", original(scope)),))
        except Exception as reason:
            fault = fault_of(reason)
            error = reason if fault.status == 500 else None
            if not status:
                await say(answer, fault.status, fault.body(), refusal(fault, scope))
        took = time.perf_counter() - began
        metrics: Metrics | None = getattr(self.state, "metrics", None)
        if metrics is not None:  # it is loaded
            metrics.count(ask, status, took)
        if error is not None or status in (401, 403) or status >= 500:
            facts = {
                "request": request_id,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(took * 1e3, 3),
            }
            level = logging.ERROR if error is not None or status == 500 else logging.WARNING
            log.log(level, "a request failed", exc_info=error, extra={"facts": facts})


def service_of(request: Request) -> Service:
    """The service behind a request."""
    service: Service = request.app.state.service
    return service


def check(state: State, scope: Scope, ask: Asked | None) -> None:
    """Refuse what no key allows, and all but the first questions before the loops are loaded."""
    keyring: Keyring | None = getattr(state, "keyring", None)
    role = needed(scope["method"], scope["path"]) if ask is None else "rank"
    if keyring is not None:
        keyring.check(scope, role)
    elif role is not None:
        raise WireError(503, "OperationNotAllowed", "the loops are not loaded yet")


async def say(send: Send, status: int, body: bytes, headers: Pairs = ()) -> None:
    """An answer, whole."""
    told = [*headers]
    if body:
        told += TYPE, (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})


def refusal(fault: WireError, scope: Scope) -> Pairs:
    """What the headers say of an error."""
    code = (b"x-ms-error-code", fault.code.encode())
    if fault.status != 401:
        return (code,)
    return code, (b"www-authenticate", challenge(header(scope, b"accept") or b""))


def fault_of(error: Exception) -> WireError:
    """Any failure as the envelope has it."""
    if isinstance(error, WireError):
        return error
    if isinstance(error, HTTPException):
        code = "ResourceNotFound" if error.status_code == 404 else "BadRequest"
        return WireError(error.status_code, code, str(error.detail))
    if isinstance(error, StoreError | TimeoutError):
        message = str(error) or "the log takes too long; try again"
        return WireError(503, "OperationNotAllowed", message)
    if isinstance(error, WindvaneError):
        return bad("BadRequest", str(error))
    return WireError(500, "InternalServerError", "the service failed; its log says why")


def original(scope: Scope) -> bytes:
    """The address as it was asked, without loop and version: one client's types go by it."""
    host = header(scope, b"host") or b""
    path = PREFIX.sub(b"", scope.get("raw_path") or quote(scope["path"]).encode())
    return b"%s://%s%s" % (scope["scheme"].encode(), host, path)


def id_of(scope: Scope) -> str:
    """The client's id of a request, if it is a decent one; else one of ours."""
    given = (header(scope, b"x-ms-client-request-id") or b"").decode("latin-1")
    decent = 0 < len(given) <= 64 and given.isascii() and given.isprintable()
    return given if decent else uuid4().hex
