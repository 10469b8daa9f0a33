"""Probes for operators: is the service alive, is it ready, what does it measure."""

import asyncio
from typing import Literal

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from windvane.service.api.errors import ApiError
from windvane.service.api.requests import get_service
from windvane.service.api.responses import json_response
from windvane.service.loops.service import Service


class ClockHealth(msgspec.Struct, rename="camel"):
    """The wall clock is not believed; the log is dated by service time."""

    offset_seconds: float  # wall clock minus service time
    believed_in_seconds: float | None  # if it stays steady; None: it is behind, and is never
    message: str


class Health(msgspec.Struct, omit_defaults=True):
    """ok, or degraded with the reason; `waiting` counts operations that are not yet on disk."""

    status: Literal["ok", "degraded"]
    waiting: int
    reason: str | None = None
    clock: ClockHealth | None = None  # absent while the wall clock is believed


class Ready(msgspec.Struct):
    """All loops are loaded."""

    status: Literal["ready"] = "ready"


async def get_health(request: Request) -> Response:
    """GET healthz."""
    service = _get_ready_service(request)
    reason = service.degraded
    status: Literal["ok", "degraded"] = "degraded" if reason else "ok"
    doubt = service.clock.doubt
    clock = ClockHealth(*doubt, doubt.sentence) if doubt is not None else None
    return json_response(Health(status, service.writer.waiting_count, reason, clock))


async def get_readiness(request: Request) -> Response:
    """GET readyz."""
    _get_ready_service(request)
    return json_response(Ready())


async def get_metrics(request: Request) -> Response:
    """GET metrics."""
    text = await asyncio.to_thread(request.app.state.metrics.render)
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})


def _get_ready_service(request: Request) -> Service:
    if getattr(request.app.state, "service", None) is None:
        raise ApiError(503, "OperationNotAllowed", "the loops are not loaded yet")
    return get_service(request)
