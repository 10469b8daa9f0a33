"""`windvane serve --workers`: several processes decide behind one port, one writes for all."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from server_process import BASE, Client
from shared_log_helpers import BODY, fold, read_bits, wait_until
from windvane.service.loops.loop import Loop
from windvane.service.store.log import LogReader
from windvane.service.store.schema import decisions


class Workers:
    """A service with two workers over SQLite."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._log = data.with_suffix(".log").open("w+")
        command = "from windvane.cli import main; main()"
        flags = ["serve", "--workers", "2", "--port", "0", "--data", str(data)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, *flags], stderr=self._log, stdout=self._log
        )
        wait_until(lambda: "serving on" in self.log or self.process.poll() is not None, 300.0)
        found = re.search(r"serving on http://127.0.0.1:(\d+)", self.log)
        assert found is not None, self.log
        self.port = int(found[1])

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def list_children(self, code: str) -> list[int]:
        """The children of the supervisor whose command has a text."""
        process = self.process.pid
        numbers = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        commands = {int(each): Path(f"/proc/{each}/cmdline").read_text() for each in numbers}
        return [number for number, command in commands.items() if code in command]

    def is_gone(self, code: str, child: int) -> bool:
        return child not in self.list_children(code)

    def client(self) -> Client:
        return Client(self.port)

    def close(self) -> None:
        self._log.close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    running = Workers(tmp_path / "data")
    yield running
    running.process.kill()
    running.process.wait(60)
    running.close()


def visit(workers: Workers, who: int, stop: threading.Event, done: list[str]) -> None:
    """Rank and reward over new connections, which go to any worker; repeat what was not heard."""
    number = 0
    while not stop.is_set():
        number += 1
        event = f"{who}-{number}"
        with closing(workers.client()) as client:
            try:
                if client.rank(BODY | {"eventId": event}).json["degraded"]:
                    continue
                if client.reward(event, 0.5, request=event).status == 204:
                    done.append(event)
            except OSError:
                continue  # a worker was killed with this connection


def has_more(done: list[str], seen: int) -> bool:
    return len(done) > seen + 20


def test_workers_learn_the_same_and_outlive_kills(workers: Workers) -> None:
    stop, done = threading.Event(), list[str]()
    threads = [threading.Thread(target=visit, args=(workers, k, stop, done)) for k in range(3)]
    for thread in threads:
        thread.start()
    try:
        for code in ("service.worker", "writer_process", "service.worker"):
            wait_until(partial(has_more, done, len(done)))
            victim = workers.list_children(code)[0]
            os.kill(victim, signal.SIGKILL)
            wait_until(partial(workers.is_gone, code, victim))
        wait_until(lambda: len(workers.list_children("service.worker")) == 2)
        wait_until(partial(has_more, done, len(done)))
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)

    with LogReader(workers.data) as log:
        (row,) = log.list_loops()
        expected = fold(Loop(row, log).model)
        chosen = decisions.select().where(~decisions.c.degraded)
        rounds = [row.round for row in log.fetch_all(chosen)]
        learned = {each.decision for batch in log.iterate_lessons(1) for each in batch}
        for event in done:
            decision = log.find_decision(1, event)
            assert decision is not None
            assert decision.id in learned
    assert len(set(rounds)) == len(rounds)
    for _ in range(12):  # connections go to either worker
        with closing(workers.client()) as client:
            assert read_bits(client) == expected
    assert workers.stop() == 0
    assert "Traceback" not in workers.log


def test_the_counts_of_all_workers_are_in_the_metrics(workers: Workers) -> None:
    for number in range(20):
        with closing(workers.client()) as client:
            assert client.rank(BODY | {"eventId": f"e{number}"}).status == 201

    def count(client: Client) -> float:
        text = client.call("GET", "/metrics").body.decode()
        line = 'windvane_requests_total{loop="default",operation="rank",status="201"} '
        found = [each for each in text.splitlines() if each.startswith(line)]
        return float(found[0].removeprefix(line)) if found else 0.0

    def has_all(client: Client) -> bool:
        return count(client) == 20.0

    for _ in range(6):
        with closing(workers.client()) as client:
            wait_until(partial(has_all, client), 20.0)

    def has_both(client: Client) -> bool:  # the workers count each other by heartbeats
        return "windvane_servers 2.0\n" in client.call("GET", "/metrics").body.decode()

    with closing(workers.client()) as client:
        assert client.call("GET", f"{BASE}/model/properties").status == 200
        wait_until(partial(has_both, client), 20.0)


def test_a_worker_that_cannot_start_ends_the_service_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    command = [sys.executable, "-c", "from windvane.cli import main; main()"]
    flags = ["serve", "--workers", "2", "--port", "0", "--data", str(tmp_path / "data")]
    started = time.monotonic()
    ended = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "is a file; name a directory" in ended.stderr
    assert time.monotonic() - started < 300
