"""Many rewards in one request: each has its own outcome."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loop_client import LoopClient, check_refusal
from service_helpers import make_service
from windvane.service.errors import ServiceError
from windvane.service.loops import service as service_module
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import RewardItem
from windvane.service.store.log import Store
from windvane.service.store.rows import Funnel


def send(loop: LoopClient, *entries: object) -> list[dict[str, Any]]:
    answer = loop.call("POST", "/rewards", {"rewards": entries})
    assert answer.status == 200, answer
    outcomes: list[dict[str, Any]] = answer.json["rewards"]
    return outcomes


def entry(event: str, value: object, request: str | None = None) -> dict[str, object]:
    return {"eventId": event, "value": value} | ({"requestId": request} if request else {})


def test_a_batch_teaches_the_same_as_its_rewards_one_by_one(
    loop: Callable[..., LoopClient],
) -> None:
    many, single = loop(), loop("-single")
    for number in range(20):
        for each in (many, single):
            each.rank(f"e{number}")
    values = [(-1) ** number * number / 20 for number in range(20)]
    for number, value in enumerate(values):
        single.reward(f"e{number}", value, f"r{number}")
    batch = [entry(f"e{number}", value, f"r{number}") for number, value in enumerate(values)]
    assert send(many, *batch) == [
        {"eventId": f"e{number}", "status": "learned", "reason": None} for number in range(20)
    ]
    assert {each["status"] for each in send(many, *batch)} == {"duplicate"}
    assert np.array_equal(many.weights(), single.weights())
    assert many.funnel() == single.funnel()._replace(duplicate=20)


def test_a_request_id_counts_once_whichever_way_it_came(loop: Callable[..., LoopClient]) -> None:
    one = loop(rewardAggregation="sum")
    for event in ("a", "b"):
        one.rank(event)
    one.reward("a", 0.5, "r")
    assert [each["status"] for each in send(one, entry("a", 0.5, "r"), entry("b", 0.25, "r"))] == [
        "duplicate",
        "learned",
    ]
    one.reward("b", 0.25, "r")
    assert [each["status"] for each in send(one, entry("b", 0.25), entry("b", 0.25))] == [
        "summed",
        "summed",
    ]
    assert one.funnel() == Funnel(ranked=2, activated=2, learned=2, summed=2, duplicate=2)


@pytest.mark.parametrize(
    "bad",
    [
        {"eventId": "e", "value": 1.01},
        {"eventId": "e", "value": "1"},
        {"eventId": "e"},
        {"value": 1},
        {"eventId": "", "value": 1},
        {"eventId": "e" * 257, "value": 1},
        {"eventId": "e\0", "value": 1},
        {"eventId": "e", "value": 1, "requestId": "r\0"},
        {"eventId": "e", "value": 1, "requestId": ""},
        [],
        None,
        "e",
    ],
)
def test_a_bad_entry_does_not_spoil_the_others(
    loop: Callable[..., LoopClient], bad: object
) -> None:
    one = loop(f"-{zlib.crc32(json.dumps(bad).encode())}")
    for event in ("first", "last"):
        one.rank(event)
    outcomes = send(one, entry("first", 1), bad, entry("last", -1))
    assert [each["status"] for each in outcomes] == ["learned", "invalid", "learned"]
    assert outcomes[1]["eventId"] is None
    assert outcomes[1]["reason"]
    assert one.funnel() == Funnel(ranked=2, activated=2, learned=2)


def test_only_bad_entries_write_nothing(loop: Callable[..., LoopClient]) -> None:
    one = loop()
    assert [each["status"] for each in send(one, 1, 2)] == ["invalid", "invalid"]
    assert one.funnel() == Funnel()


def test_a_batch_is_bounded(loop: Callable[..., LoopClient]) -> None:
    one = loop()
    one.rank("e")
    many = [entry("e", 1)] * 1001
    bodies: list[object] = [{}, [], {"rewards": []}, {"rewards": many}, {"rewards": 1}]
    for body in bodies:
        check_refusal(one.call("POST", "/rewards", body), 400, "InvalidRewardRequest")
    large = {"rewards": [entry("e" * 1100, 1)] * 1000}
    check_refusal(one.call("POST", "/rewards", large), 400, "PayloadSizeExceeded")
    assert one.funnel() == Funnel(ranked=1, activated=1)
    outcomes = send(one, *[entry("e", 1)] * 1000)
    assert [each["status"] for each in outcomes] == ["learned"] + ["extra"] * 999


def test_an_event_with_all_its_rewards_refuses_more(loop: Callable[..., LoopClient]) -> None:
    one = loop()
    send(one, *[entry("full", 1)] * 1000)
    refused, kept = send(one, entry("full", 1), entry("other", 1))
    assert (refused["status"], kept["status"]) == ("refused", "orphan")
    assert "1000 rewards" in refused["reason"]


def test_batches_are_counted_by_loop(loop: Callable[..., LoopClient]) -> None:
    one = loop()
    send(one, entry("e", 1))
    text = one.client.call("GET", "/metrics").body.decode()
    labels = f'{{loop="{one.name}",operation="rewards",status="200"}}'
    assert f"windvane_requests_total{labels} 1" in text


async def test_a_batch_is_written_and_too_many_rewards_that_wait_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "data") as store:
        service, writer = make_service(store)
        await service.create_loop("home", LoopSettings(), "test")
        entries = [RewardItem(f"e{number}", 0.5, "r") for number in range(1000)]
        done = await service.put_rewards("home", entries)
        assert {each.status for each in done} == {"orphan"}
        assert writer.counts["PutReward"] == 1000
        monkeypatch.setattr(service_module, "MAX_WAITING_BATCH_REWARDS", 999)
        with pytest.raises(ServiceError, match="no more are accepted"):
            await service.put_rewards("home", entries)
        done = await service.put_rewards("home", entries[:999])
        assert {each.status for each in done} == {"duplicate"}
