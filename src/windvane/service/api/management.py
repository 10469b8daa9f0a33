"""Settings, model and log of one loop."""

import asyncio
from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.errors import SettingError
from windvane.service.api.endpoint import Handler
from windvane.service.api.errors import ApiError, bad_request
from windvane.service.api.requests import get_loop_name, get_service, parse_body, read_body
from windvane.service.api.responses import json_response
from windvane.service.errors import LoopSettingsError
from windvane.service.evaluations.policy_text import format_policy, read_policy, reset_policy
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import (
    DateRange,
    LogsProperties,
    ModelProperties,
    PolicyConfiguration,
    to_datetime,
)

POLICY_NAME = "windvane"
POLICY_CODE = "InvalidPolicyContract"
_decode_policy = msgspec.json.Decoder(PolicyConfiguration).decode


class ServiceConfiguration(LoopSettings, frozen=True, kw_only=True, rename="camel"):
    """The settings of a loop, and when they were changed last."""

    last_configuration_edit_date: datetime


def _describe_settings(loop: Loop) -> ServiceConfiguration:
    return ServiceConfiguration(
        **msgspec.structs.asdict(loop.settings),
        last_configuration_edit_date=to_datetime(loop.changed_at),
    )


async def _get_loop(request: Request) -> Loop:
    return await get_service(request).get_loop(get_loop_name(request.scope))


async def get_settings(request: Request) -> Response:
    """GET configurations/service."""
    return json_response(_describe_settings(await _get_loop(request)))


async def put_settings(request: Request) -> Response:
    """PUT configurations/service: change some settings."""
    code = "InvalidServiceConfiguration"
    changes = parse_body(msgspec.json.decode, await read_body(request.receive), code)
    if not isinstance(changes, dict):
        raise bad_request(code, "the body must be an object")
    service = get_service(request)
    loop = await service.change_settings(get_loop_name(request.scope), changes, "http")
    return json_response(_describe_settings(loop))


async def get_policy(request: Request) -> Response:
    """GET configurations/policy: the settings that make the policy."""
    return json_response(_describe_policy((await _get_loop(request)).settings))


def _describe_policy(settings: LoopSettings, name: str = POLICY_NAME) -> PolicyConfiguration:
    return PolicyConfiguration(name, format_policy(settings))


async def put_policy(request: Request) -> Response:
    """PUT configurations/policy: change the settings that make the policy."""
    loop = await _get_loop(request)
    body = parse_body(_decode_policy, await read_body(request.receive), POLICY_CODE)
    try:
        settings = read_policy(body.arguments, loop.settings)
    except (SettingError, LoopSettingsError) as reason:
        raise bad_request(POLICY_CODE, str(reason), "arguments") from None
    return await _change_policy(request, loop, settings, body.name)


async def delete_policy(request: Request) -> Response:
    """DELETE configurations/policy: take the policy of a new loop."""
    loop = await _get_loop(request)
    return await _change_policy(request, loop, reset_policy(loop.settings), POLICY_NAME)


async def _change_policy(
    request: Request, loop: Loop, settings: LoopSettings, name: str
) -> Response:
    if settings != loop.settings:
        changes = msgspec.to_builtins(settings)
        loop = await get_service(request).change_settings(loop.name, changes, "http")
    return json_response(_describe_policy(loop.settings, name))


async def get_model(request: Request) -> Response:
    """GET model: the belief as a snapshot."""
    model = await get_service(request).encode_model(get_loop_name(request.scope))
    return Response(model, media_type="application/octet-stream")


async def delete_model(request: Request) -> Response:
    """DELETE model: reset the belief."""
    await get_service(request).forget(get_loop_name(request.scope))
    return Response(status_code=204)


async def get_model_properties(request: Request) -> Response:
    """GET model/properties."""
    loop = await _get_loop(request)
    span = await asyncio.to_thread(loop.store.find_time_span, loop.id)
    modified = span.until if span else loop.created
    return json_response(ModelProperties(to_datetime(loop.created), to_datetime(modified)))


async def delete_logs(request: Request) -> Response:
    """DELETE logs: delete the decisions made so far; the belief stays."""
    await get_service(request).delete_log(get_loop_name(request.scope))
    return Response(status_code=204)


async def get_logs_properties(request: Request) -> Response:
    """GET logs/properties."""
    loop = await _get_loop(request)
    span = await asyncio.to_thread(loop.store.find_time_span, loop.id)
    dates = DateRange(to_datetime(span.since), to_datetime(span.until)) if span else None
    return json_response(LogsProperties(dates))


def refuse(reason: str) -> Handler:
    """A handler for what Azure AI Personalizer offers and this service does not."""

    async def refuse_request(request: Request) -> Response:
        raise ApiError(403, "InvalidApiAccess", reason)

    return refuse_request
