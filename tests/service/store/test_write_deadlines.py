"""One timer for all operations: each is timed out when its own time is over, and not before."""

import asyncio

from windvane.service.store.writer.writer_client import WriteDeadlines


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
