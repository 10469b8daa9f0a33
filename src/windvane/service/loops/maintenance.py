"""Background tasks of the service.

They close decisions, store snapshots, delete old decisions, give their space back, and compare
service time with the wall clock. If servers share the log, they also send heartbeats and read what
others wrote.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Container

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_DAY
from windvane.service.loops.loop import Loop, PostponedDeletion
from windvane.service.loops.service import WRITE_TIMEOUT_SECONDS, Service
from windvane.service.store.decision_queries import count_decisions
from windvane.service.store.writer.decision_operations import Expire
from windvane.service.store.writer.log_news import LogNews
from windvane.service.store.writer.loop_operations import PurgeLoops, ReclaimSpace
from windvane.service.store.writer.server_operations import (
    Heartbeat,
    Leave,
    PutClock,
    ReturnRounds,
    StepClock,
)

SWEEP_INTERVAL_SECONDS = 0.5  # pause between two searches for decisions whose wait is over
RETENTION_INTERVAL_SECONDS = 3600.0  # pause between two searches for old decisions
MAX_DELETED_SHARE = 0.5  # of the decisions of a loop, which retention deletes at once
RECLAIM_PAUSE_SECONDS = 0.05  # pause between two steps, so that requests are written
RECLAIM_RETRY_SECONDS = 1.0  # pause after a step that the log could not take
CLOCK_INTERVAL_SECONDS = 1.0  # pause between two comparisons with the wall clock
STORE_CLOCK_EVERY_COMPARISONS = 60  # service time is stored once for so many comparisons

logger = logging.getLogger("windvane.service")
HEARTBEAT_INTERVAL_SECONDS = 1.5
FOLLOW_INTERVAL_SECONDS = 0.5  # pause between two reads of the positions


async def run_sweeps(service: Service) -> None:
    """Close decisions whose wait is over and store snapshots, until cancelled.

    Each loop is swept in a task of its own, so that none waits for the long work of another.
    """
    tasks: dict[str, asyncio.Task[None]] = {}  # by loop, those that are not done
    try:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_SECONDS)
            service.check_files()
            tasks = {name: task for name, task in tasks.items() if not task.done()}
            if service.is_leader:
                tasks |= await start_sweeps(service, tasks)
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def start_sweeps(
    service: Service, busy: Container[str] = ()
) -> dict[str, "asyncio.Task[None]"]:
    """Start to sweep each loop that needs it and is not busy; returns the tasks by loop."""
    due = await find_due_loops(service)
    tasks = {}
    for number, loop in enumerate(list(service.loops.values())):
        is_due = loop.id in due
        # The first loop writes in any case: this shows whether the log works again.
        is_probe = bool(service.degraded_reason) and number == 0
        is_needed = is_due or is_probe or loop.needs_snapshot
        if is_needed and loop.name not in busy:
            sweep = _sweep_loop(service, loop, is_due or is_probe)
            tasks[loop.name] = asyncio.create_task(sweep)
    return tasks


async def find_due_loops(service: Service) -> set[int]:
    """Find the loops (ids) with decisions whose wait is over; none if the log cannot be read."""
    now = service.clock.now_us()
    try:
        oldest = await asyncio.to_thread(service.store.find_oldest_waits)
    except StoreError:
        return set()
    return {
        loop.id
        for loop in service.loops.values()
        if oldest.get(loop.id, now) < service.bound_expiry(now, loop.terms.wait_us)
    }


async def _sweep_loop(service: Service, loop: Loop, expires: bool) -> None:
    try:
        if expires:
            await expire_decisions(service, loop)
        if loop.needs_snapshot:
            await service.save_snapshot(loop)
    except StoreError:
        return  # the writer's client counts what fails
    except Exception:
        logger.exception("loop %s cannot be swept", loop.name)


async def expire_decisions(service: Service, loop: Loop) -> None:
    """Close decisions without a reward in time; the loop learns the default reward."""
    while not service.unwritten_steps:  # else decisions would wait for less time
        settings, terms, _ = loop.in_force
        at = service.clock.now_us()
        before = service.bound_expiry(at, terms.wait_us)
        expire = Expire(loop.id, before, settings.default_reward, at, change=terms.change)
        done = await service.write(expire, loop)
        await loop.work.wait()
        if done.closed < expire.limit:
            return


async def run_retention(service: Service) -> None:
    """Delete decisions that are older than `logRetentionDays`, until cancelled."""
    while True:
        await asyncio.sleep(SWEEP_INTERVAL_SECONDS)
        if not service.is_leader:
            continue
        for loop in list(service.loops.values()):
            with contextlib.suppress(StoreError):
                await delete_old_decisions(service, loop)
        await asyncio.sleep(RETENTION_INTERVAL_SECONDS)
        service.has_free_space.set()  # a server that has ended may have left rows of deleted loops


async def delete_old_decisions(service: Service, loop: Loop) -> None:
    """Delete decisions that are too old both by service time and by the wall clock.

    If they are most of the log, a clock or a setting may be wrong: the deletion waits for a day.
    """
    settings, terms, _ = loop.in_force
    days = settings.log_retention_days
    now = service.clock.earliest_us()
    if service.sharing is not None:
        now = service.sharing.bound_time(now)
    before = now - days * MICROSECONDS_PER_DAY
    span = await asyncio.to_thread(service.store.find_time_span, loop.id)
    if days < 0 or span is None or span.since >= before:
        loop.postponed = None
        return
    old = await asyncio.to_thread(count_decisions, service.store, loop.id, None, before)
    total = await asyncio.to_thread(count_decisions, service.store, loop.id)
    is_most = old > MAX_DELETED_SHARE * total
    if is_most and _postpone_deletion(service, loop, f"{old} of {total} decisions"):
        return
    loop.postponed = None
    await service.delete_decisions(loop, before, change=terms.change)


def _postpone_deletion(service: Service, loop: Loop, what: str) -> bool:
    """Whether a deletion has to wait longer, by a clock that nobody can set; says so once."""
    now = service.clock.read_monotonic()
    if loop.postponed is not None:
        return now < loop.postponed.since_us + MICROSECONDS_PER_DAY
    sentence = (
        f"loop {loop.name}: {what} are older than logRetentionDays and are deleted in a day: "
        "if that is wrong, change logRetentionDays or set the clock right"
    )
    loop.postponed = PostponedDeletion(now, sentence)
    logger.warning("%s", sentence)
    return True


async def run_reclaim(service: Service) -> None:
    """Delete the rows of deleted loops, and give free space back, in small steps, until cancelled.

    A start finds what a service before it has left, and so does the leader's next retention.
    """
    while True:
        await service.has_free_space.wait()
        service.has_free_space.clear()
        try:
            while await service.write(PurgeLoops()):
                pass
            while await service.write(ReclaimSpace()):
                await asyncio.sleep(RECLAIM_PAUSE_SECONDS)
        except StoreError:
            await asyncio.sleep(RECLAIM_RETRY_SECONDS)
            service.has_free_space.set()


async def run_clock(service: Service) -> None:
    """Compare service time with the wall clock and store it now and then, until cancelled."""
    reported: set[str] = set()  # clocks that were wrong at the last comparison
    comparisons = 0
    while True:
        await asyncio.sleep(CLOCK_INTERVAL_SECONDS)
        with contextlib.suppress(StoreError):
            await compare_clocks(service)
            comparisons += 1
            if comparisons % STORE_CLOCK_EVERY_COMPARISONS == 0:
                await store_clock(service)
        doubt = service.clock.doubt
        sentences = {"believed": doubt and doubt.sentence, "skew": service.describe_skew()}
        wrong = {name: sentence for name, sentence in sentences.items() if sentence is not None}
        for name in wrong.keys() - reported:
            logger.warning("%s", wrong[name])
        reported = set(wrong)


async def compare_clocks(service: Service) -> None:
    """Compare once; a step is submitted before anything that is dated after it."""
    if (step := service.clock.compare()) is not None:
        service.unwritten_steps.append(step)
        logger.warning("service time stepped forward to the wall clock")
    while service.unwritten_steps:
        await service.write(StepClock(*service.unwritten_steps[0]))
        service.unwritten_steps.pop(0)


async def store_clock(service: Service) -> None:
    """Store service time, so that the next start knows it even if nothing else was written."""
    await service.write(PutClock(service.clock.now_us()))


async def run_heartbeats(service: Service) -> None:
    """Send heartbeats until cancelled; without other servers there are none."""
    if service.sharing is not None:
        await _repeat(service, send_heartbeat, HEARTBEAT_INTERVAL_SECONDS)


async def run_following(service: Service) -> None:
    """Read what other processes have written until cancelled."""
    await _repeat(service, follow_log, FOLLOW_INTERVAL_SECONDS)


async def _repeat(
    service: Service, work: Callable[[Service], Awaitable[None]], interval_seconds: float
) -> None:
    """Do something again and again; if the log fails, it is tried again."""
    while True:
        with contextlib.suppress(StoreError, TimeoutError):
            await work(service)
        await asyncio.sleep(interval_seconds)


async def send_heartbeat(service: Service) -> None:
    """Tell the other servers that this one is alive, and find out who leads."""
    sharing = service.sharing
    if sharing is None:
        return
    settled_until = service.withdrawals.bound_expiry(service.clock.now_us())
    sent_at, asked_us = sharing.read_seconds(), sharing.clock.read_monotonic()
    beat = Heartbeat(sharing.server_id, sharing.server_name, settled_until)
    result = await service.write(beat, timeout=WRITE_TIMEOUT_SECONDS)
    sharing.clock.note(asked_us, result.database_us)
    sharing.note_heartbeat(sent_at, result)


async def leave(service: Service) -> None:
    """Give the rounds that are left back, and let another server lead."""
    if service.sharing is None:
        return
    for loop in service.loops.values():
        for block in loop.rounds.drain() if loop.rounds is not None else ():
            with contextlib.suppress(StoreError):  # the loop may be deleted
                await service.write(ReturnRounds(loop.id, *block))
    await service.write(Leave(service.sharing.server_id))


async def follow_log(service: Service) -> None:
    """Read how far the log has got, and what this server lacks of it."""
    positions = await service.drop_deleted_loops()
    if service.sharing is None:
        return  # nobody else writes lessons
    known = {loop.id for loop in service.loops.values()}
    for loop_id in positions.keys() & known:
        position = positions[loop_id]
        service.take_news(LogNews(loop_id, position.lesson, position.change))
    if positions.keys() - known:
        for row in await asyncio.to_thread(service.store.list_loops):
            if not service.has_loop(row.name):
                await service.get_loop(row.name)
