"""A service moves from SQLite to PostgreSQL and back: it believes, answers and keeps the same."""

import hashlib
import json
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from server_process import BASE, Client, Nursery, Server
from windvane.cli import main
from windvane.service.store.log import LogReader

ARMS = ("ice", "tea", "soup")
BODY = {"actions": [{"id": name, "features": [{"name": name}]} for name in ARMS]}
LOOPS = {
    "": {},
    "/loops/shop": {"belief": "full", "dim": 16, "rewardAggregation": "sum"},
    "/loops/brief": {"halfLife": "50 rounds"},
}
# Learns every lesson of a log again, without its snapshots, in a process that has loaded the
# kernels in the order of the service.
FOLD = """
import hashlib, json, sys
from windvane.service.loops.loop import Loop
from windvane.service.loops.warmup import load_kernels
from windvane.service.store.log import LogReader
load_kernels()
with LogReader(sys.argv[1]) as store:
    store.list_snapshots = lambda loop: []
    beliefs = {
        row.name: hashlib.sha256(Loop(row, store).encode_snapshot()).hexdigest()
        for row in store.list_loops()
    }
print(json.dumps(beliefs))
"""


def play(client: Client, events: range) -> None:
    """Ranks, rewards, repeated rewards and activations in all loops."""
    draw = random.Random(events.start)
    for number in events:
        for loop in LOOPS:
            event = f"e{number}"
            deferred = draw.random() < 0.3
            request = BODY | {"eventId": event, "deferActivation": deferred}
            assert client.rank(request, loop).status == 201
            for turn in range(draw.randrange(3)):
                value = draw.uniform(-1, 1)
                assert client.reward(event, value, loop, f"r{draw.randrange(2)}").status == 204
                if deferred and turn == 0:
                    assert client.activate(event, loop).status == 204


def read_beliefs(client: Client) -> dict[str, str]:
    """A hash of the bytes of each loop's model."""
    return {
        loop.rpartition("/")[2] or "default": hashlib.sha256(
            client.call("GET", f"{loop}{BASE}/model").body
        ).hexdigest()
        for loop in LOOPS
    }


def fold(where: str) -> dict[str, str]:
    """A hash of what each loop believes after all lessons of a log."""
    done = subprocess.run(
        [sys.executable, "-c", FOLD, where], capture_output=True, text=True, check=True
    )
    beliefs: dict[str, str] = json.loads(done.stdout)
    return beliefs


def read_answers(client: Client) -> dict[str, Any]:
    """What a client can see that the log keeps."""
    answers: dict[str, Any] = {"loops": client.call("GET", "/loops").json}
    for loop in LOOPS:
        answers[loop] = [
            client.call("GET", f"{loop}{BASE}/configurations/service").json,
            client.call("GET", f"{loop}{BASE}/logs/properties").json,
        ]
    return answers


def migrate(monkeypatch: pytest.MonkeyPatch, source: str, target: str) -> None:
    words = ["windvane", "migrate", "--from", source, "--to", target]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


def test_a_migrated_service_believes_the_same_to_the_bit_and_goes_on(
    nursery: Nursery,
    postgresql: Callable[[], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, database, last = tmp_path / "first", postgresql(), tmp_path / "last"
    with Server(nursery, first) as server:
        with closing(server.client()) as client:
            for loop, settings in LOOPS.items():
                if loop:
                    name = loop.rpartition("/")[2]
                    body = {"name": name, "settings": settings}
                    answer = client.call("POST", "/loops", body)
                    assert answer.status == 201, answer.body
            play(client, range(40))
            before = read_answers(client)
            played = read_beliefs(client)
        server.stop()
    assert fold(str(first)) == played
    with LogReader(first) as log:
        snapshots = [log.find_snapshot(row.id) for row in log.list_loops()]
        funnels = [log.read_funnel(row.id) for row in log.list_loops()]
        newest = log.find_newest_time()
    assert all(snapshots)

    migrate(monkeypatch, str(first), database)
    with LogReader(database) as log:
        assert [log.find_snapshot(row.id) for row in log.list_loops()] == snapshots
        assert [log.read_funnel(row.id) for row in log.list_loops()] == funnels
        assert log.find_newest_time() == newest
    with Server(nursery, tmp_path / "moved", database) as server:
        with closing(server.client()) as client:
            assert read_beliefs(client) == played
            assert read_answers(client) == before
            play(client, range(40, 60))
            played = read_beliefs(client)
            before = read_answers(client)
        server.stop()
    assert fold(database) == played

    migrate(monkeypatch, database, str(last))
    with Server(nursery, last) as server, closing(server.client()) as client:
        assert read_beliefs(client) == played
        assert read_answers(client) == before
