"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable, Sized

PATIENCE_SECONDS = 60.0  # of a test, on a busy machine


def wait_until(is_true: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something holds."""
    started = time.monotonic()
    while not is_true():
        assert time.monotonic() - started < seconds
        time.sleep(0.02)


def wait_for_more(collected: Sized, more: int) -> None:
    """Wait until another thread has collected some more."""
    enough = len(collected) + more
    wait_until(lambda: len(collected) > enough)
