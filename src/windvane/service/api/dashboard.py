"""The board: one page that says whether a loop learns, and the data behind it."""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.service.api.errors import ApiError, bad_request
from windvane.service.api.requests import get_service
from windvane.service.api.responses import JSON_MEDIA_TYPE
from windvane.service.loops.loop import Loop
from windvane.service.monitoring.event_report import look_up
from windvane.service.monitoring.log_follower import Watch, Watches
from windvane.service.monitoring.panels import Recent, answers, recent

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """A file of the page, as it is sent."""

    content: bytes
    media_type: str


STATIC_FILES = {
    file.name: StaticFile(file.read_bytes(), MEDIA_TYPES[file.name.rpartition(".")[2]])
    for file in files("windvane.service.api").joinpath("static").iterdir()
}


@dataclass
class Seen:
    """What was last read of a loop; one request at a time reads on."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    recent: Recent = field(default_factory=lambda: Recent([], []))
    read: float = 0.0  # when its watch had last read the log

    async def refresh(self, watches: Watches, loop: Loop) -> Watch:
        """Read on, in another thread, unless that was done just now."""
        async with self.lock:
            watch = await asyncio.to_thread(watches.of, loop)
            if watch.read != self.read:
                self.recent = await asyncio.to_thread(recent, loop)
                self.read = watch.read
            return watch


def seen_of(request: Request, name: str) -> Seen:
    """What this process has read of a loop."""
    state = request.app.state
    if not hasattr(state, "seen"):
        state.seen = {}
    seen: Seen = state.seen.setdefault(name, Seen())
    return seen


def since_of(request: Request) -> int | None:
    """From when on decisions are looked at, in microseconds since 1970."""
    text = request.query_params.get("since")
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,17}", text, re.ASCII):
        raise bad_request("BadRequest", "since must be whole microseconds since 1970", "since")
    return int(text)


async def page(request: Request) -> Response:
    """GET / and loops/{name}."""
    if name := request.path_params.get("name"):
        await get_service(request).get_loop(name)
    return send_file(request, STATIC_FILES["dashboard.html"])


async def static(request: Request) -> Response:
    """GET static/{file}: the style sheet, the scripts and the icon of the page."""
    file = STATIC_FILES.get(request.path_params["file"])
    if file is None:
        raise ApiError(404, "ResourceNotFound", "the page has no such file")
    return send_file(request, file)


async def listed(request: Request) -> Response:
    """GET board.json: all loops."""
    loops = [{"name": loop.name} for loop in get_service(request).loops.values()]
    return answered(request, {"loops": loops})


async def data(request: Request) -> Response:
    """GET board/{name}.json."""
    loop = await get_service(request).get_loop(request.path_params["name"])
    since, seen = since_of(request), seen_of(request, loop.name)
    watch = await seen.refresh(request.app.state.metrics.watches, loop)
    return answered(request, await asyncio.to_thread(answers, watch, seen.recent, since))


async def event(request: Request) -> Response:
    """GET board/{name}/events/{event}."""
    loop = await get_service(request).get_loop(request.path_params["name"])
    wanted = str(request.path_params["event"])
    found = await asyncio.to_thread(look_up, loop, wanted)
    if found is None:
        message = f"no decision of this loop has the event id {wanted!r}"
        raise ApiError(404, "ResourceNotFound", message, "eventId")
    return answered(request, found)


def send_file(request: Request, file: StaticFile) -> Response:
    """A file of the page, with headers that let it load nothing from other sites."""
    return _respond(request, file.content, file.media_type, SECURITY_HEADERS)


def answered(request: Request, content: object) -> Response:
    """JSON, or that it is what the browser already has."""
    return _respond(request, msgspec.json.encode(content), JSON_MEDIA_TYPE, {})


def _respond(
    request: Request, body: bytes, media_type: str, headers: Mapping[str, str]
) -> Response:
    """The body, or status 304 if the browser has it already."""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {**headers, "etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(None, 304, headers)
    return Response(body, 200, headers, media_type)
