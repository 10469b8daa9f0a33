"""The loops of one log, found by name or id; each is loaded at the start or when it is first used.

A loop that cannot be loaded does not keep the others from their work.
"""

import asyncio
import logging
from collections.abc import Callable

from windvane.errors import StoreError
from windvane.service.clock import ServiceClock
from windvane.service.errors import UnknownLoopError
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import LOOP_NAME
from windvane.service.store.log import LogReader
from windvane.service.store.rows import LoopRow

logger = logging.getLogger("windvane.service")


class LoopRegistry:
    """The loops of one log."""

    def __init__(
        self, store: LogReader, clock: ServiceClock, prepare: Callable[[Loop], None]
    ) -> None:
        """Load all loops that the log has; `prepare` gets each loop once it is loaded."""
        self._store = store
        self._clock = clock
        self._prepare = prepare
        self.loops: dict[str, Loop] = {}
        self._loops_by_id: dict[int, Loop] = {}
        self.failures: dict[str, str] = {}  # why loops could not be loaded, by name
        for row in store.list_loops():
            self._try_to_load(row)
        if self.failures and not self.loops:
            reasons = "; ".join(self.failures.values())
            raise StoreError(f"serve: the loops cannot be loaded ({reasons})", "broken")
        for reason in self.failures.values():
            logger.error(reason)
        for loop_id, at in store.list_waiting_times():
            if loop_id in self._loops_by_id:
                self._loops_by_id[loop_id].expiries.add(at)

    def has(self, name: str) -> bool:
        """Whether the log has a loop of this name, loaded or not."""
        return name in self.loops or name in self.failures

    async def get(self, name: str) -> Loop:
        """Return the loop of a name; one that another process created is loaded on first use."""
        if name in self.failures:
            raise StoreError(f"store: {self.failures[name]}; restore a backup", "damaged")
        if name not in self.loops:
            is_possible = LOOP_NAME.fullmatch(name)
            loop = await asyncio.to_thread(self._load, name) if is_possible else None
            if loop is None:
                raise UnknownLoopError(f"there is no loop {name!r}", "loop")
            self._add(loop)
        return self.loops[name]

    def find_by_id(self, loop_id: int) -> Loop | None:
        """Return the loop of an id, unless it is not loaded."""
        return self._loops_by_id.get(loop_id)

    def _try_to_load(self, row: LoopRow) -> None:
        """Load a loop, or keep the reason why it cannot be loaded."""
        try:
            self._add(Loop(row, self._store, self._clock))
        except Exception as error:
            if isinstance(error, StoreError) and error.kind in ("locked", "unreachable"):
                raise
            sentence = f"{type(error).__name__}: {error}".splitlines()[0]
            self.failures[row.name] = f"loop {row.name} cannot be loaded: {sentence}"

    def _load(self, name: str) -> Loop | None:
        row = self._store.find_loop(name)
        if row is None:
            return None
        loop = Loop(row, self._store, self._clock)
        for _, at in self._store.list_waiting_times(loop.id):
            loop.expiries.add(at)
        return loop

    def _add(self, loop: Loop) -> None:
        if loop.name in self.loops:  # it was loaded meanwhile
            return
        self.loops[loop.name] = self._loops_by_id[loop.id] = loop
        self._prepare(loop)
