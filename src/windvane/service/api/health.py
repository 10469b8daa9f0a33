"""Is it alive, is it ready, what does it measure; and the loops that it has."""

import asyncio
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from windvane.errors import SettingError, StoreError
from windvane.service.api.events import body_of, parsed
from windvane.service.api.middleware import service_of
from windvane.service.loops import settings as told
from windvane.service.loops.service import Service
from windvane.service.loops.settings import Settings
from windvane.service.schemas import JSON, WireError, bad, date

LoopName = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{told.NAME.pattern}$"})]


class Health(msgspec.Struct, omit_defaults=True):
    """ok, or degraded and why; `waiting` operations are not yet on disk."""

    status: Literal["ok", "degraded"]
    waiting: int
    reason: str | None = None


class Ready(msgspec.Struct):
    """Every loop is loaded."""

    status: Literal["ready"] = "ready"


class NewLoop(msgspec.Struct, forbid_unknown_fields=True):
    """A loop to make."""

    name: LoopName
    settings: Settings = Settings()


class LoopInfo(msgspec.Struct):
    """A loop that is there."""

    name: str
    created: datetime
    settings: Settings


read_loop = msgspec.json.Decoder(NewLoop).decode


async def healthz(request: Request) -> Response:
    """GET healthz: it lives, and says whether it limps."""
    service = _loaded(request)
    reason = service.degraded
    health = Health("degraded" if reason else "ok", service.writer.waiting_count, reason)
    return Response(msgspec.json.encode(health), media_type=JSON)


async def readyz(request: Request) -> Response:
    """GET readyz: every loop is loaded."""
    _loaded(request)
    return Response(msgspec.json.encode(Ready()), media_type=JSON)


def _loaded(request: Request) -> Service:
    if getattr(request.app.state, "service", None) is None:
        raise WireError(503, "OperationNotAllowed", "the loops are not loaded yet")
    return service_of(request)


async def metrics(request: Request) -> Response:
    """GET metrics."""
    text = await asyncio.to_thread(request.app.state.metrics.text)
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


async def loops(request: Request) -> Response:
    """GET and POST loops."""
    service = service_of(request)
    if request.method != "POST":
        rows = await asyncio.to_thread(service.store.list_loops)
        infos = [LoopInfo(row.name, date(row.created), told.read(row.settings)) for row in rows]
        return Response(msgspec.json.encode(infos), media_type=JSON)
    wanted = parsed(read_loop, await body_of(request.receive), "InvalidServiceConfiguration")
    try:
        loop = await service.create(told.loop_name(wanted.name), wanted.settings, "http")
    except SettingError as reason:
        raise bad("BadRequest", str(reason), "name") from None
    except StoreError as reason:
        if reason.kind != "refused":
            raise
        raise bad("BadRequest", f"there is a loop {wanted.name!r} already", "name") from None
    info = LoopInfo(loop.name, date(loop.created), loop.settings)
    return Response(msgspec.json.encode(info), 201, media_type=JSON)


def routes() -> list[Route]:
    """The paths that are not the retired service's."""
    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        Route("/loops", loops, methods=["GET", "POST"]),
    ]
