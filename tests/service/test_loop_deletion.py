"""A deleted loop is gone at once and for good, with all its rows; other loops do not notice."""

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sqlalchemy import Table, func, select

from evaluation_helpers import write_log
from server_process import BASE, Client, Nursery, Server
from service_helpers import OFFER, make_service
from shared_log_helpers import BODY
from store_helpers import (
    EVERY_TABLE,
    create_loop,
    fill_every_table,
    make_decision,
    put_decision,
    put_reward,
    read_every_table,
)
from waiting import wait_until
from windvane.errors import StoreError
from windvane.service import app
from windvane.service.errors import ServiceError
from windvane.service.evaluations import evaluations as evaluations_module
from windvane.service.evaluations.evaluations import Evaluations, JobResult, optimize_if_due
from windvane.service.evaluations.records import (
    EvaluationOutcome,
    IpsSums,
    Job,
    PolicyOutcome,
    encode,
)
from windvane.service.loops.maintenance import follow_log, send_heartbeat
from windvane.service.loops.settings import LoopSettings
from windvane.service.loops.withdrawals import Withdrawals
from windvane.service.schemas import RankOptions
from windvane.service.sharing.servers import LogSharing
from windvane.service.store import decision_queries
from windvane.service.store.evaluations import PutEvaluationPart
from windvane.service.store.files.parquet_export import export_log
from windvane.service.store.files.withdrawal_file import WithdrawalFile
from windvane.service.store.log import LogReader, Store
from windvane.service.store.schema import (
    clock,
    decisions,
    evaluation_parts,
    evaluations,
    lessons,
    loops,
    rewards,
    servers,
    snapshots,
)
from windvane.service.store.writer.loop_operations import DeleteLoop, PurgeLoops, PutLoop

Rows = dict[str, list[tuple[Any, ...]]]


def find_owner(table: Table, row: tuple[Any, ...]) -> int | None:
    """The id of the loop that a row of `EVERY_TABLE` belongs to."""
    values = dict(zip(table.c.keys(), row, strict=True))
    if table is evaluation_parts:
        return next(int(each["loop"]) for each in EVERY_TABLE[evaluations])
    found: int | None = values.get("id") if table is loops else values.get("loop")
    return found


def leave_out(rows: Rows, loop: int) -> Rows:
    """All rows but those of a loop, and without service time."""
    return {
        table.name: [row for row in rows[table.name] if find_owner(table, row) != loop]
        for table in EVERY_TABLE
        if table is not clock
    }


def purge(store: Store, limit: int = 250) -> None:
    while store.write(PurgeLoops(limit)):
        pass


def count(log: LogReader, table: Table, loop: int) -> int:
    [(rows,)] = log.fetch_all(select(func.count()).where(table.c.loop == loop))
    return int(rows)


@pytest.mark.parametrize("loop", [1, 4])
def test_a_deleted_loop_leaves_no_row_and_other_loops_keep_theirs(where: str, loop: int) -> None:
    fill_every_table(where)
    before = read_every_table(where)
    with Store(where) as store:
        store.write(DeleteLoop(loop, 1_800_000_000_000_000))
        slices = 0
        while store.write(PurgeLoops(limit=1, blob_limit=1)):
            slices += 1
            now = read_every_table(where)
            assert leave_out(now, loop) == leave_out(before, loop)
            assert [row.id for row in store.list_loops()] == [5 - loop]
            with pytest.raises(StoreError) as refusal:
                store.write(put_decision(loop, "late"))
            assert refusal.value.kind == "gone"
        rows = [sum(map(len, leave_out(before, each).values())) for each in (0, loop)]
        assert slices == rows[0] - rows[1] - 1  # the position goes at once
        assert store.find_newest_time() == 1_800_000_000_000_000
        store.write(PutEvaluationPart(2, 0, EVERY_TABLE[evaluation_parts][0]["blob"]))
    after = read_every_table(where)
    assert {name: after[name] for name in leave_out(before, loop)} == leave_out(before, loop)


def test_a_loop_of_the_same_name_begins_empty_and_late_rewards_do_not_reach_it(where: str) -> None:
    with Store(where) as store:
        old = create_loop(store)
        store.write(put_decision(old, "e1"))
        store.write(DeleteLoop(old, 0))
        new = create_loop(store)
        assert new > old
        with pytest.raises(StoreError):
            store.write(put_reward(old, "e1"))
        assert store.write(put_reward(new, "e1")).status == "orphan"
        purge(store)
        assert count(store, lessons, new) == count(store, decisions, new) == 0
        assert count(store, rewards, new) == store.read_funnel(new).orphan == 1
        assert count(store, rewards, old) == count(store, decisions, old) == 0


def test_operations_of_one_commit_find_the_loop_deleted_before_them(where: str) -> None:
    with Store(where) as store:
        loop, other = create_loop(store), create_loop(store, "other")
        delete = DeleteLoop(loop, 0)
        puts = put_decision(loop, "a"), put_decision(other, "a")
        kinds = [getattr(each, "kind", None) for each in store.write_group([delete, *puts, delete])]
        assert kinds == [None, "gone", None, "gone"]
        assert store.read_funnel(other).ranked == 1


def test_an_export_of_a_loop_that_is_deleted_meanwhile_writes_no_file(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_queries, "BATCH_ROWS", 2)
    path = tmp_path / "log.parquet"
    with Store(where) as store:
        loop = create_loop(store)
        for number in range(7):
            store.write(put_decision(loop, f"e{number}", at=number))
        assert export_log(store, "home", path) == 7

        def delete(done: int, _: int) -> None:
            if done == 2:
                store.write(DeleteLoop(loop, 0))
                purge(store)

        with pytest.raises(StoreError, match="there is no loop"):
            export_log(store, "home", path, delete)
    assert len(pl.read_parquet(path)) == 7  # that of before
    assert [each.name for each in tmp_path.iterdir() if each.name != "data"] == ["log.parquet"]


def test_a_second_server_forgets_the_loop_and_never_writes_to_it(tmp_path: Path) -> None:
    async def run() -> None:
        first, _ = make_service(store)
        await first.create_loop("home", LoopSettings(half_life="2 days"), "test")
        second, _ = make_service(store)
        stale = await second.get_loop("home")
        await second.rank("home", RankOptions(event_id="before"), OFFER, "{}")
        await first.delete_loop("home", "test")
        with pytest.raises(ServiceError, match="there is no loop"):
            await first.get_loop("home")
        for write in (
            second.rank("home", RankOptions(), OFFER, "{}"),
            second.reward("home", "before", 1.0),
            second.activate("home", "before"),
            second.change_settings("home", {"halfLife": "1 day"}, "test"),
            second.forget("home"),
            second.save_snapshot(stale),
            second.delete_log("home"),
        ):
            with pytest.raises(StoreError) as refusal:
                await write
            assert refusal.value.kind == "gone"
        assert not second.degraded_reason
        assert count(store, snapshots, stale.id) == 0
        new = await second.create_loop("home", LoopSettings(), "test")
        assert new.id > stale.id
        assert new.settings.half_life == LoopSettings().half_life
        assert await first.get_loop("home")
        await second.delete_loop("home", "test")
        await follow_log(first)
        assert "home" not in first.loops

    with Store(tmp_path) as store:
        asyncio.run(run())


def test_a_server_survives_that_others_delete_its_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        service, _ = make_service(store)
        service.sharing = LogSharing()
        for name in ("first", "last", "late"):
            loop = await service.create_loop(name, LoopSettings(), "test")
            await service.rank(name, RankOptions(), OFFER, "{}")  # it takes rounds
            loop.state.lessons_since_snapshot = 1
        await send_heartbeat(service)
        stale = store.find_loop("first")
        assert stale is not None
        store.write(DeleteLoop(stale.id, 0))
        await app._save_snapshots(service)  # at the end of the service
        assert {row.loop for row in store.fetch_all(select(snapshots))} == {2, 3}
        assert store.fetch_all(select(servers)) == []
        purge(store)
        await service._reload_loops()  # after the writer process was replaced
        assert [*service.loops] == ["last", "late"]
        monkeypatch.setattr(store, "find_loop", lambda name: stale)  # deleted just after it
        with pytest.raises(StoreError) as refusal:
            await service.get_loop("first")
        assert refusal.value.kind == "gone"
        monkeypatch.setattr(store, "list_loops", lambda: [stale])
        assert make_service(store)[0].degraded_reason is None

    with Store(tmp_path) as store:
        asyncio.run(run())


def test_two_servers_purge_the_same_loops_at_the_same_time(
    postgresql: Callable[[], str],
) -> None:
    where = postgresql()
    with Store(where) as one, Store(where) as two, ThreadPoolExecutor(2) as pool:
        loops_of_test = [create_loop(one, f"loop-{number}") for number in range(3)]
        for loop in loops_of_test:
            one.write_group([put_decision(loop, f"e{number}") for number in range(50)])
            one.write(DeleteLoop(loop, 0))
        for done in [pool.submit(purge, store, 5) for store in (one, two)]:
            done.result(60)
        purge(one)  # the one that ended first may have left rows to the other
        assert sum(count_all(where, loop) for loop in loops_of_test) == 0
        assert one.fetch_all(select(loops)) == []


def test_a_loop_that_cannot_be_loaded_can_be_deleted(tmp_path: Path) -> None:
    async def run() -> None:
        service, _ = make_service(store)
        other, _ = make_service(store)
        assert "home" in (service.degraded_reason or "")
        await service.delete_loop("home", "test")
        await follow_log(other)
        assert service.degraded_reason is other.degraded_reason is None
        with pytest.raises(ServiceError, match="there is no loop"):
            await other.get_loop("home")

    with Store(tmp_path) as store:
        create_loop(store, "good")
        store.write(PutLoop("home", '{"halfLife": 7}', 0, "test"))
        asyncio.run(run())


def test_a_withdrawal_of_a_deleted_loop_is_dropped(tmp_path: Path) -> None:
    async def run() -> None:
        with closing(WithdrawalFile(tmp_path / "withdrawals")) as file:
            service, writer = make_service(store)
            withdrawals = Withdrawals(writer, file)  # type: ignore[arg-type]
            decision = make_decision(loop, "e")
            withdrawals.add(decision, decision, service.loops["other"].terms)
            assert not file.records
            assert withdrawals.bound_expiry(9) == 9

    with Store(tmp_path / "data") as store:
        loop, _ = create_loop(store), create_loop(store, "other")
        store.write(DeleteLoop(loop, 0))
        asyncio.run(run())


def test_an_evaluation_of_a_deleted_loop_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluations_module, "SHARED_INTERVAL_SECONDS", 0.01)

    async def run() -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def wait(job: Job, report: object) -> JobResult:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        monkeypatch.setattr(evaluations_module, "run_child", wait)
        service, _ = make_service(store)
        evaluations = Evaluations(service)
        assert await optimize_if_due(service, evaluations, await service.get_loop("home"))
        async with asyncio.timeout(30):
            running = asyncio.create_task(evaluations._run_all())
            await began.wait()
            await service.delete_loop("home", "test")
            await ended.wait()
            await running
        assert evaluations.running_count == 0

    with Store(tmp_path) as store:
        write_log(store, "home", 3, is_auto_optimization_enabled=True)
        asyncio.run(run())


def test_what_an_evaluation_found_is_not_applied_to_another_loop_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        service, _ = make_service(store)

        async def find(job: Job, report: object) -> JobResult:
            await service.delete_loop("home", "test")
            purge(store)
            settings = LoopSettings(is_auto_optimization_enabled=True)
            await service.create_loop("home", settings, "test")
            better = PolicyOutcome(
                name="Hyper1",
                source="OfflineExperimentation",
                arguments="",
                total=IpsSums(),
                result={"gain": {"interval": [0.1, 0.2]}},
                changes={"halfLife": "1 day"},
            )
            outcome = EvaluationOutcome(optimal_policy="Hyper1", policies=[better], rows=3)
            return JobResult(encode(outcome), b"[]")

        monkeypatch.setattr(evaluations_module, "run_child", find)
        evaluations = Evaluations(service)
        assert await optimize_if_due(service, evaluations, await service.get_loop("home"))
        await evaluations._run_all()
        new = await service.get_loop("home")
        assert new.settings.half_life == LoopSettings().half_life
        assert not evaluations.ended_counts
        assert store.fetch_all(select(evaluation_parts)) == []

    with Store(tmp_path) as store:
        write_log(store, "home", 3, is_auto_optimization_enabled=True)
        asyncio.run(run())


def count_all(where: str, loop: int) -> int:
    """How many rows of a loop the log has."""
    with LogReader(where) as log:
        return sum(count(log, table, loop) for table in EVERY_TABLE if "loop" in table.c)


def test_killed_writers_and_servers_finish_the_deletion(
    where: str, nursery: Nursery, tmp_path: Path
) -> None:
    with Store(where) as store:
        loop, kept = create_loop(store, "large"), create_loop(store, "kept")
        for first in range(0, 12_000, 500):
            numbers = range(first, first + 500)
            store.write_group([put_decision(loop, f"e{k}", at=k) for k in numbers])
        store.write(put_decision(kept, "e"))
    total = count_all(where, loop)
    database = where if "://" in where else None
    with Server(nursery, tmp_path / "data", database) as server:
        with closing(server.client()) as client:
            assert client.call("DELETE", "/loops/large").status == 204
            assert client.call("DELETE", "/loops/large").status == 404
            wait_until(lambda: count_all(where, loop) < total - 1000)
            os.kill(server.writer, signal.SIGKILL)
            left = count_all(where, loop)
            assert left > 0
            wait_until(lambda: count_all(where, loop) < left - 1000)
        server.kill()
        assert count_all(where, loop) > 0
        server.start()
        server.wait()
        with closing(server.client()) as client:
            assert client.call("GET", f"/loops/large{BASE}/configurations/service").status == 404
            assert client.rank(BODY, "/loops/kept").status == 201
            wait_until(lambda: count_all(where, loop) == 0)
        with LogReader(where) as log:
            assert {row.name for row in log.list_loops()} == {"kept", "default"}
            assert count(log, decisions, kept) == 2


@pytest.mark.slow
def test_other_servers_answer_404_soon_and_do_not_bring_the_loop_back(
    postgresql: Callable[[], str], nursery: Nursery, tmp_path: Path
) -> None:
    database = postgresql()
    with ExitStack() as stack:
        pair = [
            stack.enter_context(Server(nursery, tmp_path / f"server-{k}", database))
            for k in range(2)
        ]
        one, two = (stack.enter_context(closing(server.client())) for server in pair)
        assert one.call("POST", "/loops", {"name": "shop"}).status == 201
        for number in range(40):  # both have blocks of rounds of the loop
            client = (one, two)[number % 2]
            assert client.rank(BODY | {"eventId": f"e{number}"}, "/loops/shop").status == 201
        assert one.call("DELETE", "/loops/shop").status == 204
        answer = two.rank(BODY | {"eventId": "late"}, "/loops/shop")
        assert (answer.status, answer.json["error"]["code"]) == (404, "ResourceNotFound")
        assert two.reward("e1", 1.0, "/loops/shop").status == 404

        def is_unknown(client: Client) -> bool:
            settings = f"/loops/shop{BASE}/configurations/service"
            return client.call("GET", settings).status == 404

        wait_until(lambda: is_unknown(one) and is_unknown(two))
        assert two.call("POST", "/loops", {"name": "shop"}).status == 201
        assert one.reward("e1", 1.0, "/loops/shop").status == 204  # of an event that is unknown
        for client in (one, two):
            properties = client.call("GET", f"/loops/shop{BASE}/logs/properties").json
            assert properties["dateRange"] is None
        with LogReader(database) as log:
            new = log.find_loop("shop")
            assert new is not None
            assert log.read_funnel(new.id).orphan == 1
            assert log.read_funnel(new.id).ranked == log.count_lessons(new.id) == 0
            wait_until(lambda: len(log.fetch_all(select(loops))) == 2)
            assert log.fetch_all(select(decisions)) == []
        assert not any("Traceback" in server.log for server in pair)


def test_the_command_asks_for_the_name_and_a_service_that_runs_notices(
    run_here: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    nursery: Nursery,
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with Server(nursery, data) as server, closing(server.client()) as client:
        for name in ("shop", "news"):
            assert client.call("POST", "/loops", {"name": name}).status == 201
        command = ("loop", "delete", "shop", "--data", data)
        unknown = run_here("loop", "delete", "shops", "--data", data)
        assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
        for confirmation in ("", "Shop"):
            refused = run_here(*command, "--confirm", confirmation)
            assert refused.returncode == 2
            assert "nothing was deleted" in refused.stderr
        names = iter(["news", "shop"])
        monkeypatch.setattr("typer.prompt", lambda *_, **__: next(names))
        assert run_here(*command).returncode == 2
        assert client.call("GET", f"/loops/shop{BASE}/model").status == 200
        assert run_here(*command).returncode == 0
        wait_until(lambda: client.call("GET", f"/loops/shop{BASE}/model").status == 404)
        assert run_here("loop", "delete", "news", "--confirm", "news", "--data", data).stdout == ""
        answer = client.rank(BODY, "/loops/news")
        assert answer.status == 404
        assert client.call("GET", "/healthz").json["status"] == "ok"
        assert client.rank(BODY).status == 201
