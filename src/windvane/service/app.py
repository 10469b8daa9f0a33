"""The composition root: log, writer, loops, keys, metrics and routes become one application."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import NamedTuple

from windvane.errors import StoreError, WindvaneError
from windvane.service.api.application import Application, LoadedState
from windvane.service.api.auth import Keyring, TrustedProxies
from windvane.service.api.request_limits import RateLimit
from windvane.service.clock import ServiceClock
from windvane.service.errors import ServiceError
from windvane.service.evaluations.evaluations import Evaluations, run_auto_optimization
from windvane.service.loops.learner_model import compile_kernels
from windvane.service.loops.maintenance import (
    leave,
    run_clock,
    run_following,
    run_heartbeats,
    run_reclaim,
    run_retention,
    run_sweeps,
    store_clock,
)
from windvane.service.loops.service import Service
from windvane.service.loops.settings import LoopSettings
from windvane.service.loops.withdrawals import Withdrawals
from windvane.service.monitoring.metrics import Metrics
from windvane.service.sharing.servers import LogSharing
from windvane.service.store.files.withdrawal_file import (
    open_abandoned_withdrawal_files,
    open_free_withdrawal_file,
    open_withdrawal_file,
)
from windvane.service.store.log import LogReader
from windvane.service.store.writer.writer_client import WriterClient
from windvane.service.traces import TracedService, Tracing

FINAL_SNAPSHOTS_SECONDS = 5.0  # time for writing the last snapshots
SERVICE_TASKS = (
    *(run_heartbeats, run_following, run_sweeps),
    *(run_retention, run_reclaim, run_clock),
)


class EdgeOptions(NamedTuple):
    """How the service meets its clients."""

    trusted_proxies: Sequence[str] = ()  # addresses and networks whose forwarded headers count
    requests_per_second: float | None = None  # of each key; None: without a limit
    answers_while_loading: bool = False  # with 503; otherwise the start waits for the loops
    tracing: Tracing | None = None


DEFAULT_EDGE = EdgeOptions()


def create_app(
    where: str,
    default_settings: LoopSettings | None = None,
    believes_wall_clock: bool = False,
    edge: EdgeOptions = DEFAULT_EDGE,
) -> Application:
    """The application over a log; if the log has no loop `default`, the start creates it.

    With `believes_wall_clock` service time starts at the wall clock, if that is ahead of the log.
    """
    tracing = edge.tracing
    build_service = Service if tracing is None else partial(TracedService, tracing)
    settings = default_settings or LoopSettings()

    @contextlib.asynccontextmanager
    async def open_service() -> AsyncIterator[Service]:
        async with _open_service(where, believes_wall_clock, build_service) as service:
            if not service.has_loop("default"):
                with contextlib.suppress(ServiceError):  # another server has created it
                    await service.create_loop("default", settings, "service")
                await service.get_loop("default")
            yield service

    @contextlib.asynccontextmanager
    async def run_service(app: Application) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            loading = asyncio.create_task(_load_state(app.state, open_service, stack))
            app.state.loading = loading
            if not edge.answers_while_loading:
                await loading
            yield
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    rate = edge.requests_per_second
    return Application(
        run_service,
        TrustedProxies(edge.trusted_proxies),
        None if rate is None else RateLimit(rate),
        tracing,
    )


async def _load_state(
    state: LoadedState,
    open_service: Callable[[], contextlib.AbstractAsyncContextManager[Service]],
    stack: contextlib.AsyncExitStack,
) -> None:
    """Load all that requests need; `stack` ends it again. The error is one sentence."""
    try:
        service = await stack.enter_async_context(open_service())
        evaluations = Evaluations(service)
        metrics = Metrics(service, evaluations)
        keyring = await asyncio.to_thread(Keyring, service.store, service.clock)
    except Exception as reason:
        raise _describe_failure(reason) from reason
    state.service = service
    state.metrics = metrics
    state.evaluations = evaluations
    await stack.enter_async_context(_run_tasks(service, evaluations, keyring))
    state.keyring = keyring  # from here on requests are answered


@contextlib.asynccontextmanager
async def _open_service(
    where: str, believes_wall_clock: bool, build_service: Callable[..., Service]
) -> AsyncIterator[Service]:
    """All loops of a log, and a process that writes for them.

    The end stores every belief and ends the writer process.
    """
    async with contextlib.AsyncExitStack() as stack:
        store = stack.enter_context(await asyncio.to_thread(LogReader, where))
        files = stack.enter_context(contextlib.ExitStack())  # closed after the writer
        writer = WriterClient(where)
        stack.push_async_callback(writer.close)
        starting = asyncio.create_task(writer.start())  # while this process compiles and loads
        stack.push_async_callback(lambda: asyncio.gather(starting, return_exceptions=True))
        # In a thread, so that the event loop goes on answering that the loops are not loaded yet.
        await asyncio.to_thread(compile_kernels)
        await starting
        sharing = LogSharing() if store.url.get_backend_name() == "postgresql" else None
        open_file = open_withdrawal_file if sharing is None else open_free_withdrawal_file
        withdrawals = Withdrawals(writer, await asyncio.to_thread(open_file, store.url))
        files.callback(withdrawals.close)
        await withdrawals.replay(store)  # before a loop learns from the log
        # Those of servers on this machine that were killed.
        for file in await asyncio.to_thread(open_abandoned_withdrawal_files, store.url):
            with contextlib.closing(file):
                await Withdrawals(writer, file).replay(store)
        clock = await asyncio.to_thread(_start_clock, store, sharing, believes_wall_clock)
        service = await asyncio.to_thread(build_service, store, writer, clock, withdrawals, sharing)
        stack.push_async_callback(_save_snapshots, service)
        yield service


@contextlib.asynccontextmanager
async def _run_tasks(
    service: Service, evaluations: Evaluations, keyring: Keyring
) -> AsyncIterator[None]:
    tasks = [
        *(asyncio.create_task(run(service)) for run in SERVICE_TASKS),
        asyncio.create_task(keyring.watch()),
        asyncio.create_task(evaluations.run()),
        asyncio.create_task(run_auto_optimization(service, evaluations)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _start_clock(store: LogReader, sharing: LogSharing | None, believes_wall: bool) -> ServiceClock:
    """Service time from the newest time in the log on; servers that share it follow its clock."""
    newest = store.find_newest_time()
    if sharing is None:
        return ServiceClock(newest, believes_wall)
    asked_us = sharing.clock.read_monotonic()
    sharing.clock.note(asked_us, store.read_database_us())
    read, name = sharing.clock.now_us, "clock of the database"
    return ServiceClock(newest, believes_wall, read, wall_name=name)


async def _save_snapshots(service: Service) -> None:
    """Store service time and every belief; without them the next start learns all lessons again.

    If servers share the log, the leader stores the beliefs.
    """
    with contextlib.suppress(StoreError, TimeoutError):
        async with asyncio.timeout(FINAL_SNAPSHOTS_SECONDS):
            await store_clock(service)
            for loop in service.loops.values():
                if loop.state.lessons_since_snapshot and service.is_leader:
                    with contextlib.suppress(StoreError):  # the loop may be deleted
                        await service.save_snapshot(loop)
            await leave(service)


def _describe_failure(reason: Exception) -> WindvaneError:
    """Why the service cannot start, in one sentence."""
    if isinstance(reason, WindvaneError):
        return reason
    sentence = f"{type(reason).__name__}: {reason}".splitlines()[0]
    return StoreError(f"serve: the loops cannot be loaded ({sentence})", "broken")
