"""The decisions of a loop for pipelines."""

import re

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.service.api.endpoint import Query
from windvane.service.api.errors import bad_request
from windvane.service.api.requests import get_loop_name, get_service
from windvane.service.api.responses import JSON_MEDIA_TYPE
from windvane.service.loops.decision_stream import (
    MAX_PAGE_DECISIONS,
    MAX_WAIT_SECONDS,
    StreamQuery,
)

MAX_ID = 2**63 - 1
WHOLE = re.compile(r"[0-9]{1,19}", re.ASCII)
SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
DEFAULTS = StreamQuery()
QUERIES = (
    Query("after", {"type": "integer", "minimum": 0, "maximum": MAX_ID}),
    Query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_DECISIONS}),
    Query("wait", {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS}),
    Query("final", {"type": "boolean"}),
)


async def get_decisions(request: Request) -> Response:
    """GET decisions: a page of decisions; `wait` lets an empty page wait for the next decision."""
    service = get_service(request)
    loop = await service.get_loop(get_loop_name(request.scope))
    query = StreamQuery(
        after=_read_whole(request, "after", 0, MAX_ID, DEFAULTS.after),
        limit=_read_whole(request, "limit", 1, MAX_PAGE_DECISIONS, DEFAULTS.limit),
        wait_seconds=_read_wait(request),
        only_final=_read_flag(request, "final"),
    )
    page = await service.decision_stream.read(
        loop, query, msgspec.json.encode, request.is_disconnected
    )
    return Response(page, media_type=JSON_MEDIA_TYPE)


def _read_whole(request: Request, name: str, least: int, most: int, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not WHOLE.fullmatch(text) or not least <= int(text) <= most:
        message = f"{name} must be a whole number in [{least}, {most}], got {text[:40]!r}"
        raise bad_request("BadRequest", message, name)
    return int(text)


def _read_wait(request: Request) -> float:
    text = request.query_params.get("wait")
    if text is None:
        return DEFAULTS.wait_seconds
    if not SECONDS.fullmatch(text) or not float(text) <= MAX_WAIT_SECONDS:
        message = f"wait must be seconds in [0, {MAX_WAIT_SECONDS}], got {text[:40]!r}"
        raise bad_request("BadRequest", message, "wait")
    return float(text)


def _read_flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        message = f"{name} must be true or false, got {text[:40]!r}"
        raise bad_request("BadRequest", message, name)
    return text == "true"
