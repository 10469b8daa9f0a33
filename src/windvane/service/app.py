"""The service over HTTP: parse, call the loop, make it durable, answer."""

import asyncio
import contextlib
import logging
import math
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from windvane.errors import SettingError, StoreError, WindvaneError
from windvane.service import board
from windvane.service import settings as told
from windvane.service.joining import (
    Activate,
    Activated,
    Expire,
    PutDecision,
    PutReward,
    Rewarded,
    Withdraw,
)
from windvane.service.joining import Ranked as Kept
from windvane.service.keeping import DeleteLogs, PutLoop, PutSettings, PutSnapshot
from windvane.service.keys import Guarded, Keyring
from windvane.service.loop import FORGET, OFTEN, Loop, now
from windvane.service.metrics import Metrics, Watched
from windvane.service.settings import MICRO, Settings
from windvane.service.store import Store
from windvane.service.tables import Change, Decision
from windvane.service.wire import (
    DateRange,
    LogsProperties,
    ModelProperties,
    PolicyConfiguration,
    RankRequest,
    RewardRequest,
    WireError,
    bad,
)
from windvane.service.writer import Operation

MOST_BYTES = 1 << 20  # of a body
PATIENCE, HURRY = 2.0, 0.2  # seconds after which a rank is answered without the log
SWEEP = 0.5  # seconds between two looks for decisions whose wait is over
RETAIN = 3600.0  # seconds between two looks for decisions that were kept long enough
DAY = 86_400 * MICRO
VERSIONS = ("v1.0", "v1.1-preview.1", "v1.1-preview.2", "v1.1-preview.3")
SWITCH = 5e-4  # seconds for which the writer may keep requests waiting for the interpreter
PREFIX = re.compile(rb"^(/loops/[^/]+)?/personalizer(/v1\.[^/]+)?(?=/)")
JSON = "application/json; charset=utf-8"
NOT_BUILT = {
    "multislot": "multi-slot ranking is not offered; rank each slot as a loop of its own",
    "evaluations": "offline evaluations are not offered; export the log with its propensities",
    "applyFromEvaluation": "offline evaluations are not offered",
}

Result = TypeVar("Result")
Handler = Callable[[Request], Awaitable[Response]]
log = logging.getLogger("windvane.service")
read_rank = msgspec.json.Decoder(RankRequest).decode
read_reward = msgspec.json.Decoder(RewardRequest).decode


class Service:
    """All loops of one store, and how requests reach them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.loops: dict[str, Loop] = {}
        self.degraded: str | None = None  # why ranks are answered without the log
        for row in store.loops():
            self.loops[row.name] = Loop(row, store)

    async def create(self, name: str, settings: Settings, by: str) -> Loop:
        """A new loop."""
        await self.write(PutLoop(name, told.write(settings), now(), by))
        return self.loop(name)

    def loop(self, name: str) -> Loop:
        """The loop of a name."""
        known = name in self.loops or not told.NAME.fullmatch(name)
        if not known and (row := self.store.loop(name)):  # made by someone else
            self.loops[name] = Loop(row, self.store)
        if name not in self.loops:
            raise WireError(404, "ResourceNotFound", f"there is no loop {name!r}", "loop")
        return self.loops[name]

    async def write(self, operation: Operation[Result], loop: Loop | None = None) -> Result:
        """Have it written, and let the loop learn what comes of it, in the order of the log."""
        return await self.begin(operation, loop)

    def begin(
        self, operation: Operation[Result], loop: Loop | None = None
    ) -> "asyncio.Future[Result]":
        """The same, to be waited for; the store resolves all of a group with one wake-up."""
        waiting: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        future = self.store.submit(operation)
        if loop is not None:
            future.add_done_callback(partial(teach, loop))
        future.add_done_callback(partial(hand_over, waiting))
        return waiting

    async def rank(self, name: str, request: RankRequest, text: str | None = None) -> bytes:
        """The answer to a rank, once it is on disk; the first action where it cannot be."""
        loop = self.loop(name)
        put = PutDecision(self.decide(loop, request, text), loop.terms)
        try:
            writing = self.begin(put, loop)
            kept = await asyncio.wait_for(writing, HURRY if self.degraded else PATIENCE)
        except (StoreError, TimeoutError) as reason:
            return self.first(loop, request, put, reason)
        if not put.decision.degraded:
            self.degraded = None
        return kept.answer

    def decide(self, loop: Loop, request: RankRequest, text: str | None) -> Decision:
        """A choice; the first action where a defect keeps the loop from choosing."""
        try:
            return loop.decide(request, text)
        except WireError:
            raise
        except Exception as reason:
            self.degraded = f"no choice could be made ({type(reason).__name__}: {reason})"
            log.warning("rank degraded", exc_info=True)
            return loop.decide(request, text, degraded=True)

    def first(self, loop: Loop, request: RankRequest, put: PutDecision, reason: Exception) -> bytes:
        """The first action, where the log fails; a decision still under way is void."""
        self.degraded = str(reason) or self.degraded or "the log takes too long"
        log.warning("rank degraded")
        void = put.decision
        instead = loop.decide(replace(request, event_id=void.event_id), void.request, degraded=True)
        if isinstance(reason, TimeoutError):
            put.decision = instead  # in case it is not written yet
            with contextlib.suppress(StoreError):
                self.store.submit(Withdraw(void, instead))
        return instead.answer

    async def sweep(self) -> None:
        """Close decisions whose wait is over, and take snapshots, for ever."""
        since: dict[str, int] = {}
        while True:
            await asyncio.sleep(SWEEP)
            for loop in list(self.loops.values()):
                with contextlib.suppress(StoreError):
                    await self.expire(loop)
                    if loop.lesson - since.setdefault(loop.name, loop.lesson) >= OFTEN:
                        since[loop.name] = loop.lesson
                        await self.write(PutSnapshot(loop.id, loop.lesson, loop.snapshot(), now()))

    async def retain(self) -> None:
        """Delete what is older than the log is to be kept, for ever."""
        while True:
            await asyncio.sleep(SWEEP)
            for loop in list(self.loops.values()):
                days = loop.settings.log_retention_days
                before = now() - days * DAY
                with contextlib.suppress(StoreError):
                    span = await asyncio.to_thread(self.store.span, loop.id)
                    if days >= 0 and span is not None and span.since < before:
                        await self.shorten(loop, before)
            await asyncio.sleep(RETAIN)

    async def shorten(self, loop: Loop, before: int, even_waiting: bool = False) -> None:
        """Delete decisions made before a time; a snapshot keeps what was learned, and the round."""
        await self.write(PutSnapshot(loop.id, loop.lesson, loop.snapshot(), now()))
        delete = DeleteLogs(loop.id, before, even_waiting=even_waiting)
        while await self.write(delete):
            pass

    async def expire(self, loop: Loop) -> None:
        """Learn the default reward where none came in time."""
        given = loop.settings
        while True:
            at = now()
            expire = Expire(loop.id, at - given.wait, given.default_reward, at)
            closed = await self.write(expire, loop)
            if len(closed) < expire.limit:
                return


def teach(loop: Loop, done: "Future[Any]") -> None:
    """Let a loop learn what writing has taught, at once and in the order of the log."""
    if done.exception() is not None:
        return
    result = done.result()
    if isinstance(result, Kept | Rewarded | Activated):
        loop.learn(result.lessons)
    elif isinstance(result, Change):
        loop.change(result)
    elif isinstance(result, tuple):
        loop.learn(result)


def hand_over(waiting: "asyncio.Future[Any]", done: "Future[Any]") -> None:
    """Pass on what became of a writing, unless nobody waits any more."""
    if waiting.done():
        return
    error = done.exception()
    if error is None:
        waiting.set_result(done.result())
    else:
        waiting.set_exception(error)


async def body_of(request: Request) -> bytes:
    """The body, unless it is too large; no more of it is read than that takes."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise bad("PayloadSizeExceeded", f"the body must have at most {MOST_BYTES} bytes")
    return b"".join(parts)


def service_of(request: Request) -> Service:
    """The service behind a request."""
    service: Service = request.app.state.service
    return service


def loop_of(request: Request) -> str:
    """The name of the loop that is asked: in the path, or where a client loses that, `?loop=`."""
    named = request.path_params.get("loop") or request.query_params.get("loop")
    return str(named or "default")


def parsed(read: Callable[[bytes], Result], body: bytes, code: str) -> Result:
    """What a body says, or a sentence on why it says nothing."""
    try:
        return read(body)
    except msgspec.ValidationError as reason:
        raise bad(code, str(reason)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
        raise bad(code, f"the body is not JSON: {reason}") from None


async def rank(request: Request) -> Response:
    """POST rank."""
    body = await body_of(request)
    wanted = parsed(read_rank, body, "InvalidRankRequest")
    answer = await service_of(request).rank(loop_of(request), wanted, body.decode(errors="replace"))
    return Response(answer, 201, media_type=JSON)


async def reward(request: Request) -> Response:
    """POST events/{eventId}/reward."""
    given = parsed(read_reward, await body_of(request), "InvalidRewardRequest")
    if not math.isfinite(given.value):
        raise bad("InvalidRewardRequest", "value must be a number")
    service = service_of(request)
    loop = service.loop(loop_of(request))
    again = request.headers.get("x-ms-client-request-id")
    put = PutReward(loop.id, event_of(request), given.value, now(), loop.terms, again)
    await service.write(put, loop)
    return Response(status_code=204)


async def activate(request: Request) -> Response:
    """POST events/{eventId}/activate."""
    service = service_of(request)
    loop = service.loop(loop_of(request))
    event = event_of(request)
    done = await service.write(Activate(loop.id, event, now(), loop.terms), loop)
    if done.status == "unknown":
        raise bad("InvalidEventIdToActivate", f"no decision has the event id {event!r}", "eventId")
    return Response(status_code=204)


def event_of(request: Request) -> str:
    """The event id of a path."""
    event = str(request.path_params["event"])
    if len(event) > 256 or "\0" in event:
        message = "eventId must have at most 256 characters, none of them NUL"
        raise bad("BadRequest", message, "eventId")
    return event


async def service_configuration(request: Request) -> Response:
    """GET and PUT configurations/service."""
    service = service_of(request)
    loop = service.loop(loop_of(request))
    if request.method == "PUT":
        body = await body_of(request)
        given = parsed(msgspec.json.decode, body, "InvalidServiceConfiguration")
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
    await service.write(PutSettings(loop.id, told.write(changed), now(), "http"), loop)


async def policy_configuration(request: Request) -> Response:
    """GET configurations/policy."""
    loop = service_of(request).loop(loop_of(request))
    if request.method != "GET":
        message = "the policy follows from the service configuration: halfLife, width, noise"
        raise WireError(403, "InvalidApiAccess", message)
    answer = PolicyConfiguration("windvane", repr(loop.policy))
    return Response(msgspec.json.encode(answer), media_type=JSON)


async def model(request: Request) -> Response:
    """GET and DELETE model."""
    service = service_of(request)
    loop = service.loop(loop_of(request))
    if request.method == "DELETE":
        settings = told.write(loop.settings)
        await service.write(PutSettings(loop.id, settings, now(), FORGET), loop)
        return Response(status_code=204)
    if request.method == "PUT":
        message = "a model cannot be put in place of another; restore a backup instead"
        raise WireError(403, "InvalidApiAccess", message)
    return Response(loop.snapshot(), media_type="application/octet-stream")


def date(at: int) -> datetime:
    """Microseconds since 1970 as a time of day."""
    return datetime.fromtimestamp(at / 1e6, UTC)


async def model_properties(request: Request) -> Response:
    """GET model/properties."""
    loop = service_of(request).loop(loop_of(request))
    span = loop.store.span(loop.id)
    changed = date(span.until if span else loop.created)
    answer = ModelProperties(date(loop.created), changed)
    return Response(msgspec.json.encode(answer), media_type=JSON)


async def logs(request: Request) -> Response:
    """DELETE logs; what was learned stays, and so does what is decided meanwhile."""
    service = service_of(request)
    await service.shorten(service.loop(loop_of(request)), now() + 1, even_waiting=True)
    return Response(status_code=204)


async def logs_properties(request: Request) -> Response:
    """GET logs/properties."""
    loop = service_of(request).loop(loop_of(request))
    span = loop.store.span(loop.id)
    dates = DateRange(date(span.since), date(span.until)) if span else None
    return Response(msgspec.json.encode(LogsProperties(dates)), media_type=JSON)


async def not_built(request: Request) -> Response:
    """What the retired service had and this one has not."""
    part = next((reason for word, reason in NOT_BUILT.items() if word in request.url.path), "")
    raise WireError(403, "InvalidApiAccess", part or "this is not offered")


ROUTES: tuple[tuple[str, Handler, tuple[str, ...]], ...] = (
    ("/rank", rank, ("POST",)),
    ("/events/{event:path}/reward", reward, ("POST",)),
    ("/events/{event:path}/activate", activate, ("POST",)),
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


def original(scope: Scope) -> bytes:
    """The address as it was asked, without loop and version: one client's types go by it."""
    host = dict(scope["headers"]).get(b"host", b"")
    path = PREFIX.sub(b"", scope.get("raw_path") or quote(scope["path"]).encode())
    return b"%s://%s%s" % (scope["scheme"].encode(), host, path)


def fault_of(error: Exception) -> WireError:
    """Any failure as the envelope has it."""
    if isinstance(error, WireError):
        return error
    if isinstance(error, HTTPException):
        code = "ResourceNotFound" if error.status_code == 404 else "BadRequest"
        return WireError(error.status_code, code, str(error.detail))
    if isinstance(error, ClientDisconnect):
        return bad("BadRequest", "the body ended before its length")
    if isinstance(error, StoreError):
        return WireError(503, "OperationNotAllowed", str(error))
    if isinstance(error, WindvaneError):
        return bad("BadRequest", str(error))
    return WireError(500, "InternalServerError", "the service failed; its log says why")


def refuse(request: Request, error: Exception) -> Response:
    """The envelope of an error."""
    fault = fault_of(error)
    headers = {"x-ms-error-code": fault.code}
    if isinstance(error, HTTPException):  # which methods a path has
        headers |= error.headers or {}
    return Response(fault.body(), fault.status, headers, media_type=JSON)


class Traced:
    """Adds to each answer where it was asked, as one client wants it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked = original(scope)

        async def answer(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-ms-original-url", asked))  # type: ignore[attr-defined]
            await send(message)

        await self.app(scope, receive, answer)  # type: ignore[arg-type]


def make(where: str, default: Settings | None = None) -> Starlette:
    """The application over a store; a loop `default` is there from the start."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        sys.setswitchinterval(SWITCH)
        loop = asyncio.get_running_loop()
        with Store(where, deliver=loop.call_soon_threadsafe) as store:
            service = Service(store)
            app.state.service = service
            app.state.keyring, app.state.metrics = Keyring(store), Metrics(service)
            if "default" not in service.loops:
                await service.create("default", default or Settings(), "service")
            going = service.sweep(), service.retain(), app.state.keyring.watch()
            tasks = [asyncio.create_task(task) for task in going]
            yield
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for each in service.loops.values():
                await service.write(PutSnapshot(each.id, each.lesson, each.snapshot(), now()))

    from windvane.service import health, openapi  # they call the functions above

    app = Starlette(
        routes=[
            *health.routes(),
            Route("/openapi.json", openapi.openapi),
            *routes(),
            *board.routes(),
        ],
        lifespan=lifespan,
        exception_handlers=dict.fromkeys(
            (WireError, HTTPException, ClientDisconnect, WindvaneError), refuse
        ),
    )
    app.router.redirect_slashes = False  # no client follows them with its body
    app.add_exception_handler(Exception, refuse)
    app.add_middleware(Guarded)
    app.add_middleware(Traced)
    app.add_middleware(Watched)
    return app
