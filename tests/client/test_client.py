"""The clients against servers that the test plays: repetition, fallback, errors, order."""

import asyncio
import inspect
import json
import pickle
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx2
import numpy as np
import pytest

from clock_helpers import SettableClock
from decision_pages import make_decision_page
from windvane.client import (
    AsyncClient,
    Client,
    DeliveryError,
    RankedDecision,
    RequestError,
    RewardOutcome,
    RewardRequest,
    operations,
    transport,
)
from windvane.errors import ArmsError, ChoiceError, FeatureError, RewardError, SettingError

Handler = Callable[[httpx2.Request], httpx2.Response]
LOCAL = RankedDecision(
    action="a", index=0, probabilities=(1.0,), event_id="e", degraded=True, is_local=True
)


class Play:
    """Answers requests, and remembers them; each takes ten seconds of a clock that is given."""

    def __init__(self, *answers: Handler | int, clock: SettableClock | None = None) -> None:
        self.answers = list(answers)
        self.clock = clock
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if self.clock is not None:
            self.clock.now += 10.0
        self.requests.append(request)
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        return httpx2.Response(answer) if isinstance(answer, int) else answer(request)

    def client(self, *servers: str, **options: Any) -> Client:
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        return Client(servers or "http://a", http=http, **{"rank_timeout": 60.0, **options})

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SettableClock:
    """The clock that says how much time is left for further attempts."""
    clock = SettableClock()
    monkeypatch.setattr(transport, "Attempts", partial(transport.Attempts, clock=clock))
    return clock


def choose_last(request: httpx2.Request) -> httpx2.Response:
    body = json.loads(request.content)
    ids = [action["id"] for action in body["actions"]]
    shares = [0.0] * (len(ids) - 2) + ([0.25, 0.75] if len(ids) > 1 else [1.0])
    ranking = [{"id": id_, "probability": share} for id_, share in zip(ids, shares, strict=True)]
    answer = {"ranking": ranking, "eventId": body["eventId"], "rewardActionId": ids[-1]}
    return httpx2.Response(201, json=answer)


def learn(request: httpx2.Request) -> httpx2.Response:
    entries = json.loads(request.content)["rewards"]
    outcomes = [{"eventId": entry["eventId"], "status": "learned"} for entry in entries]
    return httpx2.Response(200, json={"rewards": outcomes})


def cut(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ReadError("cut")


def refuse(status: int, **headers: str) -> Handler:
    body = {"error": {"code": "BadRequest", "message": "no", "target": "actions"}}
    return lambda request: httpx2.Response(status, json=body, headers=headers)


def garble(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(201, text="<html>")


@pytest.mark.parametrize("failure", [429, 500, 502, 503, 504, cut, garble])
def test_a_rank_is_repeated_with_the_same_ids(failure: Any) -> None:
    play = Play(failure, failure, choose_last)
    with play.client(key="secret", loop="home") as client:
        decision = client.rank({"device": "phone"}, ["a", {"id": "b", "price": np.float64(2)}])
    assert decision == RankedDecision(
        action="b", index=1, probabilities=(0.25, 0.75), event_id=decision.event_id, loop="home"
    )
    assert decision.probability == 0.75
    first, *repeated = play.requests
    assert len(repeated) == 2
    for request in repeated:
        assert request.content == first.content
        assert request.headers["x-ms-client-request-id"] == first.headers["x-ms-client-request-id"]
    assert play.bodies()[0] == {
        "eventId": decision.event_id,
        "contextFeatures": [{"device": "phone"}],
        "actions": [{"id": "a", "features": [{}]}, {"id": "b", "features": [{"price": 2.0}]}],
        "excludedActions": [],
        "deferActivation": False,
    }
    assert first.url == "http://a/loops/home/personalizer/v1.0/rank"
    assert first.headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize("failure", [503, cut, refuse(429, **{"retry-after": "60"})])
def test_a_rank_without_an_answer_takes_the_first_action_that_is_not_excluded(
    failure: Any, clock: SettableClock
) -> None:
    play = Play(failure, clock=clock)
    with play.client("http://a", "http://b", rank_timeout=35.0) as client:
        decision = client.rank({}, ["a", "b", "c"], exclude=["a"], event_id="e", loop="home")
        sent = len(play.requests)
        assert client.reward(decision, 1.0).status == "not sent"
        assert client.rewards([(decision, 1.0)])[0].status == "not sent"
        assert client.activate(decision) is False
    assert decision == RankedDecision(
        action="b",
        index=1,
        probabilities=(0.0, 1.0, 0.0),
        event_id="e",
        loop="home",
        degraded=True,
        is_local=True,
    )
    assert len(play.requests) == sent >= 2
    assert {request.url.host for request in play.requests} == {"a", "b"}


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404])
def test_a_wrong_request_is_not_repeated(status: int) -> None:
    play = Play(refuse(status))
    with play.client() as client, pytest.raises(RequestError, match=r"rank: .*: no") as caught:
        client.rank({}, ["a"])
    error = caught.value
    assert (error.status, error.code, error.target) == (status, "BadRequest", "actions")
    assert len(play.requests) == 1
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)


def test_what_is_wrong_is_refused_before_anything_is_sent() -> None:
    play = Play(503)
    with play.client() as client:
        for wrong, error in (
            (lambda: client.rank({}, []), ArmsError),
            (lambda: client.rank({}, ["a", "a"]), ArmsError),
            (lambda: client.rank({}, ["a"], exclude=["a"]), ArmsError),
            (lambda: client.rank({"x": float("nan")}, ["a"]), FeatureError),
            (lambda: client.rank({}, [{"id": "a", "v": [1.0, float("inf")]}]), FeatureError),
            (lambda: client.rank({"x": object()}, ["a"]), FeatureError),
            (lambda: client.rank({}, ["a"], event_id=""), SettingError),
            (lambda: client.rank({}, ["a"], event_id="e" * 257), SettingError),
            (lambda: client.reward("e", 1.5), RewardError),
            (lambda: client.reward("e", float("nan")), RewardError),
            (lambda: client.rewards(["e"]), RewardError),  # type: ignore[list-item]
            (lambda: client.rewards([("e", 0.0), ("f", 2.0)]), RewardError),
            (lambda: client.reward("e\0", 1.0), SettingError),
            (lambda: client.read_decisions(-1), SettingError),
            (lambda: client.read_decisions(limit=0), SettingError),
            (lambda: client.read_decisions(wait=31), SettingError),
        ):
            with pytest.raises(error):
                wrong()
    assert not play.requests
    for options in ({"timeout": 0}, {"rank_timeout": float("inf")}, {"key": "ä"}):
        with pytest.raises(SettingError, match=r"^Client: "):
            Client("http://a", **options)


def test_an_event_that_was_decided_among_other_actions_keeps_its_action() -> None:
    def decided(request: httpx2.Request) -> httpx2.Response:
        ranking = [{"id": "b", "probability": 0.75}, {"id": "gone", "probability": 0.25}]
        body = {"ranking": ranking, "eventId": "e", "rewardActionId": "b"}
        return httpx2.Response(201, json=body)

    with Play(decided).client() as client:
        decision = client.rank({}, ["a", "b"], event_id="e")
        assert (decision.index, decision.probabilities) == (1, (0.0, 0.75))
        with pytest.raises(ChoiceError, match="'e' was decided before, for the action 'b'"):
            client.rank({}, ["a"], event_id="e")


def test_rewards_are_sent_in_bounded_requests_and_answered_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operations, "MAX_BATCH_REWARDS", 3)
    play = Play(learn)
    home = RankedDecision(action="a", index=0, probabilities=(1.0,), event_id="h", loop="home")
    with play.client() as client:
        many = [("e0", 0.5), (home, 1), (LOCAL, 1.0), *((f"e{k}", -0.5) for k in range(1, 5))]
        outcomes = client.rewards(many)  # type: ignore[arg-type]
    events = ["e0", "h", "e", "e1", "e2", "e3", "e4"]
    assert [outcome.event_id for outcome in outcomes] == events
    assert [outcome.status for outcome in outcomes].index("not sent") == 2
    sent = [
        (request.url.path.split("/")[2], [entry["eventId"] for entry in body["rewards"]])
        for request, body in zip(play.requests, play.bodies(), strict=True)
    ]
    assert sent == [("default", ["e0", "e1", "e2"]), ("default", ["e3", "e4"]), ("home", ["h"])]
    ids = [entry["requestId"] for body in play.bodies() for entry in body["rewards"]]
    assert len(set(ids)) == 6


def test_large_rewards_are_split_by_bytes() -> None:
    play = Play(learn)
    with play.client() as client:
        outcomes = client.rewards([(f"{'é' * 250}{k}", 1.0) for k in range(2000)])
    assert len(outcomes) == 2000
    assert len(play.requests) > 2
    assert max(len(request.content) for request in play.requests) < 1 << 20


def test_rewards_that_no_server_took_can_be_sent_again(clock: SettableClock) -> None:
    play = Play(learn, 503, clock=clock)
    with play.client(timeout=25.0) as client:
        many = [RewardRequest(f"e{k}", 0.5) for k in range(operations.MAX_BATCH_REWARDS + 2)]
        with pytest.raises(DeliveryError, match=r"rewards: no server .* 25 s .status 503") as error:
            client.rewards(many)
    assert len(play.requests) == 1 + 3
    assert error.value.undelivered == tuple(many[-2:])
    assert pickle.loads(pickle.dumps(error.value)).undelivered == tuple(many[-2:])
    again = Play(learn)
    with again.client() as client:
        client.rewards(error.value.undelivered)
    assert [entry["requestId"] for entry in again.bodies()[0]["rewards"]] == [
        reward.request_id for reward in many[-2:]
    ]


def test_a_reward_is_repeated_with_its_request_id() -> None:
    play = Play(503, cut, learn)
    with play.client() as client:
        assert client.reward("e", 0.5, request_id="mine") == RewardOutcome("e", "learned")
    entry = {"eventId": "e", "value": 0.5, "requestId": "mine"}
    assert play.bodies() == [{"rewards": [entry]}] * 3


def test_an_answer_without_all_outcomes_is_no_answer() -> None:
    play = Play(lambda request: httpx2.Response(200, json={"rewards": []}), learn)
    with play.client() as client:
        assert client.reward("e", 0.5).status == "learned"
    assert len(play.requests) == 2


@pytest.mark.parametrize("event", ["a/b", "..", ".", "é?#%2F", "x" * 256])
def test_every_event_id_can_be_part_of_a_path(event: str) -> None:
    play = Play(204)
    with play.client() as client:
        assert client.activate(event) is True
    path = play.requests[0].url.raw_path.decode().split("/")
    assert len(path) == 8
    assert httpx2.URL(f"http://a/{path[6]}").path == f"/{event}" or "." in event


def test_pages_are_read_until_there_is_none() -> None:
    def page(request: httpx2.Request) -> httpx2.Response:
        after = int(request.url.params["after"])
        ids = [after + 1, after + 2] if after < 6 else []
        return httpx2.Response(200, json=make_decision_page(max([after, *ids]), ids))

    play = Play(page)
    with play.client() as client:
        found = list(client.decisions(2, final=True))
        assert [decision.id for decision in found] == [3, 4, 5, 6]
        assert (found[0].action, found[0].actions, found[0].probabilities) == ("a", ("a",), (1.0,))
        assert play.requests[0].url.params["final"] == "true"
        following = client.decisions(2, follow=True)
        assert [next(following).id for _ in range(4)] == [3, 4, 5, 6]
        assert float(play.requests[-1].url.params["wait"]) == 30.0


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_the_time_of_all_attempts_is_bounded(silent: str) -> None:
    with Client([silent, silent], rank_timeout=0.4) as client:
        began = time.monotonic()
        assert client.rank({}, ["a"]).is_local
        assert 0.3 < time.monotonic() - began < 30.0  # guards against hanging


def test_threads_share_a_client() -> None:
    play = Play(choose_last)
    decisions: list[RankedDecision] = []
    with play.client() as client:
        threads = [
            threading.Thread(target=lambda: decisions.append(client.rank({}, ["a", "b"])))
            for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({decision.event_id for decision in decisions}) == 20


async def test_the_asynchronous_client_repeats_and_falls_back(silent: str) -> None:
    play = Play(503, choose_last)
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(play))
    async with AsyncClient("http://a", http=http, rank_timeout=60.0) as client:
        decision = await client.rank({}, ["a", "b"])
        assert (decision.action, len(play.requests)) == ("b", 2)
        assert play.requests[0].content == play.requests[1].content
        play.answers = [learn]
        outcomes = await client.rewards([(decision, 1.0), (LOCAL, 1.0)])
        assert [outcome.status for outcome in outcomes] == ["learned", "not sent"]
        play.answers = [503]
        client.timeout = 0.2
        with pytest.raises(DeliveryError) as error:
            await client.reward("e", 0.5)
        assert len(error.value.undelivered) == 1
    async with AsyncClient(silent, rank_timeout=0.2) as client:
        both = await asyncio.gather(*(client.rank({}, ["a"]) for _ in range(5)))
        assert all(decision.is_local for decision in both)


def test_a_client_does_not_show_its_key() -> None:
    with Client("http://a", key="secret") as client:
        assert repr(client) == "Client(['http://a'], loop='default')"


def test_the_library_does_not_import_httpx() -> None:
    code = "import sys, windvane; sys.exit('httpx2' in sys.modules or 'httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_both_clients_have_the_same_methods_and_results() -> None:
    def describe(kind: type) -> dict[str, inspect.Signature]:
        names = [name for name in dir(kind) if not name.startswith("_")]
        methods = {name: getattr(kind, name) for name in names}
        return {name: inspect.signature(each) for name, each in methods.items() if callable(each)}

    blocking, awaited = describe(Client), describe(AsyncClient)
    assert blocking["rank"].return_annotation is RankedDecision
    for name in ("decisions", "close"):
        assert blocking.pop(name).parameters == awaited.pop(name).parameters
    assert blocking == awaited
    assert all(inspect.iscoroutinefunction(getattr(AsyncClient, name)) for name in awaited)
