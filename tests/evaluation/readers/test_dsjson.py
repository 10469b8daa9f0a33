"""dsjson: real lines of Personalizer and Vowpal Wabbit, and the traps of the format."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from dsjson_lines import LATTE, SLOTS, change, open_lines
from windvane.errors import FileError
from windvane.evaluation.log_batch import DecisionFeatures, LogBatch
from windvane.evaluation.readers import open_log
from windvane.evaluation.readers.file_log import FileLog
from windvane.evaluation.readers.rows import (
    APPRENTICE,
    NEVER_ACTIVATED,
    ORPHAN_REWARDS,
    RENORMALIZED,
)


def read_one(log: FileLog) -> LogBatch:
    (batch,) = log.iterate_batches()
    return batch


def read_features(batch: LogBatch, row: int) -> DecisionFeatures:
    assert batch.read_features is not None
    return batch.read_features(row)


def test_a_line_is_read_in_the_order_in_which_the_actions_were_sent(tmp_path: Path) -> None:
    line = change(LATTE, p=[0.5, 0.3, 0.2], _label_probability=0.5)
    batch = read_one(open_lines(tmp_path, line))
    assert batch.event_ids == ["0000000"]
    assert batch.times.tolist() == [1617813625.0]
    assert (batch.rewards.tolist(), batch.chosen.tolist()) == ([1.0], [2])
    assert batch.probabilities.tolist() == [0.2, 0.3, 0.5]
    assert batch.is_eligible.all()
    features = read_features(batch, 0)
    assert features.context[0]["Major"] == "engineering"
    assert features.context[0]["TopicClickProbability"] == {
        "Mocha": 0.3,
        "Latte": 0.5,
        "Cappuccino": 0.2,
    }
    assert [action.id for action in features.actions] == ["Mocha", "Latte", "Cappuccino"]
    assert features.actions[0].features == [{"roast": "light"}]


def test_in_apprentice_mode_the_reward_belongs_to_the_baseline(tmp_path: Path) -> None:
    """The third line fits both modes and follows the second; the last cannot be Apprentice."""
    log = open_lines(
        tmp_path,
        change(LATTE, _label_cost=0.0, _original_label_cost=0.0),
        change(LATTE, _label_cost=0.0, _original_label_cost=-0.7),
        change(LATTE, _label_cost=0.0, _original_label_cost=0.0),
        change(LATTE, _label_cost=-0.2, _original_label_cost=-0.2),
    )
    batch = read_one(log)
    assert batch.chosen.tolist() == [2, 0, 0, 2]
    np.testing.assert_allclose(batch.chosen_probabilities, [1 / 3, 1, 1, 1 / 3], atol=1e-7)
    assert batch.rewards.tolist() == [0.0, 0.7, 0.0, 0.2]
    assert batch.probabilities[3:6].tolist() == [1.0, 0.0, 0.0]
    assert log.notes == {APPRENTICE: 2}


def test_special_lines_are_counted(tmp_path: Path) -> None:
    log = open_lines(
        tmp_path,
        change(LATTE, _skipLearn=True),
        '{"RewardValue":1.0,"EnqueuedTimeUtc":"2021-04-07T16:40:25Z","EventId":"lost"}',
        change(LATTE, p=[0.3335, 0.3333, 0.3335], pdrop=0.75, o=[{"ActionTaken": True}]),
    )
    batch = read_one(log)
    assert log.notes == {NEVER_ACTIVATED: 1, ORPHAN_REWARDS: 1, RENORMALIZED: 1}
    assert batch.multiplicities.tolist() == [4.0]
    assert batch.is_defaulted.tolist() == [True]
    assert batch.probabilities.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (change(LATTE, p=[0.4, 0.4, 0.4], _label_probability=0.4), "must sum to 1"),
        (change(LATTE, p=[0.5, 0.5], _label_probability=0.5), "same length, got 3 and 2"),
        (change(LATTE, a=[3, 3, 1]), "ranked twice"),
        (change(LATTE, a=[4, 2, 1], _label_Action=None), "one of the 3 offered"),
        (change(LATTE, _label_Action=1), "must be the first of a, got 1 and 3"),
        (change(LATTE, _label_probability=0.9), "_label_probability must be"),
        (change(LATTE, p=[0, 0.5, 0.5], _label_probability=0), "must be > 0"),
        (change(LATTE, Timestamp="yesterday"), "Timestamp must be a time"),
        (change(LATTE, pdrop=1.0), "pdrop must lie in"),
        (change(LATTE, c=None), "must have c"),
        (change(LATTE, c={"FromUrl": []}), "_multi"),
        (LATTE[:100], "truncated"),
        ("not JSON", "malformed"),
        (SLOTS.replace('"_a":[3,2,0]', '"_a":[1,2,0]'), "must not be one of the excluded"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    log = open_lines(tmp_path, LATTE, line, LATTE)
    good = sum(batch.size for batch in log.iterate_batches())
    assert good >= 2
    assert log.bad_row_count == 1
    (bad,) = log.bad_rows
    assert (bad.source, bad.line) == (str(tmp_path / "log.json"), 2)
    assert reason in bad.reason
    with pytest.raises(FileError, match=r"log\.json:2: "):
        list(open_log([tmp_path / "log.json"], strict=True).iterate_batches())


def test_continuous_actions_are_refused(tmp_path: Path) -> None:
    label = {"cost": -0.95, "pdf_value": 0.0021452, "action": 185.0035}
    continuous = json.dumps({"_label_ca": label, "EventId": "1", "c": {"a": 1}, "pdrop": 0.0})
    with pytest.raises(FileError, match="continuous actions"):
        list(open_lines(tmp_path, continuous).iterate_batches())


def test_files_are_read_in_the_order_of_time_with_or_without_gzip(tmp_path: Path) -> None:
    later = change(LATTE, EventId="later", Timestamp="2022-01-01T00:00:00Z")
    (tmp_path / "a.json").write_text(later)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(LATTE.encode()))
    for paths in (
        [tmp_path],
        [tmp_path / "*.json*"],
        [tmp_path / "a.json", tmp_path / "b.json.gz"],
    ):
        log = open_log(paths)
        for _ in range(2):
            ids = [id_ for batch in log.iterate_batches() for id_ in batch.event_ids]
            assert ids == ["0000000", "later"]
            assert log.progress == 1.0


def test_a_damaged_compressed_file_is_a_bad_row_after_its_good_lines(tmp_path: Path) -> None:
    text = "\n".join(change(LATTE, EventId=str(i)) for i in range(2000)).encode()
    (tmp_path / "log.json.gz").write_bytes(gzip.compress(text)[:-2000])
    log = open_log([tmp_path / "log.json.gz"])
    assert sum(batch.size for batch in log.iterate_batches()) > 100
    assert "damaged after this line" in log.bad_rows[-1].reason
