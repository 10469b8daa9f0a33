"""Service time: from the log, the monotonic clock and the wall clock, by a rule of its own."""

import pytest

from clock_helpers import DAY, HOUR, MINUTE, SECOND, TODAY, YEAR, FakeMachine
from windvane.service.clock import ClockStep, format_seconds


def test_an_empty_log_starts_at_the_wall_clock() -> None:
    clock = FakeMachine().make_clock(None)
    assert clock.now_us() == TODAY
    assert clock.doubt is None


def test_service_time_advances_with_the_monotonic_clock() -> None:
    machine = FakeMachine()
    clock = machine.make_clock(None)
    machine.monotonic += 5 * SECOND
    assert clock.now_us() == TODAY + 5 * SECOND


@pytest.mark.parametrize("off", [0, SECOND, MINUTE])
def test_a_wall_clock_up_to_a_minute_ahead_of_the_log_is_believed_at_the_start(off: int) -> None:
    clock = FakeMachine().make_clock(TODAY - off)
    assert clock.now_us() == TODAY
    assert clock.doubt is None


@pytest.mark.parametrize("ahead", [MINUTE + 1, HOUR, YEAR])
def test_a_wall_clock_far_ahead_of_the_log_is_not_believed_at_the_start(ahead: int) -> None:
    clock = FakeMachine(TODAY + ahead).make_clock(TODAY)
    assert clock.now_us() == TODAY
    assert clock.doubt is not None
    assert clock.doubt.offset_seconds == ahead / SECOND


def test_the_operator_can_believe_the_wall_clock_at_the_start() -> None:
    assert FakeMachine(TODAY + YEAR).make_clock(TODAY, believes_wall=True).now_us() == TODAY + YEAR


def test_the_operator_cannot_set_service_time_back() -> None:
    assert FakeMachine(TODAY - YEAR).make_clock(TODAY, believes_wall=True).now_us() == TODAY


@pytest.mark.parametrize("behind", [SECOND, HOUR, YEAR])
def test_service_time_never_starts_before_the_log(behind: int) -> None:
    assert FakeMachine(TODAY - behind).make_clock(TODAY).now_us() == TODAY


def test_an_hour_ahead_for_a_second_and_a_half_changes_nothing() -> None:
    machine = FakeMachine()
    clock = machine.make_clock(None)
    machine.wall += HOUR
    assert machine.wait(clock, 3 * SECOND // 2, SECOND // 2) == []
    assert clock.doubt is not None
    machine.wall -= HOUR
    assert machine.wait(clock, SECOND) == []
    assert clock.doubt is None
    assert clock.now_us() == machine.wall


@pytest.mark.parametrize("back", [MINUTE, HOUR, YEAR])
def test_a_step_back_is_never_followed(back: int) -> None:
    machine = FakeMachine()
    clock = machine.make_clock(None)
    machine.wall -= back
    assert machine.wait(clock, HOUR) == []
    assert clock.now_us() == TODAY + HOUR
    assert clock.doubt is not None
    assert clock.doubt.offset_seconds == -back / SECOND
    assert clock.doubt.believed_in_seconds is None
    assert "behind service time" in clock.doubt.sentence


@pytest.mark.parametrize(
    ("ahead", "needed"), [(3 * SECOND, 10 * MINUTE), (HOUR, 10 * MINUTE), (DAY, 48 * MINUTE)]
)
def test_a_steady_wall_clock_is_believed_after_a_while(ahead: int, needed: int) -> None:
    machine = FakeMachine()
    clock = machine.make_clock(None)
    machine.wall += ahead
    clock.compare()
    assert machine.wait(clock, needed - SECOND) == []
    assert clock.doubt is not None
    assert clock.doubt.believed_in_seconds == pytest.approx(1.0)
    assert machine.wait(clock, SECOND) == [ClockStep(TODAY + needed, ahead)]
    assert clock.now_us() == machine.wall
    assert clock.doubt is None


def test_a_wall_clock_that_jumps_about_is_not_believed() -> None:
    machine = FakeMachine()
    clock = machine.make_clock(None)
    for _ in range(20):
        machine.wall += HOUR
        assert machine.wait(clock, 9 * MINUTE) == []
    assert clock.now_us() == TODAY + 20 * 9 * MINUTE


def test_a_steady_difference_may_drift_slowly() -> None:
    machine = FakeMachine()
    clock = machine.make_clock(None)
    machine.wall += 10 * DAY
    steps = []
    for _ in range(9 * 60):
        steps += machine.wait(clock, MINUTE)
        machine.wall += SECOND // 50
    assert len(steps) == 1


def test_a_wall_clock_that_runs_too_fast_is_not_followed() -> None:
    """As fast as it can be followed second by second, and yet no jump."""
    machine = FakeMachine()
    clock = machine.make_clock(None)
    for _ in range(3600):
        machine.wall += 2 * SECOND
        machine.wait(clock, SECOND)
    assert clock.now_us() <= TODAY + 1.1 * HOUR


def test_a_small_difference_is_followed_gradually() -> None:
    machine = FakeMachine()
    clock = machine.make_clock(None)
    machine.wall += SECOND
    machine.wait(clock, 5 * SECOND)
    assert clock.now_us() == machine.wall - SECOND // 2
    machine.wait(clock, 10 * SECOND)
    assert clock.now_us() == machine.wall


def test_what_is_old_by_the_earliest_time_is_old_by_both_clocks() -> None:
    for wall in (TODAY - HOUR, TODAY + HOUR):
        clock = FakeMachine(wall).make_clock(TODAY)
        assert clock.earliest_us() == min(wall, TODAY)
        assert clock.latest_us() == max(wall, TODAY)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 seconds"), (90.0, "90 seconds"), (600.0, "10 minutes"), (86_400.0, "24 hours")],
)
def test_a_length_of_time_is_written_in_words(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
