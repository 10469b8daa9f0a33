"""The clients of the retired service, as they are on PyPI and npm, work unchanged."""

import json
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from npm_packages import install_packages
from server_process import Nursery, Server
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.log import Store
from windvane.service.store.writer.loop_operations import PutLoop

HERE = Path(__file__).parent / "clients"
EVENTS = ["plain", "with/two/slashes", "a space", "ångström ☂", "50%/of?it#all", "reward/reward"]
PYPI = ("azure-cognitiveservices-personalizer==0.1.1", "azure-ai-personalizer==1.0.0b1")
NPM = ("@azure/cognitiveservices-personalizer@2.0.1", "@azure-rest/ai-personalizer@1.0.0-beta.1")
Play = Callable[[str], Any]


@pytest.fixture(scope="module")
def server(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("clients") / "data"
    with Store(data) as store:
        for name in ("home", "preview"):
            store.write(PutLoop(name, LoopSettings().to_json(), 0, "test"))
    with Server(nursery, data) as server:
        yield server


def played(*command: str) -> Any:
    """What a client saw, in a process of its own."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Play]:
    folder = tmp_path_factory.mktemp("pypi")
    venv.create(folder, with_pip=False)
    target = str(folder / "packages")
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", target, *PYPI]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    program = str(folder / "bin" / "python")

    def script(name: str) -> Play:
        command = ("env", f"PYTHONPATH={target}", program, str(HERE / name))
        return lambda url: played(*command, url, json.dumps(EVENTS))

    return script


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Play]:
    folder = tmp_path_factory.mktemp("npm")
    program = install_packages(folder, *NPM)

    def script(name: str) -> Play:
        return lambda url: played(program, str(HERE / name), url, json.dumps(EVENTS), str(folder))

    return script


def check(seen: Any) -> None:
    """What every client must have seen."""
    assert list(seen["events"]) == EVENTS
    for event in seen["events"].values():
        assert list(event["ranking"]) == ["pasta", "soup", "salad"]
        assert event["ranking"]["soup"] == 0.0
        assert sum(event["ranking"].values()) == pytest.approx(1.0)
        assert event["chosen"] in ("pasta", "salad")
    assert seen["reward 2"] == [400, "InvalidRewardRequest"]
    assert seen["unknown"] == [400, "InvalidEventIdToActivate"]
    assert seen["bad rank"] == [400, "InvalidRankRequest"]


def check_page(seen: Any) -> None:
    """What every client that knows pages with slots must have seen."""
    page = seen["multislot"]
    assert page["eventId"] == "page"
    shown = {slot["id"]: slot["rewardActionId"] for slot in page["slots"]}
    assert list(shown) == ["top", "side"]
    assert shown["top"] in ("pasta", "salad")
    assert len(set(shown.values())) == 2
    assert seen["bad slot"][:2] == [400, "InvalidRewardRequest"]


def rewarded(server: Server, loop: str) -> None:
    """Under each event exactly as it was named, the reward was learned."""
    with Store(server.data) as store:
        row = store.find_loop(loop)
        assert row is not None
        for event in EVENTS:
            assert store.find_decision(row.id, event) is not None, quote(event)
            statuses = [reward.status for reward in store.list_rewards(row.id, event)]
            assert statuses[0] == "learned"


@pytest.mark.parametrize("prefix", ["", "/loops/home"])
def test_the_python_client_works(
    server: Server, python: Callable[[str], Play], prefix: str
) -> None:
    check(python("v1.py")(server.url + prefix))
    rewarded(server, "home" if prefix else "default")


def test_the_python_client_of_the_preview_works(
    server: Server, python: Callable[[str], Play]
) -> None:
    seen = python("preview.py")(f"{server.url}/loops/preview")
    check(seen)
    assert seen["settings"]["isInferenceExplainabilityEnabled"]
    assert seen["settings"]["modelRetrainDays"] == 3
    assert [each["id"] for each in seen["explanation"]] == ["pasta", "soup", "salad"]
    assert "halfLife=auto" in seen["policy"]["arguments"]
    assert "explorationPercentage=0.2" in seen["epsilon"]["arguments"]
    assert "-q ::" in seen["epsilon"]["warnings"][0]
    assert seen["reset"]["arguments"] == seen["policy"]["arguments"]
    check_page(seen)
    assert "--ccb_explore_adf" in seen["policy"]["arguments"]
    assert "explorationPercentage=0.2" in seen["multislot policy"]["arguments"]
    with Store(server.data) as store:
        row = store.find_loop("preview")
        assert row is not None
        statuses = [(each.slot, each.status) for each in store.list_rewards(row.id, "page")]
    assert statuses == [("top", "learned"), ("side", "learned"), ("side", "extra")]
    assert seen["bad policy"] == [400, "InvalidPolicyContract", "InvalidPolicyContract"]


# This one drops its own path where the endpoint has one, but keeps a query.
@pytest.mark.parametrize("prefix", ["", "?loop=home"])
def test_the_npm_client_works(server: Server, node: Callable[[str], Play], prefix: str) -> None:
    check(node("v1.mjs")(server.url + prefix))
    rewarded(server, "home" if prefix else "default")


@pytest.mark.parametrize("prefix", ["", "/loops/home"])
def test_the_rest_client_works(server: Server, node: Callable[[str], Play], prefix: str) -> None:
    seen = node("rest.mjs")(server.url + prefix)
    check(seen)
    assert seen["put"]["rewardWaitTime"] == "PT20M"
    assert seen["put"]["learningMode"] == "Apprentice"
    assert set(seen["policy"]) == {"name", "arguments"}
    assert seen["model"]["creationTime"] <= seen["model"]["lastModifiedTime"]
    assert seen["logs"]["dateRange"]["from"] <= seen["logs"]["dateRange"]["to"]
    check_page(seen)
    assert seen["evaluation"]["status"] == "completed", seen["evaluation"]
    assert seen["evaluation"]["optimalPolicy"] == "online"
    sources = [result["policySource"] for result in seen["evaluation"]["policyResults"]]
    assert sources == ["Online", "Baseline", "Random", "Custom"]
    assert seen["evaluation"]["id"] in seen["evaluations"]
    assert seen["applied"] == "2 days"
    assert (seen["deletion"], seen["deleted"]) == ("204", [404, "EvaluationNotFound"])
