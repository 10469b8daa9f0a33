"""Evaluations over HTTP: every number follows from the log."""

import json
import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation_helpers import wait_for_end, write_log
from loop_client import check_refusal
from server_process import Client, Nursery, Server
from waiting import wait_until
from windvane.service.clock import parse_date
from windvane.service.store.log import LogReader, Store
from windvane.service.store.logged_decisions import LoggedDecisions

ROWS = 600
V1 = "/loops/home/personalizer/v1.1-preview.3"
PERIOD = {"startTime": "2026-09-01", "endTime": "2026-12-01T00:00:00.000Z"}


@pytest.fixture(scope="module")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("evaluations") / "data"
    with Store(data) as store:
        write_log(store, "home", ROWS)
    with Server(nursery, data) as server:
        yield server


@pytest.fixture(scope="module")
def evaluated(server: Server) -> Any:
    """An evaluation of v1 that has ended, with two policies of the client."""
    policies = [
        {"name": "bold", "arguments": "--cb_explore_adf --epsilon 0.5"},
        {"name": "window", "arguments": "window(200) * thompson(0.3)"},
    ]
    body = {"name": "first", **PERIOD, "policies": policies}
    with closing(server.client()) as client:
        created = client.call("POST", f"{V1}/evaluations", body)
        assert created.status == 201
        assert created.headers["location"] == f"{server.url}{V1}/evaluations/{created.json['id']}"
        assert (created.json["status"], created.json["optimalPolicy"]) == ("pending", "")
        return wait_for_end(client, f"{V1}/evaluations/{created.json['id']}")


def read_log(server: Server) -> tuple[Any, Any, Any]:
    """Rewards, probabilities of all three actions and chosen actions of the whole log."""
    with LogReader(server.data) as reader:
        (batch,) = LoggedDecisions(reader, "home").iterate_batches()
    return batch.rewards, batch.probabilities.reshape(-1, 3), batch.chosen


def test_every_number_of_v1_follows_from_the_log(server: Server, evaluated: Any) -> None:
    rewards, probabilities, chosen = read_log(server)
    logged = probabilities[np.arange(ROWS), chosen]
    weights = {
        "online": np.ones(ROWS),
        "baseline1": (chosen == 0) / logged,
        "baselineRand": 1 / 3 / logged,
    }
    results = {result["name"]: result for result in evaluated["policyResults"]}
    assert list(results) == ["online", "baseline1", "baselineRand", "current", "bold", "window"]
    sources = [result["policySource"] for result in results.values()]
    assert sources == ["Online", "Baseline", "Random", "Custom", "Custom", "Custom"]
    for name, weight in weights.items():
        total = results[name]["totalSummary"]
        scores = weight * rewards
        assert total["ipsEstimatorDenominator"] == ROWS
        assert total["ipsEstimatorNumerator"] == pytest.approx(scores.sum(), rel=1e-9)
        assert total["snipsEstimatorDenominator"] == pytest.approx(weight.sum(), rel=1e-9)
        assert total["sumOfSquares"] == pytest.approx((scores**2).sum(), rel=1e-9)
        assert total["nonZeroProbability"] == np.count_nonzero(weight)
        assert total["averageReward"] == pytest.approx(scores.mean(), rel=1e-9)
        width = 1.96 * scores.std(ddof=1) / math.sqrt(ROWS)
        assert total["confidenceInterval"] == pytest.approx(width, rel=1e-9)
    for result in results.values():
        assert result["summary"][-1] | {"timeStamp": ""} == pytest.approx(
            result["totalSummary"] | {"timeStamp": ""}
        )
        stamps = [parse_date(point["timeStamp"]) for point in result["summary"]]
        assert stamps == sorted(set(stamps))
        assert all(stamp % (300 * 10**6) == 0 for stamp in stamps)
        low, high = result["evidence"]["sequence"]
        assert low <= result["evidence"]["value"] <= high
    assert results["bold"]["evidence"]["estimator"] == "dr"
    assert (evaluated["status"], evaluated["evaluationType"]) == ("completed", "Manual")


def test_an_evaluation_is_listed_applied_and_deleted(client: Client, evaluated: Any) -> None:
    body = {"name": "second", **PERIOD, "policies": [], "enableOfflineExperimentation": True}
    second = client.call("POST", f"{V1}/evaluations", body).json["id"]
    path = f"{V1}/evaluations/{second}"
    ended = wait_for_end(client, path)
    assert ended["status"] == "completed", ended
    names = [policy["name"] for policy in ended["policyResults"]]
    assert names[:4] == ["online", "baseline1", "baselineRand", "current"]
    assert names[4:] == [f"Hyper{number}" for number in range(1, len(names) - 3)]
    assert len(names) > 5
    for policy in ended["policyResults"][4:]:  # a name alone could not be understood
        assert "explorationPercentage=0.3 crossings=context*action" in policy["arguments"]
    assert (ended["optimalPolicy"], ended["optimalPolicyArguments"]) == ("online", "logged")
    for base in (V1, "/loops/home/personalizer"):  # without a version as with any
        listed = client.call("GET", f"{base}/evaluations?api-version=2022-09-01-preview").json
        assert [each["id"] for each in listed] == [second, evaluated["id"]]
        assert not any(result["summary"] for each in listed for result in each["policyResults"])
    apply = {"evaluationId": evaluated["id"], "policyName": "bold"}
    applied = f"{V1}/configurations/applyFromEvaluation"
    check_refusal(client.call("POST", applied, apply), 409, "PolicyNotBetter")
    settings = client.call("GET", f"{V1}/configurations/service").json
    assert settings["explorationPercentage"] == 0.3
    nothing = apply | {"policyName": "current"}
    assert client.call("POST", applied, nothing).status == 204
    for name in ("baseline1", "window", "nobody"):
        answer = client.call("POST", applied, apply | {"policyName": name})
        check_refusal(answer, 404, "LearningSettingsNotFound")
    unknown = client.call("POST", applied, apply | {"evaluationId": "x"})
    check_refusal(unknown, 404, "EvaluationNotFound")
    assert client.call("DELETE", path).status == 204
    check_refusal(client.call("GET", path), 404, "EvaluationNotFound")
    check_refusal(client.call("DELETE", path), 404, "EvaluationNotFound")


BODY: dict[str, Any] = {"name": "x", **PERIOD, "policies": []}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": ""}, "InvalidEvaluationContract"),
        ({"startTime": "soon"}, "InvalidEvaluationContract"),
        ({"startTime": "2026-12-01"}, "InvalidEvaluationContract"),
        ({"policies": None}, "InvalidEvaluationContract"),
        ({"endTime": "2026-09-02"}, "NoLogsExistInDateRange"),
        ({"policies": [{"name": "a", "arguments": "first"}] * 2}, "DuplicateCustomPolicyNames"),
        (
            {"policies": [{"name": "a", "arguments": "--cb_explore_adf --epsilon x"}]},
            "InvalidPolicyContract",
        ),
        ({"policies": [{"name": "a", "arguments": "nonsense"}]}, "InvalidPolicyContract"),
        ({"policies": [{"name": "a", "arguments": "1*" * 400 + "1"}]}, "InvalidPolicyContract"),
        ({"policies": [{"name": "a", "arguments": "learner(\0)"}]}, "InvalidPolicyContract"),
    ],
)
def test_a_contract_that_cannot_be_met_is_refused(
    client: Client, changes: dict[str, Any], code: str
) -> None:
    check_refusal(client.call("POST", f"{V1}/evaluations", BODY | changes), 400, code)


def test_a_running_evaluation_is_deleted_and_its_process_ends(
    server: Server, client: Client, evaluated: Any
) -> None:
    id_ = client.call("POST", f"{V1}/evaluations", BODY).json["id"]
    path = f"{V1}/evaluations/{id_}"
    assert client.call("DELETE", path).status == 204
    assert client.call("GET", path).status == 404
    wait_until(lambda: len(server.writers) == 1)  # the writer
    metrics = client.call("GET", "/metrics").body.decode()
    assert 'windvane_evaluations_ended_total{status="Canceled"}' in metrics
    assert "windvane_evaluations_running 0.0" in metrics


def test_an_evaluation_survives_the_death_of_the_service(
    server: Server, client: Client, evaluated: Any
) -> None:
    id_ = client.call("POST", f"{V1}/evaluations", BODY).json["id"]
    wait_until(lambda: len(server.writers) > 1)
    children = [Path(f"/proc/{child}") for child in server.writers]
    server.kill()
    client.close()
    wait_until(lambda: not any(child.exists() for child in children))  # nobody is left behind
    server.start()
    server.wait()
    answer = wait_for_end(client, f"{V1}/evaluations/{id_}")
    assert answer["status"] == "completed", answer


def test_the_policy_is_read_put_and_reset(server: Server, client: Client) -> None:
    path = f"{V1}/configurations/policy"
    put = client.call("PUT", path, {"name": "mine", "arguments": "halfLife=2 days"})
    assert put.status == 200
    assert put.json["name"] == "mine"
    got = client.call("GET", path).json
    assert got["arguments"] == put.json["arguments"]
    assert "halfLife=2 days" in got["arguments"]
    settings = client.call("GET", f"{V1}/configurations/service").json
    assert settings["halfLife"] == "2 days"
    for arguments in ("--ccb_explore_adf", "--cb_explore_adf --epsilon 0.25", got["arguments"]):
        answer = client.call("PUT", path, {"name": "x", "arguments": arguments})
        assert answer.status == 200, json.loads(answer.body)
    for arguments in (
        "--epsilon",
        "--epsilon 2",
        "--epsilon 0.2 0.3",
        "crossings=none",
        "dim=3",
        "?",
    ):
        answer = client.call("PUT", path, {"name": "x", "arguments": arguments})
        check_refusal(answer, 400, "InvalidPolicyContract")
    exported = "--cb_explore_adf --epsilon 0.2 --power_t 0 -l 0.001 --cb_type mtr -q ::"
    put = client.call("PUT", path, {"name": "exported", "arguments": exported})
    assert put.status == 200
    assert "explorationPercentage=0.2" in put.json["arguments"]
    [warning] = put.json["warnings"]
    assert warning.endswith("change nothing: --power_t 0, -l 0.001, --cb_type mtr, -q ::")
    assert "warnings" not in client.call("GET", path).json
    assert warning in server.log
    change = client.call("GET", "/board/home/evaluation.json").json["lastChange"]
    assert change["by"] == "http"
    assert change["note"] == f"{warning[0].upper()}{warning[1:]}."
    reset = client.call("DELETE", path)
    assert reset.status == 200
    assert reset.json["arguments"].startswith(
        "--ccb_explore_adf halfLife=auto explorationPercentage=0.01"
    )
