"""Settings, model and log of one loop over HTTP."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from loop_client import LoopClient, check_refusal, restart
from server_process import BASE, Client, Nursery, Server
from store_helpers import TERMS, make_decision
from waiting import wait_until
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutLoop


def test_a_change_of_settings_is_logged_and_keeps_the_belief(
    server: Server, client: Client, loop: Callable[..., LoopClient]
) -> None:
    one = loop(halfLife="1000 rounds")
    for number in range(4):
        one.rank(f"e{number}")
        one.reward(f"e{number}", 0.5)
    before = one.learner()
    sent = {"halfLife": "9 rounds", "rewardWaitTime": "00:20:00", "isAutoOptimizationEnabled": True}
    changed = one.call("PUT", "/configurations/service", sent | {"defaultReward": None}).json
    assert (changed["halfLife"], changed["rewardWaitTime"]) == ("9 rounds", "00:20:00")
    after, weights = one.learner(), one.weights()
    assert repr(after) != repr(before)
    assert after.bank.lessons == 4
    with Store(server.data) as store:
        row = store.find_loop(one.name)
        assert row is not None
        first, second = store.list_settings_changes(row.id)
    assert (json.loads(first.settings)["halfLife"], first.lesson) == ("1000 rounds", 0)
    assert (json.loads(second.settings)["halfLife"], second.by) == ("9 rounds", "http")
    restart(server, server.kill)
    client.close()
    assert repr(one.learner()) == repr(after)
    assert np.array_equal(one.weights(), weights)
    assert one.call("GET", "/configurations/service").json == changed


def test_concurrent_changes_of_settings_are_all_applied(
    server: Server, loop: Callable[..., LoopClient]
) -> None:
    one = loop()

    def put(settings: dict[str, object]) -> None:
        with closing(server.client()) as client:
            path = f"{one.path}{BASE}/configurations/service"
            assert client.call("PUT", path, settings).status == 200

    for turn in range(1, 9):
        settings: dict[str, object] = {
            "halfLife": f"{turn} days",
            "rewardWaitTime": f"PT{turn}M",
            "logRetentionDays": turn,
        }
        with ThreadPoolExecutor() as threads:
            list(threads.map(put, [{name: value} for name, value in settings.items()]))
        response = one.call("GET", "/configurations/service").json
        assert {name: response[name] for name in settings} == settings


@pytest.mark.parametrize("logs", ["kept", "deleted"])
def test_a_deleted_model_stays_deleted_after_a_restart(
    server: Server, client: Client, loop: Callable[..., LoopClient], logs: str
) -> None:
    one = loop(f"-{logs}")
    for number in range(3):
        one.rank(f"e{number}")
        one.reward(f"e{number}", 0.5)
    if logs == "deleted":
        assert one.call("DELETE", "/logs").status == 204
    assert one.lessons() == 3
    assert one.call("DELETE", "/model").status == 204
    assert one.lessons() == 0
    restart(server, server.kill)
    client.close()
    assert one.lessons() == 0
    one.rank("e3")
    one.reward("e3", 0.5)
    assert one.lessons() == 1


def test_deleted_logs_keep_the_belief_and_the_round(
    server: Server, client: Client, loop: Callable[..., LoopClient]
) -> None:
    one = loop()
    for number in range(3):
        one.rank(f"e{number}")
        one.reward(f"e{number}", 0.5)
    before, count = one.weights(), 3
    for how in (server.stop, server.kill):
        one.rank(f"unrewarded-{count}")
        count += 1
        assert one.call("DELETE", "/logs").status == 204
        assert one.call("GET", "/logs/properties").json == {"dateRange": None}
        restart(server, how)
        client.close()
        after = one.learner()
        assert (after.round, after.bank.lessons) == (count, 3)
        assert np.array_equal(one.weights(), before)
    assert one.funnel().ranked == count


def test_a_deleted_log_gives_its_space_back_while_requests_are_answered(
    nursery: Nursery, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Store(data) as store:
        put = PutLoop("default", LoopSettings().to_json(), 0, "test")
        number = store.write(put).id
        made = [make_decision(number, f"e{k}", k)._replace(request="x" * 4000) for k in range(1000)]
        store.write_group([PutDecision(decision, TERMS) for decision in made])
    file = data / "windvane.db"
    before = file.stat().st_size
    with Server(nursery, data) as server, closing(server.client()) as client:
        assert client.call("DELETE", f"{BASE}/logs").status == 204
        body = {"actions": [{"id": "ice", "features": []}]}

        def is_small() -> bool:  # SQLite shrinks the file only when a checkpoint has caught up
            assert client.rank(body).status == 201
            return file.stat().st_size <= before / 4

        wait_until(is_small)


@pytest.mark.parametrize(("name", "value"), [("crossings", "none"), ("arraySize", 8), ("seed", 7)])
def test_a_setting_that_is_fixed_at_creation_is_refused_by_name(
    loop: Callable[..., LoopClient], name: str, value: object
) -> None:
    answer = loop(f"-{name}").call("PUT", "/configurations/service", {name: value})
    check_refusal(answer, 400, "InvalidServiceConfiguration")
    assert answer.json["error"]["target"] == name
