"""Background tasks of a server that shares its log: heartbeats, and reading what others wrote."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from windvane.errors import StoreError
from windvane.service.loops.service import WRITE_TIMEOUT_SECONDS, Service
from windvane.service.store.writer.log_news import LogNews
from windvane.service.store.writer.server_operations import Heartbeat, Leave, ReturnRounds

HEARTBEAT_INTERVAL_SECONDS = 1.5
FOLLOW_INTERVAL_SECONDS = 0.5  # pause between two reads of the positions


async def run_heartbeats(service: Service) -> None:
    """Send heartbeats until cancelled; without other servers there are none."""
    await _repeat(service, send_heartbeat, HEARTBEAT_INTERVAL_SECONDS)


async def run_following(service: Service) -> None:
    """Read what other servers have written until cancelled."""
    await _repeat(service, follow_log, FOLLOW_INTERVAL_SECONDS)


async def _repeat(
    service: Service, work: Callable[[Service], Awaitable[None]], interval_seconds: float
) -> None:
    """Do something again and again; if the log fails, it is tried again."""
    while service.sharing is not None:
        with contextlib.suppress(StoreError, TimeoutError):
            await work(service)
        await asyncio.sleep(interval_seconds)


async def send_heartbeat(service: Service) -> None:
    """Tell the other servers that this one is alive, and find out who leads."""
    sharing = service.sharing
    if sharing is None:
        return
    settled_until = service.withdrawals.bound_expiry(service.clock.now_us())
    sent_at = sharing.read_seconds()
    beat = Heartbeat(sharing.server_id, sharing.server_name, settled_until)
    result = await service.write(beat, timeout=WRITE_TIMEOUT_SECONDS)
    sharing.note_heartbeat(sent_at, result)


async def leave(service: Service) -> None:
    """Give the rounds that are left back, and let another server lead."""
    if service.sharing is None:
        return
    for loop in service.loops.values():
        for block in loop.rounds.drain() if loop.rounds is not None else ():
            await service.write(ReturnRounds(loop.id, *block))
    await service.write(Leave(service.sharing.server_id))


async def follow_log(service: Service) -> None:
    """Read how far the log has got, and what this server lacks of it."""
    positions = await asyncio.to_thread(service.store.read_positions)
    known = {loop.id for loop in service.loops.values()}
    for loop_id in positions.keys() & known:
        position = positions[loop_id]
        service.take_news(LogNews(loop_id, position.lesson, position.change))
    if positions.keys() - known:
        for row in await asyncio.to_thread(service.store.list_loops):
            if not service.has_loop(row.name):
                await service.get_loop(row.name)
