"""All loops of one log: decide, have it written, learn what comes of it, degrade where it fails."""

import asyncio
import contextlib
import logging
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND, now_us
from windvane.service.loops import settings as told
from windvane.service.loops.loop import OFTEN, Loop
from windvane.service.loops.offered_actions import Offer
from windvane.service.loops.settings import Settings
from windvane.service.schemas import Rank, WireError
from windvane.service.store.admin_operations import DeleteLogs, PutLoop, PutSnapshot
from windvane.service.store.database_errors import is_database_failure
from windvane.service.store.decision_operations import (
    ActivateResult,
    Expire,
    ExpireResult,
    PutDecision,
    PutDecisionResult,
    PutRewardResult,
    Withdraw,
)
from windvane.service.store.group_commit import Operation
from windvane.service.store.log import LogReader
from windvane.service.store.schema import Decision, SettingsChange
from windvane.service.store.writer_client import WriterClient

PATIENCE, HURRY = 2.0, 0.2  # seconds after which a request is answered without the log
SWEEP = 0.5  # seconds between two looks for decisions whose wait is over
RETAIN = 3600.0  # seconds between two looks for decisions that were kept long enough
LOST = ("unreachable", "disk")  # errors after which it may be on disk, and only the word lost
MOST_IN_DOUBT = 4096  # decisions
DAY = 86_400 * MICROSECONDS_PER_SECOND

Result = TypeVar("Result")
log = logging.getLogger("windvane.service")


class Service:
    """All loops of one store, and how requests reach them."""

    def __init__(self, store: LogReader, writer: WriterClient) -> None:
        self.store, self.writer = store, writer
        self.loops: dict[str, Loop] = {}
        self.degraded: str | None = None  # why ranks are answered with the first action
        self.log_fails = False  # whether it is for the log
        self.changing = asyncio.Lock()  # settings, which are changed from what they were
        self.in_doubt: list[Withdraw] = []  # decisions answered otherwise that may be on disk
        for row in store.list_loops():
            self.loops[row.name] = Loop(row, store)

    async def create(self, name: str, settings: Settings, by: str) -> Loop:
        """A new loop."""
        await self.write(PutLoop(name, told.write(settings), now_us(), by), patience=PATIENCE)
        return await self.loop(name)

    async def loop(self, name: str) -> Loop:
        """The loop of a name; one that someone else made is loaded when it is first asked for."""
        if name not in self.loops:
            can_be = told.NAME.fullmatch(name)
            found = await asyncio.to_thread(self._load, name) if can_be else None
            if found is None:
                raise WireError(404, "ResourceNotFound", f"there is no loop {name!r}", "loop")
            self.loops.setdefault(name, found)
        return self.loops[name]

    def _load(self, name: str) -> Loop | None:
        row = self.store.find_loop(name)
        return None if row is None else Loop(row, self.store)

    def write(
        self, operation: Operation[Result], loop: Loop | None = None, patience: float | None = None
    ) -> "asyncio.Future[Result]":
        """Have it written, and let the loop learn what comes of it, in the order of the log.

        Whoever waits gets a TimeoutError when the patience is over.
        """
        then = None if loop is None else partial(teach, loop)
        self._withdraw()
        return self.writer.submit(operation, then, patience)

    def _withdraw(self) -> None:
        """Withdraw what was answered otherwise, before anything else is written."""
        while self.in_doubt:
            one = self.in_doubt[-1]
            try:
                self.writer.submit(one, partial(self._again, one))
            except StoreError:
                return
            self.in_doubt.pop()

    def _again(self, one: Withdraw, told: object) -> None:
        failed = isinstance(told, StoreError) and is_database_failure(told)
        if failed and len(self.in_doubt) < MOST_IN_DOUBT:
            self.in_doubt.append(one)

    async def rank(self, name: str, request: Rank, offer: Offer, text: str) -> bytes:
        """The answer to a rank, once it is on disk; the first action where it cannot be."""
        loop = await self.loop(name)
        decision, taken = self.decide(loop, request, offer, text), False
        try:
            put = PutDecision(decision, loop.terms, request.event_id is None)
            writing = self.write(put, loop, HURRY if self.degraded else PATIENCE)
            taken = True
            kept = await writing
        except (StoreError, TimeoutError) as reason:
            self.degraded = str(reason) or self.degraded or "the log takes too long"
            self.log_fails = True
            log.warning("rank degraded")
            again = replace(request, event_id=decision.event_id)
            instead = loop.decide(again, offer, text, degraded=True)
            if isinstance(reason, TimeoutError) or (taken and reason.kind in LOST):
                self.in_doubt.append(Withdraw(decision, instead, loop.terms))
                self._withdraw()
            return instead.answer
        if not decision.degraded:
            self.degraded, self.log_fails = None, False
        return kept.answer

    def decide(self, loop: Loop, request: Rank, offer: Offer, text: str) -> Decision:
        """A choice; the first action where a defect keeps the loop from choosing."""
        try:
            return loop.decide(request, offer, text)
        except WireError:
            raise
        except Exception as reason:
            self.degraded = f"no choice could be made ({type(reason).__name__}: {reason})"
            log.warning("rank degraded", exc_info=True)
            return loop.decide(request, offer, text, degraded=True)

    async def sweep(self) -> None:
        """Close decisions whose wait is over, and take snapshots, for ever."""
        since: dict[str, int] = {}
        while True:
            await asyncio.sleep(SWEEP)
            for loop in list(self.loops.values()):
                try:
                    await self.expire(loop)
                    if self.log_fails:  # and now it does not
                        self.degraded, self.log_fails = None, False
                    if loop.lesson - since.setdefault(loop.name, loop.lesson) >= OFTEN:
                        since[loop.name] = loop.lesson
                        await self.keep(loop)
                except StoreError:
                    continue  # whoever ranks is told
                except Exception:
                    log.exception("loop %s cannot be swept", loop.name)

    async def retain(self) -> None:
        """Delete what is older than the log is to be kept, for ever."""
        while True:
            await asyncio.sleep(SWEEP)
            for loop in list(self.loops.values()):
                days = loop.settings.log_retention_days
                before = now_us() - days * DAY
                with contextlib.suppress(StoreError):
                    span = await asyncio.to_thread(self.store.find_time_span, loop.id)
                    if days >= 0 and span is not None and span.since < before:
                        await self.shorten(loop, before)
            await asyncio.sleep(RETAIN)

    async def shorten(self, loop: Loop, before: int, even_waiting: bool = False) -> None:
        """Delete decisions made before a time; a snapshot keeps what was learned, and the round."""
        await self.keep(loop)
        delete = DeleteLogs(loop.id, before, include_waiting=even_waiting)
        while await self.write(delete):
            pass

    async def expire(self, loop: Loop) -> None:
        """Learn the default reward where none came in time."""
        given = loop.settings
        while True:
            at = now_us()
            expire = Expire(loop.id, at - given.wait, given.default_reward, at)
            done = await self.write(expire, loop)
            if done.closed < expire.limit:
                return

    async def keep(self, loop: Loop) -> None:
        """Take a snapshot of what a loop believes."""
        await self.write(PutSnapshot(loop.id, loop.lesson, loop.snapshot(), now_us()))


def teach(loop: Loop, told: Any) -> None:
    """Let a loop learn what writing has taught, at once and in the order of the log."""
    if isinstance(told, StoreError):
        loop.in_doubt |= is_database_failure(told)  # the write may be on disk
    elif loop.in_doubt:
        with contextlib.suppress(StoreError):
            loop.restore()
    elif isinstance(told, PutDecisionResult | PutRewardResult | ActivateResult | ExpireResult):
        loop.learn(told.lessons)
    elif isinstance(told, SettingsChange):
        loop.change(told)
