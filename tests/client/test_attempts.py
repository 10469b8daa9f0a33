"""Which server is tried next, when, and for how long: with a clock that the test moves."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from clock_helpers import SettableClock
from windvane.client.transport import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    Attempt,
    Attempts,
    Servers,
    read_retry_after,
)
from windvane.errors import SettingError

A, B, C = 0, 1, 2


def start(servers: Servers, timeout: float, wait: float = 0.0) -> tuple[Attempts, SettableClock]:
    """Attempts whose pauses are half of the longest."""
    clock = SettableClock()
    return Attempts(servers, timeout, wait, clock, lambda: 0.5), clock


def plan(attempts: Attempts) -> Attempt:
    attempt = attempts.plan_next()
    assert attempt is not None
    return attempt


def test_the_next_server_is_tried_at_once_and_gets_its_share_of_the_time() -> None:
    attempts, clock = start(Servers(["http://a", "http://b", "http://c"]), 9.0)
    shares = []
    for server in (A, B, C):
        attempt = plan(attempts)
        assert (attempt.server, attempt.pause_seconds) == (server, 0.0)
        shares.append(attempt.seconds)
        clock.now += 1.0
        attempts.note_failure(attempt, "no answer")
    assert shares == [9.0 / 3, 8.0 / 2, 7.0]


def test_pauses_double_up_to_a_bound_and_are_drawn_below_it() -> None:
    attempts, clock = start(Servers("http://a"), 1000.0)
    pauses = []
    for _ in range(9):
        attempt = plan(attempts)
        pauses.append(attempt.pause_seconds)
        clock.now += attempt.pause_seconds
        attempts.note_failure(attempt, "no answer")
    expected = [0.0] + [0.5 * min(FIRST_PAUSE_SECONDS * 2**k, MAX_PAUSE_SECONDS) for k in range(8)]
    assert pauses == pytest.approx(expected)


def test_a_server_that_says_when_to_come_back_is_left_alone_until_then() -> None:
    attempts, clock = start(Servers(["http://a", "http://b"]), 10.0)
    attempts.note_failure(plan(attempts), "status 429", retry_after=4.0)
    for _ in range(3):
        attempt = plan(attempts)
        assert attempt.server == B
        clock.now += attempt.pause_seconds
        attempts.note_failure(attempt, "status 503")
    attempts.note_failure(plan(attempts), "status 503", retry_after=7.0)
    attempt = plan(attempts)
    assert attempt.server == A
    assert clock.now + attempt.pause_seconds == 104.0


def test_no_attempt_is_made_that_cannot_begin_in_time() -> None:
    attempts, clock = start(Servers("http://a"), 2.0)
    attempts.note_failure(plan(attempts), "status 429", retry_after=2.0)
    assert attempts.plan_next() is None
    assert attempts.reason == "status 429"
    attempts, clock = start(Servers("http://a"), 2.0)
    clock.now += 2.0
    assert attempts.plan_next() is None


def test_a_wait_at_the_server_comes_on_top() -> None:
    attempts, _ = start(Servers(["http://a", "http://b"]), 10.0, wait=30.0)
    assert plan(attempts).seconds == 35.0


def test_the_server_that_answered_is_preferred_and_the_one_that_failed_comes_last() -> None:
    servers = Servers(["http://a", "http://b", "http://c"])
    assert servers.list_order() == [A, B, C]
    attempts, _ = start(servers, 9.0)
    attempts.note_failure(plan(attempts), "no answer")
    servers.note_answer(plan(attempts).server)
    assert servers.list_order() == [B, C, A]
    servers.note_failure(B, 101.0)
    assert servers.list_order() == [C, A, B]
    servers.note_answer(A)
    assert servers.list_order() == [A, C, B]


def test_addresses_are_checked() -> None:
    assert Servers("http://a/").urls == ("http://a",)
    for wrong in ([], "127.0.0.1:8787", ["http://a", "ftp://b"]):
        with pytest.raises(SettingError, match=r"^Client: .*server"):
            Servers(wrong)


def test_retry_after_is_seconds_or_a_date() -> None:
    assert read_retry_after(None) == 0.0
    assert read_retry_after("7") == 7.0
    assert read_retry_after("-7") == 0.0
    assert read_retry_after("nan") == 0.0
    assert read_retry_after("soon") == 0.0
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=50), usegmt=True)
    assert 40.0 < read_retry_after(later) <= 50.0
