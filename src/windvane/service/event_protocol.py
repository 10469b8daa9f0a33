"""The short way of rank, reward and activate requests from the socket to the service and back.

ASGI hands a request over in messages, through a queue of its own and several coroutines, and so
back. For a request that comes all the time this takes as long as its decision. `EventProtocol`
calls the application once, with the whole body, and sends the answer as one piece of bytes. Headers
that came before are not parsed again. All other requests, and unusual ones (a large body, HTTP/1.0,
`Expect`), are passed on as uvicorn does.
"""

import logging
import re
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from windvane.service.api.middleware import CLOSE, EventAnswer, RequestMiddleware
from windvane.service.api.responses import CONTENT_TYPE
from windvane.service.api.routes import Match, match_endpoint
from windvane.service.eager_call import EagerCall
from windvane.service.http_protocol import BoundedProtocol, BufferedTransport
from windvane.service.known_headers import KnownHeaders

STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %s\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
JSON_HEADER = b"%s: %s\r\n" % CONTENT_TYPE
logger = logging.getLogger("windvane.service")
_CONTROL_CHARACTERS = re.compile(b"[\x00-\x08\x0a-\x1f\x7f]")  # that no header may have


class EventCycle:
    """One request that is answered without ASGI; uvicorn reads some of these attributes."""

    __slots__ = (
        "body",
        "call",
        "disconnected",
        "keep_alive",
        "match",
        "message_event",
        "response_complete",
        "scope",
    )

    def __init__(self, scope: dict[str, Any], match: Match, body: bytes = b"") -> None:
        self.scope = scope
        self.match = match
        self.body = body
        self.call: EagerCall | None = None
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = False
        self.message_event = NOBODY_WAITS

    async def read_body(self) -> bytes:
        """The body of the request, which has arrived."""
        return self.body


class _NobodyWaits:
    """Stands for the event that uvicorn sets when a part of a body has arrived."""

    def set(self) -> None:
        """Wake nobody."""


NOBODY_WAITS = _NobodyWaits()


class EventProtocol(BoundedProtocol):
    """HTTP that answers the requests of events without ASGI."""

    app: RequestMiddleware
    transport: BufferedTransport  # type: ignore[assignment]
    known_headers = KnownHeaders()  # of all connections
    _event: EventCycle | None = None  # the request of which a part is still missing
    _arrived = b""  # what is parsed now, if it begins with a request
    _rank_url = b""  # the last URL of a rank request on this connection, and what it means
    _rank_match: Match | None = None
    _rank_path = ""

    def data_received(self, data: bytes) -> None:
        if self.is_complete and self.cycle.response_complete:
            request = self.known_headers.read(data)
            if request is not None:
                scope, match, body = request
                scope["server"] = self.server
                scope["client"] = self.client
                scope["scheme"] = self.scheme
                event = EventCycle(scope, match, body)
                self.seconds_idle = None
                self.cycle = event  # type: ignore[assignment]
                self._start(event)
                return
            self._arrived = data
        super().data_received(data)
        self._arrived = b""

    def on_headers_complete(self) -> None:
        match = self._match_event()
        if match is None:
            super().on_headers_complete()
        else:
            self._event = self.cycle = EventCycle(self.scope, match)  # type: ignore[assignment,arg-type]

    def _match_event(self) -> Match | None:
        """The endpoint of a request that can be answered without ASGI; fills its scope."""
        parser = self.parser
        if (
            parser.get_method() != b"POST"
            or self.expect_100_continue
            or not (self.cycle is None or self.cycle.response_complete)
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or parser.should_upgrade()
        ):
            return None
        scope: Any = self.scope
        scope["method"] = "POST"
        if self.url == self._rank_url:
            scope["path"] = self._rank_path
            scope["raw_path"] = self.url
            scope["query_string"] = b""
            return self._rank_match
        url = httptools.parse_url(self.url)
        if url.path is None or b"%" in url.path or self.root_path:
            return None
        path = url.path.decode("ascii")
        match = match_endpoint("POST", path)
        if match is None or match.endpoint.event is None:
            return None
        scope["path"] = path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        if url.path == self.url and match.endpoint.metric == "rank":
            self._rank_url, self._rank_path, self._rank_match = self.url, path, match
        return match

    def on_body(self, body: bytes) -> None:
        event = self._event
        if event is None:
            super().on_body(body)
            return
        self.bytes_beside_body -= len(body)
        event.body = event.body + body if event.body else body
        if len(event.body) > HIGH_WATER_LIMIT:
            self._pass_on(event)

    def _pass_on(self, event: EventCycle) -> None:
        """Pass a request with a large body on to ASGI, which reads it piece by piece."""
        self._event = self.cycle = None  # type: ignore[assignment]
        super().on_headers_complete()
        self.bytes_beside_body += len(event.body)  # `on_body` subtracts it
        super().on_body(event.body)

    def on_message_complete(self) -> None:
        event = self._event
        if event is None:
            super().on_message_complete()
            return
        self._event = None
        self.is_complete = True
        self.seconds_waiting = 0
        self.bytes_beside_body = 0
        if self._arrived:
            self.known_headers.add(self._arrived, event.body, event.scope)
        self._start(event)

    def _start(self, event: EventCycle) -> None:
        """Answer a request that has arrived."""
        event.call = EagerCall(self._answer(event), self.loop)
        self.tasks.add(event.call)  # type: ignore[arg-type]
        event.call.start()

    async def _answer(self, event: EventCycle) -> None:
        try:
            answer = await self.app.answer_event(event.scope, event.match, event.read_body)
            if self.flow.write_paused and not event.disconnected:
                await self.flow.drain()
            if CLOSE in answer.headers:
                event.keep_alive = False
            if not event.disconnected:
                self.transport.write_now(self._encode(answer, event.keep_alive))
                event.response_complete = True
                if not event.keep_alive:
                    self.transport.close()
                self.on_response_complete()
        except Exception:  # a defect: the application answers errors itself
            logger.exception("a request could not be answered")
            self.transport.close()
        except BaseException:
            self.transport.close()
            raise
        finally:
            self.tasks.discard(event.call)

    def _encode(self, answer: EventAnswer, keep_alive: bool) -> bytes:
        """The whole response as bytes."""
        status, body, headers = answer
        parts = [STATUS_LINES[status]]
        for name, value in self.server_state.default_headers:
            parts += name, b": ", value, b"\r\n"
        for name, value in headers:
            parts += name, b": ", _CONTROL_CHARACTERS.sub(b"", value), b"\r\n"
        if not keep_alive and CLOSE not in headers:
            parts.append(b"connection: close\r\n")
        if body:
            parts += JSON_HEADER, b"content-length: %d\r\n\r\n" % len(body), body
        else:
            parts.append(b"\r\n")
        return b"".join(parts)
