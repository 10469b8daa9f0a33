"""Maintenance: idle loops cost no writes, and each loop has its own schedule of snapshots."""

import asyncio
import json
import threading
from typing import Any

import pytest
from sqlalchemy import func, select

from clock_helpers import MINUTE, SECOND, FakeMachine
from policy_access import read_bits
from service_helpers import OFFER, make_service
from store_helpers import find_snapshot
from windvane.service.loops.loop import Loop
from windvane.service.loops.maintenance import start_sweeps
from windvane.service.loops.rank_requests import parse_offer
from windvane.service.loops.service import Service
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import RankOptions
from windvane.service.sharing import fold
from windvane.service.store.log import Store
from windvane.service.store.schema import SNAPSHOT_PART_BYTES, snapshot_parts
from windvane.service.store.writer.loop_operations import PutSnapshotPart
from windvane.service.store.writer.writer_protocol import encode


async def sweep(service: Service) -> None:
    """Sweep all loops that need it, once."""
    await asyncio.gather(*(await start_sweeps(service)).values())


async def test_loops_without_waiting_decisions_are_not_searched(store: Store) -> None:
    service, writer = make_service(store)
    for number in range(3):
        await service.create_loop(f"loop-{number}", LoopSettings(reward_wait_time="PT1S"), "test")
    await service.create_loop("patient", LoopSettings(reward_wait_time="PT10M"), "test")
    await service.rank("patient", RankOptions(), OFFER, "{}")
    writer.counts.clear()
    await sweep(service)
    assert writer.counts == {}


async def test_a_decision_expires_also_if_an_earlier_process_made_it(store: Store) -> None:
    machine = FakeMachine()

    service, _ = make_service(store, machine.make_clock(None))
    await service.create_loop("home", LoopSettings(reward_wait_time="PT10M"), "test")
    await service.rank("home", RankOptions(), OFFER, "{}")
    service, writer = make_service(store, machine.make_clock(store.find_newest_time()))
    loop = service.loops["home"]
    await sweep(service)
    assert store.read_funnel(loop.id).default == 0
    machine.monotonic += 10 * MINUTE + 2 * SECOND
    await sweep(service)
    assert store.read_funnel(loop.id).default == 1
    writer.counts.clear()
    await sweep(service)
    assert writer.counts == {}


async def test_a_snapshot_is_due_after_lessons_of_the_loop_itself(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "SNAPSHOT_EVERY_LESSONS", 4)
    service, writer = make_service(store)
    for name in ("busy", "quiet"):
        await service.create_loop(name, LoopSettings(), "test")
    for number in range(4):
        for name in ("busy", "quiet"):
            if name == "busy" or number % 2 == 0:  # two lessons of the quiet loop
                await service.rank(name, RankOptions(event_id=f"e{number}"), OFFER, "{}")
                await service.reward(name, f"e{number}", 1.0)
    await sweep(service)
    assert writer.counts["PutSnapshot"] == 1
    assert find_snapshot(store, service.loops["busy"].id) is not None
    assert find_snapshot(store, service.loops["quiet"].id) is None


async def test_a_large_snapshot_is_written_in_parts_and_read_as_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    service, writer = make_service(store)
    loop = await service.create_loop("large", LoopSettings(), "test")
    submit = writer.submit

    def note_size(operation: Any, *arguments: Any) -> Any:
        sizes.append(len(encode(operation)))
        return submit(operation, *arguments)

    context = [{f"f{k}": "x" for k in range(130)}]
    actions = [{"id": "a", "features": [{f"g{k}": "x" for k in range(130)}]}]
    offer = parse_offer(json.dumps(actions).encode())
    await service.rank("large", RankOptions(context_features=context, event_id="e"), offer, "")
    await service.reward("large", "e", 1.0)
    await loop.work.wait()
    monkeypatch.setattr(writer, "submit", note_size)
    for _ in range(5):  # all but three are deleted
        await service.save_snapshot(loop)
    snapshot = find_snapshot(store, loop.id)
    assert snapshot is not None
    assert len(snapshot.blob) == len(loop.encode_snapshot())  # a zip file has a time
    assert len(snapshot.blob) > 2 * SNAPSHOT_PART_BYTES
    count = select(func.count()).select_from(snapshot_parts)
    assert store.fetch_all(count) == [(3 * (len(snapshot.blob) // SNAPSHOT_PART_BYTES),)]
    row = store.find_loop("large")
    assert row is not None
    assert read_bits(Loop(row, store)) == read_bits(loop)
    assert max(sizes) < SNAPSHOT_PART_BYTES + 1000


async def test_parts_of_a_snapshot_that_was_not_finished_are_deleted(store: Store) -> None:
    service, _ = make_service(store)
    loop = await service.create_loop("home", LoopSettings(), "test")
    await service.write(PutSnapshotPart(loop.id, 5, 1, b"lost"))
    await service.save_snapshot(loop)
    assert store.fetch_all(select(snapshot_parts)) == []


async def test_a_loop_expires_while_another_one_works_long(store: Store) -> None:
    machine = FakeMachine()

    service, _ = make_service(store, machine.make_clock(None))
    for name in ("slow", "quick"):
        await service.create_loop(name, LoopSettings(reward_wait_time="PT0.000001S"), "test")
        await service.rank(name, RankOptions(), OFFER, "{}")
    released = threading.Event()

    def block() -> None:
        released.wait(30.0)

    slow, quick = service.loops["slow"], service.loops["quick"]
    slow.work.run(block, is_long=True)
    machine.monotonic += 2 * SECOND
    sweeps = await start_sweeps(service)
    await sweeps["quick"]
    assert store.read_funnel(quick.id).default == 1
    assert not sweeps["slow"].done()
    released.set()
    await sweeps["slow"]
