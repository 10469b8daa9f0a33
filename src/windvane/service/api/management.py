"""Loops: list, create and delete them; settings, policy, model, log and decisions of one loop."""

import asyncio
import logging
import re
from datetime import datetime
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.errors import SettingError
from windvane.service.api.openapi import Handler, Json
from windvane.service.api.requests import (
    JSON_MEDIA_TYPE,
    MAX_BODY_BYTES,
    ApiError,
    WholeNumbers,
    bad_request,
    check_values,
    get_loop,
    get_loop_name,
    get_service,
    json_response,
    parse_body,
    parse_request,
    read_body,
    read_whole_number,
)
from windvane.service.clock import to_datetime
from windvane.service.errors import ServiceError
from windvane.service.evaluations.compared_policies import (
    SLOTS_FLAG,
    describe_flags,
    format_policy,
    read_policy,
    reset_policy,
)
from windvane.service.loops.decision_pages import MAX_PAGE_DECISIONS, MAX_WAIT_SECONDS, StreamQuery
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import LOOP_NAME, NOTE_MARK, LoopSettings
from windvane.service.schemas import (
    DateRange,
    ImportRequest,
    ImportResponse,
    LogsProperties,
    ModelProperties,
    PolicyAnswer,
    PolicyConfiguration,
)

POLICY_NAME = "windvane"
POLICY_CODE = "InvalidPolicyContract"
SETTINGS_CODE = "InvalidServiceConfiguration"
IDS = WholeNumbers(0, 2**63 - 1)
PAGE_SIZES = WholeNumbers(1, MAX_PAGE_DECISIONS)
SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,30})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
DEFAULTS = StreamQuery()
QUERIES: dict[str, Json] = {
    "after": {"type": "integer", "minimum": IDS.least, "maximum": IDS.most},
    "limit": {"type": "integer", "minimum": PAGE_SIZES.least, "maximum": PAGE_SIZES.most},
    "wait": {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS},
    "final": {"type": "boolean"},
}
LoopName = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{LOOP_NAME.pattern}$"})]
logger = logging.getLogger("windvane.service")
_decode_policy = msgspec.json.Decoder(PolicyConfiguration).decode


class NewLoop(msgspec.Struct, forbid_unknown_fields=True):
    """A loop to create, as the API documents it."""

    name: LoopName
    settings: LoopSettings = LoopSettings()


class NewLoopBody(msgspec.Struct, forbid_unknown_fields=True):
    """A loop to create; its settings are checked later, so that the error names the setting."""

    name: LoopName
    settings: dict[str, object] = {}


class LoopInfo(msgspec.Struct):
    """A loop and its settings."""

    name: str
    created: datetime
    settings: LoopSettings


_decode_changes = msgspec.json.Decoder(dict[str, object]).decode
_decode_import = msgspec.json.Decoder(ImportRequest).decode
_decode_new_loop = msgspec.json.Decoder(NewLoopBody).decode


async def import_decisions(request: Request) -> Response:
    loop, large_requests = await get_loop(request), request.app.large_requests
    with large_requests.hold() as held:
        body = await read_body(request.scope, request.receive, MAX_BODY_BYTES, held.take)
        sent: ImportRequest = await large_requests.run(_parse_import, body)
        done = await get_service(request).import_decisions(loop.name, sent.decisions)
    return json_response(ImportResponse(done.new, len(sent.decisions) - done.new))


def _parse_import(body: bytes) -> ImportRequest:
    check_values(body, MAX_BODY_BYTES)
    return parse_body(_decode_import, body, "InvalidRankRequest")


async def list_loops(request: Request) -> Response:
    rows = await asyncio.to_thread(get_service(request).store.list_loops)
    return json_response(
        [
            LoopInfo(row.name, to_datetime(row.created), LoopSettings.from_json(row.settings))
            for row in rows
        ]
    )


async def create_loop(request: Request) -> Response:
    new = await parse_request(request, _decode_new_loop, SETTINGS_CODE)
    try:
        settings = LoopSettings.from_names(new.settings)
    except SettingError as reason:
        raise ServiceError("settings", str(reason), "settings") from None
    loop = await get_service(request).create_loop(new.name, settings, "http")
    return json_response(LoopInfo(loop.name, to_datetime(loop.created), loop.settings), 201)


async def delete_loop(request: Request) -> Response:
    await get_service(request).delete_loop(get_loop_name(request.scope), "http")
    return Response(status_code=204)


class ServiceConfiguration(LoopSettings, frozen=True, kw_only=True, rename="camel"):
    """The settings of a loop, and when they were changed last."""

    last_configuration_edit_date: datetime


def _describe_settings(loop: Loop) -> ServiceConfiguration:
    settings, _, changed_at = loop.in_force
    named = msgspec.structs.asdict(settings)
    return ServiceConfiguration(**named, last_configuration_edit_date=to_datetime(changed_at))


async def get_settings(request: Request) -> Response:
    return json_response(_describe_settings(await get_loop(request)))


async def put_settings(request: Request) -> Response:
    changes = await parse_request(request, _decode_changes, SETTINGS_CODE)
    name = get_loop_name(request.scope)
    loop = await get_service(request).change_settings(name, changes, "http")
    return json_response(_describe_settings(loop))


async def get_policy(request: Request) -> Response:
    return json_response(_describe_policy((await get_loop(request)).settings))


def _describe_policy(
    settings: LoopSettings, name: str = POLICY_NAME, warning: str = ""
) -> PolicyAnswer:
    return PolicyAnswer(
        name, f"{SLOTS_FLAG} {format_policy(settings)}", [warning] if warning else []
    )


async def put_policy(request: Request) -> Response:
    loop = await get_loop(request)
    body = await parse_request(request, _decode_policy, POLICY_CODE)
    try:
        settings = read_policy(body.arguments, loop.settings)
    except (SettingError, ServiceError) as reason:
        raise bad_request(POLICY_CODE, str(reason), "arguments") from None
    warning = describe_flags(body.arguments)
    if warning:
        logger.warning("loop %s: %s", loop.name, warning)
    return await _change_policy(request, loop, settings, body.name, warning)


async def delete_policy(request: Request) -> Response:
    loop = await get_loop(request)
    return await _change_policy(request, loop, reset_policy(loop.settings), POLICY_NAME)


async def _change_policy(
    request: Request, loop: Loop, settings: LoopSettings, name: str, warning: str = ""
) -> Response:
    if settings != loop.settings:
        changes = msgspec.to_builtins(settings)
        author = f"http{NOTE_MARK}{warning}" if warning else "http"
        loop = await get_service(request).change_settings(loop.name, changes, author)
    return json_response(_describe_policy(loop.settings, name, warning))


async def get_model(request: Request) -> Response:
    model = await get_service(request).encode_model(get_loop_name(request.scope))
    return Response(model, media_type="application/octet-stream")


async def delete_model(request: Request) -> Response:
    await get_service(request).forget(get_loop_name(request.scope))
    return Response(status_code=204)


async def get_model_properties(request: Request) -> Response:
    loop = await get_loop(request)
    span = await asyncio.to_thread(loop.store.find_time_span, loop.id)
    modified = span.until if span else loop.created
    return json_response(ModelProperties(to_datetime(loop.created), to_datetime(modified)))


async def delete_logs(request: Request) -> Response:
    await get_service(request).delete_log(get_loop_name(request.scope))
    return Response(status_code=204)


async def get_logs_properties(request: Request) -> Response:
    loop = await get_loop(request)
    span = await asyncio.to_thread(loop.store.find_time_span, loop.id)
    dates = DateRange(to_datetime(span.since), to_datetime(span.until)) if span else None
    return json_response(LogsProperties(dates))


async def get_decisions(request: Request) -> Response:
    """GET decisions: a page of decisions; `wait` lets an empty page wait for the next decision."""
    loop = await get_loop(request)
    final = request.query_params.get("final", "false")
    if final not in ("true", "false"):
        message = f"final must be true or false, got {final[:40]!r}"
        raise bad_request("BadRequest", message, "final")
    query = StreamQuery(
        after=read_whole_number(request, "after", DEFAULTS.after, IDS),
        limit=read_whole_number(request, "limit", DEFAULTS.limit, PAGE_SIZES),
        wait_seconds=_read_wait(request),
        only_final=final == "true",
    )
    page = await get_service(request).decision_stream.read(loop, query, request.is_disconnected)
    return Response(page, media_type=JSON_MEDIA_TYPE)


def _read_wait(request: Request) -> float:
    text = request.query_params.get("wait")
    if text is None:
        return DEFAULTS.wait_seconds
    if not SECONDS.fullmatch(text) or not float(text) <= MAX_WAIT_SECONDS:
        message = f"wait must be seconds in [0, {MAX_WAIT_SECONDS}], got {text[:40]!r}"
        raise bad_request("BadRequest", message, "wait")
    return float(text)


def refuse(reason: str) -> Handler:
    """A handler for what Azure AI Personalizer offers and this service does not."""

    async def refuse_request(request: Request) -> Response:
        raise ApiError(403, "InvalidApiAccess", reason)

    return refuse_request
