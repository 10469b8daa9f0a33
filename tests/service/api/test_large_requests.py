"""Large requests take turns and are bounded, small ones overtake them, and nothing stays behind."""

import gc
import json
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from server_process import BASE, Answer, Client, Server
from windvane.service.api import events, request_limits
from windvane.service.api.requests import (
    MAX_BODY_BYTES,
    MAX_OTHER_BODY_BYTES,
    MAX_RANK_BYTES,
)
from windvane.service.app import create_app
from windvane.service.loops import rank_requests
from windvane.service.loops.rank_requests import OfferedActions

SMALL = {"actions": [{"id": "a", "features": []}]}
GROWTH_MEGABYTES = 100  # by which memory may have grown after a burst


def make_rank(context_numbers: int, action_count: int, features: object) -> bytes:
    context = [{"x": [0.5] * context_numbers}]
    actions = [{"id": f"a{k}", "features": [features]} for k in range(action_count)]
    body = {"contextFeatures": context, "actions": actions}
    return json.dumps(body, separators=(",", ":")).encode()


LARGE = make_rank(1, 1500, {"x": 1})
REFUSED = make_rank(1000, 1000, {"x": 1})
REFUSED_IN_A_THREAD = make_rank(500, 200, {"x": {"y": {}}})  # of the loop, as it is not large


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(str(tmp_path / "data"))) as web:
        yield web


class Gate:
    """Holds the one thread of large requests until the gate is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_reached = threading.Event()
        self._is_open = threading.Event()
        self._parse = events._parse_large_rank
        monkeypatch.setattr(events, "_parse_large_rank", self._hold)

    def _hold(self, *arguments: Any) -> object:
        self.is_reached.set()
        assert self._is_open.wait(60.0)
        return self._parse(*arguments)

    def open(self) -> None:
        self._is_open.set()


def rank(web: TestClient, body: object) -> Any:
    if isinstance(body, bytes):
        return web.post(f"{BASE}/rank", content=body)
    return web.post(f"{BASE}/rank", json=body)


def test_a_small_rank_is_answered_before_a_large_one_that_came_first(
    web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        large: Future[Any] = pool.submit(rank, web, LARGE)
        assert gate.is_reached.wait(60.0)
        assert rank(web, SMALL).status_code == 201
        assert not large.done()
        gate.open()
        assert large.result(60.0).status_code == 201


def test_large_bodies_beyond_the_bound_are_refused_for_a_second(
    web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_limits, "MAX_HELD_BYTES", 2 * len(LARGE) - 1)
    gate = Gate(monkeypatch)
    with ThreadPoolExecutor(1) as pool:
        first: Future[Any] = pool.submit(rank, web, LARGE)
        assert gate.is_reached.wait(60.0)
        second = rank(web, LARGE)
        assert (second.status_code, second.headers["retry-after"]) == (503, "1")
        rewards = [{"eventId": "e" * 200, "value": 1} for _ in range(1000)]
        many = web.post(f"{BASE}/rewards", json={"rewards": rewards})
        assert many.status_code == 503
        assert rank(web, SMALL).status_code == 201
        gate.open()
        assert first.result(60.0).status_code == 201
    assert rank(web, LARGE).status_code == 201
    assert web.app.large_requests.held_bytes == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("body", [REFUSED, REFUSED_IN_A_THREAD])
def test_a_refused_rank_is_forgotten_without_a_garbage_collection(
    web: TestClient, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(rank_requests, "MAX_CACHED_BYTES", 100)
    offers: list[weakref.ref[OfferedActions]] = []
    initialize = OfferedActions.__init__

    def note(offer: OfferedActions, *arguments: Any) -> None:
        offers.append(weakref.ref(offer))
        initialize(offer, *arguments)

    monkeypatch.setattr(OfferedActions, "__init__", note)
    gc.disable()
    try:
        assert rank(web, body).status_code == 400
        assert rank(web, LARGE).status_code == 201
        new = {"actions": [{"id": f"new {len(body)}", "features": []}]}
        assert rank(web, new).status_code == 201  # no thread has an argument of the others now
    finally:
        gc.enable()
    refused, large, small = offers
    assert (refused(), large()) == (None, None)
    assert small() is not None  # which is cached


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/rank", make_rank(1, 1, {"_": [[]] * 70_000})),
        ("POST", "/rank", make_rank(1, 100, {"x": [0] * 2000})),
        ("POST", "/rank", b" " * MAX_RANK_BYTES + b"{}"),
        ("POST", "/rewards", b" " * MAX_BODY_BYTES + b"{}"),
        ("PUT", "/configurations/service", b" " * MAX_OTHER_BODY_BYTES + b"{}"),
        ("POST", "/evaluations", b" " * MAX_OTHER_BODY_BYTES + b"{}"),
        ("POST", "/events/e/reward", b" " * MAX_OTHER_BODY_BYTES + b"{}"),
    ],
)
def test_a_body_beyond_its_bounds_is_refused(
    client: Client, method: str, path: str, body: bytes
) -> None:
    answer = client.call(method, BASE + path, body)
    assert (answer.status, answer.json["error"]["code"]) == (400, "PayloadSizeExceeded")


def test_a_rank_at_its_bounds_is_answered(client: Client) -> None:
    outside = make_rank(0, 1, {"_": []})
    room = 32_768 - sum(map(outside.count, (b",", b"[", b"{")))  # for as many values as may be
    body = make_rank(0, 1, {"_": [0] * (room + 1)})
    assert client.rank(body.ljust(262_144)).status == 201
    assert client.rank(body.ljust(262_145)).status == 400
    assert client.rank(make_rank(0, 1, {"_": [0] * (room + 2)})).status == 400


def test_a_rank_with_too_many_crossings_is_refused_before_its_last_actions_are_read(
    client: Client,
) -> None:
    body = json.loads(make_rank(1000, 2000, {"x": 1}))
    body["actions"][-1]["features"] = [{"x": {"y": {}}}]
    error = client.rank(body).json["error"]
    assert (error["code"], error["target"]) == ("InvalidRankRequest", "features")
    assert "at most 1048576 crossings, got 1050000" in error["message"]
    body["contextFeatures"] = []
    assert "must not be an object" in client.rank(body).json["error"]["message"]


def test_projected_arrays_count_by_their_size(client: Client) -> None:
    client.call("POST", "/loops", {"name": "projected", "settings": {"arraySize": 4}})
    body = make_rank(1000, 30, {"x": [0.5] * 1000})
    assert client.rank(body).status == 400
    assert client.rank(body, "/loops/projected").status == 201


def test_memory_comes_back_after_a_burst_of_large_ranks(server: Server) -> None:
    bodies = [make_rank(1000, 220, {"x": [0.123456] * 120}), make_rank(1, 6000, {"name": 1})]

    def send(turn: int) -> list[Answer]:
        with closing(server.client(120.0)) as client:
            return [client.rank(bodies[(turn + k) % 2]) for k in range(4)]

    send(0)
    assert server.process is not None
    before = read_megabytes(server.process)
    with ThreadPoolExecutor(12) as pool:
        answers = [answer for some in pool.map(send, range(12)) for answer in some]
    assert {answer.status for answer in answers} <= {201, 400, 503}
    assert read_megabytes(server.process) < before + GROWTH_MEGABYTES


def read_megabytes(process: int) -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024
