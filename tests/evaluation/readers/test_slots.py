"""Events with several slots stay together; the evaluator of single slots sees the first slot."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsjson_lines import LATTE, SLOTS, change, open_lines
from windvane.evaluation import check, evaluate
from windvane.evaluation.log_batch import LogBatch
from windvane.evaluation.readers.file_log import FileLog
from windvane.evaluation.readers.rows import APPRENTICE, FIRST_SLOTS

SLATE = json.dumps(
    {
        "_label_cost": -0.7,
        "Timestamp": "2021-04-07T16:41:25Z",
        "EventId": "s1",
        "c": {
            "user": {"age": "young"},
            "_multi": [
                {"_slot_id": 0, "_tag": "red"},
                {"_slot_id": 1, "_tag": "small"},
                {"_slot_id": 0, "_tag": "blue"},
                {"_slot_id": 1, "_tag": "large"},
            ],
            "_slots": [{"place": "top"}, {"place": "side"}],
        },
        "_outcomes": [{"_a": 1, "_p": 0.8}, {"_a": [0, 1], "_p": [0.6, 0.4]}],
    }
)


def read_slots(log: FileLog) -> LogBatch:
    (batch,) = log.iterate_slots()
    return batch


def list_naively(line: str) -> list[dict[str, Any]]:
    """The slots of a CCB line, by its text alone."""
    event = json.loads(line)
    tags = [action["_tag"] for action in event["c"]["_multi"]]
    return [
        {
            "id": f"{event['EventId']}/{slot['_id']}",
            "chosen": tags[outcome["_a"][0]],
            "reward": -outcome["_original_label_cost"],
            "law": {tags[a]: p for a, p in zip(outcome["_a"], outcome["_p"], strict=True)},
        }
        for slot, outcome in zip(event["c"]["_slots"], event["_outcomes"], strict=True)
    ]


def list_slots(batch: LogBatch) -> list[dict[str, Any]]:
    assert batch.read_features is not None
    slots = []
    for row in range(batch.size):
        flat = slice(batch.starts[row], batch.starts[row + 1])
        tags = [action.id for action in batch.read_features(row).actions]
        law = zip(tags, batch.probabilities[flat], batch.is_eligible[flat], strict=True)
        slots.append(
            {
                "id": batch.event_ids[row],
                "chosen": tags[batch.chosen[row]],
                "reward": batch.rewards[row],
                "law": {tag: p for tag, p, is_candidate in law if is_candidate},
            }
        )
    return slots


def test_the_slots_of_a_line_stay_one_event(tmp_path: Path) -> None:
    log = open_lines(tmp_path, LATTE, SLOTS, change(SLOTS, EventId="again"), LATTE)
    batch = read_slots(log)
    assert batch.slots is not None
    assert batch.slots.tolist() == [0, 0, 1, 0, 1, 0]
    assert batch.event_starts.tolist() == [0, 1, 3, 5, 6]
    np.testing.assert_allclose(batch.event_rewards, [1.0, 0.9, 0.9, 1.0])
    assert list_slots(batch)[1:3] == list_naively(SLOTS)
    assert list_slots(batch)[3:5] == list_naively(change(SLOTS, EventId="again"))
    assert batch.read_features is not None
    side_bar = batch.read_features(2).context[-1]
    features = {"id": "SideBar", "size": "Medium", "position": "Right", "index": "1"}
    assert side_bar == {"slot": features}


def test_only_the_first_slot_is_a_decision_of_its_own(tmp_path: Path) -> None:
    log = open_lines(tmp_path, LATTE, SLOTS)
    (batch,) = log.iterate_batches()
    assert list_slots(batch)[1] == list_naively(SLOTS)[0]
    assert (batch.size, batch.slots, log.notes) == (2, None, {FIRST_SLOTS: 1})
    assert check(log).decisions == 2
    result = evaluate(log, ["logged"])
    assert result.policies[0].value.value == pytest.approx((1.0 + 0.5) / 2)
    assert f"1 {FIRST_SLOTS}" in result.warnings


def test_the_slots_of_a_slate_have_actions_of_their_own_and_one_reward(tmp_path: Path) -> None:
    batch = read_slots(open_lines(tmp_path, SLATE))
    assert batch.is_slate is not None
    assert batch.is_slate.tolist() == [True, True]
    assert batch.event_ids == ["s1/0", "s1/1"]
    assert (batch.event_rewards.tolist(), batch.rewards.tolist()) == ([0.7], [0.7, 0.7])
    first, second = list_slots(batch)
    assert (first["chosen"], second["chosen"]) == ("blue", "small")
    assert second["law"] == {"small": 0.6, "large": 0.4}
    assert first["law"]["blue"] == 0.8
    assert np.isnan(first["law"]["red"])  # one of its actions, with a probability nobody logged
    assert len(first["law"]) == 2


def test_a_slot_lists_its_candidates_by_inclusion_and_by_the_slots_before(tmp_path: Path) -> None:
    event = json.loads(SLOTS)
    event["_outcomes"][1] |= {"_a": 3, "_p": 0.5}
    event["c"]["_slots"][1]["_inc"] = [0, 1, 3]  # the first slot took action 1
    side_bar = list_slots(read_slots(open_lines(tmp_path, json.dumps(event))))[1]["law"]
    assert list(side_bar) == ["Mocha", "Americano"]
    assert side_bar["Americano"] == 0.5


def test_a_slot_without_an_action_is_left_out(tmp_path: Path) -> None:
    event = json.loads(SLOTS)
    event["_outcomes"][1] |= {"_a": [], "_p": []}
    batch = read_slots(open_lines(tmp_path, json.dumps(event), SLOTS))
    assert batch.event_starts.tolist() == [0, 1, 3]


def test_a_bad_slot_makes_the_whole_event_bad(tmp_path: Path) -> None:
    bad = SLOTS.replace('"_a":[3,2,0]', '"_a":[1,2,0]')  # which the first slot has
    log = open_lines(tmp_path, SLOTS, bad, SLATE)
    batch = read_slots(log)
    assert batch.event_starts.tolist() == [0, 2, 4]
    assert [(row.line, log.bad_row_count) for row in log.bad_rows] == [(2, 1)]


def test_apprentice_mode_shows_the_baseline_in_each_slot(tmp_path: Path) -> None:
    line = SLOTS.replace('"_label_cost":-0.5', '"_label_cost":-1.0')
    line = line.replace('"_label_cost":-0.4', '"_label_cost":0.0')
    log = open_lines(tmp_path, line)
    laws = [slot["law"] for slot in list_slots(read_slots(log))]
    assert (laws[0]["Latte"], laws[1]["Cappuccino"]) == (1.0, 1.0)  # `_ba` is [1, 2]
    assert log.notes == {APPRENTICE: 2}
