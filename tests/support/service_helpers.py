"""A service without processes: its writer is a store in the same process."""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from windvane.errors import StoreError
from windvane.service.clock import ServiceClock
from windvane.service.loops.rank_requests import parse_offer
from windvane.service.loops.service import Service
from windvane.service.loops.withdrawals import Withdrawals
from windvane.service.store.log import Store
from windvane.service.store.writer.writer_client import WriteFailures

OFFER = parse_offer(b'[{"id": "tea", "features": []}, {"id": "soup", "features": []}]')


class CountingWriter:
    """Writes to a store at once, and counts the operations by type."""

    waiting_count = 0
    is_ready = True

    def __init__(self, store: Store) -> None:
        self.store = store
        self.failures = WriteFailures()
        self.counts: Counter[str] = Counter()

    def submit(
        self,
        operation: Any,
        on_result: Callable[[Any], None] | None = None,
        timeout: float | None = None,
    ) -> "asyncio.Future[Any]":
        self.counts[type(operation).__name__] += 1
        result: Any = None
        try:
            result = self.store.write(operation)
        except StoreError as error:
            result = error
        if on_result is not None:
            on_result(result)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if isinstance(result, StoreError):
            future.set_exception(result)
        else:
            future.set_result(result)
        return future


def make_service(store: Store, clock: ServiceClock | None = None) -> tuple[Service, CountingWriter]:
    writer: Any = CountingWriter(store)
    file: Any = SimpleNamespace(
        free_count=4096, records={}, add=lambda record: 0, remove=lambda slot: None
    )
    clock = clock or ServiceClock(store.find_newest_time())
    return Service(store, writer, clock, Withdrawals(writer, file)), writer
