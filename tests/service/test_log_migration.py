"""A service moves from SQLite to PostgreSQL and back: it believes, answers and keeps the same."""

import random
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from faults.belief_fold import read_beliefs
from server_process import BASE, Client, Nursery, Server
from store_helpers import find_snapshot
from windvane.service.store.log import LogReader

RunHere = Callable[..., subprocess.CompletedProcess[str]]
ARMS = ("ice", "tea", "soup")
BODY = {"actions": [{"id": name, "features": [{"name": name}]} for name in ARMS]}
LOOPS = {
    "": {},
    "/loops/shop": {"arraySize": 16, "rewardAggregation": "sum"},
    "/loops/brief": {"halfLife": "50 rounds"},
}


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


def read_models(client: Client) -> dict[str, bytes]:
    """The model of each loop, as the service gives it."""
    return {
        loop.rpartition("/")[2] or "default": client.call("GET", f"{loop}{BASE}/model").body
        for loop in LOOPS
    }


def check_beliefs(where: str, models: dict[str, bytes]) -> dict[str, str]:
    """The digest of every belief, which is that of a fold over all lessons of a log."""
    beliefs = read_beliefs(where, models)
    for name, belief in beliefs.items():
        assert belief.lessons > 0, name
        assert belief.live == belief.restored == belief.folded, name
    return {name: belief.live for name, belief in beliefs.items()}


def read_answers(client: Client) -> dict[str, Any]:
    """What a client can see that the log keeps."""
    answers: dict[str, Any] = {"loops": client.call("GET", "/loops").json}
    for loop in LOOPS:
        answers[loop] = [
            client.call("GET", f"{loop}{BASE}/configurations/service").json,
            client.call("GET", f"{loop}{BASE}/logs/properties").json,
        ]
    return answers


def test_a_migrated_service_believes_the_same_to_the_bit_and_goes_on(
    nursery: Nursery, postgresql: Callable[[], str], tmp_path: Path, run_here: RunHere
) -> None:
    first, database, last = tmp_path / "first", postgresql(), tmp_path / "last"
    with Server(nursery, first) as server:
        with closing(server.client()) as client:
            for loop, settings in LOOPS.items():
                if loop:
                    body = {"name": loop.rpartition("/")[2], "settings": settings}
                    answer = client.call("POST", "/loops", body)
                    assert answer.status == 201, answer.body
            play(client, range(40))
            before, models = read_answers(client), read_models(client)
        server.stop()
    played = check_beliefs(str(first), models)
    with LogReader(first) as log:
        snapshots = [find_snapshot(log, row.id) for row in log.list_loops()]
        funnels = [log.read_funnel(row.id) for row in log.list_loops()]
        newest = log.find_newest_time()
    assert all(snapshots)

    assert run_here("migrate", "--from", first, "--to", database).returncode == 0
    with LogReader(database) as log:
        assert [find_snapshot(log, row.id) for row in log.list_loops()] == snapshots
        assert [log.read_funnel(row.id) for row in log.list_loops()] == funnels
        assert log.find_newest_time() == newest
    with Server(nursery, tmp_path / "moved", database) as server:
        with closing(server.client()) as client:
            models = read_models(client)
            assert check_beliefs(str(first), models) == played  # a fold of the source
            assert check_beliefs(database, models) == played
            assert read_answers(client) == before
            play(client, range(40, 60))
            before, models = read_answers(client), read_models(client)
        server.stop()
    played = check_beliefs(database, models)

    assert run_here("migrate", "--from", database, "--to", last).returncode == 0
    with Server(nursery, last) as server, closing(server.client()) as client:
        assert check_beliefs(str(last), read_models(client)) == played
        assert read_answers(client) == before
