"""The service's end of the writer process: gathering, deadlines, and which writes fail."""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from windvane.service.store.writer import writer_client
from windvane.service.store.writer.loop_operations import PutKey, PutLoop
from windvane.service.store.writer.writer_client import (
    ENOUGH_OPERATIONS,
    QUIET_SECONDS,
    UNTRIED_SECONDS,
    WriteFailures,
    WriterClient,
)
from windvane.service.store.writer.writer_protocol import MessageSplitter


class RecordingTransport(asyncio.WriteTransport):
    """Counts the operations of each message."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.counts.append(len([*MessageSplitter().feed(data)]))

    def get_write_buffer_size(self) -> int:
        return 0


class Sender:
    """A client of a writer process that never replies."""

    def __init__(self) -> None:
        self.client = WriterClient("unused")
        self._transport = RecordingTransport()
        self.client._transport = self._transport
        self.client._loop = asyncio.get_running_loop()

    def submit(self, count: int) -> None:
        for _ in range(count):
            self.client.submit(PutLoop("name", "{}", 0, "test"))

    async def list_messages(self) -> list[int]:
        """How many operations each message had, after one more turn of the event loop."""
        await asyncio.sleep(0)
        return self._transport.counts


@pytest.mark.parametrize(
    ("seconds", "submitted", "messages"),
    [
        (60.0, [1, 1], [[1], [1, 1]]),  # one operation is sent in the next turn
        (60.0, [2, 2, 2, 0], [[], [], [], [6]]),  # while every turn brings more, none is
        (60.0, [ENOUGH_OPERATIONS - 4, 4], [[], [ENOUGH_OPERATIONS]]),
        (0.0, [2], [[2]]),
    ],
)
async def test_operations_are_gathered_for_a_short_time_until_they_are_enough(
    monkeypatch: pytest.MonkeyPatch, seconds: float, submitted: list[int], messages: list[list[int]]
) -> None:
    monkeypatch.setattr(writer_client, "MAX_GATHERING_SECONDS", seconds)
    sender = Sender()
    for count, expected in zip(submitted, messages, strict=True):
        sender.submit(count)
        assert await sender.list_messages() == expected


class SkippingSelector(selectors.DefaultSelector):
    """Skips the time that an event loop would wait for its next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            self.now += timeout or 0.0
        return ready


def run_without_waiting(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in an event loop that waits for nothing but timers, and skips this time."""
    selector = SkippingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())


def test_operations_time_out_in_the_order_of_their_deadlines() -> None:
    async def scenario() -> None:
        now, sender = asyncio.get_running_loop().time, Sender()
        timed_out: list[tuple[float, float]] = []
        for seconds in (5.0, 1.0, 5.0, 1.0):
            writing = sender.client.submit(PutKey("read", "hash", 0), timeout=seconds)
            writing.add_done_callback(lambda _, seconds=seconds: timed_out.append((seconds, now())))  # type: ignore[misc]
            writing.add_done_callback(lambda done: done.exception())
        await asyncio.sleep(7.0)
        assert timed_out == [(1.0, 1.0), (1.0, 1.0), (5.0, 5.0), (5.0, 5.0)]
        assert sender.client.failures.counts == {"PutKey": 4}

    run_without_waiting(scenario)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of the monotonic clock, to be changed by the test."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


def test_a_disk_that_fails_now_and_then_stays_reported(clock: list[float]) -> None:
    failures = WriteFailures()
    assert failures.describe() is None
    for turn in range(60):  # every sixth write fails
        clock[0] += 1.0
        if turn % 6 == 0:
            failures.add("PutReward", "the disk failed")
        else:
            failures.note_success("PutReward")
        assert failures.describe() == "the disk failed"
        assert failures.is_log_failing == (turn % 6 == 0)
    clock[0] += QUIET_SECONDS
    assert failures.describe() is None
    assert failures.counts == {"PutReward": 10}


def test_a_kind_that_failed_must_work_again_itself(clock: list[float]) -> None:
    failures = WriteFailures()
    failures.add("PutReward", "the disk is full")
    clock[0] += 2 * QUIET_SECONDS
    failures.note_success("PutDecision")
    assert failures.describe() == "the disk is full"
    failures.note_success("PutReward")
    assert failures.describe() is None


def test_a_kind_that_nobody_tries_again_is_forgotten(clock: list[float]) -> None:
    failures = WriteFailures()
    failures.add("Activate", "the disk is full")
    clock[0] += UNTRIED_SECONDS
    assert failures.describe() is None
