"""The work on one loop: in order, long work in a thread, other loops go on meanwhile."""

import asyncio
import threading
from typing import Any

import pytest

from policy_access import read_bits
from service_helpers import OFFER, make_service
from windvane.service.errors import ServiceError
from windvane.service.loops import work_queue
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import LoopSettings
from windvane.service.loops.work_queue import WorkQueue
from windvane.service.schemas import RankOptions
from windvane.service.store.log import Store

DEADLINE_SECONDS = 30.0  # a guard against hanging


async def test_short_work_is_done_at_once_and_waits_behind_long_work() -> None:
    queue, done = WorkQueue(), list[str]()
    event_thread, released = threading.get_ident(), threading.Event()
    queue.run(lambda: done.append("first"), is_long=False)
    assert done == ["first"]

    def work_long() -> None:
        assert threading.get_ident() != event_thread
        released.wait(DEADLINE_SECONDS)
        done.append("long")

    queue.run(work_long, is_long=True)
    queue.run(lambda: done.append("short"), is_long=False)
    waiting = asyncio.create_task(queue.call(lambda: len(done), is_long=False))
    await asyncio.sleep(0)
    assert done == ["first"]
    released.set()
    assert await waiting == 3
    assert done == ["first", "long", "short"]
    await queue.wait()
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not queue.can_run_now(is_long=False):
            await asyncio.sleep(0)


async def test_an_error_reaches_whoever_waits_and_later_work_goes_on() -> None:
    queue = WorkQueue()
    queue.run(lambda: 1 / 0, is_long=True)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        await queue.call(lambda: 1 / 0, is_long=True)
    assert await queue.call(lambda: "alive", is_long=True) == "alive"


async def test_a_long_rank_lets_another_loop_answer_before_it_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    decide = Loop.decide

    def decide_late(loop: Loop, *arguments: Any, **options: Any) -> Any:
        if loop.name == "slow":
            assert released.wait(DEADLINE_SECONDS)
        return decide(loop, *arguments, **options)

    monkeypatch.setattr(Loop, "decide", decide_late)
    monkeypatch.setattr(Loop, "is_long_rank", lambda loop, *_: loop.name == "slow")

    service, _ = make_service(store)
    await service.create_loop("slow", LoopSettings(), "test")
    await service.create_loop("quick", LoopSettings(), "test")
    slow = asyncio.create_task(service.rank("slow", RankOptions(), OFFER, "{}"))
    await asyncio.sleep(0)
    assert b"eventId" in await service.rank("quick", RankOptions(), OFFER, "{}")
    assert not slow.done()
    released.set()
    assert b"eventId" in await slow


async def test_long_lessons_are_learned_in_a_thread_with_the_bits_of_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set()
    learn = Loop.learn

    def note_thread(loop: Loop, lessons: Any) -> None:
        threads.add(threading.get_ident())
        learn(loop, lessons)

    monkeypatch.setattr(LearnerModel, "is_long_lesson", lambda *_: True)

    service, _ = make_service(store)
    loop = await service.create_loop("large", LoopSettings(), "test")
    monkeypatch.setattr(Loop, "learn", note_thread)
    for number in range(20):
        await service.rank("large", RankOptions(event_id=f"e{number}"), OFFER, "{}")
        await service.reward("large", f"e{number}", number % 3 / 2)
    await service.change_settings("large", {"halfLife": "1 day"}, "test")
    assert loop.settings.half_life == "1 day"
    await service.rank("large", RankOptions(event_id="last"), OFFER, "{}")
    await service.reward("large", "last", 1.0)
    await loop.work.wait()
    assert threading.get_ident() not in threads
    row = store.find_loop("large")
    assert row is not None
    assert read_bits(Loop(row, store)) == read_bits(loop)


async def test_too_much_waiting_work_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "MAX_WAITING_WORK", 2)

    service, writer = make_service(store)
    loop = await service.create_loop("busy", LoopSettings(), "test")
    released = threading.Event()
    running = threading.Event()

    def block() -> None:
        running.set()
        released.wait(DEADLINE_SECONDS)

    loop.work.run(block, is_long=True)
    assert running.wait(DEADLINE_SECONDS)
    for _ in range(2):
        loop.work.run(lambda: None, is_long=True)
    writer.counts.clear()
    for request in (
        service.rank("busy", RankOptions(), OFFER, "{}"),
        service.reward("busy", "e", 1.0),
    ):
        with pytest.raises(ServiceError, match="no more are accepted") as error:
            await request
        assert error.value.retry_after_seconds > 0
    assert writer.counts == {}
    released.set()
    await loop.work.wait()


async def test_a_long_change_of_settings_does_not_stop_that_of_another_loop(store: Store) -> None:
    service, _ = make_service(store)
    slow = await service.create_loop("slow", LoopSettings(), "test")
    await service.create_loop("quick", LoopSettings(), "test")
    released = threading.Event()

    def block() -> None:
        released.wait(DEADLINE_SECONDS)

    slow.work.run(block, is_long=True)
    change = asyncio.create_task(service.change_settings("slow", {"halfLife": "1 day"}, "test"))
    await asyncio.sleep(0)
    await asyncio.wait_for(service.forget("quick"), DEADLINE_SECONDS / 2)
    assert not change.done()
    released.set()
    await change
    assert slow.settings.half_life == "1 day"
