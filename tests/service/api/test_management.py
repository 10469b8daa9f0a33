"""Settings, model and log of one loop over HTTP."""

import io
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from loop_client import LoopClient, check_refusal, restart
from server_process import BASE, Client, Nursery, Server
from store_helpers import SECOND, list_decisions, make_features
from windvane.learner import Learner
from windvane.service.clock import read_wall_us
from windvane.service.loops.settings import LoopSettings
from windvane.service.sharing.fold import decode_snapshot
from windvane.service.store.log import Store
from windvane.service.store.rows import DecisionRow
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutLoop
from windvane.service.store.writer.reward_operations import PutReward, RewardTerms
from windvane.service.store.writer.server_operations import PutClock

DAY = 86_400 * SECOND


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


def build_decision(loop: int, event: str, at: int) -> DecisionRow:
    return DecisionRow(
        *(loop, event, sum(event.encode()), at, "Online", False, False, 0),
        *(make_features(1), np.ones(1).tobytes(), '["ice"]', "{}"),
    )


def test_a_deleted_log_gives_its_space_back_while_requests_are_answered(
    nursery: Nursery, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with Store(data) as store:
        put = PutLoop("default", LoopSettings().to_json(), 0, "test")
        number = store.submit(put).result(20).id
        for k in range(1000):
            decision = build_decision(number, f"e{k}", k)._replace(request="x" * 4000)
            written = store.submit(PutDecision(decision, RewardTerms(600 * SECOND)))
        written.result(20)
    file = data / "windvane.db"
    before = file.stat().st_size
    with Server(nursery, data) as server, closing(server.client()) as client:
        assert client.call("DELETE", f"{BASE}/logs").status == 204
        deadline = time.monotonic() + 60
        while file.stat().st_size > before / 4:
            body = {"actions": [{"id": "ice", "features": []}]}
            assert client.call("POST", f"{BASE}/rank", body).status == 201
            assert time.monotonic() < deadline, "the file does not shrink"
            time.sleep(0.02)  # SQLite shrinks the file only when a checkpoint has caught up


@pytest.mark.parametrize(("days", "left"), [(0, []), (2, ["new"]), (-1, ["old", "new"])])
def test_the_log_is_kept_for_as_many_days_as_it_is_told(
    nursery: Nursery, tmp_path: Path, days: int, left: list[str]
) -> None:
    data = tmp_path / "data"
    with Store(data) as store:
        settings = LoopSettings(log_retention_days=days, half_life="never")
        number = store.submit(PutLoop("default", settings.to_json(), 0, "test")).result(20).id
        terms = RewardTerms(600 * SECOND)
        now = read_wall_us()
        for event, at in (("old", now - 3 * DAY), ("new", now - DAY)):
            store.submit(PutDecision(build_decision(number, event, at), terms)).result(20)
            store.submit(PutReward(number, event, 1.0, at, terms)).result(20)
        store.submit(PutClock(now)).result(20)

        def kept() -> list[str]:
            return [decision.event_id for decision in list_decisions(store, number)]

        with Server(nursery, data) as server:
            time.sleep(1.2)  # two looks at the log
            assert kept() == left
            server.kill()
            server.start()
            server.wait()
            with closing(server.client()) as client:
                packed = decode_snapshot(client.call("GET", f"{BASE}/model").body)
            learner = Learner.load(io.BytesIO(packed.model))
            assert learner.bank.lessons == 2
            assert learner.round == sum(b"new") + 1


@pytest.mark.parametrize(("name", "value"), [("crossings", "none"), ("arraySize", 8), ("seed", 7)])
def test_a_setting_that_is_fixed_at_creation_is_refused_by_name(
    loop: Callable[..., LoopClient], name: str, value: object
) -> None:
    answer = loop(f"-{name}").call("PUT", "/configurations/service", {name: value})
    check_refusal(answer, 400, "InvalidServiceConfiguration")
    assert answer.json["error"]["target"] == name
