"""The service's end of the writer process: gathering, deadlines, and which writes fail."""

import asyncio
import time

import pytest

from windvane.service.store.writer import writer_client
from windvane.service.store.writer.loop_operations import PutLoop
from windvane.service.store.writer.writer_client import (
    ENOUGH_OPERATIONS,
    QUIET_SECONDS,
    UNTRIED_SECONDS,
    WriteDeadlines,
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
        self._client = WriterClient("unused")
        self._transport = RecordingTransport()
        self._client._transport = self._transport
        self._client._loop = asyncio.get_running_loop()

    def submit(self, count: int) -> None:
        for _ in range(count):
            self._client.submit(PutLoop("name", "{}", 0, "test"))

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


def test_operations_time_out_in_the_order_of_their_deadlines() -> None:
    async def scenario() -> list[tuple[int, bool]]:
        loop = asyncio.get_running_loop()
        due = {1: 0.1, 2: 0.02, 3: 0.1, 4: 0.02}
        begin: dict[int, float] = {}
        timed_out = []

        def note(number: int) -> None:
            timed_out.append((number, loop.time() >= begin[number] + due[number]))

        deadlines = WriteDeadlines(note)
        for number, seconds in due.items():
            begin[number] = loop.time()
            deadlines.add(seconds, number)
        while len(timed_out) < len(due):
            await asyncio.sleep(0.01)
        begin[5], due[5] = loop.time(), 0.02
        deadlines.add(0.02, 5)  # after the queue was empty
        while len(timed_out) < 5:
            await asyncio.sleep(0.01)
        return timed_out

    assert asyncio.run(scenario()) == [(2, True), (4, True), (1, True), (3, True), (5, True)]


def test_nothing_times_out_after_the_end() -> None:
    async def scenario() -> list[int]:
        timed_out: list[int] = []
        deadlines = WriteDeadlines(timed_out.append)
        deadlines.add(0.01, 1)
        deadlines.close()
        await asyncio.sleep(0.05)
        return timed_out

    assert asyncio.run(scenario()) == []


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
