"""The service's clock: wall time in whole microseconds since 1970, the unit of the log."""

import time

MICROSECONDS_PER_SECOND = 1_000_000


def now_us() -> int:
    """The current time, in microseconds since 1970."""
    return time.time_ns() // 1000
