"""The decision stream: pages, finality, long polling and its bounds."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from loop_client import LoopClient, check_refusal
from server_process import BASE, Client
from service_helpers import make_service
from store_helpers import make_decision
from windvane.service.errors import ServiceError
from windvane.service.loops import decision_pages
from windvane.service.loops.decision_pages import DecisionStream, StreamQuery
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.decision_queries import StreamRow
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.reward_operations import RewardTerms


def read(loop: LoopClient, query: str = "") -> dict[str, Any]:
    answer = loop.call("GET", f"/decisions{query}")
    assert answer.status == 200, answer
    page: dict[str, Any] = answer.json
    return page


def test_a_decision_is_streamed_as_it_was_answered(loop: Callable[..., LoopClient]) -> None:
    one = loop()
    assert read(one) == {"decisions": [], "after": 0}
    answer = one.rank("e", excludedActions=["ice"])
    page = read(one)
    [decision] = page["decisions"]
    assert page["after"] == decision["id"] > 0
    assert datetime.fromisoformat(decision.pop("time")).tzinfo is not None
    assert decision == {
        "id": decision["id"],
        "eventId": "e",
        "mode": "Online",
        "ranking": answer["ranking"],
        "rewardActionId": answer["rewardActionId"],
        "degraded": False,
        "isActivated": True,
        "reward": None,
        "isDefaultReward": False,
        "isFinal": False,
    }


def test_a_reward_is_final_when_it_can_no_longer_change(loop: Callable[..., LoopClient]) -> None:
    one = loop(rewardWaitTime="PT2S", defaultReward=-0.5)
    one.rank("rewarded")
    one.rank("waits")
    one.rank("deferred", deferActivation=True)
    one.reward("rewarded", 0.25)

    def list_states(query: str = "") -> list[tuple[object, ...]]:
        return [
            (each["eventId"], each["reward"], each["isDefaultReward"], each["isFinal"])
            for each in read(one, query)["decisions"]
        ]

    rewarded = ("rewarded", 0.25, False, True)
    assert list_states() == [
        rewarded,
        ("waits", None, False, False),
        ("deferred", None, False, False),
    ]
    assert list_states("?final=true") == [rewarded]
    one.until(default=1, unactivated=1)
    assert one.activate("deferred") == 204  # too late to count
    final = [rewarded, ("waits", -0.5, True, True), ("deferred", None, False, True)]
    assert list_states() == list_states("?final=true") == final


def test_a_sum_is_final_after_the_wait_time(loop: Callable[..., LoopClient]) -> None:
    one = loop(rewardAggregation="sum")
    one.rank("e")
    for value in (0.25, 0.5):
        one.reward("e", value)
        [decision] = read(one)["decisions"]
        assert not decision["isFinal"]
    assert decision["reward"] == 0.75
    row = StreamRow(1, "e", 1000, "Online", False, 1000, 0, b"", "[]", 0.75, "amend", False)
    summing, earliest = RewardTerms(500, True), RewardTerms(500, False)
    assert not decision_pages._is_final(row, summing, 1500)
    assert decision_pages._is_final(row, summing, 1501)
    assert decision_pages._is_final(row, earliest, 0)
    assert not decision_pages._is_final(row._replace(is_waiting=True), earliest, 1501)


def test_a_reader_waits_for_the_next_decision(loop: Callable[..., LoopClient]) -> None:
    one = loop()
    one.rank("first")
    after = read(one)["after"]
    pages: list[dict[str, Any]] = []
    client = one.server.client()

    def wait() -> None:
        path = f"{one.path}{BASE}/decisions?after={after}&wait=30"
        pages.append(client.call("GET", path).json)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    one.rank("second")
    waiting.join(20)
    client.close()
    assert [each["eventId"] for each in pages[0]["decisions"]] == ["second"]


def test_a_wait_ends_without_a_decision(loop: Callable[..., LoopClient]) -> None:
    one = loop()
    one.rank("e")
    began = time.monotonic()
    assert read(one, "?final=true&wait=0.5") == {"decisions": [], "after": 0}
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize(
    "query",
    [
        "after=-1", "after=1.0", "after=", "after=x", f"after={2**63}", "limit=0", "limit=1001",
        "limit=٣", "wait=-1", "wait=30.1", "wait=nan", "wait=1_0", "wait=", "final=yes", "final=1",
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused(client: Client, query: str) -> None:
    name, _, value = query.partition("=")
    answer = client.call("GET", f"{BASE}/decisions?{name}={quote(value)}")
    check_refusal(answer, 400, "BadRequest")
    assert answer.json["error"]["target"] == name


def test_other_queries_are_ignored(loop: Callable[..., LoopClient]) -> None:
    assert read(loop(), f"?after={2**63 - 1}&limit=1000&wait=0&final=false&x=1")["decisions"] == []


async def stay() -> bool:
    return False


async def test_waits_are_bounded_and_end_with_the_reader_and_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_pages, "MAX_WAITING_READERS", 2)

    with Store(tmp_path / "data") as store:
        service, _ = make_service(store)
        loop = await service.create_loop("home", LoopSettings(), "test")
        stream = DecisionStream()
        query = StreamQuery(wait_seconds=60.0)

        async def leave() -> bool:
            return True

        empty = msgspec.json.encode({"decisions": [], "after": 0})
        assert await stream.read(loop, query, leave) == empty
        readers = [asyncio.create_task(stream.read(loop, query, stay)) for _ in range(2)]
        while stream._waiting_count < 2:
            await asyncio.sleep(0)
        with pytest.raises(ServiceError, match="no more can wait"):
            await stream.read(loop, query, stay)
        stream.close()
        assert await asyncio.wait_for(asyncio.gather(*readers), 20) == [empty, empty]


async def test_a_damaged_decision_is_left_out_and_does_not_stop_the_reader(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        service, _ = make_service(store)
        loop = await service.create_loop("home", LoopSettings(), "test")
        for event, actions in (("a", '["x", "y"]'), ("b", "damaged"), ("c", '["x"]')):
            decision = make_decision(loop.id, event)._replace(actions=actions)
            store.write(PutDecision(decision, loop.terms))
        stream = DecisionStream()
        page = msgspec.json.decode(await stream.read(loop, StreamQuery(), stay))
        assert [each["eventId"] for each in page["decisions"]] == ["a"]
        last = store.find_decision(loop.id, "a")
        assert last is not None
        assert page["after"] == last.id + 2
