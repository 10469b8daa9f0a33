"""Background tasks of the service: close decisions, store snapshots, delete old decisions."""

import asyncio
import contextlib
import logging

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND, now_us
from windvane.service.loops.loop import Loop
from windvane.service.loops.service import Service
from windvane.service.store.decision_operations import Expire

SWEEP_INTERVAL_SECONDS = 0.5  # between two searches for decisions whose wait is over
RETENTION_INTERVAL_SECONDS = 3600.0  # between two searches for decisions that are too old
SNAPSHOT_EVERY_LESSONS = 1000  # of the loop itself
MICROSECONDS_PER_DAY = 86_400 * MICROSECONDS_PER_SECOND

logger = logging.getLogger("windvane.service")


async def run_sweeps(service: Service) -> None:
    """Close decisions whose wait is over and store snapshots, until cancelled."""
    while True:
        await asyncio.sleep(SWEEP_INTERVAL_SECONDS)
        for number, loop in enumerate(list(service.loops.values())):
            try:
                is_due = loop.expiries.is_due(now_us() - loop.terms.wait_us)
                is_probe = bool(service.degraded) and number == 0  # a write shows if the log works
                if is_due or is_probe:
                    await expire_decisions(service, loop)
                    service.note_that_log_works()
                if loop.lessons_since_snapshot >= SNAPSHOT_EVERY_LESSONS:
                    await service.save_snapshot(loop)
            except StoreError:
                continue  # rank requests report a log that fails
            except Exception:
                logger.exception("loop %s cannot be swept", loop.name)


async def expire_decisions(service: Service, loop: Loop) -> None:
    """Close decisions without a reward in time; the loop learns the default reward."""
    settings = loop.settings
    while True:
        at = now_us()
        expire = Expire(loop.id, at - settings.reward_wait_us, settings.default_reward, at)
        done = await service.write(expire, loop)
        await loop.work.wait()
        if done.closed < expire.limit:
            loop.expiries.remove_before(expire.before)
            return


async def run_retention(service: Service) -> None:
    """Delete decisions that are older than `logRetentionDays`, until cancelled."""
    while True:
        await asyncio.sleep(SWEEP_INTERVAL_SECONDS)
        for loop in list(service.loops.values()):
            days = loop.settings.log_retention_days
            before = now_us() - days * MICROSECONDS_PER_DAY
            with contextlib.suppress(StoreError):
                span = await asyncio.to_thread(service.store.find_time_span, loop.id)
                if days >= 0 and span is not None and span.since < before:
                    await service.delete_decisions(loop, before)
        await asyncio.sleep(RETENTION_INTERVAL_SECONDS)
