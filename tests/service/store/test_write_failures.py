"""Failing writes are reported until every kind of them has worked again for some time."""

import time

import pytest

from windvane.service.store.writer.writer_client import (
    QUIET_SECONDS,
    UNTRIED_SECONDS,
    WriteFailures,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of the monotonic clock, to be changed by the test."""
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


def test_a_disk_that_fails_now_and_then_stays_reported(clock: list[float]) -> None:
    failures = WriteFailures()
    assert failures.describe() is None
    for turn in range(60):  # every sixth write fails
        clock[0] += 1.0
        if turn % 6 == 0:
            failures.add("PutReward", "the disk failed")
        else:
            failures.note_success("PutReward")
        assert failures.describe() == "the disk failed"
        assert failures.is_log_failing == (turn % 6 == 0)
    clock[0] += QUIET_SECONDS
    assert failures.describe() is None
    assert failures.counts == {"PutReward": 10}


def test_a_kind_that_failed_must_work_again_itself(clock: list[float]) -> None:
    failures = WriteFailures()
    failures.add("PutReward", "the disk is full")
    clock[0] += 2 * QUIET_SECONDS
    failures.note_success("PutDecision")
    assert failures.describe() == "the disk is full"
    failures.note_success("PutReward")
    assert failures.describe() is None


def test_a_kind_that_nobody_tries_again_is_forgotten(clock: list[float]) -> None:
    failures = WriteFailures()
    failures.add("Activate", "the disk is full")
    clock[0] += UNTRIED_SECONDS
    assert failures.describe() is None
