"""GET and POST /loops: list and create loops."""

import asyncio
from datetime import datetime
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.errors import SettingError
from windvane.service.api.requests import get_service, parse_body, read_body
from windvane.service.api.responses import json_response
from windvane.service.errors import LoopSettingsError
from windvane.service.loops.settings import LOOP_NAME, LoopSettings
from windvane.service.schemas import to_datetime

LoopName = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{LOOP_NAME.pattern}$"})]


class NewLoop(msgspec.Struct, forbid_unknown_fields=True):
    """A loop to create, as the API documents it."""

    name: LoopName
    settings: LoopSettings = LoopSettings()


class NewLoopBody(msgspec.Struct, forbid_unknown_fields=True):
    """A loop to create; its settings are not checked yet, because defaults depend on them."""

    name: LoopName
    settings: dict[str, object] = {}


class LoopInfo(msgspec.Struct):
    """A loop and its settings."""

    name: str
    created: datetime
    settings: LoopSettings


_decode_new_loop = msgspec.json.Decoder(NewLoopBody).decode


async def list_loops(request: Request) -> Response:
    """GET loops."""
    rows = await asyncio.to_thread(get_service(request).store.list_loops)
    return json_response(
        [
            LoopInfo(row.name, to_datetime(row.created), LoopSettings.from_json(row.settings))
            for row in rows
        ]
    )


async def create_loop(request: Request) -> Response:
    """POST loops."""
    body = await read_body(request.receive)
    new = parse_body(_decode_new_loop, body, "InvalidServiceConfiguration")
    try:
        settings = LoopSettings.from_names(new.settings)
    except SettingError as reason:
        raise LoopSettingsError(str(reason), "settings") from None
    loop = await get_service(request).create_loop(new.name, settings, "http")
    return json_response(LoopInfo(loop.name, to_datetime(loop.created), loop.settings), 201)
