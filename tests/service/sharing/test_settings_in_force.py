"""The settings in force are those of the last change in the log, also while a loop is rebuilt."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clock_helpers import DAY, SECOND, FakeMachine
from service_helpers import OFFER, make_service
from windvane.errors import StoreError
from windvane.service.loops import maintenance
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.loop import Loop
from windvane.service.loops.maintenance import delete_old_decisions, start_sweeps
from windvane.service.loops.service import Service
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import RankOptions
from windvane.service.sharing.fold import teach
from windvane.service.store.log import Store
from windvane.service.store.rows import SettingsChange

OLD = LoopSettings(reward_wait_time="PT1S", default_reward=-1.0, log_retention_days=0)
NEW = {
    "rewardWaitTime": "PT10M",
    "defaultReward": 0.5,
    "logRetentionDays": 90,
    "learningMode": "Apprentice",
    "halfLife": "3 days",
}
LESSONS = 5
READS = ("list_snapshots", "list_settings_changes", "iterate_lessons", "find_last_round")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(maintenance, "MAX_DELETED_SHARE", 1.0)  # no deletion is postponed
    with Store(tmp_path) as store:
        yield store


async def change_after_lessons(service: Service) -> Loop:
    """A loop that learned under the old settings, and whose decisions wait under the new ones."""
    loop = await service.create_loop("home", OLD, "test")
    for number in range(LESSONS):
        await service.rank("home", RankOptions(event_id=f"old-{number}"), OFFER, "{}")
        await service.reward("home", f"old-{number}", 1.0)
    await service.change_settings("home", NEW, "test")
    for number in range(LESSONS):
        await service.rank("home", RankOptions(event_id=f"new-{number}"), OFFER, "{}")
    return loop


def describe(loop: Loop) -> tuple[object, ...]:
    """All that readers see of a loop."""
    state = loop.state
    facts = (state.last_lesson, state.last_change, state.newest, state.lessons_since_snapshot)
    learned = (loop.model.settings, loop.model.observation_count, loop.model.learner.round)
    return *loop.in_force, *facts, *learned


def test_a_restore_shows_nothing_of_its_work(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    async def run() -> Loop:
        service, _ = make_service(store)
        return await change_after_lessons(service)

    loop = asyncio.run(run())
    before = describe(loop)

    def watch(place: object, name: str) -> None:
        original = getattr(place, name)

        def call(*arguments: Any, **options: Any) -> Any:
            seen.append((name, describe(loop)))
            result = original(*arguments, **options)
            seen.append((name, describe(loop)))
            return result

        monkeypatch.setattr(place, name, call)

    for name in READS:
        watch(store, name)
    for name in ("learn", "carry"):
        watch(LearnerModel, name)
    loop.restore()
    assert {name for name, _ in seen} == {*READS, "learn", "carry"}
    assert all(facts == before for _, facts in seen)
    assert describe(loop) == before


def test_sweeps_retention_and_rewards_follow_the_new_settings_during_a_restore(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = FakeMachine()
    is_held, is_released = threading.Event(), threading.Event()
    read = store.iterate_lessons

    def hold(*arguments: Any) -> Any:
        for batch in read(*arguments):
            is_held.set()  # the fold has the first settings
            assert is_released.wait(30.0)
            yield batch

    async def run() -> None:
        service, _ = make_service(store, machine.make_clock(None))
        loop = await change_after_lessons(service)
        monkeypatch.setattr(store, "iterate_lessons", hold)
        restoring = asyncio.create_task(loop.work.call(loop.restore, is_long=True))
        while not is_held.is_set():
            await asyncio.sleep(0)
        machine.wall += 12 * SECOND
        machine.monotonic += 12 * SECOND
        sweeps = await start_sweeps(service)
        deleting = asyncio.create_task(delete_old_decisions(service, loop))
        degraded = loop.decide(RankOptions(), OFFER, degraded=True)
        rewarding = asyncio.create_task(service.reward("home", "new-0", 1.0))
        await asyncio.sleep(0)
        is_released.set()
        await asyncio.gather(restoring, deleting, rewarding, *sweeps.values())
        await loop.work.wait()
        assert sweeps == {}
        assert degraded.mode == "Apprentice"
        funnel = store.read_funnel(loop.id)
        assert (funnel.default, funnel.late, funnel.learned) == (0, 0, LESSONS + 1)
        assert store.count_lessons(loop.id) == LESSONS + 1
        assert loop.model.observation_count == LESSONS + 1

    asyncio.run(run())


def test_new_settings_are_in_force_although_the_log_cannot_be_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise StoreError("store: another connection has locked the database", "locked")

    async def run() -> None:
        service, _ = make_service(store)
        loop = await service.create_loop("home", OLD, "test")
        loop.must_restore = True
        monkeypatch.setattr(store, "list_snapshots", fail)
        changed = await service.change_settings("home", NEW, "test")
        assert changed.settings == OLD.merge(NEW)
        assert loop.must_restore

    asyncio.run(run())


def test_settings_never_go_back(store: Store) -> None:
    async def run() -> None:
        service, _ = make_service(store)
        loop = await service.create_loop("home", OLD, "test")
        changes = [
            SettingsChange(10 + k, k, OLD.merge({"defaultReward": k / 10}).to_json(), "test", 0)
            for k in range(3)
        ]
        for change in (changes[2], changes[0], changes[1]):
            loop.enforce(change)
        assert loop.settings.default_reward == 0.2
        assert loop.terms.change == 12

    asyncio.run(run())


def test_a_server_that_is_behind_changes_the_settings_of_the_log(store: Store) -> None:
    async def run() -> None:
        ahead, _ = make_service(store)
        await ahead.create_loop("home", OLD, "test")
        behind, _ = make_service(store)
        await ahead.change_settings("home", {"rewardWaitTime": "PT10M"}, "test")
        await behind.change_settings("home", {"defaultReward": 0.25}, "test")
        await ahead.change_settings("home", {"logRetentionDays": 30}, "test")
        await behind.forget("home")
        row = store.find_loop("home")
        assert row is not None
        wanted = {"rewardWaitTime": "PT10M", "defaultReward": 0.25, "logRetentionDays": 30}
        assert LoopSettings.from_json(row.settings) == OLD.merge(wanted)
        assert behind.loops["home"].settings == OLD.merge(wanted)

    asyncio.run(run())


def test_a_server_that_is_behind_closes_and_deletes_nothing_by_old_settings(store: Store) -> None:
    machine = FakeMachine()

    async def run() -> None:
        behind, _ = make_service(store, machine.make_clock(None))
        await behind.create_loop("home", OLD, "test")
        await behind.rank("home", RankOptions(event_id="e"), OFFER, "{}")
        ahead, _ = make_service(store, machine.make_clock(None))
        await ahead.change_settings("home", NEW, "test")
        machine.wall += 2 * DAY
        machine.monotonic += 12 * SECOND
        loop = behind.loops["home"]
        await asyncio.gather(*(await start_sweeps(behind)).values())
        with pytest.raises(StoreError, match="were changed meanwhile"):
            await delete_old_decisions(behind, loop)
        await behind.reward("home", "e", 1.0)
        funnel = store.read_funnel(loop.id)
        assert (funnel.default, funnel.late, funnel.learned) == (0, 0, 1)
        teach(loop, store.list_settings_changes(loop.id)[-1])
        await loop.work.wait()
        assert loop.settings == OLD.merge(NEW)

    asyncio.run(run())
