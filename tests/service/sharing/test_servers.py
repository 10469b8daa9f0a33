"""What a server knows about those that share its log: who leads, and how late lessons arrive."""

import math

import pytest

from windvane.service.sharing.servers import LessonLags, LogSharing
from windvane.service.store.rows import Lesson
from windvane.service.store.writer.server_operations import LEASE_SECONDS, HeartbeatResult

MILLISECOND = 1000


def make_lesson(at: int) -> Lesson:
    return Lesson(1, 1, "observe", 0.5, at, 0, 0, b"")


def test_a_leader_leads_until_its_lease_has_ended_by_its_own_clock() -> None:
    now = [100.0]
    sharing = LogSharing(lambda: now[0])
    assert not sharing.is_leader
    sharing.note_heartbeat(100.0, HeartbeatResult(True, 7, 2, 0))
    now[0] = 100.0 + LEASE_SECONDS - 0.01
    assert sharing.is_leader
    assert (sharing.settled_until, sharing.server_count) == (7, 2)
    now[0] = 100.0 + LEASE_SECONDS + 0.01
    assert not sharing.is_leader  # no heartbeat was acknowledged
    sharing.note_heartbeat(now[0], HeartbeatResult(False, 8, 2, 0))
    assert not sharing.is_leader


def test_a_server_that_is_far_ahead_acts_by_the_slowest_clock() -> None:
    sharing = LogSharing()
    assert sharing.bound_time(10**12) == 10**12  # no heartbeat yet
    slowest, tolerance = 5 * 10**9, 15 * 10**6
    sharing.note_heartbeat(0.0, HeartbeatResult(True, slowest, 2, 0))
    assert sharing.bound_time(slowest + tolerance) == slowest + tolerance
    assert sharing.bound_time(slowest + tolerance + 1) == slowest
    assert sharing.bound_time(slowest - 1) == slowest - 1


def test_lags_are_counted_by_buckets() -> None:
    lags = LessonLags()
    assert lags.find_quantile(0.99) is None
    now = 10_000 * MILLISECOND
    lags.observe([make_lesson(now - 15 * MILLISECOND)] * 97, now)
    assert lags.find_quantile(0.5) == lags.find_quantile(0.99) == 0.02
    lags.observe([make_lesson(now - 150 * MILLISECOND)] * 3, now)
    assert (lags.find_quantile(0.9), lags.find_quantile(0.99)) == (0.02, 0.2)
    assert lags.seconds == pytest.approx(97 * 0.015 + 3 * 0.15)
    late = LessonLags()
    late.observe([make_lesson(0)], 11 * 1_000_000)
    assert late.find_quantile(0.99) == math.inf
    late.observe([make_lesson(5)], 0)  # a clock behind that of the other server
    assert late.counts[0] == 1
