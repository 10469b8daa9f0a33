"""The composition root: log, writer, loops, keys, metrics and routes become one application."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import NamedTuple

from windvane.errors import StoreError, WindvaneError
from windvane.service.api.application import Application, LoadedState
from windvane.service.api.auth import Keyring, TrustedProxies
from windvane.service.api.request_limits import RateLimit
from windvane.service.clock import ServiceClock
from windvane.service.errors import LoopExistsError
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
from windvane.service.store.database import resolve_url
from windvane.service.store.files.withdrawal_file import (
    open_abandoned_withdrawal_files,
    open_free_withdrawal_file,
    open_withdrawal_file,
)
from windvane.service.store.log import LogReader
from windvane.service.store.writer.writer_client import WriterClient
from windvane.service.traces import TracedService, Tracing

NEW_OBJECTS_BEFORE_COLLECTION = 20_000  # a rank makes some fifty
SWITCH_INTERVAL_SECONDS = 0.0005  # longest wait of the event loop for a thread that computes
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


class StartOptions(NamedTuple):
    """How the service opens its log."""

    where: str  # a data directory or the URL of a database
    default_settings: LoopSettings  # of the loop `default`, if the log has none
    believes_wall_clock: bool
    build_service: Callable[..., Service]

    @property
    def shares_log(self) -> bool:
        """Whether other servers may write to the log."""
        return resolve_url(self.where).get_backend_name() == "postgresql"


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
    start = StartOptions(
        where, default_settings or LoopSettings(), believes_wall_clock, build_service
    )
    open_service = partial(_open_service, start)

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
    gc.collect()
    gc.freeze()  # so that no collection scans the million objects of compiled code
    stack.callback(gc.unfreeze)
    stack.callback(gc.set_threshold, *gc.get_threshold())
    gc.set_threshold(NEW_OBJECTS_BEFORE_COLLECTION)  # requests leave hardly any cycles
    stack.callback(sys.setswitchinterval, sys.getswitchinterval())
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    state.keyring = keyring  # from here on requests are answered


@contextlib.asynccontextmanager
async def _open_service(start: StartOptions) -> AsyncIterator[Service]:
    """All loops of a log, with the loop `default`, and a process that writes for them.

    The end stores every belief and ends the writer process.
    """
    async with contextlib.AsyncExitStack() as stack:
        store = stack.enter_context(await asyncio.to_thread(LogReader, start.where))
        files = stack.enter_context(contextlib.ExitStack())  # closed after the writer
        writer = WriterClient(start.where)
        stack.push_async_callback(writer.close)
        starting = asyncio.create_task(writer.start())  # while this process compiles and loads
        stack.push_async_callback(lambda: asyncio.gather(starting, return_exceptions=True))
        # In a thread, so that the event loop goes on answering that the loops are not loaded yet.
        await asyncio.to_thread(compile_kernels)
        await starting
        open_file = open_free_withdrawal_file if start.shares_log else open_withdrawal_file
        withdrawals = Withdrawals(writer, await asyncio.to_thread(open_file, store.url))
        files.callback(withdrawals.close)
        await withdrawals.replay(store)  # before a loop learns from the log
        await _replay_abandoned_withdrawals(store, writer)
        service = await _load_service(store, writer, withdrawals, start)
        stack.push_async_callback(_save_snapshots, service)
        yield service


@contextlib.asynccontextmanager
async def _run_tasks(
    service: Service, evaluations: Evaluations, keyring: Keyring
) -> AsyncIterator[None]:
    """Run the background tasks of a service until the end."""
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


async def _load_service(
    store: LogReader, writer: WriterClient, withdrawals: Withdrawals, start: StartOptions
) -> Service:
    """The service with its clock, and with the loop `default`."""
    newest = await asyncio.to_thread(store.find_newest_time)
    sharing = None
    clock = ServiceClock(newest, start.believes_wall_clock)
    if start.shares_log:
        sharing = LogSharing()
        asked_us = sharing.clock.read_monotonic()
        sharing.clock.note(asked_us, await asyncio.to_thread(store.read_database_us))
        read, name = sharing.clock.now_us, "clock of the database"
        clock = ServiceClock(newest, start.believes_wall_clock, read, wall_name=name)
    service = await asyncio.to_thread(
        start.build_service, store, writer, clock, withdrawals, sharing
    )
    if not service.has_loop("default"):
        with contextlib.suppress(LoopExistsError):  # another server has created it
            await service.create_loop("default", start.default_settings, "service")
        await service.get_loop("default")
    return service


async def _replay_abandoned_withdrawals(store: LogReader, writer: WriterClient) -> None:
    """Repeat the withdrawals of servers on this machine that were killed."""
    for file in await asyncio.to_thread(open_abandoned_withdrawal_files, store.url):
        try:
            await Withdrawals(writer, file).replay(store)
        finally:
            file.close()


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
