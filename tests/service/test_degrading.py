"""If the log or the encoder fails, ranks are still answered, and nothing is learned of them."""

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from server_process import BASE, Answer, Client, Nursery, Server, wait_for_health
from store_helpers import TERMS, create_loop, list_decisions, make_decision, put_reward
from waiting import wait_until
from windvane.beliefs.bank.sides import decode_lesson
from windvane.learner import Learner
from windvane.service import app
from windvane.service.app import create_app
from windvane.service.loops import maintenance, service
from windvane.service.store.log import Store
from windvane.service.store.rows import Lesson, get_answer
from windvane.service.store.writer import writer_client
from windvane.service.store.writer.decision_operations import PutDecision, Withdraw

ACTIONS = [{"id": name, "features": [{"name": name}]} for name in ("ice", "tea", "soup")]
BODY = {"actions": ACTIONS, "excludedActions": ["ice"]}
FIRST = {"ice": 0.0, "tea": 1.0, "soup": 0.0}
Fault = Callable[[Server], AbstractContextManager[object]]


def lock_database(server: Server) -> AbstractContextManager[object]:
    """Someone else holds the database."""
    other = sqlite3.connect(server.data / "windvane.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    return closing(other)


@contextmanager
def fill_disk(server: Server) -> Iterator[None]:
    """Every block of the disk is taken."""
    ballast = server.data / "ballast"
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    yield
    ballast.unlink()


@contextmanager
def limit_file_size(server: Server) -> Iterator[None]:
    """The system lets the server's files grow no further."""
    before = resource.prlimit(server.writer, resource.RLIMIT_FSIZE)
    resource.prlimit(server.writer, resource.RLIMIT_FSIZE, (1, before[1]))
    yield
    resource.prlimit(server.writer, resource.RLIMIT_FSIZE, before)


@contextmanager
def mount_small_disk(place: Path) -> Iterator[None]:
    """A disk of a few megabytes, several times the write-ahead log's 4, mounted there."""
    words = ["-t", "tmpfs", "-o", "size=16m,mode=0777", "tmpfs", str(place)]
    place.mkdir()
    for may in ([], ["sudo", "-n"]):
        with_rights = [*may, "mount", *words]
        try:
            done = subprocess.run(with_rights, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            break
    else:
        pytest.skip("a small disk to fill takes the right to mount one")
    try:
        yield
    finally:
        subprocess.run([*may, "umount", "--lazy", str(place)], check=True)


@pytest.fixture
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    place = tmp_path / "data"
    if request.getfixturevalue("fault") is fill_disk:
        with mount_small_disk(place):
            yield place
    else:
        yield place


def rank(client: Client, event: str) -> Answer:
    """A rank that takes no longer than it may."""
    started = time.monotonic()
    answer = client.rank(BODY | {"eventId": event})
    assert time.monotonic() - started < 30.0  # it does not wait for the fault to end
    assert answer.status == 201
    assert answer.json["eventId"] == event
    return answer


def is_degraded(answer: Answer) -> bool:
    """Whether it is degraded: then it is the first action that is not excluded."""
    response = answer.json
    if response["degraded"]:
        assert {one["id"]: one["probability"] for one in response["ranking"]} == FIRST
        assert response["rewardActionId"] == "tea"
    return bool(response["degraded"])


def read_health(client: Client) -> str:
    response = client.call("GET", "/healthz").json
    assert (response["status"] == "degraded") == bool(response.get("reason"))
    return str(response.get("reason", "ok"))


def read_lessons(data: Path) -> dict[str, list[Lesson]]:
    """What was learned, by event."""
    by_event: dict[str, list[Lesson]] = {}
    with Store(data) as store:
        loop = store.find_loop("default")
        assert loop is not None
        names = {decision.id: decision.event_id for decision in list_decisions(store, loop.id)}
        for batch in store.iterate_lessons(loop.id):
            for lesson in batch:
                by_event.setdefault(names[lesson.decision], []).append(lesson)
    return by_event


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(lock_database, "locked"), (fill_disk, "disk is full"), (limit_file_size, "the disk failed")],
)
def test_a_log_that_fails_degrades_ranks_and_recovers(
    nursery: Nursery, data: Path, fault: Fault, reason: str
) -> None:
    degraded: list[str] = []
    kept: list[str] = []
    with Server(nursery, data) as server, closing(server.client()) as client:
        assert not is_degraded(rank(client, "before"))
        assert read_health(client) == "ok"
        with fault(server):
            for number in range(40):  # what is allocated already still takes a few
                event = f"during-{number}"
                (degraded if is_degraded(rank(client, event)) else kept).append(event)
                if len(degraded) == 4:
                    break
            assert len(degraded) == 4
            assert reason in read_health(client)
            answer = client.reward("before", 1.0)
            earliest = 1.0 if answer.status == 204 else 0.5  # acknowledged, it is kept
            if answer.status != 204:
                assert answer.status == 503
                assert answer.json["error"]["code"] == answer.headers["x-ms-error-code"]
            assert client.call("GET", "/readyz").status == 200
        for number in range(20):  # what waited goes first
            event = f"after-{number}"
            (degraded if is_degraded(rank(client, event)) else kept).append(event)
        assert event in kept
        for event in ("before", *kept, *degraded):
            assert client.reward(event, 0.5).status == 204
        wait_for_health(client)
        server.kill()
        client.close()
        server.start()
        server.wait()
        assert not is_degraded(rank(client, "restarted"))
        assert "Traceback" not in server.log
    learned = read_lessons(data)
    values = {event: [lesson.value for lesson in taught] for event, taught in learned.items()}
    assert values == {"before": [earliest]} | {event: [0.5] for event in kept}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(str(tmp_path / "data"))) as client:
        yield client


def send_rank(web: TestClient, event: str | None) -> dict[str, object]:
    answer = web.post(f"{BASE}/rank", json=BODY | {"eventId": event})
    assert answer.status_code == 201
    response: dict[str, object] = answer.json()
    return response


def read_reward_statuses(web: TestClient, event: str) -> list[str]:
    """What became of the rewards of an event."""
    return [one.status for one in web.app.state.service.store.list_rewards(1, event)]  # type: ignore[attr-defined]


def test_a_defect_in_the_encoder_degrades_ranks_and_recovers(
    web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    ranked = send_rank(web, "ranked")
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "rank_sides", broken)
        response = send_rank(web, "e")
        assert response["degraded"]
        assert response["rewardActionId"] == "tea"
        assert send_rank(web, "ranked") == ranked  # decided before
        assert "a defect" in web.get("/healthz").json()["reason"]
        refused = web.post(f"{BASE}/rank", json=BODY | {"excludedActions": ["nobody"]})
        assert refused.status_code == 400
    assert send_rank(web, "e") == response  # an event is decided once
    assert not send_rank(web, "f")["degraded"]
    assert web.get("/healthz").json()["status"] == "ok"
    for event in ("e", "f"):
        assert web.post(f"{BASE}/events/{event}/reward", json={"value": 1.0}).status_code == 204
    assert (read_reward_statuses(web, "e"), read_reward_statuses(web, "f")) == (
        ["unlearned"],
        ["learned"],
    )


@contextmanager
def stop_writer(web: TestClient) -> Iterator[None]:
    """The process that writes does nothing; a request gives up on it after a tenth of a second."""
    process = web.app.state.service.writer.process_id  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "WRITE_TIMEOUT_SECONDS", 0.1)
        patch.setattr(service, "DEGRADED_WRITE_TIMEOUT_SECONDS", 0.1)
        os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process, signal.SIGCONT)


def test_a_rank_that_waited_too_long_is_never_learned(web: TestClient) -> None:
    with stop_writer(web):
        response, unnamed = send_rank(web, "late"), send_rank(web, None)
        assert response["degraded"]
        assert unnamed["degraded"]
        assert "too long" in web.get("/healthz").json()["reason"]
    assert send_rank(web, "late") == response
    store = web.app.state.service.store  # type: ignore[attr-defined]
    for event in ("late", str(unnamed["eventId"])):
        assert web.post(f"{BASE}/events/{event}/reward", json={"value": 1.0}).status_code == 204
        assert read_reward_statuses(web, event) == ["unlearned"]
        kept = store.find_decision(1, event)
        assert (kept.degraded, kept.chosen, kept.features) == (True, 1, None)
        assert kept.probabilities == bytes(8) + b"\0\0\0\0\0\0\xf0?" + bytes(8)
    assert list(store.iterate_lessons(1)) == []


def test_a_reward_that_waits_too_long_is_to_be_sent_again_and_counts_once(web: TestClient) -> None:
    send_rank(web, "e")
    path, header = f"{BASE}/events/e/reward", {"x-ms-client-request-id": "once"}
    with stop_writer(web):
        refused = web.post(path, json={"value": 1.0}, headers=header)
        assert refused.status_code == 503
        assert "too long" in refused.json()["error"]["message"]
        assert web.post(f"{BASE}/events/e/activate").status_code == 503
    assert web.post(path, json={"value": 1.0}, headers=header).status_code == 204
    assert read_reward_statuses(web, "e").count("learned") == 1


def test_a_reward_that_came_first_teaches_nothing_of_a_rank_that_waited_too_long(
    web: TestClient,
) -> None:
    assert web.post(f"{BASE}/events/e/reward", json={"value": 1.0}).status_code == 204
    with stop_writer(web):
        response = send_rank(web, "e")
    assert send_rank(web, "e") == response
    assert response["degraded"]
    assert read_reward_statuses(web, "e") == ["unlearned"]


def test_a_decision_outlives_a_repetition_that_waited_too_long(web: TestClient) -> None:
    before = send_rank(web, "e")
    assert web.post(f"{BASE}/events/e/reward", json={"value": 1.0}).status_code == 204
    with stop_writer(web):
        assert send_rank(web, "e")["degraded"]
    assert send_rank(web, "e") == before
    store = web.app.state.service.store  # type: ignore[attr-defined]
    assert not store.find_decision(1, "e").degraded
    (taught,) = store.iterate_lessons(1)
    assert decode_lesson(taught[0].features).feature_counts.tolist() == [0, 2]


DIES = """
import os, sys
from windvane.service.store.writer import writer_process
from windvane.service.store.writer.writer_process import Writer

def send_outcomes(writer, outcomes):
    if os.path.exists(sys.argv[2]):
        os._exit(1)
    return plain(writer, outcomes)

plain, Writer.send_outcomes = Writer.send_outcomes, send_outcomes
writer_process.main()
"""


def test_a_rank_whose_acknowledgement_was_lost_is_never_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dies = tmp_path / "dies"
    monkeypatch.setattr(writer_client, "WRITER_CODE", DIES.replace("sys.argv[2]", repr(str(dies))))
    monkeypatch.setattr(writer_client, "RESTART_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(maintenance, "SWEEP_INTERVAL_SECONDS", 60.0)
    with TestClient(create_app(str(tmp_path / "data"))) as web:
        store = web.app.state.service.store  # type: ignore[attr-defined]
        for event in map(str, range(20)):
            dies.touch()
            response = send_rank(web, event)
            dies.unlink()
            assert response["degraded"]
            if (decision := store.find_decision(1, event)) is not None:
                break
            # another operation had ended the writer
            wait_until(lambda: not send_rank(web, None)["degraded"])
        assert decision is not None
        assert not decision.degraded  # on disk, with another answer
        path = f"{BASE}/events/{event}/reward"
        wait_until(lambda: web.post(path, json={"value": 1.0}).status_code == 204)
        assert set(read_reward_statuses(web, event)) == {"unlearned"}
        assert send_rank(web, event) == response
        assert list(store.iterate_lessons(1)) == []


def test_a_decision_that_was_written_too_late_is_withdrawn(where: str) -> None:
    with Store(where) as store:
        loop = create_loop(store)
        void = make_decision(loop, "e")
        instead = void._replace(features=None, degraded=True, chosen=0)
        assert store.write(PutDecision(void, TERMS)).is_new
        store.write(Withdraw(void, instead, TERMS))
        kept = store.find_decision(loop, "e")
        assert kept is not None
        assert (get_answer(kept), kept.features) == (get_answer(instead), None)
        assert store.write(put_reward(loop, "e")).status == "unlearned"
        assert store.write(PutDecision(void, TERMS)).answer == get_answer(instead)


def test_a_stop_does_not_wait_for_a_log_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "FINAL_SNAPSHOTS_SECONDS", 0.2)
    monkeypatch.setattr(writer_client, "CLOSE_TIMEOUT_SECONDS", 0.2)
    with TestClient(create_app(str(tmp_path / "data"))) as web:
        before = send_rank(web, "e")
        os.kill(web.app.state.service.writer.process_id, signal.SIGSTOP)  # type: ignore[attr-defined]
        began = time.monotonic()
    assert time.monotonic() - began < 30.0  # guards against hanging
    with TestClient(create_app(str(tmp_path / "data"))) as web:
        assert send_rank(web, "e") == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/events/e/reward", {"value": 1.0}),
        ("POST", "/events/e/activate", None),
        ("PUT", "/configurations/service", {"defaultReward": 0.5}),
    ],
)
def test_a_write_of_any_kind_that_fails_is_seen(
    web: TestClient, tmp_path: Path, method: str, path: str, body: object
) -> None:
    send_rank(web, "e")
    assert web.get("/healthz").json()["status"] == "ok"
    with closing(sqlite3.connect(tmp_path / "data" / "windvane.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert web.request(method, BASE + path, json=body).status_code == 503
    health = web.get("/healthz").json()
    assert health["status"] == "degraded"
    assert "locked" in health["reason"] or "too long" in health["reason"]
    metrics = web.get("/metrics").text
    assert "windvane_degraded 1.0" in metrics
    assert "windvane_write_failures_total{" in metrics
    assert not send_rank(web, "f")["degraded"]
    assert web.get("/healthz").json()["status"] == "degraded"  # that kind has not worked again
