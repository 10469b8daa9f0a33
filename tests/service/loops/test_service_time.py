"""A wall clock that jumps deletes, closes and silences nothing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from clock_helpers import DAY, HOUR, MINUTE, SECOND, TODAY, YEAR, FakeMachine
from policy_access import read_bits
from service_helpers import CountingWriter, make_service
from store_helpers import make_decision, put_decision
from windvane.errors import StoreError
from windvane.service.loops.loop import Loop
from windvane.service.loops.maintenance import (
    compare_clocks,
    delete_old_decisions,
    expire_decisions,
    find_due_loops,
    store_clock,
)
from windvane.service.loops.rank_requests import OfferedActions
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import Action, RankOptions
from windvane.service.store.log import Store
from windvane.service.store.schema import decisions, waiting
from windvane.service.store.writer.decision_operations import Activate, PutDecision
from windvane.service.store.writer.loop_operations import PutLoop, PutSettings
from windvane.service.store.writer.reward_operations import RewardTerms
from windvane.service.store.writer.server_operations import PutClock, StepClock

OFFER = OfferedActions([Action(name, [{"name": name}]) for name in ("ice", "tea")])
SETTINGS = LoopSettings(half_life="7 days")  # a wait of 10 minutes, 90 days in the log
WAIT_MINUTES = 10
TICK = 6 * SECOND  # between two rounds of background work


class Rig:
    """A service on a machine whose wall clock can be set."""

    def __init__(self, path: Path, machine: FakeMachine) -> None:
        self.machine = machine
        self.store = Store(path)
        if not self.store.list_loops():
            put = PutLoop("home", SETTINGS.to_json(), TODAY, "test")
            self.store.write(put)
        self.start()

    def start(self, believes_wall: bool = False) -> None:
        """Start the service, again with what the log holds."""
        clock = self.machine.make_clock(self.store.find_newest_time(), believes_wall)
        self.service, _ = make_service(self.store, clock)
        self.loop = self.service.loops["home"]

    def rank(self, event: str) -> None:
        asyncio.run(self.service.rank("home", RankOptions(event_id=event), OFFER, ""))

    def reward(self, event: str, value: float = 1.0) -> None:
        asyncio.run(self.service.reward("home", event, value))

    def work(self, minutes: float = 0.0) -> None:
        """Do all background work of the service, now and for some minutes."""

        async def run() -> None:
            await compare_clocks(self.service)
            if self.loop.id in await find_due_loops(self.service):
                await expire_decisions(self.service, self.loop)
            await delete_old_decisions(self.service, self.loop)

        asyncio.run(run())
        for _ in range(round(minutes * MINUTE / TICK)):
            self.machine.wall += TICK
            self.machine.monotonic += TICK
            asyncio.run(run())

    @property
    def funnel(self) -> dict[str, int]:
        counts = self.store.read_funnel(self.loop.id)._asdict()
        return {name: count for name, count in counts.items() if count and name != "activated"}

    @property
    def times(self) -> list[int]:
        return [row.at for row in self.store.fetch_all(select(decisions.c.at))]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, FakeMachine())
    yield rig
    rig.store.close()


def test_a_start_a_year_ahead_deletes_and_closes_nothing(rig: Rig) -> None:
    for event in ("rewarded", "waiting"):
        rig.rank(event)
    rig.reward("rewarded")
    rig.machine.wall += YEAR
    rig.start()
    rig.work(minutes=2)
    assert len(rig.times) == 2
    assert rig.funnel == {"ranked": 2, "learned": 1}
    rig.rank("later")
    assert max(rig.times) < TODAY + HOUR


def test_a_log_dated_ahead_loses_nothing_that_is_new_by_the_wall_clock(rig: Rig) -> None:
    rig.rank("today")
    rig.reward("today")
    rig.store.write(put_decision(1, "ahead", TODAY + YEAR))
    rig.start()
    rig.work()
    assert sorted(rig.times) == [TODAY, TODAY + YEAR]


@pytest.mark.parametrize(("days", "kept"), [(-1, [0, 2]), (0, [0, 2]), (2, [2]), (90, [0, 2])])
def test_the_log_is_kept_for_as_many_days_by_both_clocks_as_it_is_told(
    rig: Rig, days: int, kept: list[int]
) -> None:
    settings = SETTINGS.merge({"logRetentionDays": days}).to_json()
    rig.store.write(PutSettings(1, settings, TODAY, "test"))
    rig.start()
    for event in ("old", "new"):
        rig.rank(event)
        rig.reward(event)
        rig.machine.wall += 2 * DAY
        rig.machine.monotonic += 2 * DAY
    rig.machine.wall -= DAY
    rig.machine.monotonic -= DAY
    rig.work()
    assert [(at - TODAY) // DAY for at in rig.times] == kept


def test_a_wrong_clock_that_is_believed_deletes_no_log_within_a_day(rig: Rig) -> None:
    for event in ("one", "two", "three"):
        rig.rank(event)
        rig.reward(event)
    rig.machine.wall += YEAR
    rig.start(believes_wall=True)
    rig.rank("later")
    rig.work()
    assert len(rig.times) == 4
    [warning] = rig.service.warnings
    assert "loop home: 3 of 4 decisions are older than logRetentionDays" in warning
    rig.machine.wall += DAY - SECOND  # of a clock that somebody may set, and of one that not
    rig.machine.monotonic += DAY - SECOND
    rig.work()
    assert len(rig.times) == 4
    rig.machine.wall += YEAR
    rig.work()
    assert len(rig.times) == 4
    rig.machine.monotonic += SECOND
    rig.work()
    assert len(rig.times) == 1
    assert rig.service.warnings == []


def test_a_postponed_deletion_is_dropped_if_the_retention_becomes_longer(rig: Rig) -> None:
    rig.rank("old")
    rig.reward("old")
    rig.machine.wall += 100 * DAY
    rig.machine.monotonic += 100 * DAY
    rig.work()
    assert len(rig.service.warnings) == 1
    change = {"logRetentionDays": 200}
    asyncio.run(rig.service.change_settings("home", change, "test"))
    rig.machine.wall += 2 * DAY
    rig.machine.monotonic += 2 * DAY
    rig.work()
    assert (len(rig.times), rig.service.warnings) == (1, [])


def test_decisions_dated_ahead_do_not_block_default_rewards(rig: Rig) -> None:
    """More than one sweep looks at; a server whose clock was ahead may have written them."""
    ahead = [put_decision(1, f"ahead{k}", TODAY + YEAR) for k in range(300)]
    rig.store.write_group(ahead)
    rig.store.write(put_decision(1, "today", TODAY))
    rig.start()
    rig.work(minutes=WAIT_MINUTES + 1)
    assert rig.funnel == {"ranked": 301, "default": 1}


def test_an_hour_ahead_for_a_moment_closes_nothing(rig: Rig) -> None:
    rig.rank("event")
    rig.machine.wall += HOUR
    rig.work(minutes=1)
    rig.machine.wall -= HOUR
    rig.work()
    assert rig.funnel == {"ranked": 1}
    rig.reward("event")
    assert rig.funnel == {"ranked": 1, "learned": 1}


@pytest.mark.parametrize("jump", [YEAR, -YEAR, HOUR, -HOUR])
def test_a_loop_learns_the_same_with_a_jump_and_without(tmp_path: Path, jump: int) -> None:
    """A reward learned a year ahead would else outweigh all later ones."""
    beliefs = []
    for name, length in (("steady", 0), ("jump", jump)):
        rig = Rig(tmp_path / name, FakeMachine())
        for k in range(8):
            rig.machine.wall += length * ((k == 2) - (k == 4))
            rig.rank(f"event{k}")
            rig.work(minutes=0.1)
            rig.reward(f"event{k}")
        beliefs.append(read_bits(rig.loop))
        assert read_bits(Loop(rig.store.list_loops()[0], rig.store)) == beliefs[-1]
        rig.store.close()
    assert beliefs[0] == beliefs[1]


def test_a_believed_step_lets_no_decision_wait_for_less_time(rig: Rig) -> None:
    rig.machine.wall += HOUR
    rig.work(minutes=2)
    for event in ("rewarded", "unrewarded", "also unrewarded"):
        rig.rank(event)
    rig.work(minutes=9)  # an hour is believed after 10 minutes
    assert rig.service.clock.doubt is None
    assert rig.service.clock.now_us() == rig.machine.wall
    assert rig.funnel == {"ranked": 3}
    rig.reward("rewarded")
    assert rig.funnel == {"ranked": 3, "learned": 1}
    rig.work(minutes=2)
    assert rig.funnel == {"ranked": 3, "learned": 1, "default": 2}
    assert max(rig.times) < TODAY + HOUR  # the decisions keep their dates
    assert read_bits(Loop(rig.store.list_loops()[0], rig.store)) == read_bits(rig.loop)


def test_an_activation_just_after_a_step_is_in_time(rig: Rig) -> None:
    terms = RewardTerms(WAIT_MINUTES * MINUTE)
    put = PutDecision(make_decision(1, "event", TODAY, deferred=True), terms)
    rig.store.write(put)
    for _ in range(2):  # a repetition has no further effect
        rig.store.write(StepClock(TODAY + SECOND, DAY))
    late = TODAY + DAY + WAIT_MINUTES * MINUTE + 1
    assert rig.store.fetch_all(select(waiting.c.at)) == [(TODAY + DAY,)]
    assert rig.store.write(Activate(1, "event", late, terms)).status == "late"
    in_time = rig.store.write(Activate(1, "event", late - 1, terms))
    assert in_time.status == "activated"


def test_a_step_that_the_log_does_not_have_yet_closes_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the disk is full", "disk")

    rig.machine.wall += HOUR
    rig.work(minutes=9)
    rig.rank("event")
    rig.work(minutes=0.9)
    rig.machine.wall += TICK
    rig.machine.monotonic += TICK
    with monkeypatch.context() as patch:
        patch.setattr(CountingWriter, "submit", fail)
        with pytest.raises(StoreError):
            asyncio.run(compare_clocks(rig.service))
    asyncio.run(expire_decisions(rig.service, rig.loop))
    assert rig.funnel == {"ranked": 1}
    rig.work()
    assert rig.service.unwritten_steps == []
    assert rig.funnel == {"ranked": 1}


def test_the_next_start_knows_the_time_of_an_idle_service(rig: Rig) -> None:
    rig.machine.wall += HOUR
    rig.machine.monotonic += HOUR
    asyncio.run(store_clock(rig.service))
    rig.machine.wall -= YEAR
    rig.start()
    assert rig.service.clock.now_us() == TODAY + HOUR


def test_the_stored_time_never_goes_back(rig: Rig) -> None:
    for at in (TODAY, TODAY + HOUR, TODAY - HOUR):
        rig.store.write(PutClock(at))
    assert rig.store.find_newest_time() == TODAY + HOUR


def test_all_decisions_are_deleted_by_request_also_those_dated_ahead(rig: Rig) -> None:
    rig.store.write(put_decision(1, "ahead", TODAY + YEAR))
    rig.store.write(put_decision(1, "today", TODAY))
    rig.start()
    asyncio.run(rig.service.delete_log("home"))
    assert rig.times == []
