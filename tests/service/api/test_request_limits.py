"""Limits of a key: 429 beyond them, other keys go on, and the refusals are counted."""

import asyncio
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from clock_helpers import SettableClock
from windvane.service.api.auth import create_key
from windvane.service.api.request_limits import (
    MAX_COSTLY_PER_KEY,
    MAX_COSTLY_RUNNING,
    CostlyRequests,
    KeyLimitError,
    RateLimit,
)
from windvane.service.app import EdgeOptions, create_app
from windvane.service.errors import ServiceError
from windvane.service.store.log import Store


def count_allowed(limit: RateLimit, key: int, tries: int) -> int:
    allowed = 0
    for _ in range(tries):
        try:
            limit.take(key)
        except KeyLimitError:
            continue
        allowed += 1
    return allowed


def test_a_key_sends_as_many_requests_a_second_as_it_may() -> None:
    clock = SettableClock()
    limit = RateLimit(10.0, clock)
    assert count_allowed(limit, 1, 50) == 10  # a burst of one second
    assert count_allowed(limit, 2, 50) == 10  # another key has an allowance of its own
    total = 0
    for _ in range(100):  # ten seconds
        clock.now += 0.1
        total += count_allowed(limit, 1, 5)
    assert total == pytest.approx(100, abs=1)
    clock.now += 1e6
    assert count_allowed(limit, 1, 50) == 10


def test_a_refusal_says_when_the_next_request_is_allowed() -> None:
    clock = SettableClock()
    limit = RateLimit(0.1, clock)
    limit.take(None)
    with pytest.raises(KeyLimitError) as refusal:
        limit.take(None)
    assert refusal.value.status == 429
    wait = int(refusal.value.headers["retry-after"])
    assert wait == 10
    clock.now += wait
    limit.take(None)


async def test_costly_requests_wait_for_each_other_and_too_many_are_refused() -> None:
    requests = CostlyRequests()
    entered = 0
    may_end = asyncio.Event()

    async def run(key: int) -> None:
        nonlocal entered
        async with requests.enter(key):
            entered += 1
            await may_end.wait()

    tasks = [asyncio.create_task(run(1)) for _ in range(MAX_COSTLY_PER_KEY)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert entered == MAX_COSTLY_RUNNING
    with pytest.raises(KeyLimitError) as refusal:
        await run(1)
    assert refusal.value.headers["retry-after"] == "1"
    tasks.pop().cancel()  # a client that hangs up makes room
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(run(1)))
    tasks.append(asyncio.create_task(run(2)))  # another key may still wait
    may_end.set()
    await asyncio.gather(*tasks)
    assert entered == MAX_COSTLY_PER_KEY + 1
    await asyncio.gather(*(run(1) for _ in range(MAX_COSTLY_RUNNING)))


def test_a_refused_request_is_counted_by_the_id_of_its_key(tmp_path: Path) -> None:
    keys = [create_key("admin", 0) for _ in range(2)]
    with Store(tmp_path) as store:
        for key in keys:
            store.write(key.put)
    app = create_app(str(tmp_path), edge=EdgeOptions(requests_per_second=0.01))
    first, second = ({"Authorization": f"Bearer {key.secret}"} for key in keys)
    with TestClient(app) as web:
        assert web.get("/loops", headers=first).status_code == 200
        for _ in range(3):
            answer = web.get("/loops", headers=first)
            assert answer.status_code == 429
            assert answer.json()["error"]["code"] == "TooManyRequests"
            assert 0 < int(answer.headers["retry-after"]) <= 100
        assert web.get("/healthz", headers=first).status_code == 200
        assert web.get("/loops").status_code == 401  # takes nothing from any key
        metrics = web.get("/metrics", headers=second).text
    assert 'windvane_limited_requests_total{key="1",limit="rate"} 3.0' in metrics
    assert not any(key.secret in metrics for key in keys)


def test_a_limit_of_the_loops_is_counted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ServiceError("too many", "too much work waits", "loop", 3)

    app = create_app(str(tmp_path))
    with TestClient(app) as web:
        monkeypatch.setattr(app.state.service, "reward", refuse)
        answer = web.post("/personalizer/v1.0/events/e1/reward", json={"value": 1})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
        assert b'{key="",limit="work"} 1.0' in app.state.metrics.render()


def test_without_keys_all_clients_share_one_allowance(tmp_path: Path) -> None:
    app = create_app(str(tmp_path), edge=EdgeOptions(requests_per_second=0.01))
    with TestClient(app) as web:
        assert [web.get("/loops").status_code for _ in range(3)] == [200, 429, 429]
        assert app.state.metrics.render().count(b'{key="",limit="rate"} 2.0') == 1
