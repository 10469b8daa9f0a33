"""Rank, reward and activate: modes, activation, waits, aggregation and repetition."""

from collections.abc import Callable

import numpy as np
import pytest

from loop_client import BODY, LoopClient, check_refusal, restart
from server_process import Client, Server
from windvane.service.store.rows import Funnel


def test_an_apprentice_takes_the_first_action_and_learns_for_later(
    loop: Callable[..., LoopClient],
) -> None:
    pupil, fresh = loop(learningMode="Apprentice"), loop("-fresh")
    for number in range(30):
        response = pupil.rank(f"e{number}", excludedActions=["ice"])
        assert response["rewardActionId"] == "tea"
        shares = [one["probability"] for one in response["ranking"]]  # type: ignore[attr-defined]
        assert shares == [0.0, 1.0, 0.0]
        pupil.reward(f"e{number}", -1.0)
    assert pupil.lessons() == 30
    assert (
        0.0 < pupil.metric("windvane_apprentice_agreement") < 0.5
    )  # tea earns nothing, and so is left more and more to chance
    online = pupil.call("PUT", "/configurations/service", {"learningMode": "Online"})
    assert online.json["learningMode"] == "Online"

    def share_of_tea(of: LoopClient) -> float:
        response = of.rank("then")
        return float(response["ranking"][1]["probability"])  # type: ignore[index]

    assert share_of_tea(pupil) < 0.01 < 0.2 < share_of_tea(fresh)


def test_a_loop_in_mode_logging_only_learns_nothing(loop: Callable[..., LoopClient]) -> None:
    mute = loop(learningMode="LoggingOnly", rewardWaitTime="PT1S")
    for event in ("e1", "e2"):
        mute.rank(event)
    mute.reward("e1", 1.0)
    assert mute.funnel() == Funnel(ranked=2, activated=2, unlearned=1)
    assert mute.lessons() == 0
    assert mute.call("GET", "/logs/properties").json["dateRange"]["from"]


def test_a_deferred_choice_counts_once_it_is_activated(loop: Callable[..., LoopClient]) -> None:
    deferred, plain = loop(), loop("-plain")
    for event in ("e1", "e2"):
        deferred.rank(event, deferActivation=True)
        plain.rank(event)
    deferred.reward("e1", 0.5)
    assert deferred.lessons() == 0
    assert deferred.activate("e1") == 204
    assert deferred.activate("e1") == 204
    assert deferred.activate("e2") == 204
    deferred.reward("e2", -0.5)
    plain.reward("e1", 0.5)
    plain.reward("e2", -0.5)
    assert np.array_equal(deferred.weights(), plain.weights())
    assert deferred.lessons() == 2
    assert deferred.activate("nobody") == 400
    assert deferred.funnel() == plain.funnel() == Funnel(ranked=2, activated=2, learned=2)


def test_without_a_reward_in_time_the_default_is_learned_and_the_late_one_is_not(
    loop: Callable[..., LoopClient],
) -> None:
    late, response = loop(rewardWaitTime="PT1S", defaultReward=-0.5), loop("-response")
    late.rank("e")
    response.rank("e")
    response.reward("e", -0.5)
    late.until(default=1)
    late.reward("e", 1.0)
    assert late.funnel() == Funnel(ranked=1, activated=1, default=1, late=1)
    assert np.array_equal(late.weights(), response.weights())
    assert np.any(response.weights())


@pytest.mark.parametrize(("how", "counts"), [("earliest", {"extra": 1}), ("sum", {"summed": 1})])
def test_several_rewards_make_one(
    loop: Callable[..., LoopClient], how: str, counts: dict[str, int]
) -> None:
    several, one = loop(f"-{how}", rewardAggregation=how), loop(f"-{how}-one")
    for each in (several, one):
        each.rank("e")
    several.reward("e", 0.25)
    several.reward("e", 0.5)
    one.reward("e", 0.25)
    assert np.array_equal(several.weights(), one.weights()) == (how == "earliest")
    assert several.lessons() == 1
    assert several.funnel() == Funnel(ranked=1, activated=1, learned=1, **counts)


def test_a_request_that_is_sent_again_counts_once(loop: Callable[..., LoopClient]) -> None:
    adds = loop(rewardAggregation="sum")
    adds.rank("e")
    for request in ("r1", "r1", "r2"):
        adds.reward("e", 0.25, request)
    assert adds.funnel() == Funnel(ranked=1, activated=1, learned=1, summed=1, duplicate=1)


def test_rewards_before_their_rank_are_learned_with_it(loop: Callable[..., LoopClient]) -> None:
    early, late = loop(), loop("-late")
    early.reward("e", 0.5)
    assert early.funnel() == Funnel(orphan=1)
    early.rank("e")
    late.rank("e")
    late.reward("e", 0.5)
    assert np.array_equal(early.weights(), late.weights())
    assert early.funnel() == Funnel(ranked=1, activated=1, learned=1)


def test_an_event_is_decided_once_also_after_a_restart(
    server: Server, client: Client, loop: Callable[..., LoopClient]
) -> None:
    one = loop(explorationPercentage=1.0)
    response = [one.rank(f"e{number}") for number in range(5)]
    assert len({answer["rewardActionId"] for answer in response}) > 1
    for how in (None, server.stop, server.kill):
        if how is not None:
            restart(server, how)
        client.close()
        for number, answer in enumerate(response):
            assert one.rank(f"e{number}", actions=BODY["actions"][::-1]) == answer
    assert one.funnel().ranked == 5


@pytest.mark.parametrize("features", [[{"a": {"b": {"c": 1}}}], [{"a": [{}]}], [{"a": [[1]]}]])
@pytest.mark.parametrize("place", [0, 1])
def test_features_that_cannot_be_read_are_refused_excluded_or_not(
    client: Client, place: int, features: object
) -> None:
    actions = [{"id": "good", "features": []}, {"id": "bad", "features": features}]
    body = {"actions": actions, "excludedActions": [("good", "bad")[place]]}
    check_refusal(client.rank(body), 400, "InvalidRankRequest")


def test_a_new_loop_with_the_default_seed_gives_the_same_first_answer(client: Client) -> None:
    client.call("POST", "/loops", {"name": "readme"})
    request = {
        "eventId": "visit-1",
        "contextFeatures": [{"device": "phone", "time": "morning"}],
        "actions": [
            {"id": "news", "features": [{"topic": "politics"}]},
            {"id": "match", "features": [{"topic": "sports"}]},
        ],
    }
    assert client.rank(request, "/loops/readme").json == {
        "ranking": [{"id": "news", "probability": 0.5}, {"id": "match", "probability": 0.5}],
        "eventId": "visit-1",
        "rewardActionId": "news",
        "degraded": False,
    }
    assert client.reward("visit-1", 1, "/loops/readme").status == 204


def test_a_request_id_has_bounds(client: Client) -> None:
    for request, status in (("x" * 256, 204), ("x" * 257, 400)):
        answer = client.reward("unknown", 1, request=request)
        assert answer.status == status
    assert "x-ms-client-request-id" in answer.json["error"]["message"]


def test_an_explained_answer_has_parts_that_add_up_to_the_estimates(
    loop: Callable[..., LoopClient], client: Client
) -> None:
    asked = {
        "contextFeatures": [{"device": "phone"}],
        "actions": [{"id": name, "features": [{"taste": name}]} for name in ("ice", "tea")],
    }
    one = loop()
    for number in range(10):
        one.rank(f"e{number}", **asked)
        one.reward(f"e{number}", number / 10)
    assert "inferenceExplanation" not in one.rank("plain", **asked)
    switch = {"isInferenceExplainabilityEnabled": True}
    assert one.call("PUT", "/configurations/service", switch).status == 200
    answer = one.rank("why", **asked)
    again = one.rank("why", **asked)
    assert again == answer
    report = client.call("GET", f"/board/{one.name}/events/why").json
    estimates = {option["name"]: option["estimate"] for option in report["options"]}
    for part in answer["inferenceExplanation"]:  # type: ignore[attr-defined]
        total = sum(feature["score"] for feature in part["features"])
        assert total == pytest.approx(estimates[part["id"]], abs=1e-9)
