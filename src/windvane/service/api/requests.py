"""What handlers need: service, loop, headers, query and body of a request, and JSON responses."""

import asyncio
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from windvane.service.api.errors import ApiError, bad_request
from windvane.service.errors import describe_invalid_value
from windvane.service.loops.service import Service

JSON_MEDIA_TYPE = "application/json; charset=utf-8"
MAX_BODY_BYTES = 1 << 20
BODY_TIMEOUT_SECONDS = 30.0  # until all of a body must have arrived
BODY_IS_READ = "windvane.body_is_read"  # in the scope of a request
DEFAULT_LOOP = "default"

_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)

Result = TypeVar("Result")


class WholeNumbers(NamedTuple):
    """The least and the most of the whole numbers that a parameter takes."""

    least: int
    most: int


def get_service(request: Request) -> Service:
    """The service that answers a request."""
    service: Service = request.app.state.service
    return service


def get_loop_name(scope: Scope) -> str:
    """The loop that a request addresses.

    Its name is part of the path, or, for clients that cannot keep the path, the query `?loop=`. A
    request that names different loops is refused.
    """
    query: bytes = scope["query_string"]
    in_path: str | None = scope["path_params"].get("loop")
    if not query or (b"loop" not in query and b"%" not in query):
        return in_path or DEFAULT_LOOP
    names = {*parse_qs(query.decode("latin-1")).get("loop", [])} | ({in_path} if in_path else set())
    if len(names) > 1:
        message = "the path and the query must name one loop, got several different names"
        raise bad_request("BadRequest", message, "loop")
    return names.pop() if names else DEFAULT_LOOP


def get_header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of a name in lower case, or None."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def read_whole_number(request: Request, name: str, default: int, bounds: WholeNumbers) -> int:
    """A parameter of the query; a text that is no whole number within the bounds is refused."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not _DIGITS.fullmatch(text) or not bounds.least <= int(text) <= bounds.most:
        message = f"{name} must be a whole number in [{bounds.least}, {bounds.most}]"
        raise bad_request("BadRequest", f"{message}, got {text[:40]!r}", name)
    return int(text)


def json_response(content: object, status: int = 200) -> Response:
    """A response with a value as its JSON body."""
    return Response(msgspec.json.encode(content), status, media_type=JSON_MEDIA_TYPE)


async def read_body(scope: Scope, receive: Receive) -> bytes:
    """The body of a request, which must arrive in time."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            body = await _join_body(receive)
    except TimeoutError:
        message = f"the body did not arrive within {BODY_TIMEOUT_SECONDS:g} seconds"
        raise ApiError(408, "BadRequest", message, headers={"connection": "close"}) from None
    scope[BODY_IS_READ] = True
    return body


async def _join_body(receive: Receive) -> bytes:
    """Join the parts of a body; reading stops as soon as the body is too large."""
    parts = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad_request("BadRequest", "the body is shorter than its content-length")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            raise bad_request(
                "PayloadSizeExceeded", f"the body must have at most {MAX_BODY_BYTES} bytes"
            )
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def parse_body(decode: Callable[[bytes], Result], body: bytes, code: str) -> Result:
    """The value of a body; a body that cannot be decoded is refused with `code`."""
    try:
        return decode(body)
    except msgspec.ValidationError as reason:
        raise bad_request(code, describe_invalid_value(reason)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
        raise bad_request(code, f"the body is not JSON: {reason}") from None
