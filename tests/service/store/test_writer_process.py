"""The writer process may end at any moment: nothing is lost, learned twice or left waiting."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from server_process import BASE, Nursery, Server, wait_for_health
from service_helpers import make_service
from shared_log_helpers import read_bits
from store_helpers import put_decision, put_reward
from waiting import wait_for_more, wait_until
from windvane.errors import StoreError
from windvane.service.app import create_app
from windvane.service.clock import ServiceClock
from windvane.service.loops.loop import Loop
from windvane.service.loops.maintenance import expire_decisions
from windvane.service.loops.settings import LoopSettings
from windvane.service.sharing.fold import FORGET, teach
from windvane.service.store.log import Store
from windvane.service.store.rows import Funnel, LoopRow
from windvane.service.store.writer import writer_client
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutLoop, PutSettings
from windvane.service.store.writer.reward_operations import PutReward
from windvane.service.store.writer.writer_client import WriterClient

BODY = {"actions": [{"id": name, "features": [{"name": name}]} for name in ("ice", "tea")]}
SETTINGS = {"halfLife": "50 rounds", "rewardAggregation": "sum"}


def test_a_killed_writer_is_replaced_and_the_belief_matches_the_log(
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
                answer = client.rank(BODY | {"eventId": event})
                assert answer.status == 201
                if not answer.json["degraded"]:
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
                wait_for_more(rewarded, 10)
                (writer,) = set(server.writers) - killed
                os.kill(writer, signal.SIGKILL)
                killed.add(writer)
            wait_for_more(rewarded, 60)
            stop.set()
            for thread in threads:
                thread.join()
            wait_for_health(client)
            running = read_bits(client)
        server.kill()
        server.start()
        server.wait()
        with closing(server.client()) as client:
            assert read_bits(client) == running
    assert max(slowest) < 30.0
    assert running[0] > 0
    with Store(tmp_path / "data") as store:
        for event in ranked:
            assert store.find_decision(1, event) is not None
        for event, request in rewarded:
            assert request in [one.request_id for one in store.list_rewards(1, event)]


def test_the_service_stops_while_the_log_fails(nursery: Nursery, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Server(nursery, data) as server:
        with closing(server.client()) as client:
            client.rank(BODY | {"eventId": "e"})
            assert client.reward("e", 0.5).status == 204
            before = read_bits(client)
        with closing(sqlite3.connect(data / "windvane.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            server.stop()
        assert "Traceback" not in server.log
        server.start()
        server.wait()
        with closing(server.client()) as client:
            assert read_bits(client) == before


def test_lessons_read_from_the_log_are_not_learned_again_from_their_results(tmp_path: Path) -> None:
    settings = LoopSettings(half_life="never").to_json()
    with Store(tmp_path) as store:
        row = store.write(PutLoop("home", settings, 0, "test"))
        loop = Loop(row, store)
        for event in ("a", "b", "c"):
            store.write(put_decision(row.id, event))
        one = store.write(put_reward(row.id, "a"))
        two = store.write(put_reward(row.id, "b"))
        forget = store.write(PutSettings(row.id, settings, 1, FORGET))
        three = store.write(put_reward(row.id, "c"))

        async def teach_all() -> None:
            teach(loop, one)
            assert loop.model.observation_count == 1
            teach(loop, StoreError("gone", "unreachable"))
            for result in (two, forget, three):  # the first one makes the loop read the whole log
                teach(loop, result)
                await loop.work.wait()
                assert loop.model.observation_count == 1

        asyncio.run(teach_all())
        assert loop.last_lesson == three.lessons[0].id


def test_one_sweep_closes_all_expired_decisions(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        settings = LoopSettings(half_life="never").to_json()
        row = store.write(PutLoop("home", settings, 0, "test"))
        puts = [put_decision(row.id, f"e{k}", deferred=k % 3 > 0) for k in range(900)]
        store.write_group(puts)
        service, _ = make_service(store, ServiceClock())
        asyncio.run(expire_decisions(service, service.loops["home"]))
        assert store.read_funnel(row.id) == Funnel(900, 300, unactivated=600, default=300)
        assert service.loops["home"].model.observation_count == 300


class KilledAtStart(WriterClient):
    """A client whose first process is killed as soon as it is ready."""

    starts = 0

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.starts += 1
        if self.starts == 1 and self._process is not None:
            self._process.kill()
            self._process.wait()


async def test_a_writer_that_ends_as_soon_as_it_is_ready_fails_to_start(tmp_path: Path) -> None:
    writer = KilledAtStart(str(tmp_path))
    with pytest.raises(StoreError, match="has ended"):
        await writer.start()
    with pytest.raises(StoreError, match="has ended"):
        writer.submit(PutLoop("home", "{}", 0, "test"))
    await writer.start()
    made = await asyncio.wait_for(writer.submit(PutLoop("home", "{}", 0, "test")), 20)
    assert made.name == "home"
    await writer.close()


async def test_setting_the_clock_does_not_make_operations_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = WriterClient(str(tmp_path))
    await writer.start()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: 0.0)
        put = writer.submit(PutLoop("home", "{}", 0, "test"), timeout=20.0)
    assert (await put).name == "home"
    await writer.close()


def test_operations_beyond_the_limit_of_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_client, "MAX_UNSENT_BYTES", 2**24)

    async def run() -> int:
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

    assert 15 < asyncio.run(run()) < 25


def test_loops_read_the_log_again_before_a_new_writer_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_client, "RESTART_INTERVAL_SECONDS", 0.05)
    with TestClient(create_app(str(tmp_path))) as web:
        loop = web.app.state.service.loops["default"]  # type: ignore[attr-defined]
        writer = web.app.state.service.writer  # type: ignore[attr-defined]
        web.post(f"{BASE}/rank", json=BODY | {"eventId": "first"})
        with monkeypatch.context() as patch:
            patch.setattr(writer_client, "WRITER_CODE", "raise SystemExit(1)")
            os.kill(writer.process_id, signal.SIGKILL)
            wait_until(lambda: not writer.is_ready)
            assert web.post(f"{BASE}/rank", json=BODY).json()["degraded"]
            assert web.get("/healthz").json()["status"] == "degraded"
            with Store(tmp_path) as store:  # another service
                decision = store.find_decision(1, "first")
                assert decision is not None
                other = decision._replace(event_id="other", round=decision.round + 5)
                store.write(PutDecision(other, loop.terms))
                reward = PutReward(1, "other", 1.0, other.at + 1, loop.terms)
                (lesson,) = store.write(reward).lessons
        last_body = BODY | {"eventId": "last"}
        wait_until(lambda: not web.post(f"{BASE}/rank", json=last_body).json()["degraded"])
        assert (loop.last_lesson, loop.model.observation_count) == (lesson.id, 1)
        last = web.app.state.service.store.find_decision(1, "last")  # type: ignore[attr-defined]
        assert last.round > other.round


def test_the_writer_process_starts_without_the_compiler() -> None:
    code = "import sys, windvane.service.store.writer.writer_process; print('numba' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
