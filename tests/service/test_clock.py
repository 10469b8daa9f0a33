"""Service time: from the log, the monotonic clock and the wall clock, by a rule of its own."""

import pytest

from clock_helpers import DAY, HOUR, MINUTE, SECOND, TODAY, YEAR, FakeMachine
from windvane.service.clock import ClockStep, DatabaseClock, format_seconds


@pytest.mark.parametrize(
    ("wall", "newest", "believes", "start"),
    [
        (0, None, False, 0),  # an empty log starts at the wall clock
        *((0, -off, False, 0) for off in (0, SECOND, MINUTE)),  # up to a minute ahead of the log
        (YEAR, 0, True, YEAR),  # the operator believes the wall clock
        (-YEAR, 0, True, 0),  # and cannot set service time back
        *((-behind, 0, False, 0) for behind in (SECOND, HOUR, YEAR)),
    ],
)
def test_service_time_starts_at_a_wall_clock_that_is_believed_and_never_before_the_log(
    wall: int, newest: int | None, believes: bool, start: int
) -> None:
    newest_us = None if newest is None else TODAY + newest
    clock = FakeMachine(TODAY + wall).make_clock(newest_us, believes)
    assert clock.now_us() == TODAY + start
    assert clock.doubt is None or wall < 0


def test_service_time_advances_with_the_monotonic_clock() -> None:
    machine = FakeMachine()
    clock = machine.make_clock(None)
    machine.monotonic += 5 * SECOND
    assert clock.now_us() == TODAY + 5 * SECOND


@pytest.mark.parametrize("ahead", [MINUTE + 1, HOUR, YEAR])
def test_a_wall_clock_far_ahead_of_the_log_is_not_believed_at_the_start(ahead: int) -> None:
    clock = FakeMachine(TODAY + ahead).make_clock(TODAY)
    assert clock.now_us() == TODAY
    assert clock.doubt is not None
    assert clock.doubt.offset_seconds == ahead / SECOND


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


def test_a_database_clock_is_known_as_exactly_as_its_answers_came() -> None:
    machine = FakeMachine()
    clock = DatabaseClock(lambda: machine.wall, lambda: machine.monotonic)

    def ask(ahead: int, delay: int) -> None:
        """Ask a database whose clock is ahead; the answer is of the moment after half the delay."""
        asked, true = machine.monotonic, machine.wall + ahead + delay // 2
        machine.wall += delay
        machine.monotonic += delay
        clock.note(asked, true)

    ask(-HOUR, 10_000)
    assert abs(clock.skew_seconds - 3600) <= 0.00501
    for delay in (3 * SECOND, 10_000, MINUTE, 2 * SECOND):  # slow answers make it no worse
        ask(-HOUR, delay)
        assert abs(clock.skew_seconds - 3600) <= 0.00501
    ask(HOUR, 10_000)  # the clock of the database was set
    assert abs(clock.skew_seconds + 3600) <= 0.00501
    assert abs(clock.now_us() - machine.wall - HOUR) <= 5000
