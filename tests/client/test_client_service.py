"""The clients against a real service: kills, lost answers, several servers, the stream."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from flaky_proxy import FlakyProxy
from server_process import Nursery, Server
from waiting import wait_for_more
from windvane.client import (
    AsyncClient,
    Client,
    LoggedDecision,
    RankedDecision,
    RequestError,
)
from windvane.errors import FeatureError, SettingError
from windvane.service.store.log import Store
from windvane.service.store.rows import Funnel

ACTIONS: list[str | dict[str, object]] = ["ice", {"id": "tea", "price": 2.5}, "soup"]


@pytest.fixture(scope="module")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(nursery, tmp_path_factory.mktemp("client") / "data") as server:
        yield server


def create_loop(server: Server, name: str, **settings: object) -> str:
    client = server.client()
    created = client.call("POST", "/loops", {"name": name, "settings": settings})
    client.close()
    assert created.status == 201, created
    return name


def read_funnel(server: Server, loop: str) -> Funnel:
    with Store(server.data) as store:
        row = store.find_loop(loop)
        assert row is not None
        return store.read_funnel(row.id)


def test_a_client_decides_rewards_activates_and_reads(server: Server) -> None:
    loop = create_loop(server, "plain")
    with Client(server.url, loop=loop) as client:
        decision = client.rank({"device": "phone"}, ACTIONS, exclude=["soup"])
        assert decision.action == ["ice", "tea", "soup"][decision.index]
        assert decision.probabilities[2] == 0.0
        assert sum(decision.probabilities) == pytest.approx(1.0)
        assert not decision.degraded
        assert not decision.is_local
        again = client.rank({"device": "phone"}, ACTIONS, event_id=decision.event_id)
        assert again == decision
        assert client.reward(decision, 1.0).status == "learned"
        assert client.reward(decision, 1.0).status == "extra"
        assert client.reward("../nobody", 1.0).status == "orphan"
        deferred = client.rank({}, ACTIONS, event_id="../d", defer_activation=True)
        assert client.reward(deferred, 0.5).status == "held"
        assert client.activate(deferred) is True
        with pytest.raises(RequestError, match="no decision has the event id"):
            client.activate("nobody")
        first, second = client.decisions()
        assert first == LoggedDecision(
            id=first.id,
            event_id=decision.event_id,
            time=first.time,
            mode="Online",
            ranking=first.ranking,
            reward_action_id=decision.action,
            degraded=False,
            is_activated=True,
            reward=1.0,
            is_default_reward=False,
            is_final=True,
        )
        assert first.actions == ("ice", "tea", "soup")
        assert first.probabilities == decision.probabilities
        assert (second.event_id, second.reward, second.is_final) == ("../d", 0.5, True)
        assert [each.id for each in client.decisions(first.id)] == [second.id]
        assert client.settings()["rewardAggregation"] == "earliest"
        assert client.health().status == "ok"
        loops = client.request("GET", "/loops")
        assert isinstance(loops, list)
        assert loop in [each["name"] for each in loops]
        assert client.request("DELETE", f"/loops/{loop}/personalizer/v1.0/model") is None
        with pytest.raises(RequestError, match="GET /nowhere: the service refuses"):
            client.request("GET", "/nowhere")
        with pytest.raises(SettingError, match="path must start with /, got 'loops'"):
            client.request("GET", "loops")
        with pytest.raises(FeatureError, match="the body cannot be sent as JSON"):
            client.request("POST", "/loops", {"name": float("nan")})
        with pytest.raises(RequestError, match="there is no loop 'none'") as error:
            client.rank({}, ACTIONS, loop="none")
        assert error.value.status == 404


def test_everything_counts_once_although_requests_fail_and_answers_are_lost(server: Server) -> None:
    loop = create_loop(server, "flaky")
    visits = 120
    with (
        FlakyProxy(server.port, 0.25, seed=1) as proxy,
        Client(proxy.url, loop=loop, timeout=60.0, rank_timeout=60.0) as client,
    ):
        decisions = [client.rank({"visit": k}, ACTIONS) for k in range(visits)]
        statuses = Counter(client.reward(decision, 0.5).status for decision in decisions[:40])
        outcomes = client.rewards([(decision, 0.5) for decision in decisions[40:]])
        statuses.update(outcome.status for outcome in outcomes)
        counts = proxy.counts
    assert min(counts.values()) > 20
    assert not any(decision.is_local for decision in decisions)
    assert set(statuses) <= {"learned", "duplicate"}
    funnel = read_funnel(server, loop)
    assert (funnel.ranked, funnel.learned, funnel.extra) == (visits, visits, 0)
    with Client(server.url, loop=loop) as client:
        logged = {each.event_id: each for each in client.decisions()}
    assert {event_id: each.action for event_id, each in logged.items()} == {
        decision.event_id: decision.action for decision in decisions
    }
    assert all(each.reward == 0.5 and each.is_final for each in logged.values())


def test_a_service_that_is_killed_loses_and_repeats_nothing(
    nursery: Nursery, tmp_path: Path
) -> None:
    decisions: list[RankedDecision] = []
    statuses: Counter[str] = Counter()
    is_over = threading.Event()
    with Server(nursery, tmp_path / "data") as server:

        def visit() -> None:
            with Client(server.url, timeout=120.0, rank_timeout=120.0) as client:
                while not is_over.is_set():
                    decision = client.rank({"visit": len(decisions)}, ACTIONS)
                    decisions.append(decision)
                    if not decision.degraded:
                        statuses[client.reward(decision, 0.5).status] += 1

        visitors = [threading.Thread(target=visit) for _ in range(3)]
        for visitor in visitors:
            visitor.start()
        for kill in range(5):
            wait_for_more(decisions, 5)
            if kill < 4:
                server.kill()
                server.start()
        is_over.set()
        for visitor in visitors:
            visitor.join()
        with Client(server.url) as client:
            logged = {each.event_id: each for each in client.decisions()}
    assert len(decisions) > 20
    assert set(statuses) <= {"learned", "duplicate"}
    kept = [decision for decision in decisions if not decision.degraded]
    assert not any(decision.is_local for decision in decisions)
    for decision in kept:
        assert logged[decision.event_id].action == decision.action
        assert logged[decision.event_id].reward == 0.5  # once: twice would be an extra reward


def test_the_next_server_takes_over(server: Server, nursery: Nursery, tmp_path: Path) -> None:
    loop = create_loop(server, "several")
    with Server(nursery, tmp_path / "dead") as dead:
        urls = [dead.url, server.url]
        dead.kill()
        dead._socket.close()  # connections are refused from now on
        with Client(urls, loop=loop, rank_timeout=10.0) as client:
            decisions = [client.rank({}, ACTIONS) for _ in range(10)]
            assert not any(decision.is_local for decision in decisions)
            assert client.reward(decisions[0], 1.0).status == "learned"
    assert read_funnel(server, loop).ranked == 10


def test_a_pipeline_gets_every_decision_once_in_order_under_traffic(server: Server) -> None:
    loop = create_loop(server, "pipeline")
    visits, visitors = 60, 4
    ranked: list[str] = []

    def visit() -> None:
        with Client(server.url, loop=loop, rank_timeout=60.0) as client:
            for _ in range(visits):
                ranked.append(client.rank({}, ACTIONS).event_id)

    threads = [threading.Thread(target=visit) for _ in range(visitors)]
    for thread in threads:
        thread.start()
    seen: list[LoggedDecision] = []
    after = 0
    with Client(server.url, loop=loop) as client:
        while len(seen) < visits * visitors:
            page = client.read_decisions(after, limit=7, wait=20.0)
            assert page.decisions, "no decision came in 20 s"
            seen += page.decisions
            after = page.after
        assert not client.read_decisions(after).decisions
    for thread in threads:
        thread.join()
    ids = [each.id for each in seen]
    assert ids == sorted(set(ids))
    assert Counter(each.event_id for each in seen) == Counter(ranked)


async def test_an_asynchronous_client_does_the_same(server: Server) -> None:
    loop = create_loop(server, "asynchronous")

    async with AsyncClient(server.url, loop=loop, rank_timeout=30.0) as client:
        decisions = await asyncio.gather(*(client.rank({}, ACTIONS) for _ in range(20)))
        outcomes = await client.rewards([(decision, 0.25) for decision in decisions])
        assert {outcome.status for outcome in outcomes} == {"learned"}
        logged = [each async for each in client.decisions(final=True)]
        assert {each.event_id for each in logged} == {each.event_id for each in decisions}
        assert await client.activate(decisions[0])
        assert (await client.health()).status == "ok"
        assert "halfLife" in await client.settings()
    assert read_funnel(server, loop).learned == 20
