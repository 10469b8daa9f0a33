"""Limits on what one key may ask for: requests a second, and costly requests at once.

Without keys all clients share one allowance.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import NamedTuple

from windvane.service.api.errors import ApiError

BURST_SECONDS = 1.0  # of requests that a client may send at once after a pause
# The default executor of a machine with one core has five threads: one stays free for the service.
MAX_COSTLY_RUNNING = 4
MAX_COSTLY_PER_KEY = 16  # that run or wait
COSTLY_RETRY_SECONDS = 1


class KeyLimitError(ApiError):
    """An answer with status 429 that says when to try again; metrics count it by `limit`."""

    def __init__(self, limit: str, message: str, retry_after_seconds: int) -> None:
        headers = {"retry-after": str(retry_after_seconds)}
        super().__init__(429, "TooManyRequests", message, headers=headers)
        self.limit = limit


class Bucket(NamedTuple):
    """The requests that a key may still send, as of a time."""

    tokens: float
    at: float


class RateLimit:
    """A token bucket for each key; each request takes one token."""

    def __init__(
        self, requests_per_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = requests_per_second
        self._capacity = max(1.0, requests_per_second * BURST_SECONDS)
        self._clock = clock
        self._buckets: dict[Hashable, Bucket] = {}  # as many as there are keys

    def take(self, key_id: Hashable) -> None:
        """Take a token of a key, or refuse the request."""
        now = self._clock()
        bucket = self._buckets.get(key_id)
        tokens = self._capacity
        if bucket is not None:
            tokens = min(tokens, bucket.tokens + (now - bucket.at) * self._rate)
        if tokens < 1.0:
            self._buckets[key_id] = Bucket(tokens, now)
            wait = math.ceil((1.0 - tokens) / self._rate)
            message = f"a key may send {self._rate:g} requests a second; try again in {wait} s"
            raise KeyLimitError("rate", message, wait)
        self._buckets[key_id] = Bucket(tokens - 1.0, now)


class CostlyRequests:
    """Requests that take long: a few run at a time, and the others wait."""

    def __init__(self) -> None:
        self._running = asyncio.Semaphore(MAX_COSTLY_RUNNING)
        self._count_by_key: Counter[Hashable] = Counter()  # that run or wait

    async def enter(self, key_id: Hashable) -> "Slot":
        """Wait until a costly request may run; refuse it if too many of its key run or wait."""
        if self._count_by_key[key_id] >= MAX_COSTLY_PER_KEY:
            message = (
                f"a key may have {MAX_COSTLY_PER_KEY} costly requests at once; try again later"
            )
            raise KeyLimitError("costly", message, COSTLY_RETRY_SECONDS)
        self._count_by_key[key_id] += 1
        try:
            await self._running.acquire()
        except BaseException:
            self._forget(key_id)
            raise
        return Slot(self, key_id)

    def leave(self, key_id: Hashable) -> None:
        """Let the next request run."""
        self._running.release()
        self._forget(key_id)

    def _forget(self, key_id: Hashable) -> None:
        self._count_by_key[key_id] -= 1
        if not self._count_by_key[key_id]:
            del self._count_by_key[key_id]


class Slot:
    """The place of one costly request among those that run."""

    def __init__(self, requests: CostlyRequests, key_id: Hashable) -> None:
        self._requests = requests
        self._key_id = key_id
        self._is_held = True

    def release(self) -> None:
        """Give the place to the next request; a second call does nothing."""
        if self._is_held:
            self._is_held = False
            self._requests.leave(self._key_id)
