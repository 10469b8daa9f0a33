"""Operations of one moment go to the writer in one message; none waits for others to come."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from windvane.service.store.writer import writer_client
from windvane.service.store.writer.loop_operations import PutLoop
from windvane.service.store.writer.writer_client import ENOUGH_OPERATIONS, WriterClient
from windvane.service.store.writer.writer_protocol import MessageSplitter


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_client, "MAX_GATHERING_SECONDS", 60.0)


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


def play(scenario: Callable[[Sender], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(Sender())

    asyncio.run(run())


def test_one_operation_is_sent_in_the_next_turn() -> None:
    async def scenario(sender: Sender) -> None:
        sender.submit(1)
        assert await sender.list_messages() == [1]
        sender.submit(1)
        assert await sender.list_messages() == [1, 1]

    play(scenario)


def test_operations_are_gathered_while_every_turn_brings_more() -> None:
    async def scenario(sender: Sender) -> None:
        for _ in range(3):
            sender.submit(2)
            assert await sender.list_messages() == []
        assert await sender.list_messages() == [6]

    play(scenario)


def test_enough_operations_are_sent_although_more_come() -> None:
    async def scenario(sender: Sender) -> None:
        for _ in range(ENOUGH_OPERATIONS // 4 - 1):
            sender.submit(4)
            assert await sender.list_messages() == []
        sender.submit(4)
        assert await sender.list_messages() == [ENOUGH_OPERATIONS]

    play(scenario)


def test_operations_are_gathered_for_a_short_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(sender: Sender) -> None:
        monkeypatch.setattr(writer_client, "MAX_GATHERING_SECONDS", 0.0)
        sender.submit(2)
        assert await sender.list_messages() == [2]

    play(scenario)
