"""What requests mean: modes, activation, waits, aggregation, repetition, settings, deletion."""

import io
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from server_process import BASE, Answer, Client, Nursery, Server
from store_helpers import SECOND
from windvane.policy import Policy
from windvane.service.clock import now_us
from windvane.service.loops.loop import decode_snapshot
from windvane.service.loops.settings import Settings
from windvane.service.store.admin_operations import PutLoop
from windvane.service.store.decision_operations import PutDecision, PutReward
from windvane.service.store.log import Store
from windvane.service.store.reward_matching import RewardTerms
from windvane.service.store.schema import Decision, Funnel
from windvane.types import Floats

ARMS = ("ice", "tea", "soup")
BODY = {"actions": [{"id": name, "features": []} for name in ARMS]}
CALM = {"halfLife": "never", "explorationPercentage": 0.0, "width": 0.05}
DAY = 86_400 * SECOND


@pytest.fixture(scope="module")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(nursery, tmp_path_factory.mktemp("wire") / "data") as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with closing(server.client()) as client:
        yield client


class Loop:
    """One loop over HTTP, and what the log has of it."""

    def __init__(self, server: Server, client: Client, name: str, **settings: object) -> None:
        self.server, self.client, self.name = server, client, name
        self.path = f"/loops/{name}"
        made = client.call("POST", "/loops", {"name": name, "settings": CALM | settings})
        assert made.status == 201, made

    def rank(self, event: str, **more: object) -> dict[str, object]:
        answer = self.client.rank(BODY | {"eventId": event} | more, self.path)
        assert answer.status == 201, answer
        told: dict[str, object] = answer.json
        assert not told["degraded"]
        return told

    def reward(self, event: str, value: float, request: str | None = None) -> None:
        assert self.client.reward(event, value, self.path, request).status == 204

    def activate(self, event: str) -> int:
        return self.client.activate(event, self.path).status

    def call(self, method: str, path: str, body: object = None) -> Answer:
        return self.client.call(method, f"{self.path}{BASE}{path}", body)

    def policy(self) -> Policy:
        return Policy.load(io.BytesIO(decode_snapshot(self.call("GET", "/model").body).policy))

    def metric(self, name: str) -> float:
        """What Prometheus is told of this loop."""
        text = self.client.call("GET", "/metrics").body.decode()
        [value] = re.findall(rf'^{name}{{loop="{self.name}"}} (\S+)$', text, re.MULTILINE)
        return float(value)

    def moment(self) -> Floats:
        """b, the sum of features times rewards: what was learned from rewards, in order."""
        return self.policy().belief.moment

    def funnel(self) -> Funnel:
        with Store(self.server.data) as store:
            row = store.find_loop(self.name)
            assert row is not None
            return store.read_funnel(row.id)

    def until(self, **counts: int) -> Funnel:
        """Wait for the log to say so."""
        end = time.monotonic() + 10.0
        while (found := self.funnel()) != found._replace(**counts):
            assert time.monotonic() < end, found
            time.sleep(0.05)
        return found


@pytest.fixture
def loop(server: Server, client: Client, request: pytest.FixtureRequest) -> Callable[..., Loop]:
    """A function that makes loops, named after the test."""

    def make(name: str = "", **settings: object) -> Loop:
        return Loop(server, client, f"{request.node.name[:50].split('[')[0]}{name}", **settings)

    return make


def again(server: Server, how: Callable[[], None]) -> None:
    """End the server in some way, and start it again."""
    how()
    server.start()
    server.wait()


def test_an_apprentice_takes_the_first_action_and_learns_for_later(
    loop: Callable[..., Loop],
) -> None:
    pupil, fresh = loop(learningMode="Apprentice"), loop("-fresh")
    for number in range(30):
        told = pupil.rank(f"e{number}", excludedActions=["ice"])
        assert told["rewardActionId"] == "tea"
        shares = [one["probability"] for one in told["ranking"]]  # type: ignore[attr-defined]
        assert shares == [0.0, 1.0, 0.0]
        pupil.reward(f"e{number}", -1.0)
    assert pupil.policy().belief.seen == 30
    assert (
        0.0 < pupil.metric("windvane_apprentice_agreement") < 0.5
    )  # tea earns nothing, and so is left more and more to chance
    online = pupil.call("PUT", "/configurations/service", {"learningMode": "Online"})
    assert online.json["learningMode"] == "Online"

    def share_of_tea(of: Loop) -> float:
        told = of.rank("then")
        return float(told["ranking"][1]["probability"])  # type: ignore[index]

    assert share_of_tea(pupil) < 0.01 < 0.2 < share_of_tea(fresh)


def test_where_only_the_log_is_kept_nothing_is_learned(loop: Callable[..., Loop]) -> None:
    mute = loop(learningMode="LoggingOnly", rewardWaitTime="PT1S")
    for event in ("e1", "e2"):
        mute.rank(event)
    mute.reward("e1", 1.0)
    assert mute.funnel() == Funnel(ranked=2, activated=2, unlearned=1)
    assert mute.policy().belief.seen == 0
    assert mute.call("GET", "/logs/properties").json["dateRange"]["from"]


def test_a_deferred_choice_counts_once_it_is_activated(loop: Callable[..., Loop]) -> None:
    deferred, plain = loop(), loop("-plain")
    for event in ("e1", "e2"):
        deferred.rank(event, deferActivation=True)
        plain.rank(event)
    deferred.reward("e1", 0.5)
    assert deferred.policy().belief.seen == 0
    assert deferred.activate("e1") == 204
    assert deferred.activate("e1") == 204
    assert deferred.activate("e2") == 204
    deferred.reward("e2", -0.5)
    plain.reward("e1", 0.5)
    plain.reward("e2", -0.5)
    assert np.array_equal(deferred.moment(), plain.moment())
    assert deferred.policy().belief.seen == 2
    assert deferred.activate("nobody") == 400
    assert deferred.funnel() == plain.funnel() == Funnel(ranked=2, activated=2, learned=2)


def test_what_is_never_activated_is_never_learned(loop: Callable[..., Loop]) -> None:
    deferred = loop(rewardWaitTime="PT1S", defaultReward=-1.0)
    deferred.rank("e", deferActivation=True)
    deferred.reward("e", 1.0)
    assert deferred.until(unactivated=1) == Funnel(ranked=1, unactivated=1, held=1)
    assert deferred.activate("e") == 204  # too late to count
    deferred.reward("e", 1.0)
    assert deferred.funnel() == Funnel(ranked=1, unactivated=1, held=1, late=1)
    assert deferred.policy().belief.seen == 0


def test_without_a_reward_in_time_the_default_is_learned_and_the_late_one_is_not(
    loop: Callable[..., Loop],
) -> None:
    late, told = loop(rewardWaitTime="PT1S", defaultReward=-0.5), loop("-told")
    late.rank("e")
    told.rank("e")
    told.reward("e", -0.5)
    late.until(default=1)
    late.reward("e", 1.0)
    assert late.funnel() == Funnel(ranked=1, activated=1, default=1, late=1)
    assert np.array_equal(late.moment(), told.moment())
    assert np.any(told.moment())


@pytest.mark.parametrize(
    ("how", "total", "counts"), [("earliest", 0.25, {"extra": 1}), ("sum", 0.75, {"summed": 1})]
)
def test_several_rewards_make_one(
    loop: Callable[..., Loop], how: str, total: float, counts: dict[str, int]
) -> None:
    several, one = loop(f"-{how}", rewardAggregation=how), loop(f"-{how}-one")
    for each in (several, one):
        each.rank("e")
    several.reward("e", 0.25)
    several.reward("e", 0.5)
    one.reward("e", total)
    assert np.allclose(several.moment(), one.moment(), rtol=1e-12, atol=0.0)
    assert several.policy().belief.seen == 1
    assert several.funnel() == Funnel(ranked=1, activated=1, learned=1, **counts)


def test_a_request_that_is_sent_again_counts_once(loop: Callable[..., Loop]) -> None:
    adds = loop(rewardAggregation="sum")
    adds.rank("e")
    for request in ("r1", "r1", "r2"):
        adds.reward("e", 0.25, request)
    assert adds.funnel() == Funnel(ranked=1, activated=1, learned=1, summed=1, duplicate=1)


def test_rewards_before_their_rank_are_learned_with_it(loop: Callable[..., Loop]) -> None:
    early, late = loop(), loop("-late")
    early.reward("e", 0.5)
    assert early.funnel() == Funnel(orphan=1)
    early.rank("e")
    late.rank("e")
    late.reward("e", 0.5)
    assert np.array_equal(early.moment(), late.moment())
    assert early.funnel() == Funnel(ranked=1, activated=1, learned=1)


def test_an_event_is_decided_once_also_after_a_restart(
    server: Server, client: Client, loop: Callable[..., Loop]
) -> None:
    one = loop(explorationPercentage=1.0)
    told = [one.rank(f"e{number}") for number in range(5)]
    assert len({answer["rewardActionId"] for answer in told}) > 1
    for how in (None, server.stop, server.kill):
        if how is not None:
            again(server, how)
        client.close()
        for number, answer in enumerate(told):
            assert one.rank(f"e{number}", actions=BODY["actions"][::-1]) == answer
    assert one.funnel().ranked == 5


def test_a_change_of_settings_is_recorded_and_loses_nothing(
    server: Server, client: Client, loop: Callable[..., Loop]
) -> None:
    one = loop(halfLife="1000 rounds")
    for number in range(4):
        one.rank(f"e{number}")
        one.reward(f"e{number}", 0.5)
    before = one.policy()
    sent = {"halfLife": "9 rounds", "rewardWaitTime": "00:20:00", "isAutoOptimizationEnabled": True}
    changed = one.call("PUT", "/configurations/service", sent | {"defaultReward": None}).json
    assert (changed["halfLife"], changed["rewardWaitTime"]) == ("9 rounds", "00:20:00")
    after = one.policy()
    assert repr(after) != repr(before)
    assert after.belief.seen == 4
    assert np.array_equal(after.belief.moment, before.belief.moment)
    with Store(server.data) as store:
        row = store.find_loop(one.name)
        assert row is not None
        first, second = store.list_settings_changes(row.id)
    assert (json.loads(first.settings)["halfLife"], first.lesson) == ("1000 rounds", 0)
    assert (json.loads(second.settings)["halfLife"], second.by) == ("9 rounds", "http")
    again(server, server.kill)
    client.close()
    assert repr(one.policy()) == repr(after)
    assert np.array_equal(one.moment(), after.belief.moment)
    assert one.call("GET", "/configurations/service").json == changed


def test_settings_that_are_changed_at_once_are_all_changed(
    server: Server, loop: Callable[..., Loop]
) -> None:
    one = loop()

    def put(settings: dict[str, object]) -> None:
        with closing(server.client()) as client:
            path = f"{one.path}{BASE}/configurations/service"
            assert client.call("PUT", path, settings).status == 200

    for turn in range(1, 9):
        wanted: dict[str, object] = {
            "halfLife": f"{turn} days",
            "rewardWaitTime": f"PT{turn}M",
            "logRetentionDays": turn,
        }
        with ThreadPoolExecutor() as threads:
            list(threads.map(put, [{name: value} for name, value in wanted.items()]))
        told = one.call("GET", "/configurations/service").json
        assert {name: told[name] for name in wanted} == wanted


@pytest.mark.parametrize("logs", ["kept", "deleted"])
def test_a_deleted_model_stays_forgotten(
    server: Server, client: Client, loop: Callable[..., Loop], logs: str
) -> None:
    one = loop(f"-{logs}")
    for number in range(3):
        one.rank(f"e{number}")
        one.reward(f"e{number}", 0.5)
    if logs == "deleted":
        assert one.call("DELETE", "/logs").status == 204
    assert one.policy().belief.seen == 3
    assert one.call("DELETE", "/model").status == 204
    assert one.policy().belief.seen == 0
    again(server, server.kill)
    client.close()
    assert one.policy().belief.seen == 0
    one.rank("e3")
    one.reward("e3", 0.5)
    assert one.policy().belief.seen == 1


def test_deleted_logs_leave_what_was_learned_and_no_draw_comes_twice(
    server: Server, client: Client, loop: Callable[..., Loop]
) -> None:
    one = loop()
    for number in range(3):
        one.rank(f"e{number}")
        one.reward(f"e{number}", 0.5)
    before, count = one.policy(), 3
    for how in (server.stop, server.kill):
        one.rank(f"unrewarded-{count}")
        count += 1
        assert one.call("DELETE", "/logs").status == 204
        assert one.call("GET", "/logs/properties").json == {"dateRange": None}
        again(server, how)
        client.close()
        after = one.policy()
        assert (after.round, after.belief.seen) == (count, 3)
        assert np.array_equal(after.belief.moment, before.belief.moment)
    assert one.funnel().ranked == count


def old(loop: int, event: str, at: int) -> Decision:
    answer = json.dumps({"eventId": event}).encode()
    return Decision(
        *(loop, event, sum(event.encode()), at, "Online", False, False, 0),
        *(np.ones(128).tobytes(), np.ones(1).tobytes(), '["ice"]', answer, "{}"),
    )


@pytest.mark.parametrize(("days", "left"), [(0, []), (2, ["new"]), (-1, ["old", "new"])])
def test_the_log_is_kept_for_as_many_days_as_it_is_told(
    nursery: Nursery, tmp_path: Path, days: int, left: list[str]
) -> None:
    data = tmp_path / "data"
    with Store(data) as store:
        settings = Settings(log_retention_days=days, half_life="never")
        number = store.submit(PutLoop("default", settings.to_json(), 0, "test")).result(20).id
        terms = RewardTerms(600 * SECOND)
        for event, at in (("old", now_us() - 3 * DAY), ("new", now_us() - DAY)):
            store.submit(PutDecision(old(number, event, at), terms)).result(20)
            store.submit(PutReward(number, event, 1.0, at, terms)).result(20)

        def kept() -> list[str]:
            return [
                row.decision.event_id for rows in store.iterate_decisions(number) for row in rows
            ]

        with Server(nursery, data) as server:
            time.sleep(1.2)  # two looks at the log
            assert kept() == left
            server.kill()
            server.start()
            server.wait()
            with closing(server.client()) as client:
                packed = decode_snapshot(client.call("GET", f"{BASE}/model").body)
            policy = Policy.load(io.BytesIO(packed.policy))
            assert policy.belief.seen == 2
            assert policy.round == sum(b"new") + 1


def refused(answer: Answer, status: int, code: str | None = None) -> None:
    """The envelope, and its header."""
    assert answer.status == status, answer
    error = answer.json["error"]
    assert error["code"] == answer.headers["x-ms-error-code"]
    assert code in (None, error["code"])
    assert error["message"]


@pytest.mark.parametrize("features", [[{"a": {"b": {"c": 1}}}], [{"a": [{}]}], [{"a": [[1]]}]])
@pytest.mark.parametrize("place", [0, 1])
def test_features_that_cannot_be_read_are_refused_excluded_or_not(
    client: Client, place: int, features: object
) -> None:
    actions = [{"id": "good", "features": []}, {"id": "bad", "features": features}]
    body = {"actions": actions, "excludedActions": [("good", "bad")[place]]}
    refused(client.rank(body), 400, "InvalidRankRequest")


@pytest.mark.parametrize("ridge", [1e-200, 1e-30, 1e200])
def test_a_loop_that_could_not_learn_is_not_made(client: Client, ridge: float) -> None:
    sent = {"name": "stiff", "settings": {"ridge": ridge}}
    refused(client.call("POST", "/loops", sent), 400)
    assert "stiff" not in [one["name"] for one in client.call("GET", "/loops").json]


def test_the_readme_shows_what_is_answered(client: Client) -> None:
    text = (Path(__file__).parents[3] / "README.md").read_text()
    asked = re.search(r"/personalizer/v1\.0/rank -d '(.*?)'\n\n(.*?)\n\n", text, re.DOTALL)
    assert asked is not None
    client.call("POST", "/loops", {"name": "readme"})
    assert client.rank(json.loads(asked[1]), "/loops/readme").json == json.loads(asked[2])
    assert client.reward("visit-1", 1, "/loops/readme").status == 204


def test_a_request_id_has_bounds(client: Client) -> None:
    for request, status in (("x" * 256, 204), ("x" * 257, 400)):
        answer = client.reward("unknown", 1, request=request)
        assert answer.status == status
    assert "x-ms-client-request-id" in answer.json["error"]["message"]


def test_what_is_wrong_with_a_body_is_said_with_its_place(client: Client) -> None:
    for actions, place in ((None, "$.actions`"), ([], "$.actions`"), ([{}], "$.actions[0]`")):
        assert place in client.rank({"actions": actions}).json["error"]["message"]
