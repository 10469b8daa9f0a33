"""A machine whose wall clock can be set, for tests of service time."""

from windvane.service.clock import MICROSECONDS_PER_SECOND, ClockStep, ServiceClock

SECOND = MICROSECONDS_PER_SECOND
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
YEAR = 365 * DAY
TODAY = 1_760_000_000 * SECOND


class FakeMachine:
    """A machine whose wall clock can be set."""

    def __init__(self, wall: int = TODAY) -> None:
        self.wall = wall
        self.monotonic = 12_345 * SECOND

    def make_clock(self, newest: int | None, believes_wall: bool = False) -> ServiceClock:
        return ServiceClock(newest, believes_wall, lambda: self.wall, lambda: self.monotonic)

    def wait(self, clock: ServiceClock, duration: int, every: int = SECOND) -> list[ClockStep]:
        """Let time pass, and compare the clocks as often as the service does."""
        steps = []
        for _ in range(duration // every):
            self.wall += every
            self.monotonic += every
            before = clock.now_us()
            if (step := clock.compare()) is not None:
                steps.append(step)
            assert clock.now_us() >= before
        return steps


class SettableClock:
    """A monotonic clock in seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
