"""A damaged snapshot, loop or decision: the belief keeps its bits, and the other loops go on."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from policy_access import read_bits
from server_process import BASE
from windvane.service.app import create_app

ACTIONS = {"actions": [{"id": name, "features": [{"name": name}]} for name in ("ice", "tea")]}


def play(web: TestClient, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        web.post(f"{BASE}/rank", json=ACTIONS | {"eventId": f"e{number}"})
        path = f"{BASE}/events/e{number}/reward"
        assert web.post(path, json={"value": number % 3 / 2}).status_code == 204


def read_belief(web: TestClient) -> tuple[int, dict[str, bytes]]:
    loop = web.app.state.service.loops["default"]  # type: ignore[attr-defined]
    return loop.last_lesson, read_bits(loop)


def run_sql(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / "windvane.db")) as log:
        assert log.execute(statement).rowcount > 0
        log.commit()


class PreparedLog(NamedTuple):
    """A data directory with two snapshots of a loop, and the belief of the loop."""

    data: Path
    belief: tuple[int, dict[str, bytes]]

    def copy_to(self, data: Path) -> tuple[int, dict[str, bytes]]:
        """Copy the directory, and return the belief."""
        shutil.copytree(self.data, data, dirs_exist_ok=True)
        return self.belief


def make_log(data: Path, deletes: bool) -> PreparedLog:
    with TestClient(create_app(str(data))) as web:
        assert web.post("/loops", json={"name": "home"}).status_code == 201
        play(web, 6)
        if deletes:
            assert web.request("DELETE", f"{BASE}/logs").status_code == 204
    with TestClient(create_app(str(data))) as web:
        play(web, 4, first=6)
        belief = read_belief(web)
    return PreparedLog(data, belief)


@pytest.fixture(scope="module")
def whole_log(tmp_path_factory: pytest.TempPathFactory) -> PreparedLog:
    return make_log(tmp_path_factory.mktemp("whole"), deletes=False)


@pytest.fixture(scope="module")
def shortened_log(tmp_path_factory: pytest.TempPathFactory) -> PreparedLog:
    """A log whose first decisions were deleted."""
    return make_log(tmp_path_factory.mktemp("shortened"), deletes=True)


FLIP_LAST = """
UPDATE snapshots SET blob = CAST(substr(blob, 1, 5000) || x'ff' || substr(blob, 5002) AS BLOB)
WHERE loop = 1 AND id = (SELECT max(id) FROM snapshots WHERE loop = 1)
"""
MAKE_UNREADABLE = """
UPDATE snapshots SET blob = CAST(x'fffe' AS TEXT)
WHERE loop = 1 AND id = (SELECT max(id) FROM snapshots WHERE loop = 1)
"""
FLIP_LESSON = """
UPDATE snapshots SET lesson = lesson - 1
WHERE loop = 1 AND id = (SELECT max(id) FROM snapshots WHERE loop = 1)
"""


@pytest.mark.parametrize(
    ("damage", "deletes"),
    [(FLIP_LAST, False), (FLIP_LAST, True), (FLIP_LESSON, True), (MAKE_UNREADABLE, True)],
    ids=["flip", "flip after deletion", "lesson", "unreadable"],
)
def test_an_older_snapshot_leads_to_the_same_bits(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    whole_log: PreparedLog,
    shortened_log: PreparedLog,
    damage: str,
    deletes: bool,
) -> None:
    belief = (shortened_log if deletes else whole_log).copy_to(tmp_path)
    run_sql(tmp_path, damage)
    with TestClient(create_app(str(tmp_path))) as web:
        assert read_belief(web) == belief
        health = web.get("/healthz").json()
        assert health["status"] == "ok"
        (warning,) = health["warnings"]
        assert "loop default: the snapshot after lesson" in warning
        assert warning in caplog.messages
        play(web, 1, first=20)


def test_without_a_snapshot_all_lessons_are_learned_again(
    tmp_path: Path, whole_log: PreparedLog
) -> None:
    belief = whole_log.copy_to(tmp_path)
    run_sql(tmp_path, "UPDATE snapshots SET blob = x'00ff'")
    with TestClient(create_app(str(tmp_path))) as web:
        assert read_belief(web) == belief
        assert "all lessons of the log were learned again" in str(web.get("/healthz").json())


def test_a_loop_that_cannot_be_loaded_does_not_stop_the_others(
    tmp_path: Path, shortened_log: PreparedLog
) -> None:
    shortened_log.copy_to(tmp_path)
    run_sql(tmp_path, "UPDATE snapshots SET blob = x'00ff' WHERE loop = 1")
    with TestClient(create_app(str(tmp_path))) as web:
        health = web.get("/healthz").json()
        assert health["status"] == "degraded"
        assert "loop default cannot be loaded" in health["reason"]
        assert "restore a backup" in health["reason"]
        assert web.post(f"{BASE}/rank", json=ACTIONS).status_code == 503
        assert web.post(f"/loops/home{BASE}/rank", json=ACTIONS).status_code == 201
        assert web.get("/metrics").status_code == 200


@pytest.mark.parametrize(
    "damage", ["chosen = 1000000", "probabilities = x'00'", "actions = '[', offer = NULL"]
)
def test_metrics_leave_a_damaged_decision_out(
    tmp_path: Path, whole_log: PreparedLog, damage: str
) -> None:
    whole_log.copy_to(tmp_path)
    run_sql(tmp_path, f"UPDATE decisions SET {damage} WHERE event_id = 'e3'")
    with TestClient(create_app(str(tmp_path))) as web:
        metrics = web.get("/metrics")
        assert metrics.status_code == 200
        assert 'windvane_exploration_share{loop="default"}' in metrics.text


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("request = '{'", "Its request is damaged"),
        ("request = '[]', offer_at = 0", "Its request is damaged"),
        ("offer = NULL", "This decision is damaged"),
        ("chosen = 1000000", "This decision is damaged"),
        ("probabilities = x'00'", "This decision is damaged"),
        ("actions = '[', offer = NULL", "This decision is damaged"),
    ],
)
def test_the_report_of_a_damaged_decision_says_so(
    tmp_path: Path, whole_log: PreparedLog, damage: str, sentence: str
) -> None:
    whole_log.copy_to(tmp_path)
    run_sql(tmp_path, f"UPDATE decisions SET {damage} WHERE event_id = 'e3'")
    with TestClient(create_app(str(tmp_path))) as web:
        report = web.get("/board/default/events/e3")
        assert report.status_code == 200
        assert sentence in report.json()["why"]
        assert "damaged" not in web.get("/board/default/events/e4").json()["why"]
        assert web.get("/board/default.json").status_code == 200
        assert web.get(f"{BASE}/decisions").status_code == 200
