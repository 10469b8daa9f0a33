"""The process that writes may end at any moment: nothing is lost, learned twice or left waiting."""

import asyncio
import io
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from server_process import BASE, Client, Nursery, Server
from store_helpers import rank, reward
from windvane.errors import StoreError
from windvane.policy import Policy
from windvane.service.loops.loop import FORGET, Loop, unpack
from windvane.service.loops.service import Service, teach
from windvane.service.loops.settings import Settings, write
from windvane.service.store import writer_client
from windvane.service.store.admin_operations import PutLoop, PutSettings
from windvane.service.store.group_commit import Operation, Result
from windvane.service.store.log import Store
from windvane.service.store.schema import Funnel, LoopRow
from windvane.service.store.writer_client import WriterClient

BODY = {"actions": [{"id": name, "features": [{"name": name}]} for name in ("ice", "tea")]}
SETTINGS = {"halfLife": "50 rounds", "rewardAggregation": "sum"}


def believed(client: Client) -> tuple[int, bytes, bytes]:
    packed = unpack(client.call("GET", f"{BASE}/model").body)
    belief = Policy.load(io.BytesIO(packed.policy)).belief
    return belief.seen, belief.gram.tobytes(), belief.moment.tobytes()


def test_a_writer_that_is_killed_is_replaced_and_the_belief_is_that_of_the_log(
    nursery: Nursery, tmp_path: Path
) -> None:
    ranked: list[str] = []
    rewarded: list[tuple[str, str]] = []
    slowest: list[float] = []
    stop = threading.Event()

    def visit(server: Server, who: int) -> None:
        draw = random.Random(who)
        with closing(server.client(10.0)) as client:
            for number in range(100_000):
                if stop.is_set():
                    return
                event, started = f"{who}-{number}", time.monotonic()
                told = client.rank(BODY | {"eventId": event})
                assert told.status == 201
                if not told.json["degraded"]:
                    ranked.append(event)
                for turn in range(2):
                    request = f"{event}-{turn}"
                    status = client.reward(event, draw.uniform(-1, 1), request=request).status
                    assert status in (204, 503)
                    if status == 204:
                        rewarded.append((event, request))
                slowest.append(time.monotonic() - started)

    with Server(nursery, tmp_path / "data") as server:
        with closing(server.client()) as client:
            client.call("PUT", f"{BASE}/configurations/service", SETTINGS)
            threads = [threading.Thread(target=visit, args=(server, who)) for who in range(3)]
            for thread in threads:
                thread.start()
            killed: set[int] = set()
            while len(killed) < 4:
                time.sleep(0.3)
                for writer in set(server.writers) - killed:
                    os.kill(writer, signal.SIGKILL)
                    killed.add(writer)
            end = time.monotonic() + 20.0
            while client.rank(BODY).json["degraded"]:
                assert time.monotonic() < end
            time.sleep(0.2)
            stop.set()
            for thread in threads:
                thread.join()
            assert client.call("GET", "/healthz").json["status"] == "ok"
            running = believed(client)
        server.kill()
        server.start()
        with closing(server.client()) as client:
            assert believed(client) == running
    assert max(slowest) < 6.0
    assert running[0] > 20
    with Store(tmp_path / "data") as store:
        for event in ranked:
            assert store.find_decision(1, event) is not None
        for event, request in rewarded:
            assert request in [one.request_id for one in store.list_rewards(1, event)]


def test_a_log_that_failed_for_a_while_leaves_the_belief_as_it_was(
    nursery: Nursery, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Server(nursery, data) as server, closing(server.client()) as client:
        for number in range(5):
            client.rank(BODY | {"eventId": f"e{number}"})
            assert client.reward(f"e{number}", 0.5).status == 204
        before = believed(client)
        with closing(sqlite3.connect(data / "windvane.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            assert client.rank(BODY).json["degraded"]
            assert client.reward("e1", 0.5).status == 503
        end = time.monotonic() + 10.0
        while client.rank(BODY).json["degraded"]:
            assert time.monotonic() < end
        assert believed(client) == before
        assert before[0] == 5


def test_a_stop_while_the_log_fails_is_a_stop(nursery: Nursery, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server(nursery, data) as server:
        with closing(server.client()) as client:
            client.rank(BODY | {"eventId": "e"})
            assert client.reward("e", 0.5).status == 204
            before = believed(client)
        with closing(sqlite3.connect(data / "windvane.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            server.stop()
        assert "Traceback" not in server.log
        server.start()
        with closing(server.client()) as client:
            assert believed(client) == before


def test_what_was_read_from_the_log_is_not_learned_again_when_it_is_told(tmp_path: Path) -> None:
    settings = write(Settings(dim=2, half_life="never"))
    with Store(tmp_path) as store:
        row = store.submit(PutLoop("home", settings, 0, "test")).result(20)
        loop = Loop(row, store)
        for event in ("a", "b", "c"):
            store.submit(rank(row.id, event)).result(20)
        one = store.submit(reward(row.id, "a")).result(20)
        two = store.submit(reward(row.id, "b")).result(20)
        forget = store.submit(PutSettings(row.id, settings, 1, FORGET)).result(20)
        three = store.submit(reward(row.id, "c")).result(20)
        teach(loop, one)
        assert loop.policy.belief.seen == 1
        teach(loop, StoreError("gone", "unreachable"))
        for told in (two, forget, three):  # with the first of them all is read
            teach(loop, told)
            assert loop.policy.belief.seen == 1
        assert loop.lesson == three.lessons[0].id


class Direct(WriterClient):
    """Written by a store of this process."""

    def __init__(self, store: Store) -> None:
        super().__init__("unused")
        self._store = store

    def submit(
        self,
        operation: Operation[Result],
        on_result: Callable[[Result | StoreError], None] | None = None,
        timeout: float | None = None,
    ) -> "asyncio.Future[Result]":
        told = self._store.submit(operation).result(20)
        if on_result is not None:
            on_result(told)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        future.set_result(told)
        return future


def test_all_decisions_whose_wait_is_over_are_closed_at_one_look(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        settings = write(Settings(dim=2, half_life="never"))
        row = store.submit(PutLoop("home", settings, 0, "test")).result(20)
        puts = [rank(row.id, f"e{k}", deferred=k % 3 > 0) for k in range(900)]
        for put in [store.submit(put) for put in puts]:
            put.result(20)
        service = Service(store, Direct(store))
        asyncio.run(service.expire(service.loops["home"]))
        assert store.read_funnel(row.id) == Funnel(900, 300, unactivated=600, default=300)
        assert service.loops["home"].policy.belief.seen == 300


class Doomed(WriterClient):
    """Its first process is killed the moment it is ready."""

    lives = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.lives += 1
        if self.lives == 1 and self._process is not None:
            self._process.kill()
            self._process.wait()


def test_a_writer_that_is_gone_as_soon_as_it_is_ready_was_never_there(tmp_path: Path) -> None:
    async def play() -> None:
        writer = Doomed(str(tmp_path))
        with pytest.raises(StoreError, match="has ended"):
            await writer.start()
        with pytest.raises(StoreError, match="has ended"):
            writer.submit(PutLoop("home", "{}", 0, "test"))
        await writer.start()
        made = await asyncio.wait_for(writer.submit(PutLoop("home", "{}", 0, "test")), 20)
        assert made.name == "home"
        await writer.close()

    asyncio.run(play())


def test_a_clock_that_is_set_makes_nothing_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        writer = WriterClient(str(tmp_path))
        await writer.start()
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: 0.0)
            put = writer.submit(PutLoop("home", "{}", 0, "test"), timeout=20.0)
        assert (await put).name == "home"
        await writer.close()

    asyncio.run(play())


def test_only_so_many_bytes_may_wait_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_client, "MAX_UNSENT_BYTES", 2**24)

    async def play() -> int:
        writer = WriterClient(str(tmp_path))
        await writer.start()
        os.kill(writer.process_id, signal.SIGSTOP)
        waiting: list[asyncio.Future[LoopRow]] = []
        refused = None
        while refused is None and len(waiting) < 200:
            put = PutLoop(f"loop-{len(waiting)}", "x" * 2**20, 0, "test")
            try:
                waiting.append(writer.submit(put))
            except StoreError as error:
                refused = error
            await asyncio.sleep(0)
        assert refused is not None
        assert (refused.kind, "too many bytes wait" in str(refused)) == ("busy", True)
        os.kill(writer.process_id, signal.SIGCONT)
        made = await asyncio.gather(*waiting)
        await writer.close()
        return len(made)

    assert 15 < asyncio.run(play()) < 25
