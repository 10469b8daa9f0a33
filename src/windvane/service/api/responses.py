"""Responses: JSON through Starlette, and plain ASGI messages where speed matters."""

from collections.abc import Iterable

import msgspec
from starlette.responses import Response
from starlette.types import Send

JSON_MEDIA_TYPE = "application/json; charset=utf-8"
CONTENT_TYPE = (b"content-type", JSON_MEDIA_TYPE.encode())


def json_response(content: object, status: int = 200) -> Response:
    """A response with a value as its JSON body."""
    return Response(msgspec.json.encode(content), status, media_type=JSON_MEDIA_TYPE)


async def send_response(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a whole response; a body that is not empty is JSON."""
    pairs = [*headers]
    if body:
        pairs += CONTENT_TYPE, (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
