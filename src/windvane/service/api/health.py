"""Probes for operators: is the service alive, is it ready, what does it measure."""

import asyncio
from typing import Literal

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from windvane.service.api.requests import get_service, json_response, unavailable
from windvane.service.json_logging import hide_passwords

LAG_SHARE = 0.99  # of the lessons of other servers, which were learned within the lag


class ClockHealth(msgspec.Struct, rename="camel"):
    """The wall clock is not believed; the log is dated by service time."""

    offset_seconds: float  # wall clock minus service time
    believed_in_seconds: float | None  # if it stays steady; None: it is behind, and is never
    message: str


class SharingHealth(msgspec.Struct, rename="camel"):
    """How this process shares its log with other servers."""

    servers: int  # number alive, this one included
    is_leader: bool  # whether it closes decisions, stores snapshots and evaluates for all
    lag_seconds: float | None  # within which 99 % of others' lessons were learned; None: no lesson
    clock_skew_seconds: float  # the clock of this machine minus that of the database


class Health(msgspec.Struct, omit_defaults=True):
    """ok, or degraded with the reason; `waiting` counts operations that are not yet on disk.

    Only a reader sees more than the status: the reason may name the database's address.
    """

    status: Literal["ok", "degraded"]
    waiting: int | None = None
    reason: str | None = None
    clock: ClockHealth | None = None  # absent while the wall clock is believed
    sharing: SharingHealth | None = None  # absent if nobody can share the log
    warnings: list[str] = []  # damages of the log that were repaired, absent if there are none


class Ready(msgspec.Struct):
    """All loops are loaded."""

    status: Literal["ready"] = "ready"


async def get_health(request: Request) -> Response:
    service = get_service(request)
    reason = service.degraded_reason
    health = Health("degraded" if reason else "ok")
    if request.app.state.keyring.can_use(request.scope, "read"):
        health.waiting = service.writer.waiting_count
        health.reason = None if reason is None else hide_passwords(reason)
        health.warnings = service.warnings
        if (sharing := service.sharing) is not None:
            health.sharing = SharingHealth(
                sharing.server_count,
                sharing.is_leader,
                sharing.lags.find_quantile(LAG_SHARE),
                sharing.clock.skew_seconds,
            )
        doubt = service.clock.doubt
        if doubt is not None:
            health.clock = ClockHealth(*doubt[:2], doubt.sentence)
    return json_response(health)


async def get_readiness(request: Request) -> Response:
    """GET readyz; the middleware answers 503 while the loops are loaded."""
    if request.app.is_draining:
        raise unavailable("the service is about to stop")
    return json_response(Ready())


async def get_metrics(request: Request) -> Response:
    text = await asyncio.to_thread(request.app.state.metrics.render)
    return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})
