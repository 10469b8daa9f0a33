"""The service's end of the writer process: gathering, deadlines, and which writes fail."""

import asyncio
import time

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


async def test_operations_time_out_in_the_order_of_their_deadlines() -> None:
    sender = Sender()
    timed_out: list[float] = []
    for seconds in (0.1, 0.02, 0.1, 0.02):
        writing = sender.client.submit(PutKey("read", "hash", 0), timeout=seconds)
        writing.add_done_callback(lambda _, seconds=seconds: timed_out.append(seconds))  # type: ignore[misc]
    with pytest.raises(TimeoutError):
        await writing
    assert timed_out == [0.02, 0.02]
    await asyncio.sleep(0.15)
    assert timed_out == [0.02, 0.02, 0.1, 0.1]
    assert sender.client.failures.counts == {"PutKey": 4}


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
