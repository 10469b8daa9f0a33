"""The rounds of a loop's decisions on one server, if several servers share the log.

The random numbers of a decision follow from its round, so no two decisions may have the same one.
Each server takes blocks of rounds from the log. It asks for the next block before the present one
is used up, so that a decision hardly ever waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from windvane.service.store.writer.server_operations import RoundRange

FIRST_BLOCK_ROUNDS = 16  # a loop with little traffic leaves few rounds unused
MAX_BLOCK_ROUNDS = 1024
ROUNDS_LEFT_SHARE = 0.5  # of a block, at which the next one is asked for

TakeBlock = Callable[[int], Awaitable[RoundRange]]  # takes so many rounds from the log


class RoundSupply:
    """Gives out rounds, in ascending order, in the thread of the event loop."""

    def __init__(self, take_block: TakeBlock) -> None:
        self._take_block = take_block
        self._blocks: deque[RoundRange] = deque()
        self._next_count = FIRST_BLOCK_ROUNDS
        self._taking: asyncio.Task[None] | None = None

    @property
    def count(self) -> int:
        """How many rounds are left."""
        return sum(block.stop - block.start for block in self._blocks)

    async def take(self) -> int:
        """The next round; waits for a block if there is none."""
        while not self._blocks:
            await asyncio.shield(self._start_taking())
        block = self._blocks.popleft()
        if block.start + 1 < block.stop:
            self._blocks.appendleft(RoundRange(block.start + 1, block.stop))
        if self.count < ROUNDS_LEFT_SHARE * self._next_count / 2:
            self._start_taking()
        return block.start

    def drain(self) -> list[RoundRange]:
        """Take all rounds that are left, the last ones first."""
        blocks = [*reversed(self._blocks)]
        self._blocks.clear()
        return blocks

    def _start_taking(self) -> "asyncio.Task[None]":
        if self._taking is None or self._taking.done():
            self._taking = asyncio.create_task(self._take())
            self._taking.add_done_callback(_ignore_failure)
        return self._taking

    async def _take(self) -> None:
        block = await self._take_block(self._next_count)
        self._blocks.append(block)
        self._next_count = min(2 * self._next_count, MAX_BLOCK_ROUNDS)


def _ignore_failure(task: "asyncio.Task[None]") -> None:
    """Mark a failure as seen: a decision that waits for the block gets the failure too."""
    if not task.cancelled():
        task.exception()
