"""Decisions of another system, learned by a running service."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from loop_client import LoopClient, check_refusal
from server_process import Server
from windvane.cli import app
from windvane.evaluation.readers import open_log
from windvane.service.evaluations.log_import import import_log
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.log import Store
from windvane.service.store.logged_decisions import FOREIGN, LoggedDecisions
from windvane.service.store.rows import Funnel
from windvane.service.store.writer.loop_operations import PutLoop

ROWS = 150  # more than one request takes
ITEM: dict[str, object] = {
    "eventId": "e",
    "time": "2024-05-01T10:00:00Z",
    "actions": [{"id": "ice", "features": []}, {"id": "tea", "features": []}],
    "rewardActionId": "ice",
    "reward": 1.0,
}


def write_vw(folder: Path) -> Path:
    """A log of Vowpal Wabbit, which knows the probability of the chosen action only."""
    path = folder / "log.txt"
    lines = [f"{1 + k % 2}:{-(k % 2)}:0.{1 + k % 9} | age:{k} city=c{k % 3}" for k in range(ROWS)]
    path.write_text("\n".join(lines) + "\n")
    return path


def run_import(path: Path, *words: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["import", str(path), *words, "--json"])
    assert result.exit_code == 0, result.output
    counts: dict[str, object] = json.loads(result.stdout)
    return counts


def test_a_running_service_learns_what_a_stopped_one_would(
    loop: Callable[..., LoopClient], server: Server, tmp_path: Path
) -> None:
    path, one = write_vw(tmp_path), loop()
    where = ("--loop", one.name, "--url", server.url)
    assert run_import(path, *where) == {"imported": ROWS, "known": 0, "left out": {}}
    weights = one.weights()
    assert run_import(path, *where) == {"imported": 0, "known": ROWS, "left out": {}}
    assert np.array_equal(one.weights(), weights)
    with Store(tmp_path / "twin") as store:
        settings = LoopSettings(half_life="never", exploration_percentage=0.0)
        store.write(PutLoop("twin", settings.to_json(), 0, "test"))
        import_log(store, open_log([path]), "twin")
        row = store.find_loop("twin")
        assert row is not None
        _, arrays = Loop(row, store).model.learner.bank.export_state()
    assert np.array_equal(arrays["weight_sums"][arrays["weight_keys"].argsort()], weights)


def test_imported_decisions_are_no_decisions_of_the_loop(
    loop: Callable[..., LoopClient], server: Server, tmp_path: Path
) -> None:
    one = loop()
    one.rank("own")
    one.reward("own", 1.0)
    run_import(write_vw(tmp_path), "--loop", one.name, "--url", server.url)
    assert one.lessons() == ROWS + 1
    assert one.funnel() == Funnel(ranked=1, activated=1, learned=1)
    with Store(server.data) as store:
        log = LoggedDecisions(store, one.name)
        assert [batch.event_ids for batch in log.iterate_batches()] == [["own"]]
        assert log.notes == {FOREIGN: ROWS}
    page = one.call("GET", "/decisions?limit=2").json["decisions"]
    assert [each["mode"] for each in page] == ["Online", "Imported"]
    assert one.call("GET", "/decisions?limit=2").json["decisions"][1]["reward"] is not None
    assert one.rank("later")["rewardActionId"]


@pytest.mark.parametrize(
    "change",
    [
        {"time": "2999-01-01T00:00:00Z"},
        {"time": "2024-05-01T10:00:00"},
        {"rewardActionId": "soup"},
        {"probabilities": [0.5]},
        {"probabilities": [0.5, 1.5]},
        {"reward": 2.0},
        {"eventId": "a\0b"},
        {"contextFeatures": [{"a": {"b": {"c": {"d": 1}}}}]},
    ],
)
def test_a_bad_decision_is_named_and_nothing_is_imported(
    change: dict[str, object], loop: Callable[..., LoopClient], request: pytest.FixtureRequest
) -> None:
    one = loop(f"-{request.node.callspec.id}")
    check_refusal(one.call("POST", "/decisions", {"decisions": [ITEM, ITEM | change]}), 400)
    assert one.lessons() == 0
    answer = one.call("POST", "/decisions", {"decisions": [ITEM, ITEM]})
    assert answer.json == {"imported": 1, "known": 1}
    assert one.call("POST", "/decisions", {"decisions": [ITEM] * 101}).status == 400


def test_an_import_of_nothing_fails_with_the_reason(
    loop: Callable[..., LoopClient], server: Server, tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text("action,reward\na,5\nb,\na,7\n")
    words = ["import", str(tmp_path / "log.csv"), "--loop", loop().name, "--url", server.url]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "nothing was imported: its reward must lie in [-1, 1]" in result.output


def test_an_import_may_be_larger_than_a_rank_request(loop: Callable[..., LoopClient]) -> None:
    one = loop()
    wide = {"contextFeatures": [{f"name {k}": k for k in range(150)}]}
    items = [ITEM | wide | {"eventId": f"e{k}"} for k in range(100)]
    answer = one.call("POST", "/decisions", {"decisions": items})
    assert answer.json == {"imported": 100, "known": 0}
    values = [ITEM | {"contextFeatures": [{"_": [[]] * 140_000}]}]
    refused = one.call("POST", "/decisions", {"decisions": values})
    check_refusal(refused, 400, "PayloadSizeExceeded")
