"""The decisions of a loop for pipelines."""

import re

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.service.api.endpoint import Query
from windvane.service.api.errors import bad_request
from windvane.service.api.requests import (
    WholeNumbers,
    get_loop_name,
    get_service,
    read_whole_number,
)
from windvane.service.api.responses import JSON_MEDIA_TYPE
from windvane.service.loops.decision_pages import MAX_PAGE_DECISIONS, MAX_WAIT_SECONDS, StreamQuery

IDS = WholeNumbers(0, 2**63 - 1)
PAGE_SIZES = WholeNumbers(1, MAX_PAGE_DECISIONS)
SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
DEFAULTS = StreamQuery()
QUERIES = (
    Query("after", {"type": "integer", "minimum": IDS.least, "maximum": IDS.most}),
    Query("limit", {"type": "integer", "minimum": PAGE_SIZES.least, "maximum": PAGE_SIZES.most}),
    Query("wait", {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS}),
    Query("final", {"type": "boolean"}),
)


async def get_decisions(request: Request) -> Response:
    """GET decisions: a page of decisions; `wait` lets an empty page wait for the next decision."""
    service = get_service(request)
    loop = await service.get_loop(get_loop_name(request.scope))
    query = StreamQuery(
        after=read_whole_number(request, "after", DEFAULTS.after, IDS),
        limit=read_whole_number(request, "limit", DEFAULTS.limit, PAGE_SIZES),
        wait_seconds=_read_wait(request),
        only_final=_read_flag(request, "final"),
    )
    page = await service.decision_stream.read(
        loop, query, msgspec.json.encode, request.is_disconnected
    )
    return Response(page, media_type=JSON_MEDIA_TYPE)


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
