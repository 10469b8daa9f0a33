"""The state of a learner: saving, copying, time, explanations, and a full table of weights."""

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windvane as wv
from grid import rewrite_saved
from learner_helpers import Offer, Stream, describe, play
from processes import run_python
from windvane.beliefs.bank import bank as bank_module
from windvane.beliefs.bank.bank import AUTO_BELIEFS
from windvane.beliefs.bank.dense import end_dense_beliefs
from windvane.errors import ChoiceError, FileError
from windvane.features.packed_features import pack_actions

YEAR = 365.25 * 86_400
SETTINGS: list[dict[str, Any]] = [
    {},
    {"half_life": "7 days"},
    {"half_life": "200 rounds"},
    {"half_life": "never", "crossings": "none"},
    {"crossings": "user*action, context*action", "exploration": 0.3},
]


# Saving and copying


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_a_saved_learner_continues_with_the_same_bits(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    learner = wv.Learner(seed=3, **settings)
    play(learner, 60, late=0.3)
    waiting = learner.rank({"device": "phone"}, ["a1", "a2"], at=1.1e9)
    learner.save(tmp_path / "learner")
    loaded = wv.Learner.load(tmp_path / "learner")
    copies = [
        loaded,
        copy.copy(learner),
        copy.deepcopy(learner),
        pickle.loads(pickle.dumps(learner)),
    ]
    for other in copies:
        assert other == learner
        assert repr(other) == repr(learner)
        other.reward(waiting, 1.0)
        assert other != learner
    learner.reward(waiting, 1.0)
    wanted = describe(play(learner, 40, seed=2))
    for other in copies:
        assert describe(play(other, 40, seed=2)) == wanted
        assert other == learner
        with pytest.raises(ChoiceError, match="has its reward"):
            other.reward(waiting, 1.0)


@pytest.mark.parametrize("is_dense", [True, False])
def test_a_saved_learner_continues_with_and_without_dense_beliefs(
    is_dense: bool, tmp_path: Path
) -> None:
    """The dense beliefs of the second one end, because visitors have many pages."""

    def visit(learner: wv.Learner, visitors: range) -> list[wv.Decision]:
        decisions = []
        for visitor in visitors:
            context = {"age": math.sin(visitor), "page": f"p{visitor if not is_dense else 0}"}
            decisions.append(learner.rank(context, ["x", "y"], at=float(visitor)))
            liked = (decisions[-1].action == "x") == (math.sin(visitor) > 0.0)
            learner.reward(decisions[-1], float(liked))
        return decisions

    learner = wv.Learner(seed=3)
    visit(learner, range(180))
    assert bool(len(learner.bank.dense.newest)) == is_dense
    if is_dense:
        learner.bank.leader = len(AUTO_BELIEFS) + 1
    learner.save(tmp_path / "learner")
    copies = [wv.Learner.load(tmp_path / "learner"), copy.deepcopy(learner)]
    wanted = describe(visit(learner, range(180, 260)))
    for other in copies:
        assert describe(visit(other, range(180, 260))) == wanted
        assert other == learner
    if is_dense:
        learner.bank.dense.moving.means[0, 0] += 1.0
        assert learner != copies[0]


def test_learners_differ_by_settings_seed_and_what_they_learned() -> None:
    assert wv.Learner(seed=1) == wv.Learner(seed=1)
    assert wv.Learner(seed=1) != wv.Learner(seed=2)
    assert wv.Learner(seed=1) != wv.Learner(seed=1, half_life="7 days")
    assert wv.Learner(seed=1) != "Learner"


@pytest.mark.parametrize(
    "change",
    [
        {"weight_sums": lambda array: array[:, :1]},
        {"weight_sums": lambda array: np.where(array == array.max(), np.nan, array)},
        {"weight_keys": lambda array: np.repeat(array[:1], len(array))},
        {"scales": lambda array: array[1:]},
        {"judgements": lambda array: array.astype(np.float32)},
        {"open_places": lambda array: np.array([[99, 0]])},
        {"open_places": lambda array: np.array([[0.5, 0.0]])},
        {"level": lambda array: array[:1]},
        {"dense_parts": lambda array: array[:-1]},
        {"dense_parts": lambda array: np.repeat(array[-1:], len(array))},
        {"dense_parts": lambda array: np.arange(len(array))},
        {"dense_parts": lambda array: np.arange(200, dtype=np.uint64)},
        {"dense_actions": lambda array: array[1:]},
        {"dense_actions": lambda array: np.zeros_like(array)},
        {"dense_newest": lambda array: array[1:]},
        {"dense_newest": lambda array: np.full(len(array), np.nan)},
        {"dense_still_means": lambda array: array.T},
        {"dense_still_means": lambda array: array.astype(np.float32)},
        {"dense_moving_means": lambda array: np.where(array == array.max(), np.nan, array)},
        {"dense_moving_covariances": lambda array: array[:, 1:]},
        {"dense_moving_covariances": lambda array: array + np.nan},
        {"dense_still_covariances": lambda array: -array},
        {"dense_still_covariances": lambda array: array[:0]},
        *({"leader": leader} for leader in (1.0, True, 12, -1, "first", None)),
        *({"newest": newest} for newest in (math.nan, math.inf, "today")),
        {"lessons": -1},
        {"round": 1.5},
        {"half_life": "soon"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_file_that_does_not_fit_together_is_refused(
    change: dict[str, Any], tmp_path: Path
) -> None:
    """Although its checksum is right."""

    def apply_change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        for name, new in change.items():
            if callable(new):
                arrays[name] = new(arrays[name])
            else:
                header[name] = new

    learner = wv.Learner(seed=1)
    play(learner, 10)
    assert len(learner.bank.dense.newest) > 0
    learner.save(tmp_path / "learner")
    rewrite_saved(tmp_path / "learner", apply_change, "Learner")
    with pytest.raises(FileError, match="holds no policy that fits together") as error:
        wv.Learner.load(tmp_path / "learner")
    assert "\n" not in str(error.value)


def test_dense_beliefs_of_a_file_are_refused_with_a_fixed_half_life(tmp_path: Path) -> None:
    automatic, fixed = wv.Learner(seed=1), wv.Learner(seed=1, half_life="never")
    for learner, name in ((automatic, "automatic"), (fixed, "fixed")):
        play(learner, 10)
        learner.save(tmp_path / name)

    def take_over(_: dict[str, Any], arrays: dict[str, Any]) -> None:
        state = automatic.export_state()[1]
        arrays.update({key: array for key, array in state.items() if key.startswith("dense_")})

    rewrite_saved(tmp_path / "fixed", take_over, "Learner")
    with pytest.raises(FileError, match="it has dense beliefs, which no learner with a fixed"):
        wv.Learner.load(tmp_path / "fixed")


def test_a_leader_that_has_ended_is_refused(tmp_path: Path) -> None:
    learner = wv.Learner(seed=1)
    learner.bank.dense = end_dense_beliefs(learner.bank.dense)
    play(learner, 10)
    learner.save(tmp_path / "learner")
    assert wv.Learner.load(tmp_path / "learner") == learner
    rewrite_saved(tmp_path / "learner", lambda header, _: header.update(leader=10), "Learner")
    with pytest.raises(FileError, match="its counters are out of bounds"):
        wv.Learner.load(tmp_path / "learner")


# Time


@pytest.mark.parametrize("half_life", ["auto", "7 days", "100 rounds", "never", "PT1H"])
def test_gaps_of_years_and_clocks_that_go_back(half_life: str) -> None:
    learner = wv.Learner(seed=1, half_life=half_life)
    stream = Stream(4)
    times = (1e9, 1e9 + 50 * YEAR, 1e9 - 50 * YEAR, 1e9, -1e12, 1e12, 1e12 + 1.0, 0.0)
    for at in times:
        for _ in range(5):
            decision = learner.rank(stream.draw_context(), stream.draw_actions(), at=at)
            assert decision.at == at
            assert np.isfinite(decision.probabilities).all()
            assert decision.probabilities.sum() == pytest.approx(1.0, abs=1e-9)
            learner.reward(decision, stream.draw_reward(decision))
            assert all(math.isfinite(amount) for _, amount in learner.explain(decision))


def test_a_fixed_half_life_fades_what_was_learned() -> None:
    """The prediction falls to the level of rewards, equally after equally many half-lives."""

    def predict(half_life: str, seconds: float) -> float:
        """The prediction of the fourth round above the level; the lessons are of round 0."""
        learner = wv.Learner(seed=1, half_life=half_life)
        for action, reward in (("y", 0.0), ("x", 1.0)):
            learner.learn(learner.rank({}, [action], at=0.0).lesson, reward, 0.0, 0)
        for _ in range(2):
            learner.rank({}, ["y"], at=seconds / 2.0)
        decision = learner.rank({}, ["x"], at=seconds)
        assert learner.bank.bank.level[0] == 0.5
        return sum(amount for _, amount in learner.explain(decision)) - 0.5

    fresh = predict("never", 0.0)
    assert fresh > 0.2
    assert predict("never", YEAR) == pytest.approx(fresh, abs=1e-12)
    assert predict("10 days", 0.0) == pytest.approx(fresh, abs=1e-12)
    assert predict("10 days", 10 * 86_400.0) == pytest.approx(predict("1 day", 86_400.0))
    assert 0.3 * fresh < predict("10 days", 10 * 86_400.0) < 0.9 * fresh
    assert predict("10 days", YEAR) == pytest.approx(0.0, abs=1e-9)
    assert predict("4 rounds", YEAR) == pytest.approx(predict("10 days", 10 * 86_400.0))
    assert predict("4 rounds", 0.0) < fresh


# Explanations


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_an_explanation_sums_to_the_prediction(settings: dict[str, Any]) -> None:
    """Whichever belief leads, sparse or dense."""
    learner = wv.Learner(seed=3, **settings)
    stream = Stream(9)
    now = play(learner, 80)[-1].at
    count = 2 if learner.is_fixed else len(AUTO_BELIEFS) + 2
    for leader in range(count):
        learner.bank.leader = leader
        decision = learner.rank(stream.draw_context(), stream.draw_actions(), at=now)
        parts = learner.explain(decision)
        clock = learner.clock_of(decision.round, decision.at)
        predicted = learner.bank.predict(decision.lesson, clock)
        assert sum(amount for _, amount in parts) == pytest.approx(predicted[0], abs=1e-9)
        offer = Offer(decision.action, [decision.features])
        ranking, _ = learner.rank_packed(
            decision.context, pack_actions([offer]), [0], decision.at, decision.round
        )
        assert ranking.means[0] == pytest.approx(predicted[0], abs=1e-12)
        amounts = [abs(amount) for _, amount in parts]
        assert amounts == sorted(amounts, reverse=True)
        assert amounts[0] > 0.0
        assert len({name for name, _ in parts}) == len(parts)


def test_an_explanation_names_features_and_crossings() -> None:
    learner = wv.Learner(seed=1, half_life="never")
    for vector in ([1.0, 2.0], [3.0, 1.0]):
        context = {"device": "phone", "v": vector}
        decision = learner.rank(context, [{"id": "news", "topic": "politics"}], at=0.0)
        learner.reward(decision, vector[0])
    assert {name for name, _ in learner.explain(decision)} == {
        "constant",
        "context.device=phone",
        "context.v",
        "action=news",
        "action.topic=politics",
        "context.device=phone × action=news",
        "context.device=phone × action.topic=politics",
        "context.v × action=news",
        "context.v × action.topic=politics",
    }


def test_an_explanation_of_a_dense_belief_names_what_an_action_makes_of_the_context() -> None:
    """The context with categories, a number whose bins are known, and a missing one."""
    learner = wv.Learner(seed=1)
    for i in range(30):
        context = {"device": "phone", "age": float(i % 7), "size": None}
        decision = learner.rank(context, [{"id": "news", "topic": "politics"}], at=0.0)
        learner.reward(decision, float(i % 7 > 3))
    learner.bank.leader = len(AUTO_BELIEFS)
    explained = dict(learner.explain(decision))
    assert set(explained) == {
        "constant",
        "action=news",
        "context.device=phone × action=news",
        "context.age × action=news",
        "context.size=missing × action=news",
    }
    assert explained["constant"] == pytest.approx(learner.bank.bank.level[0], abs=1e-12)


def test_parts_of_a_belief_that_moves_sum_to_its_prediction() -> None:
    learner = wv.Learner(seed=3)
    now = play(learner, 80)[-1].at
    stream = Stream(9)
    learner.bank.leader = learner.bank.parts_belief
    assert len(AUTO_BELIEFS[learner.bank.leader]) == 4
    for _ in range(5):
        decision = learner.rank(stream.draw_context(), stream.draw_actions(), at=now)
        action = Offer(decision.action, [decision.features])
        parts = learner.split_speeds(decision.context, action, decision.at, decision.round)
        assert {each.shape for each in parts.values()} == {(4,)}
        predicted = learner.bank.predict(decision.lesson, float(learner.bank.lessons))[0]
        assert sum(each.sum() for each in parts.values()) == pytest.approx(predicted, abs=1e-9)


# A full table


def test_full_tables_still_decide_and_stay_deterministic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tables of 512 weights and 256 groups, for 400 visitors with a name and a field of their own.

    At most 0.7 of the places of a table are taken.
    """
    monkeypatch.setattr(bank_module, "MAX_PLACES", 512)
    monkeypatch.setattr(bank_module, "MAX_GROUP_PLACES", 256)

    def run(saved_after: int) -> tuple[wv.Learner, list[wv.Decision]]:
        learner, decisions = wv.Learner(seed=1), []
        for visitor in range(400):
            device = "phone" if visitor % 2 else "desktop"
            context = {"user": f"u{visitor}", "device": device, f"field{visitor}": True}
            actions = [{"id": "news", "topic": "a"}, {"id": "match", "topic": "b"}]
            decision = learner.rank(context, actions, at=float(visitor))
            is_liked = (decision.action == "match") == bool(visitor % 2)
            learner.reward(decision, float(is_liked))
            decisions.append(decision)
            if visitor == saved_after:
                learner.save(tmp_path / "learner")
                learner = wv.Learner.load(tmp_path / "learner")
        return learner, decisions

    learner, decisions = run(-1)
    assert np.count_nonzero(learner.bank.bank.keys) <= 358
    assert len(learner.bank.bank.keys) == 512
    assert np.count_nonzero(learner.bank.bank.group_keys) == 179
    for saved_after in (40, 300):
        other, same_decisions = run(saved_after)
        assert describe(same_decisions) == describe(decisions)
        assert other == learner
    late = [(each.action == "match") == bool(i % 2) for i, each in enumerate(decisions)][300:]
    assert sum(late) > 75


def test_numbers_of_ever_new_names_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of 256 scales takes 179 numbers; the others count as 0, and those known still act."""
    monkeypatch.setattr(bank_module, "MAX_SCALE_PLACES", 256)
    learner = wv.Learner(seed=1)
    for visitor in range(400):
        context = {"age": float(visitor % 2), f"number{visitor}": float(visitor)}
        decision = learner.rank(context, ["news", "match"], at=float(visitor))
        is_liked = (decision.action == "match") == bool(visitor % 2)
        learner.reward(decision, float(is_liked))
    assert np.count_nonzero(learner.bank.scales.keys) == 179
    choices = [
        learner.rank({"age": float(i % 2)}, ["news", "match"], at=400.0).action for i in range(100)
    ]
    assert sum((action == "match") == bool(i % 2) for i, action in enumerate(choices)) > 90


WHOLE_NUMBERS_FIRST = """
import sys, windvane as wv
learner, number = wv.Learner(seed=1), {"int": int, "float": float}[sys.argv[1]]
decision = learner.rank({}, ["news", "match"], at=number(0))
learner.learn(decision.lesson, number(1), number(0), 0)
learner.learn(decision.lesson, 0.75, 1.5, 1)
print(learner.bank.predict(decision.lesson, number(2)).tolist())
"""


def test_whole_numbers_in_the_first_call_of_a_process_count_as_any_number() -> None:
    """The first call decides the types of the compiled code, which would cut 0.75 to 0."""
    first, second = (
        run_python("-c", WHOLE_NUMBERS_FIRST, kind).stdout for kind in ("int", "float")
    )
    assert first == second != ""
