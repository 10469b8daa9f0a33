"""The headers of event requests that came before: what the same bytes mean, without a parser.

A client sends the same headers with most of its requests. To parse them takes longer than to find
them in a table.
"""

import re
from functools import lru_cache
from typing import Any, NamedTuple

from windvane.service.api.routes import Match, match_endpoint

MAX_KNOWN = 256
MAX_HEAD_BYTES = 2048  # of request line and headers; a longer head is parsed every time
LINE_END = b"\r\n"
HEAD_END = b"\r\n\r\n"
# Headers with one of these do not come again.
UNIQUE_HEADERS = {b"x-ms-client-request-id", b"x-request-id", b"traceparent", b"date"}
# Only characters that mean themselves: every other request line is left to the parser.
_REQUEST_LINE = re.compile(rb"POST (/[\w.~/-]*)(?:\?([\w.~=&-]*))? HTTP/1\.1", re.ASCII)


class EventRequest(NamedTuple):
    """A whole request: its ASGI scope, its endpoint and its body."""

    scope: dict[str, Any]  # with the connection of the request that had these headers first
    match: Match
    body: bytes


class _Known(NamedTuple):
    """What a block of headers means: most of a scope, and the size of the body that follows."""

    scope: dict[str, Any]  # which nobody may change
    body_size: int


class _Target(NamedTuple):
    """What a request line means."""

    path: str
    raw_path: bytes
    query: bytes
    match: Match


@lru_cache(maxsize=256)
def _read_line(line: bytes) -> _Target | None:
    """What the request line of an event means; None if it is another line, or an unusual one."""
    parts = _REQUEST_LINE.fullmatch(line)
    if parts is None:
        return None
    raw_path, query = parts.groups()
    path = raw_path.decode("ascii")
    match = match_endpoint("POST", path)
    if match is None or match.endpoint.event is None:
        return None
    return _Target(path, raw_path, query or b"", match)


class KnownHeaders:
    """What headers mean, by their bytes, from the end of the request line to the body.

    The parser has found it out: at the beginning of a request, what it finds depends on nothing
    else. Keys are checked again for every request.
    """

    def __init__(self) -> None:
        self._blocks: dict[bytes, _Known] = {}

    def read(self, data: bytes) -> EventRequest | None:
        """Read one whole event request with known headers; None if `data` is something else."""
        line_end = data.find(LINE_END, 0, MAX_HEAD_BYTES)
        head_end = data.find(HEAD_END, line_end, MAX_HEAD_BYTES) + len(HEAD_END)
        known = self._blocks.get(data[line_end:head_end])
        if known is None or len(data) != head_end + known.body_size:
            return None
        target = _read_line(data[:line_end])
        if target is None:
            return None
        scope = known.scope.copy()
        scope["path"] = target.path
        scope["raw_path"] = target.raw_path
        scope["query_string"] = target.query
        return EventRequest(scope, target.match, data[head_end:])

    def add(self, data: bytes, body: bytes, scope: dict[str, Any]) -> None:
        """Keep the headers of an event request, if `data` is this request and they may come again.

        `body` and `scope` are what the parser has found.
        """
        line_end = data.find(LINE_END, 0, MAX_HEAD_BYTES)
        head_end = data.find(HEAD_END, line_end, MAX_HEAD_BYTES) + len(HEAD_END)
        names = [name for name, _ in scope["headers"]]
        if (
            head_end < len(HEAD_END) + line_end
            or (b"content-length", b"%d" % len(body)) not in scope["headers"]
            or b"transfer-encoding" in names
            or not UNIQUE_HEADERS.isdisjoint(names)
            or data[head_end:] != body
        ):
            return
        if len(self._blocks) >= MAX_KNOWN:
            self._blocks.clear()
        self._blocks[data[line_end:head_end]] = _Known(scope.copy(), len(body))
