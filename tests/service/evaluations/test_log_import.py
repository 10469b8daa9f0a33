"""An imported log is learned as if the loop had made its decisions."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import windvane as wv
from dsjson_lines import LATTE, SLOTS, open_lines
from evaluation_helpers import START, STEP, write_log
from store_helpers import SECOND
from windvane.cli import app
from windvane.errors import StoreError
from windvane.evaluation.readers import open_log
from windvane.evaluation.readers.rows import ReportedLog
from windvane.service.evaluations.log_import import import_log
from windvane.service.loops.learner_model import LearnerModel
from windvane.service.loops.loop import Loop
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.files.parquet_export import export_log
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.log import Store
from windvane.service.store.writer.loop_operations import PutLoop

ROWS = 200


def make_export(tmp_path: Path) -> tuple[Path, wv.Learner]:
    """An export of a log, and the learner that made its decisions."""
    path = tmp_path / "log.parquet"
    with Store(tmp_path / "source") as store:
        _, learner = write_log(store, "home", ROWS)
        export_log(store, "home", path)
    return path, learner


def load_learner(store: Store, name: str) -> wv.Learner:
    row = store.find_loop(name)
    assert row is not None
    model = Loop(row, store).model
    assert isinstance(model, LearnerModel)
    return model.learner


def test_the_belief_is_that_of_a_learner_of_the_same_rows(tmp_path: Path) -> None:
    path, learner = make_export(tmp_path)
    log = open_log([path])
    settings = LoopSettings(exploration_percentage=0.3)
    with Store(tmp_path / "target") as store:
        store.write(PutLoop("warm", settings.to_json(), 0, "test"))
        counts = import_log(store, log, "warm")
        assert (counts.imported, counts.known, counts.left_out) == (ROWS, 0, {})
        warm = load_learner(store, "warm")
        assert warm == learner  # bit for bit
        again = import_log(store, log, "warm")
        assert (again.imported, again.known) == (0, ROWS)
        assert load_learner(store, "warm") == warm
        export_log(store, "warm", tmp_path / "again.parquet")
        (batch,) = open_log([tmp_path / "again.parquet"]).iterate_batches()
        (source,) = log.iterate_batches()
        assert batch.times.tolist() == source.times.tolist()
        assert batch.probabilities.tolist() == source.probabilities.tolist()
        assert batch.read_features
        assert source.read_features
        assert batch.read_features(7) == source.read_features(7)
        newest = store.find_newest_time()
        assert newest is not None
        assert newest > (START + ROWS * STEP) * SECOND  # service time is that of the import


def test_old_decisions_are_faded_by_their_age(tmp_path: Path) -> None:
    path, _ = make_export(tmp_path)
    with Store(tmp_path / "target") as store:
        settings = LoopSettings(half_life="1 day").to_json()
        store.write(PutLoop("warm", settings, 0, "test"))
        import_log(store, open_log([path]), "warm")
        learner = load_learner(store, "warm")
    context, actions = {"device": "phone", "noise": "0"}, [{"id": "match", "topic": "sports"}]

    def estimate(days: float) -> float:
        """The estimate so many days after the last decision of the log."""
        at = START + ROWS * STEP + days * 86_400
        return sum(part.amount for part in learner.explain(learner.rank(context, actions, at=at)))

    level, _ = learner.bank.bank.level  # the mean of the first rewards, which does not fade
    known = estimate(0.0) - level
    assert known > 0.05
    assert abs(estimate(20.0) - level) < 1e-3 * known  # 20 half-lives: about 2⁻²⁰ of the weight


def test_a_log_that_a_service_serves_is_refused(tmp_path: Path) -> None:
    path, _ = make_export(tmp_path)
    with Store(tmp_path / "target") as store, hold_service_lock(store.url, 0.0):
        with pytest.raises(StoreError, match="service"):
            import_log(store, open_log([path]), "warm")
        assert store.find_loop("warm") is None


def test_rows_that_cannot_be_learned_are_counted(tmp_path: Path) -> None:
    path, _ = make_export(tmp_path)
    log = open_log([path])
    (batch,) = log.iterate_batches()
    rewards = batch.rewards.copy()
    rewards[0], rewards[1] = float("nan"), 2.0
    times = batch.times.copy()
    times[2] = 1e11
    is_degraded = batch.is_degraded.copy()
    is_degraded[3] = True

    class Changed(ReportedLog):
        description, has_fitted_probabilities = "changed", False
        has_times = True

        def iterate_slots(self):  # type: ignore[no-untyped-def]
            yield batch._replace(rewards=rewards, times=times, is_degraded=is_degraded)

    with Store(tmp_path / "target") as store:
        counts = import_log(store, Changed(), "warm")
    assert counts.imported == ROWS - 4
    assert sorted(counts.left_out.values()) == [1, 1, 1, 1]


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    path, _ = make_export(tmp_path)
    words = ["import", str(path), "--loop", "warm", "--data", str(tmp_path / "target"), "--json"]
    for imported, known in ((ROWS, 0), (0, ROWS)):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        counts = json.loads(result.stdout)
        assert counts == {"imported": imported, "known": known, "left out": {}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chosen.csv", "action,reward,probability,city\na,1,0.5,x\nb,0,0.5,y\na,0,0.25,y\n"),
        ("none.csv", "action,reward,city\na,1,x\nb,0,y\na,0,y\n"),
        ("cb.txt", "1:-1:0.5 | city=x\n2:0:0.5 | city=y\n1:0:0.25 | city=y\n"),
    ],
)
def test_learning_needs_no_probabilities(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    columns = {"context": "city"} if name.endswith("csv") else None
    log = open_log([tmp_path / name], columns=columns)
    with Store(tmp_path / "target") as store:
        counts = import_log(store, log, "warm")
        assert (counts.imported, counts.left_out) == (3, {})
        assert load_learner(store, "warm").bank.lessons == 3


def test_each_slot_of_an_event_is_a_lesson(tmp_path: Path) -> None:
    with Store(tmp_path / "target") as store:
        counts = import_log(store, open_lines(tmp_path, SLOTS, LATTE), "warm")
        assert counts.imported == 3
