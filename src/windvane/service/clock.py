"""Service time: the one time of the log, in whole microseconds since 1970; dates of clients.

The wall clock of a machine can be wrong and can jump. Service time starts at the newest time in the
log and advances with the monotonic clock, which no one can set. The wall clock is compared with it
every second:

- A difference of at most 2 s: both agree. Service time follows a wall clock that is ahead, at most
  10% faster than time passes.
- The wall clock is further ahead: it is not believed. If the difference stays the same for 10
  minutes, or for a thirtieth of the difference if that is longer, service time steps forward.
- The wall clock is further behind: it is not believed. Service time never goes back.

At a start, a wall clock that is up to 60 s ahead of the log is believed at once: the service was
off for that long. If the log is empty, service time starts at the wall clock.

Servers that share a log take the clock of its database for the wall clock, so that all of them have
one time, whatever the clocks of their machines say.
"""

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from windvane.errors import SettingError

MICROSECONDS_PER_SECOND = 1_000_000
MICROSECONDS_PER_MINUTE = 60 * MICROSECONDS_PER_SECOND
MICROSECONDS_PER_DAY = 86_400 * MICROSECONDS_PER_SECOND
AGREEMENT_SECONDS = 2.0  # a larger difference between wall clock and service time is a doubt
START_GAP_SECONDS = 60.0  # longest time off after which the wall clock is believed at once
MIN_STEADY_SECONDS = 600.0  # a difference is believed after it was the same for so long
STEADY_SHARE = 1 / 30  # of the difference, if that is longer
SLEW_SHARE = 0.1  # how much faster service time may run to follow the wall clock
DRIFT_SHARE = 0.001  # of monotonic time, by which a steady difference may change
_NANOSECONDS = 1000  # in a microsecond
_read_monotonic_ns = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic_ns
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOST_PLUS = re.compile(r"(\d) (\d\d:?\d\d)$")  # of an offset whose + was decoded as a space


def read_wall_us() -> int:
    """The wall clock, in microseconds since 1970; it may be wrong."""
    return time.time_ns() // _NANOSECONDS


def read_monotonic_us() -> int:
    """A clock that no one can set; on Linux it also counts while the machine sleeps."""
    return _read_monotonic_ns() // _NANOSECONDS


class ClockDoubt(NamedTuple):
    """A wall clock that is not believed."""

    offset_seconds: float  # wall clock minus service time
    believed_in_seconds: float | None  # if it stays steady; None: it is behind, and is never
    name: str = "wall clock"

    @property
    def sentence(self) -> str:
        """What an operator should know."""
        distance = format_seconds(abs(self.offset_seconds))
        if self.believed_in_seconds is None:
            return (
                f"The {self.name} is {distance} behind service time and is not believed. "
                "Service time goes on with the monotonic clock."
            )
        return (
            f"The {self.name} is {distance} ahead of service time and is not believed yet. "
            "If it stays steady, service time follows it in "
            f"{format_seconds(self.believed_in_seconds)}; with --believe-clock, a start of the "
            "service follows it at once."
        )


class DatabaseClock:
    """The clock of a database, as this process knows it: the monotonic clock plus a difference.

    An answer says what the clock was at some moment between question and answer. The difference
    changes only if it contradicts the last answer, so that slow answers do no harm.
    """

    def __init__(
        self,
        read_wall: Callable[[], int] = read_wall_us,
        read_monotonic: Callable[[], int] = read_monotonic_us,
    ) -> None:
        self._read_wall = read_wall
        self.read_monotonic = read_monotonic
        self._difference = read_wall() - read_monotonic()

    def note(self, asked_us: int, database_us: int) -> None:
        """Take in an answer that has just come; it was asked for at a monotonic time."""
        least = database_us - self.read_monotonic()
        self._difference = min(max(self._difference, least), database_us - asked_us)

    def now_us(self) -> int:
        return self.read_monotonic() + self._difference

    @property
    def skew_seconds(self) -> float:
        """The wall clock of this machine minus the clock of the database."""
        return (self._read_wall() - self.now_us()) / MICROSECONDS_PER_SECOND


class ClockStep(NamedTuple):
    """A step of service time forward to a wall clock that was steady for long enough."""

    before_us: int  # service time just before the step
    length_us: int


class ServiceClock:
    """Service time, from the newest time in the log, the monotonic clock and the wall clock."""

    def __init__(
        self,
        newest_us: int | None = None,
        believes_wall: bool = False,
        read_wall: Callable[[], int] = read_wall_us,
        read_monotonic: Callable[[], int] = read_monotonic_us,
        wall_name: str = "wall clock",
    ) -> None:
        """Start at `newest_us`, the newest time in the log; None: the log is empty.

        With `believes_wall` a wall clock ahead of the log is believed at once, however far.
        """
        self._read_wall = read_wall
        self.read_monotonic = read_monotonic
        self._wall_name = wall_name
        monotonic, wall = read_monotonic(), read_wall()
        start = wall
        if newest_us is not None:
            gap = wall - newest_us
            is_believed = believes_wall or gap <= START_GAP_SECONDS * MICROSECONDS_PER_SECOND
            start = wall if gap >= 0 and is_believed else newest_us
        self._shift = start - monotonic  # service time minus the monotonic clock
        self._compared_at = monotonic
        self._steady_offset: int | None = None  # of the doubt; None: both clocks agree
        self._steady_since = monotonic
        self.compare()

    def now_us(self) -> int:
        return self.read_monotonic() + self._shift

    def latest_us(self) -> int:
        """The later one of service time and the wall clock: when a key may have expired."""
        return max(self.now_us(), self._read_wall())

    def earliest_us(self) -> int:
        """The earlier one of service time and the wall clock: what is old by it is old by both."""
        return min(self.now_us(), self._read_wall())

    @property
    def offset_seconds(self) -> float:
        """The wall clock minus service time."""
        return (self._read_wall() - self.now_us()) / MICROSECONDS_PER_SECOND

    @property
    def doubt(self) -> ClockDoubt | None:
        """Why the wall clock is not believed, as of the last comparison; None if it is."""
        if self._steady_offset is None:
            return None
        offset = self._steady_offset / MICROSECONDS_PER_SECOND
        if offset < 0:
            return ClockDoubt(offset, None, self._wall_name)
        steady = (self.read_monotonic() - self._steady_since) / MICROSECONDS_PER_SECOND
        left = max(_needed_seconds(offset) - steady, 0.0)
        return ClockDoubt(offset, left, self._wall_name)

    def compare(self) -> ClockStep | None:
        """Compare with the wall clock, once a second; returns the step if there was one."""
        monotonic = self.read_monotonic()
        before = monotonic + self._shift
        offset = self._read_wall() - before
        elapsed = monotonic - self._compared_at
        self._compared_at = monotonic
        if abs(offset) <= AGREEMENT_SECONDS * MICROSECONDS_PER_SECOND:
            self._steady_offset = None
            self._shift += max(min(offset, round(SLEW_SHARE * elapsed)), 0)
            return None
        if not self._is_steady(offset, monotonic):
            self._steady_offset = offset
            self._steady_since = monotonic
        steady = (monotonic - self._steady_since) / MICROSECONDS_PER_SECOND
        if offset < 0 or steady < _needed_seconds(offset / MICROSECONDS_PER_SECOND):
            return None
        self._steady_offset = None
        self._shift += offset
        return ClockStep(before, offset)

    def _is_steady(self, offset: int, monotonic: int) -> bool:
        """Whether the difference is the one that the doubt began with, but for a slow drift."""
        if self._steady_offset is None:
            return False
        allowed = AGREEMENT_SECONDS * MICROSECONDS_PER_SECOND
        allowed += DRIFT_SHARE * (monotonic - self._steady_since)
        return abs(offset - self._steady_offset) <= allowed


def _needed_seconds(offset_seconds: float) -> float:
    """How long a difference must be steady before it is believed."""
    return max(MIN_STEADY_SECONDS, STEADY_SHARE * offset_seconds)


def format_seconds(seconds: float) -> str:
    """A length of time in words, such as "90 seconds" or "3.5 hours"."""
    for name, length in (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {name}s"
    return f"{seconds:.3g} seconds"


def parse_date(text: str) -> int:
    """A date or a time of a client as microseconds since 1970; in UTC unless it says otherwise.

    Taken are "2022-09-20", "2022-09-20T00:00:00.000Z", "20220920T000000" and other forms of ISO
    8601, with any number of fractional digits.

    >>> parse_date("1970-01-02") == parse_date("19700102T000000") == 86_400_000_000
    True
    """
    try:
        parsed = datetime.fromisoformat(_LOST_PLUS.sub(r"\1+\2", text.strip()))
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        return to_microseconds(parsed)
    except (ValueError, OverflowError):
        raise SettingError(
            f"date: {text[:40]!r} must be a date or a time of ISO 8601, such as 2026-01-31"
        ) from None


def to_microseconds(time: datetime) -> int:
    """A time in microseconds since 1970."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def to_datetime(at_us: int) -> datetime:
    """A time in microseconds since 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=at_us)


def format_date(at_us: int) -> str:
    """A time as the wire has it, in UTC.

    >>> format_date(86_400_000_000)
    '1970-01-02T00:00:00Z'
    """
    return to_datetime(at_us).isoformat().replace("+00:00", "Z")
