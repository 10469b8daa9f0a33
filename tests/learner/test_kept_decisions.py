"""Decisions that are kept: ids and JSON, rewards after a restart, and ids of other learners."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windvane as wv
from grid import rewrite_saved
from learner_helpers import Stream, play
from processes import run_python
from windvane.errors import ChoiceError, FileError

SETTINGS: list[dict[str, Any]] = [
    {},
    {"half_life": "7 days"},
    {"half_life": "200 rounds", "crossings": "user*action, context*action"},
    {"array_size": 2},
]


def rank_once(learner: wv.Learner, seed: int = 9) -> wv.Decision:
    stream = Stream(seed)
    return learner.rank(stream.draw_context(), stream.draw_actions(), at=1e9)


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_a_decision_is_rewarded_by_its_id_its_json_or_itself_with_the_same_bits(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    learner = wv.Learner(seed=3, **settings)
    play(learner, 40)
    decision = rank_once(learner)
    learner.save(tmp_path / "learner")
    learner.reward(decision, 0.5)
    for kept in (decision.id, decision, wv.Decision.from_json(decision.to_json())):
        loaded = wv.Learner.load(tmp_path / "learner")
        assert loaded != learner
        loaded.reward(kept, 0.5)
        assert loaded == learner
        with pytest.raises(ChoiceError, match="round 40 has its reward or was dismissed"):
            loaded.reward(kept, 0.5)


def test_another_process_rewards_an_id(tmp_path: Path) -> None:
    learner = wv.Learner(seed=3)
    play(learner, 10)
    decision = rank_once(learner)
    learner.save(tmp_path / "learner")
    code = (
        "import sys, windvane as wv; learner = wv.Learner.load(sys.argv[1]);"
        "learner.reward(sys.argv[2], 1.0); learner.save(sys.argv[1])"
    )
    run_python("-c", code, tmp_path / "learner", decision.id)
    learner.reward(decision, 1.0)
    assert wv.Learner.load(tmp_path / "learner") == learner


def test_the_json_of_a_decision_has_all_that_it_says() -> None:
    learner = wv.Learner(seed=3)
    context = {"age": math.nan, "user": {"score": math.nan, "tags": ["a"]}, "big": 2**70}
    decision = learner.rank(context, [{"id": "news", "topic": "été"}, 7], at=12.5, exclude=[7])
    written = json.loads(decision.to_json())
    assert written == {
        "id": decision.id,
        "action": "news",
        "index": 0,
        "probability": 1.0,
        "probabilities": [1.0, 0.0],
        "round": 0,
        "at": 12.5,
        "context": [{"age": None, "user": {"score": None, "tags": ["a"]}, "big": 2**70}],
        "features": {"topic": "été"},
    }
    again = wv.Decision.from_json(decision.to_json().encode())
    assert again == decision
    assert again.probabilities.tolist() == [1.0, 0.0]
    assert learner.explain(again) == learner.explain(decision)


@pytest.mark.parametrize(
    "change", [{"id": 3}, {"probabilities": ["x"]}, {"at": None}, {"index": "0"}]
)
def test_json_that_is_no_decision_is_refused(change: dict[str, Any]) -> None:
    written = json.loads(rank_once(wv.Learner(seed=3)).to_json())
    for text in (json.dumps(written | change), "[]", "", "[" * 100_000):
        with pytest.raises(ChoiceError, match="from_json: this is no decision in JSON"):
            wv.Decision.from_json(text)


def test_ids_of_copies_and_of_learners_with_the_same_seed_are_told_apart() -> None:
    """Their rounds and keys are equal, so each id also has a hash of what was decided, and when."""
    learner = wv.Learner(seed=3)
    play(learner, 10)
    twin, fresh, other = copy.deepcopy(learner), wv.Learner(seed=3), wv.Learner(seed=4)
    own = learner.rank({"device": "phone"}, ["x"], at=5.0)
    foreign = [
        twin.rank({"device": "desktop"}, ["x"], at=5.0),
        copy.deepcopy(learner).rank({}, ["x"], at=5.0),
        copy.copy(twin).rank({"device": "phone"}, ["x"], at=6.0),
        other.rank({"device": "phone"}, ["x"], at=5.0),
        fresh.rank({"device": "phone"}, ["x"], at=5.0),
    ]
    assert len({own.id, *(each.id for each in foreign)}) == 6
    before = copy.deepcopy(learner)
    for decision in [*foreign[:1], foreign[3]]:
        for use in (learner.dismiss, lambda id_: learner.reward(id_, 1.0)):
            with pytest.raises(ChoiceError, match="this decision was made by another learner"):
                use(decision.id)
    assert learner == before
    learner.reward(own.id, 1.0)


def test_ids_of_twins_whose_decisions_are_equal_are_equal() -> None:
    one, other = wv.Learner(seed=3), wv.Learner(seed=3)
    assert rank_once(one).id == rank_once(other).id
    assert len({rank_once(one).id for _ in range(50)}) == 50


@pytest.mark.parametrize("text", ["", "news", "0" * 8 + "-0-" + "0" * 15, "x" * 10_000, 7, None])
def test_what_is_no_id_is_refused(text: Any) -> None:
    learner = wv.Learner(seed=3)
    rank_once(learner)
    for use in (learner.dismiss, lambda id_: learner.reward(id_, 1.0)):
        with pytest.raises(ChoiceError, match="a decision or its id must be given, got"):
            use(text)


@pytest.mark.parametrize(
    "change",
    [
        {"open_places": lambda array: array + 100},
        {"open_places": lambda array: np.zeros_like(array)},
        {"open_times": lambda array: array[1:]},
        {"open_times": lambda array: array * np.nan},
        {"open_sizes": lambda array: array + 1},
        {"open_sizes": lambda array: np.array([-1, *(array[1:] + array[0] + 1)])},
        {"open_lessons": lambda array: array[1:]},
        {"open_lessons": lambda array: array[::-1].copy()},
        {"open_lessons": lambda array: array.astype(np.int64)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_file_with_damaged_decisions_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    learner = wv.Learner(seed=3)
    for seed in range(2):
        rank_once(learner, seed)
    learner.save(tmp_path / "learner")
    wv.Learner.load(tmp_path / "learner")

    def apply_change(_: Any, arrays: dict[str, Any]) -> None:
        for name, alter in change.items():
            arrays[name] = alter(arrays[name])

    rewrite_saved(tmp_path / "learner", apply_change, "Learner")
    with pytest.raises(FileError, match="holds no policy that fits together"):
        wv.Learner.load(tmp_path / "learner")
