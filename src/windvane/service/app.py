"""The composition root: log, writer, loops, keys, metrics and routes become one application."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

from starlette.routing import Router

from windvane.errors import StoreError, WindvaneError
from windvane.service.api.auth import Keyring
from windvane.service.api.middleware import RequestMiddleware
from windvane.service.api.routes import build_routes
from windvane.service.clock import ServiceClock
from windvane.service.loops.maintenance import (
    run_clock,
    run_retention,
    run_sweeps,
    store_clock,
)
from windvane.service.loops.service import Service
from windvane.service.loops.settings import Settings
from windvane.service.loops.warmup import compile_kernels, load_kernels
from windvane.service.monitoring.metrics import Metrics
from windvane.service.store.log import LogReader
from windvane.service.store.writer_client import WriterClient

FINAL_SNAPSHOTS_SECONDS = 5.0  # in which the last snapshots have to be written


def create_app(
    where: str, default_settings: Settings | None = None, believes_wall_clock: bool = False
) -> RequestMiddleware:
    """The application over a log; if the log has no loop `default`, the start creates it.

    With `believes_wall_clock` service time starts at the wall clock, if that is ahead of the log.
    """

    @contextlib.asynccontextmanager
    async def run_service(app: RequestMiddleware) -> AsyncIterator[None]:
        state = app.state
        writer = WriterClient(where)
        with LogReader(where) as store:
            try:
                service = await _load_service(
                    store, writer, default_settings or Settings(), believes_wall_clock
                )
            except Exception as reason:
                state.failure = _describe_failure(reason)  # for `server.run`
                raise
            state.service = service
            state.keyring = Keyring(store, service.clock)
            state.metrics = Metrics(service)
            tasks = [
                asyncio.create_task(run_sweeps(service)),
                asyncio.create_task(run_retention(service)),
                asyncio.create_task(run_clock(service)),
                asyncio.create_task(state.keyring.watch()),
            ]
            gc.collect()
            gc.freeze()  # so that no collection scans the million objects of compiled code
            yield
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _save_snapshots(service)
            await writer.close()
            gc.unfreeze()

    # A redirect of trailing slashes would lose the body: no client repeats it.
    return RequestMiddleware(Router(build_routes(), redirect_slashes=False, lifespan=run_service))


async def _load_service(
    store: LogReader, writer: WriterClient, default_settings: Settings, believes_wall_clock: bool
) -> Service:
    """All loops of a log, with the loop `default`, and a process that writes for them."""
    await asyncio.to_thread(compile_kernels)
    load_kernels()
    await writer.start()
    try:
        clock = ServiceClock(store.find_newest_time(), believes_wall_clock)
        service = Service(store, writer, clock)
        if "default" not in service.loops:
            await service.create_loop("default", default_settings, "service")
    except BaseException:
        await writer.close()
        raise
    return service


async def _save_snapshots(service: Service) -> None:
    """Store service time and every belief; without them the next start learns all lessons again."""
    with contextlib.suppress(StoreError, TimeoutError):
        async with asyncio.timeout(FINAL_SNAPSHOTS_SECONDS):
            await store_clock(service)
            for loop in service.loops.values():
                if loop.lessons_since_snapshot:
                    await service.save_snapshot(loop)


def _describe_failure(reason: Exception) -> WindvaneError:
    """Why the service cannot start, in one sentence."""
    if isinstance(reason, WindvaneError):
        return reason
    sentence = f"{type(reason).__name__}: {reason}".splitlines()[0]
    return StoreError(f"serve: the loops cannot be loaded ({sentence})", "broken")
