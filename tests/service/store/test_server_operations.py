"""Heartbeats and the lease: one server leads, and another takes over after the lease has ended."""

import pytest

from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.store.database import read_database_us
from windvane.service.store.log import Store
from windvane.service.store.writer import server_operations
from windvane.service.store.writer.server_operations import (
    LEASE_SECONDS,
    LOST_AFTER_SECONDS,
    Heartbeat,
    HeartbeatResult,
    Leave,
)

START_US = 1_000 * MICROSECONDS_PER_SECOND


class DatabaseClock:
    """A clock of the database that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_us = START_US
        monkeypatch.setattr(server_operations, "read_database_us", lambda _: self.now_us)

    def advance(self, seconds: float) -> None:
        self.now_us += round(seconds * MICROSECONDS_PER_SECOND)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> DatabaseClock:
    return DatabaseClock(monkeypatch)


def beat(store: Store, server: str, settled_until: int = 0) -> HeartbeatResult:
    return store.write(Heartbeat(server, f"{server}, process 1", settled_until))


def test_the_first_server_leads_until_its_lease_has_ended(
    store: Store, clock: DatabaseClock
) -> None:
    assert beat(store, "a").is_leader
    assert not beat(store, "b").is_leader
    clock.advance(LEASE_SECONDS - 0.1)
    assert not beat(store, "b").is_leader
    assert beat(store, "a").is_leader  # it keeps the lease
    clock.advance(LEASE_SECONDS + 0.1)
    assert beat(store, "b").is_leader
    assert not beat(store, "a").is_leader


def test_a_server_that_leaves_gives_the_lease_away(store: Store, clock: DatabaseClock) -> None:
    beat(store, "a")
    beat(store, "b")
    store.write(Leave("a"))
    result = beat(store, "b")
    assert result.is_leader
    assert result.server_count == 1


def test_the_slowest_server_bounds_what_is_settled_until_it_is_lost(
    store: Store, clock: DatabaseClock
) -> None:
    beat(store, "a", settled_until=70)
    assert beat(store, "b", settled_until=90)[:3] == (False, 70, 2)
    clock.advance(LOST_AFTER_SECONDS - 0.1)
    assert beat(store, "b", settled_until=95)[1:3] == (70, 2)
    clock.advance(0.2)
    assert beat(store, "b", settled_until=99)[1:3] == (99, 1)


def test_the_clock_of_the_database_counts_microseconds(where: str) -> None:
    import time

    with Store(where) as store, store._write_engine.begin() as connection:
        now = read_database_us(connection)
        assert abs(store.read_database_us() - now) < 60 * MICROSECONDS_PER_SECOND
    assert abs(now / MICROSECONDS_PER_SECOND - time.time()) < 60.0
