"""The decisions of a loop for pipelines: pages in the order of the log, with long polling."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from windvane.service.clock import MICROSECONDS_PER_SECOND, to_datetime
from windvane.service.errors import ServiceError
from windvane.service.loops.loop import Loop
from windvane.service.schemas import DecisionPage, Ranked, StreamedDecision, StreamedSlot
from windvane.service.store.decision_queries import (
    LoggedPage,
    StreamRow,
    read_pages,
    read_stream_page,
)
from windvane.service.store.rows import decode_action_ids
from windvane.service.store.writer.reward_operations import RewardTerms

MAX_PAGE_DECISIONS = 1000
MAX_WAIT_SECONDS = 30
MAX_WAITING_READERS = 32  # readers that may wait for new decisions at once
MAX_READING = 2  # pages in memory at once, each as a whole
POLL_SECONDS = 0.2  # pause between two looks at the log for a waiting reader
RETRY_AFTER_SECONDS = 1
# For which a reward that arrived in time may still be on its way into the log.
FINAL_MARGIN_US = 10 * MICROSECONDS_PER_SECOND
logger = logging.getLogger("windvane.service")


class StreamQuery(NamedTuple):
    """Which decisions a pipeline asks for, and for how long it waits for the first of them."""

    after: int = 0  # id
    limit: int = 100
    wait_seconds: float = 0.0
    only_final: bool = False  # the page ends before the first decision whose reward can change


class DecisionStream:
    """Reads pages of decisions, a few at a time, and lets readers wait for the next decision."""

    def __init__(self) -> None:
        self._reading = asyncio.Semaphore(MAX_READING)
        self._waiting_count = 0
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Let all readers that wait go on at once, because the service ends."""
        self._closing.set()

    async def read(
        self, loop: Loop, query: StreamQuery, is_gone: Callable[[], Awaitable[bool]]
    ) -> bytes:
        """Read a page as JSON; one that would be empty is read again until the wait is over.

        `is_gone` says whether the reader has left.
        """
        deadline = time.monotonic() + query.wait_seconds
        page = await self._read(loop, query)
        if page is None and query.wait_seconds > 0.0:
            if self._waiting_count >= MAX_WAITING_READERS:
                message = f"{MAX_WAITING_READERS} readers wait for decisions, no more can wait"
                raise ServiceError("too many", message, "wait", RETRY_AFTER_SECONDS)
            self._waiting_count += 1
            try:
                await self._wait_for_more(loop, query._replace(limit=1), deadline, is_gone)
            finally:
                self._waiting_count -= 1
            page = await self._read(loop, query)
        return page or msgspec.json.encode(DecisionPage([], query.after))

    async def _wait_for_more(
        self,
        loop: Loop,
        first: StreamQuery,
        deadline: float,
        is_gone: Callable[[], Awaitable[bool]],
    ) -> None:
        """Wait until a page is not empty, the wait is over, the reader left or the service ends.

        The log is polled, because decisions of other processes are in it too.
        """
        while (seconds := deadline - time.monotonic()) > 0.0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), min(POLL_SECONDS, seconds))
            if self._closing.is_set() or await is_gone() or await self._read(loop, first):
                return

    async def _read(self, loop: Loop, query: StreamQuery) -> bytes | None:
        async with self._reading:
            return await asyncio.to_thread(_read_page, loop, query)


def _read_page(loop: Loop, query: StreamQuery) -> bytes | None:
    """Read a page as JSON; None if it is empty."""
    # All rewards that arrived before this time are in the log.
    arrived_until = loop.clock.now_us() - FINAL_MARGIN_US
    rows = read_stream_page(loop.store, loop.id, query.after, query.limit)
    is_final = [_is_final(row, loop.terms, arrived_until) for row in rows]
    if query.only_final and not all(is_final):
        rows = rows[: is_final.index(False)]
    if not rows:
        return None
    pages = read_pages(loop.store, {row.id: row.slots for row in rows})
    decisions = [
        decision
        for row, final in zip(rows, is_final, strict=False)
        if (decision := _to_decision(row, final, loop.name, pages.get(row.id))) is not None
    ]
    return msgspec.json.encode(DecisionPage(decisions, rows[-1].id))


def _is_final(row: StreamRow, terms: RewardTerms, arrived_until: int) -> bool:
    """Whether the reward of a decision can no longer change, under the present settings."""
    if row.is_waiting:
        return False
    can_grow = terms.sums_rewards and row.first_kind in ("amend", "observe")
    return not can_grow or arrived_until > row.at + terms.wait_us


def _to_decision(
    row: StreamRow, is_final: bool, loop_name: str, page: LoggedPage | None
) -> StreamedDecision | None:
    """A row as pipelines get it; None if it is damaged."""
    try:
        action_ids = decode_action_ids(row.actions)
        ranking = _rank_ids(action_ids, row.probabilities)
        chosen = action_ids[row.chosen]
        slots = msgspec.UNSET if page is None else _list_slots(page, action_ids)
    except (ValueError, IndexError):
        logger.warning("loop %s: the decision %s is damaged and left out", loop_name, row.id)
        return None
    return StreamedDecision(
        id=row.id,
        event_id=row.event_id,
        time=to_datetime(row.at),
        mode=row.mode,
        ranking=ranking,
        reward_action_id=chosen,
        degraded=bool(row.degraded),
        is_activated=row.activated_at is not None,
        reward=row.reward,
        is_default_reward=row.first_kind == "default",
        is_final=is_final,
        slots=slots,
    )


def _rank_ids(ids: Sequence[str], probabilities: bytes) -> list[Ranked]:
    numbers = np.frombuffer(probabilities).tolist()
    return [Ranked(*pair) for pair in zip(ids, numbers, strict=True)]


def _list_slots(page: LoggedPage, ids: Sequence[str]) -> list[StreamedSlot]:
    return [
        StreamedSlot(
            id=slot.id,
            ranking=_rank_ids(ids, slot.probabilities),
            reward_action_id=ids[slot.chosen],
            baseline_action=ids[slot.baseline],
            reward=lesson.reward,
            is_default_reward=lesson.is_default,
        )
        for slot, lesson in zip(page.slots, page.lessons, strict=True)
    ]
