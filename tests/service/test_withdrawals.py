"""What was answered as degraded is never learned from, whatever dies in between."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from server_process import BASE, Client, Nursery, Server
from store_helpers import make_decision
from windvane.errors import StoreError
from windvane.service.app import create_app
from windvane.service.loops import maintenance, service
from windvane.service.store.files.withdrawal_file import (
    SLOT_BYTES,
    SLOT_COUNT,
    WithdrawalFile,
)
from windvane.service.store.log import Store
from windvane.service.store.rows import DecisionRow
from windvane.service.store.writer import writer_client

ACTIONS = [{"id": name, "features": [{"name": name}]} for name in ("ice", "tea", "soup")]
BODY = {"actions": ACTIONS}
TRAINING = 12  # events, after which the loop no longer chooses the first action


def train(client: Client) -> None:
    """Let the loop learn that the first action is bad."""
    for number in range(TRAINING):
        event = f"training-{number}"
        action = client.rank(BODY | {"eventId": event}).json["rewardActionId"]
        assert client.reward(event, -1.0 if action == "ice" else 1.0).status == 204


def rank_while_the_writer_is_stopped(server: Server, event: str) -> dict[str, Any]:
    """Stop the writer, so that a rank is answered as degraded while its decision waits for it."""
    os.kill(server.writer, signal.SIGSTOP)
    with closing(server.client()) as client:
        answer: dict[str, Any] = client.rank(BODY | {"eventId": event}).json
    assert answer["degraded"]
    assert answer["rewardActionId"] == "ice"
    return answer


def read_lessons(where: str | Path, event: str) -> tuple[DecisionRow | None, int, list[str]]:
    """The decision of an event, how many lessons there are, and what became of its rewards."""
    with Store(where) as store:
        decision = store.find_decision(1, event)
        lessons = sum(len(batch) for batch in store.iterate_lessons(1))
        return decision, lessons, [reward.status for reward in store.list_rewards(1, event)]


@pytest.mark.parametrize("is_writer_killed", [False, True], ids=["service", "both"])
def test_a_degraded_answer_is_not_learned_from_after_a_kill(
    nursery: Nursery, where: str, tmp_path: Path, is_writer_killed: bool
) -> None:
    data = tmp_path / "data"
    with Server(nursery, data, where if "://" in where else None) as server:
        with closing(server.client()) as client:
            train(client)
        answer = rank_while_the_writer_is_stopped(server, "e")
        writer = server.writer
        server.kill()
        os.kill(writer, signal.SIGKILL if is_writer_killed else signal.SIGCONT)
        server.start()
        server.wait()
        with closing(server.client()) as client:
            assert client.reward("e", 1.0).status == 204
            assert client.rank(BODY | {"eventId": "e"}).json == answer
            assert client.call("GET", "/healthz").json["status"] == "ok"
        server.stop()
    decision, lessons, statuses = read_lessons(where, "e")
    assert decision is not None
    assert (decision.degraded, decision.features, decision.chosen) == (True, None, 0)
    assert (lessons, statuses) == (TRAINING, ["unlearned"])


HANGS = """
import os, time
from windvane.service.store.writer import writer_process
from windvane.service.store.writer.writer_process import Writer

def send_outcomes(writer, outcomes):
    names = [type(outcome.result).__name__ for outcome in outcomes]
    while "PutDecisionResult" in names and os.path.exists(FILE):
        time.sleep(0.01)
    return plain(writer, outcomes)

plain, Writer.send_outcomes = Writer.send_outcomes, send_outcomes
writer_process.main()
"""


def test_a_committed_decision_whose_reply_was_lost_is_withdrawn_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, data, copy = tmp_path / "hangs", tmp_path / "data", tmp_path / "copy"
    monkeypatch.setattr(writer_client, "WRITER_CODE", HANGS.replace("FILE", repr(str(hangs))))
    monkeypatch.setattr(maintenance, "SWEEP_INTERVAL_SECONDS", 60.0)
    with TestClient(create_app(str(data))) as web:
        hangs.touch()
        answer = web.post(f"{BASE}/rank", json=BODY | {"eventId": "e"}).json()
        assert answer["degraded"]
        shutil.copytree(data, copy)  # what a kill of both processes would leave
        hangs.unlink()
    with Store(copy) as store:
        decision = store.find_decision(1, "e")
        assert decision is not None
        assert not decision.degraded
    with TestClient(create_app(str(copy))) as web:
        path = f"{BASE}/events/e/reward"
        assert web.post(path, json={"value": 1.0}).status_code == 204
        assert web.post(f"{BASE}/rank", json=BODY | {"eventId": "e"}).json() == answer
    decision, lessons, statuses = read_lessons(copy, "e")
    assert decision is not None
    assert (decision.degraded, decision.features, lessons, statuses) == (
        True,
        None,
        0,
        ["unlearned"],
    )
    with closing(WithdrawalFile(copy / "windvane.db-withdrawals")) as file:
        assert file.records == {}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(str(tmp_path / "data"))) as web:
        yield web


def test_without_a_record_there_is_no_degraded_answer(
    web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("Input/output error")

    monkeypatch.setattr(WithdrawalFile, "add", fail)
    monkeypatch.setattr(service, "WRITE_TIMEOUT_SECONDS", 0.1)
    writer = web.app.state.service.writer.process_id  # type: ignore[attr-defined]
    os.kill(writer, signal.SIGSTOP)
    refused = web.post(f"{BASE}/rank", json=BODY)
    os.kill(writer, signal.SIGCONT)
    assert refused.status_code == 503
    assert "cannot be recorded" in web.get("/healthz").json()["reason"]


def test_a_decision_is_not_written_if_it_could_not_be_withdrawn(
    web: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WithdrawalFile, "free_count", 0)
    assert web.post(f"{BASE}/rank", json=BODY | {"eventId": "e"}).json()["degraded"]
    assert "too many decisions wait" in web.get("/healthz").json()["reason"]
    assert web.app.state.service.store.find_decision(1, "e") is None  # type: ignore[attr-defined]


def test_no_default_reward_is_learned_while_a_decision_may_be_withdrawn(web: TestClient) -> None:
    state = web.app.state.service  # type: ignore[attr-defined]
    decision = make_decision(1, "e", at=1000)
    assert state.withdrawals.bound_expiry(5000) == 5000
    state.withdrawals.begin_decision(decision)
    state.withdrawals.begin_decision(make_decision(1, "f", at=2000))
    assert state.withdrawals.bound_expiry(5000) == 1000
    assert state.withdrawals.bound_expiry(500) == 500
    state.withdrawals.end_decision(decision)
    assert state.withdrawals.bound_expiry(5000) == 2000


def make_record(event: str) -> DecisionRow:
    return make_decision(1, event)._replace(features=None, chosen=1, actions='["a", "b"]')


def test_records_survive_a_crash_and_broken_ones_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log-withdrawals"
    with closing(WithdrawalFile(path)) as file:
        slots = [file.add(make_record(f"e{number}")) for number in range(4)]
        file.remove(slots[1])
        assert file.free_count == SLOT_COUNT - 3
        with pytest.raises(StoreError, match="another service runs on"):
            WithdrawalFile(path)
    assert path.stat().st_size == SLOT_COUNT * SLOT_BYTES
    with open(path, "r+b") as raw:
        raw.seek(slots[2] * SLOT_BYTES + 12)
        raw.write(b"\xff")
    with closing(WithdrawalFile(path)) as file:
        events = {record.event_id for record in file.records.values()}
        assert events == {"e0", "e3"}
        for slot in list(file.records):
            file.remove(slot)
    with closing(WithdrawalFile(path)) as file:
        assert file.records == {}
        assert file.free_count == SLOT_COUNT


def test_a_record_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with closing(WithdrawalFile(tmp_path / "file")) as file:
        with pytest.raises(OSError, match="no slot"):
            file.add(make_record("é" * 300))
        assert file.free_count == SLOT_COUNT
