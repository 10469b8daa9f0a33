"""The service over HTTP: settings, models and logs of loops, and how it all is put together."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from windvane.errors import SettingError, StoreError, WindvaneError
from windvane.service.api import dashboard, health, openapi
from windvane.service.api.auth import Keyring
from windvane.service.api.events import VERSIONS, body_of, parsed
from windvane.service.api.middleware import Edge, fault_of, service_of
from windvane.service.clock import now_us
from windvane.service.loops import settings as told
from windvane.service.loops.loop import FORGET, Loop
from windvane.service.loops.service import PATIENCE, Service
from windvane.service.loops.settings import Settings
from windvane.service.loops.warmup import prepare, warm
from windvane.service.monitoring.metrics import Metrics
from windvane.service.schemas import (
    JSON,
    NOT_BUILT,
    DateRange,
    LogsProperties,
    ModelProperties,
    PolicyConfiguration,
    WireError,
    bad,
    date,
)
from windvane.service.store.admin_operations import PutSettings
from windvane.service.store.log import LogReader
from windvane.service.store.writer_client import WriterClient

GRACE = 5.0  # seconds in which the last snapshots have to be written

Handler = Callable[[Request], Awaitable[Response]]


def loop_of(request: Request) -> str:
    """The name of the loop that is asked: in the path, or where a client loses that, `?loop=`."""
    named = request.path_params.get("loop") or request.query_params.get("loop")
    return str(named or "default")


async def service_configuration(request: Request) -> Response:
    """GET and PUT configurations/service."""
    service = service_of(request)
    loop = await service.loop(loop_of(request))
    if request.method == "PUT":
        body = await body_of(request.receive)
        given = parsed(msgspec.json.decode, body, "InvalidServiceConfiguration")
        async with service.changing:
            await configure(service, loop, given)
    return Response(msgspec.json.encode(loop.settings), media_type=JSON)


async def configure(service: Service, loop: Loop, given: object) -> None:
    """Take over the settings that are given and known; the others stay."""
    if not isinstance(given, dict):
        raise bad("InvalidServiceConfiguration", "the body must be an object")
    old = msgspec.to_builtins(loop.settings)
    known = {name: value for name, value in given.items() if name in old and value is not None}
    merged = {**old, **known}
    fixed = [name for name in ("dim", "ridge", "seed") if merged[name] != old[name]]
    if fixed:
        message = f"{fixed[0]} is fixed when a loop is made: what was learned depends on it"
        raise bad("InvalidServiceConfiguration", message, fixed[0])
    try:
        changed = msgspec.convert(merged, Settings)
    except (msgspec.ValidationError, SettingError) as reason:
        raise bad("InvalidServiceConfiguration", str(reason)) from None
    await service.write(PutSettings(loop.id, told.write(changed), now_us(), "http"), loop, PATIENCE)


async def policy_configuration(request: Request) -> Response:
    """GET configurations/policy."""
    loop = await service_of(request).loop(loop_of(request))
    if request.method != "GET":
        message = "the policy follows from the service configuration: halfLife, width, noise"
        raise WireError(403, "InvalidApiAccess", message)
    answer = PolicyConfiguration("windvane", repr(loop.policy))
    return Response(msgspec.json.encode(answer), media_type=JSON)


async def model(request: Request) -> Response:
    """GET and DELETE model."""
    service = service_of(request)
    loop = await service.loop(loop_of(request))
    if request.method == "DELETE":
        async with service.changing:
            settings = told.write(loop.settings)
            await service.write(PutSettings(loop.id, settings, now_us(), FORGET), loop, PATIENCE)
        return Response(status_code=204)
    if request.method == "PUT":
        message = "a model cannot be put in place of another; restore a backup instead"
        raise WireError(403, "InvalidApiAccess", message)
    return Response(loop.snapshot(), media_type="application/octet-stream")


async def model_properties(request: Request) -> Response:
    """GET model/properties."""
    loop = await service_of(request).loop(loop_of(request))
    span = await asyncio.to_thread(loop.store.find_time_span, loop.id)
    changed = date(span.until if span else loop.created)
    answer = ModelProperties(date(loop.created), changed)
    return Response(msgspec.json.encode(answer), media_type=JSON)


async def logs(request: Request) -> Response:
    """DELETE logs; what was learned stays, and so does what is decided meanwhile."""
    service = service_of(request)
    await service.shorten(await service.loop(loop_of(request)), now_us() + 1, even_waiting=True)
    return Response(status_code=204)


async def logs_properties(request: Request) -> Response:
    """GET logs/properties."""
    loop = await service_of(request).loop(loop_of(request))
    span = await asyncio.to_thread(loop.store.find_time_span, loop.id)
    dates = DateRange(date(span.since), date(span.until)) if span else None
    return Response(msgspec.json.encode(LogsProperties(dates)), media_type=JSON)


async def not_built(request: Request) -> Response:
    """What the retired service had and this one has not."""
    part = next((reason for word, reason in NOT_BUILT.items() if word in request.url.path), "")
    raise WireError(403, "InvalidApiAccess", part or "this is not offered")


async def at_the_edge(request: Request) -> Response:
    """Rank, reward and activate are answered by edge.py; here their paths are known for 405."""
    raise WireError(404, "ResourceNotFound", "no event is named", "eventId")


ROUTES: tuple[tuple[str, Handler, tuple[str, ...]], ...] = (
    ("/rank", at_the_edge, ("POST",)),
    ("/events/{event:path}/reward", at_the_edge, ("POST",)),
    ("/events/{event:path}/activate", at_the_edge, ("POST",)),
    ("/configurations/service", service_configuration, ("GET", "PUT")),
    ("/configurations/policy", policy_configuration, ("GET", "PUT", "DELETE")),
    ("/configurations/applyFromEvaluation", not_built, ("POST",)),
    ("/multislot/{rest:path}", not_built, ("POST",)),
    ("/evaluations", not_built, ("GET", "POST")),
    ("/evaluations/{rest:path}", not_built, ("GET", "DELETE")),
    ("/model", model, ("GET", "PUT", "DELETE")),
    ("/model/properties", model_properties, ("GET",)),
    ("/logs", logs, ("DELETE",)),
    ("/logs/properties", logs_properties, ("GET",)),
)


def routes() -> list[Route]:
    """Every path of the wire API, for the default loop and for a named one, in every version."""
    found = []
    for loop in ("", "/loops/{loop}"):
        for version in (*VERSIONS, ""):
            base = f"{loop}/personalizer" + (f"/{version}" if version else "")
            found += [Route(base + path, call, methods=list(how)) for path, call, how in ROUTES]
    return found


def refuse(request: Request, error: Exception) -> Response:
    """The envelope of an error."""
    fault = fault_of(error)
    headers = {"x-ms-error-code": fault.code}
    if isinstance(error, HTTPException):  # which methods a path has
        headers |= error.headers or {}
    return Response(fault.body(), fault.status, headers, media_type=JSON)


async def loaded(store: LogReader, writer: WriterClient, default: Settings) -> Service:
    """All loops of a log, `default` among them, and a process that writes for them."""
    await asyncio.to_thread(prepare)
    warm()
    await writer.start()
    try:
        service = Service(store, writer)
        if "default" not in service.loops:
            await service.create("default", default, "service")
    except BaseException:
        await writer.close()
        raise
    return service


def failed(reason: Exception) -> WindvaneError:
    """Why there is no service, in one sentence."""
    if isinstance(reason, WindvaneError):
        return reason
    why = f"{type(reason).__name__}: {reason}".splitlines()[0]
    return StoreError(f"serve: the loops cannot be loaded ({why})", "broken")


def make(where: str, default: Settings | None = None) -> Edge:
    """The application over a log; a loop `default` is there from the start."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        writer = WriterClient(where)
        with LogReader(where) as store:
            try:
                service = await loaded(store, writer, default or Settings())
            except Exception as reason:
                app.state.failure = failed(reason)  # for whoever started it
                raise
            app.state.service = service
            app.state.keyring, app.state.metrics = Keyring(store), Metrics(service)
            going = service.sweep(), service.retain(), app.state.keyring.watch()
            tasks = [asyncio.create_task(task) for task in going]
            gc.collect()
            gc.freeze()  # compiled code brings a million objects that no collection need look at
            yield
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(StoreError, TimeoutError):  # the log has all that they hold
                async with asyncio.timeout(GRACE):
                    for loop in service.loops.values():
                        await service.keep(loop)
            await writer.close()
            gc.unfreeze()

    app = Starlette(
        routes=[
            *health.routes(),
            Route("/openapi.json", openapi.openapi),
            *routes(),
            *dashboard.routes(),
        ],
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(
            (WireError, HTTPException, ClientDisconnect, WindvaneError), refuse
        ),
    )
    app.router.redirect_slashes = False  # no client follows them with its body
    app.add_exception_handler(Exception, refuse)
    return Edge(app)
