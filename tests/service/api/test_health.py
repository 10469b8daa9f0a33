"""Health, metrics and the log of failures, as an operator sees them."""

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from clock_helpers import DAY, HOUR, SECOND, TODAY, FakeMachine
from windvane.errors import StoreError
from windvane.service.api.auth import create_key
from windvane.service.app import create_app
from windvane.service.clock import read_wall_us
from windvane.service.json_logging import JsonFormatter
from windvane.service.loops import service
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.server_operations import PutClock

BASE = "/personalizer/v1.0"
ACTIONS = {"actions": [{"id": "a", "features": [{"x": 1}]}, {"id": "b", "features": [{"y": 1}]}]}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(str(tmp_path))) as client:
        yield client


def samples(web: TestClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(web.get("/metrics").text)
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
    }


def test_health_says_degraded_and_why(web: TestClient) -> None:
    assert web.get("/readyz").json() == {"status": "ready"}
    health = web.get("/healthz").json()
    assert health.pop("waiting") >= 0  # a background task may be writing
    assert health == {"status": "ok"}
    web.app.state.service.writer.failures.add("PutReward", "the disk is full")  # type: ignore[attr-defined]
    answer = web.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["reason"] == "the disk is full"


def test_health_metrics_and_dashboard_say_that_the_wall_clock_is_not_believed(
    web: TestClient,
) -> None:
    machine = FakeMachine()
    clock = machine.make_clock(None)
    app_service = web.app.state.service  # type: ignore[attr-defined]
    app_service.clock = app_service.loops["default"].clock = clock
    for jump, sentence in ((DAY, "24 hours ahead of"), (-3 * HOUR, "3 hours behind")):
        machine.wall = TODAY + jump
        clock.compare()
        health = web.get("/healthz").json()
        assert health["status"] == "ok"
        assert health["clock"]["offsetSeconds"] == jump / SECOND
        assert health["clock"]["believedInSeconds"] == (48 * 60 if jump > 0 else None)
        assert sentence in health["clock"]["message"]
        assert samples(web)["windvane_clock_offset_seconds", ()] == jump / SECOND
        note = web.get("/board/default.json").json()["clock"]
        assert note == {"answer": health["clock"]["message"], "offset": jump / SECOND}
    machine.wall = TODAY
    clock.compare()
    assert "clock" not in web.get("/healthz").json()
    assert web.get("/board/default.json").json()["clock"] is None


@pytest.mark.parametrize("believes", [False, True])
def test_an_operator_can_believe_a_wall_clock_far_ahead_of_the_log(
    tmp_path: Path, believes: bool
) -> None:
    with Store(tmp_path) as store:
        store.write(PutClock(read_wall_us() - DAY))
    with TestClient(create_app(str(tmp_path), believes_wall_clock=believes)) as web:
        assert ("clock" in web.get("/healthz").json()) != believes


def test_strangers_see_the_status_and_readers_the_reason(tmp_path: Path) -> None:
    app = create_app(str(tmp_path))
    reason = 'no connection to "10.0.0.5" (postgresql://me:hidden@10.0.0.5/log password=hidden)'
    with Store(tmp_path) as store, TestClient(app) as web:
        app.state.service.writer.failures.add("PutReward", reason)
        stranger = TestClient(app, client=("192.0.2.7", 5000))
        assert stranger.get("/healthz").json() == {"status": "degraded"}
        assert "10.0.0.5" in web.get("/healthz").json()["reason"]
        assert "hidden" not in web.get("/healthz").text
        keys = {role: create_key(role, 0) for role in ("rank", "read", "admin")}
        for key in keys.values():
            store.write(key.put)
        app.state.keyring.keys = store.list_keys()
        assert web.get("/healthz").json() == {"status": "degraded"}
        for role, key in keys.items():
            header = {"Authorization": f"Bearer {key.secret}"}
            health = stranger.get("/healthz", headers=header).json()
            assert set(health) == (
                {"status"} if role == "rank" else {"status", "waiting", "reason"}
            )
            assert "hidden" not in str(health)


def test_the_answer_to_a_failing_write_does_not_name_the_database(
    web: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise StoreError('store: cannot be reached (connection to "10.0.0.5")', "unreachable")

    monkeypatch.setattr(service.Service, "write", fail)
    answer = web.post(f"{BASE}/events/e1/reward", json={"value": 1})
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "the database cannot be reached" in answer.json()["error"]["message"]
    assert "10.0.0.5" not in answer.text
    assert "10.0.0.5" in caplog.records[-1].facts["reason"]  # type: ignore[attr-defined]


def test_a_reason_for_degraded_ranks_is_logged_once(
    web: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = iter(["the disk is full"] * 3 + ["the database is locked"] * 3)

    def fail(_: object, operation: object, *__: object) -> None:
        is_rank = isinstance(operation, PutDecision)  # background tasks write, too
        raise StoreError(next(reasons) if is_rank else "the log fails", "full")

    monkeypatch.setattr(service.Service, "write", fail)
    for _ in range(6):
        assert web.post(f"{BASE}/rank", json=ACTIONS).json()["degraded"]
    records = [record for record in caplog.records if record.getMessage() == "rank degraded"]
    told = [record.facts["reason"] for record in records]  # type: ignore[attr-defined]
    assert told == ["the disk is full", "the database is locked"]


def test_until_its_loops_are_loaded_it_is_not_ready(tmp_path: Path) -> None:
    web = TestClient(create_app(str(tmp_path)), raise_server_exceptions=False)
    for path in ("/readyz", "/healthz", f"{BASE}/model", "/metrics", "/", "/openapi.json", "/no"):
        answer = web.get(path)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "OperationNotAllowed"
        assert int(answer.headers["retry-after"]) > 0
    with web:
        assert web.get("/readyz").status_code == 200


def test_metrics_count_what_happened(web: TestClient) -> None:
    for event in ("e1", "e2", "e3"):
        web.post(f"{BASE}/rank", json=ACTIONS | {"eventId": event})
    web.post(f"{BASE}/events/e1/reward", json={"value": 1.0})
    web.post(f"{BASE}/events/e3/reward", json={"value": 0.0})
    web.post(f"{BASE}/events/stray/reward", json={"value": 1.0})
    web.post(f"{BASE}/events/e2/reward", json={"value": 9.0})
    web.post("/loops/invented/personalizer/v1.0/rank", json=ACTIONS)
    values = samples(web)
    loop = ("loop", "default")
    assert values["windvane_decisions_total", (loop,)] == 3
    assert values["windvane_rewards", (loop, ("outcome", "learned"))] == 2
    assert values["windvane_rewards", (loop, ("outcome", "orphan"))] == 1
    assert values["windvane_join_ratio", (loop,)] == 1
    assert 0 <= values["windvane_model_age_seconds", (loop,)] < 60
    assert 0 <= values["windvane_exploration_share", (loop,)] <= 1
    assert values["windvane_prediction_error", (loop,)] == 1  # the predictions are 0 and 1
    assert 0 < values["windvane_parameter_movement", (loop,)] < 1
    assert values["windvane_drift_alarms", (loop,)] == 0
    assert values["windvane_click_alarms", (loop,)] == 0
    rejected = ("windvane_requests_total", (loop, ("operation", "reward"), ("status", "400")))
    assert values[rejected] == 1
    assert values["windvane_request_seconds_count", (loop, ("operation", "rank"))] == 3
    assert values["windvane_degraded", ()] == 0
    assert not any("invented" in str(labels) for _, labels in values)


def test_a_defect_is_logged_with_the_id_that_the_answer_has(
    web: TestClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(service.Service, "reward", broken)
    header = {"Ocp-Apim-Subscription-Key": "very secret"}
    body = {"value": 0.125, "note": "words of the body"}
    answer = web.post(f"{BASE}/events/e1/reward", json=body, headers=header)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "InternalServerError"
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    line = JsonFormatter().format(record)
    record_line = msgspec.json.decode(line)
    assert record_line["request"] == answer.headers["x-request-id"]
    assert record_line["status"] == 500
    assert "ZeroDivisionError" in record_line["trace"]
    assert "\n" not in line
    assert "secret" not in line
    assert "words of the body" not in line
