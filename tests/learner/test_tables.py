"""Tables and rows of pandas, polars and pyarrow: contexts, actions, and a history to learn from."""

import copy
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import windvane as wv
from learner_helpers import check_same_sides, describe, play
from windvane.errors import FeatureError, RewardError, SettingError

SETTINGS: list[dict[str, Any]] = [
    {},
    {"half_life": "7 days"},
    {"half_life": "200 rounds", "crossings": "user*action, context*action"},
    {"array_size": 2},
]
ROWS: list[dict[str, Any]] = [
    {
        "device": ["phone", "desktop", None][i % 3],
        "age": [23.5, float("nan"), 61.0, 35.0][i % 4],
        "visits": i % 7,
        "member": i % 2 == 0,
        "seen": datetime(2026, 11, 1 + i % 20, i % 24, 5),
        "vector": [float(i % 5), 1.0, 0.5],
        "action": [101, 102, 103][i % 3],
        "clicked": float(i % 4 == 0),
        "at": datetime(2026, 11, 1, tzinfo=UTC).timestamp() + 3600.0 * i,
    }
    for i in range(60)
]
CONTEXT = ["device", "age", "visits", "member", "seen", "vector"]
ACTIONS: list[Any] = [{"id": 101, "topic": "news"}, {"id": 102, "topic": "film"}, 103]
COLUMNS: dict[str, Any] = {"reward": "clicked", "time": "at"}


def make_pandas() -> pd.DataFrame:
    """With the types that pandas users have: categories, nullable integers, datetimes."""
    frame = pd.DataFrame(ROWS)
    return frame.astype({"device": "category", "visits": "Int64", "member": "boolean"})


TABLES: list[Any] = [
    lambda: ROWS,
    lambda: pd.DataFrame(ROWS),
    make_pandas,
    lambda: pd.DataFrame(ROWS, index=range(7, 67)),
    lambda: pl.DataFrame(ROWS),
    lambda: pa.Table.from_pylist(ROWS),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=repr)
def test_a_history_is_learned_as_its_rows_one_by_one(settings: dict[str, Any]) -> None:
    """To the bit: also after other lessons, and by all tables alike."""
    one_by_one = wv.Learner(seed=3, **settings)
    play(one_by_one, 20)
    taught = copy.deepcopy(one_by_one)
    features = {str(each["id"]): each for each in ACTIONS[:2]} | {"103": 103}
    for row in ROWS:
        context = {name: row[name] for name in CONTEXT}
        decision = one_by_one.rank(context, [features[str(row["action"])]], at=row["at"])
        one_by_one.reward(decision, row["clicked"])
    for make in TABLES:
        learner = copy.deepcopy(taught)
        learner.learn_from(make(), actions=ACTIONS, **COLUMNS)
        assert learner == one_by_one
        assert describe(play(learner, 5)) == describe(play(copy.deepcopy(one_by_one), 5))


def test_the_columns_of_a_context_are_all_others_those_listed_or_one_of_dicts() -> None:
    wanted = wv.Learner(seed=3)
    rows = [{name: row[name] for name in ("device", "age", "action", "clicked")} for row in ROWS]
    wanted.learn_from(rows, reward="clicked")
    listed, nested = wv.Learner(seed=3), wv.Learner(seed=3)
    listed.learn_from(pd.DataFrame(ROWS), context=["device", "age"], reward="clicked")
    nested.learn_from(
        [
            {"x": {"device": row["device"], "age": row["age"]}, "a": {"id": row["action"]}, "r": r}
            for row in ROWS
            for r in [row["clicked"]]
        ],
        context="x",
        action="a",
        reward="r",
    )
    assert listed == wanted
    assert nested == wanted


def test_times_of_a_history_are_seconds_datetimes_dates_or_texts() -> None:
    learners = []
    days = [datetime(2026, 11, 1 + i, tzinfo=UTC) for i in range(20)]
    for times in (
        [day.timestamp() for day in days],
        days,
        [day.replace(tzinfo=None) for day in days],
        [day.date() for day in days],
        [day.isoformat() for day in days],
        pd.Series(days),
        [np.datetime64(day.replace(tzinfo=None), "ns") for day in days],
        [Decimal(day.timestamp()) for day in days],
    ):
        learner = wv.Learner(seed=3, half_life="2 days")
        rows = [{"action": "x", "reward": i % 3, "time": time} for i, time in enumerate(times)]
        learner.learn_from(rows, time="time")
        learners.append(learner)
    assert all(learner == learners[0] for learner in learners)
    assert learners[0].bank.newest == days[-1].timestamp()
    assert wv.Learner(seed=1).rank({}, ["x"], at=days[1]).at == days[1].timestamp()
    assert wv.Learner(seed=1).rank({}, ["x"], at=date(2026, 11, 2)).at == days[1].timestamp()  # type: ignore[arg-type]


BAD_HISTORIES: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
    ([{"action": "x", "reward": None}], {}, RewardError, "row 1: the reward must be a finite"),
    ([{"action": "x", "reward": np.nan}], {}, RewardError, "row 1: the reward must be a finite"),
    ([{"action": "x", "reward": pd.NA}], {}, RewardError, "row 1: the reward must be a finite"),
    ([{"action": "x"}], {}, FeatureError, "row 1 has no column 'reward', got action"),
    ([{"action": 1.5, "reward": 1}], {}, FeatureError, "row 1: an action must be a text or"),
    ([{"action": "y", "reward": 1}], {"actions": ["x"]}, FeatureError, "row 1: the action 'y' is"),
    (
        [{"action": "x", "reward": 1, "a": np.inf}],
        {},
        FeatureError,
        "row 1: features of the context: a must be a finite number, got inf",
    ),
    ([["x", 1]], {}, FeatureError, "row 1 must be a dict, got"),
    ([{"action": "x", "reward": 1}], {"time": "t"}, FeatureError, "row 0 has no column 't'"),
    ([{"action": "x", "reward": 1}], {"context": ["a"]}, FeatureError, "row 0 has no column 'a'"),
]


@pytest.mark.parametrize(("rows", "options", "error", "message"), BAD_HISTORIES)
def test_a_bad_row_is_named_and_nothing_is_learned(
    rows: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    learner = wv.Learner(seed=3)
    play(learner, 10)
    before = copy.deepcopy(learner)
    with pytest.raises(error, match=f"learn_from: {message}"):
        learner.learn_from([{"action": "x", "reward": 1.0}, *rows], **options)
    assert learner == before
    for missing in (pd.NaT, None, "soon"):
        bad_time = pd.DataFrame({"action": ["x"], "reward": [1], "time": [missing]})
        with pytest.raises(SettingError, match="learn_from: row 0: at must be a finite number"):
            learner.learn_from(bad_time, time="time")
    with pytest.raises(FeatureError, match="history must be a list"):
        learner.learn_from({"action": ["x"], "reward": [1.0]})


@pytest.mark.parametrize("make", TABLES)
def test_many_contexts_are_ranked_as_one_after_the_other(make: Any) -> None:
    learner = wv.Learner(seed=3)
    learner.learn_from(ROWS, actions=ACTIONS, **COLUMNS)
    other, actions = copy.deepcopy(learner), pd.DataFrame({"id": [101, 102], "topic": ["a", "b"]})
    many = learner.rank_many(make(), actions, at=1e9, exclude=[102])
    for row, decision in zip(ROWS, many, strict=True):
        same = other.rank(row, actions.to_dict("records"), at=1e9, exclude=["102"])
        assert (decision, *describe([decision])) == (same, *describe([same]))
    assert learner == other
    learner.reward(many[3].id, 1.0)
    assert learner.rank_many([], ["x"]) == []


def test_if_one_context_is_refused_no_decision_is_made() -> None:
    learner = wv.Learner(seed=3)
    before = copy.deepcopy(learner)
    large = {f"a{i}": "x" for i in range(300)}  # found when the third is joined with the actions
    refused: list[Any] = [{"a": np.inf}, "phone", large]
    for bad in refused:
        with pytest.raises(FeatureError):
            learner.rank_many([{}, {}, bad], [{"id": "x", **large}, "y"], at=0.0)
        assert learner == before


def test_a_row_is_a_context_or_an_action() -> None:
    frame = pd.DataFrame(ROWS)[["device", "age", "visits"]]
    wanted = wv.Learner(seed=1).rank({"device": "phone", "age": 23.5, "visits": 0}, ["x"], at=0.0)
    rows: list[Any] = [
        frame.iloc[0],
        next(frame.itertuples()),
        next(frame.itertuples(index=False)),
        next(frame.iterrows())[1],
        pl.DataFrame(ROWS).select("device", "age", "visits").row(0, named=True),
    ]
    for row in rows:
        decision = wv.Learner(seed=1).rank(row, ["x"], at=0.0)
        check_same_sides(decision.lesson, wanted.lesson)
    items = pd.DataFrame({"id": [7, 8], "price": [Decimal("1.5"), None]})
    as_rows = [row for _, row in items.iterrows()]
    wanted = wv.Learner(seed=1).rank({}, [{"id": "7", "price": 1.5}, {"id": "8", "price": None}])
    tables: list[Any] = [items, as_rows, pl.from_pandas(items.astype({"price": float}))]
    for actions in tables:
        decision = wv.Learner(seed=1).rank({}, actions)
        check_same_sides(decision.lesson, wanted.lesson)


@pytest.mark.parametrize("ids", [pd.Series([1, 2]), pl.Series([1, 2]), np.array([1, 2]), (1, 2)])
def test_whole_numbers_are_ids(ids: Any) -> None:
    exclude: Any = np.array([2])
    decision = wv.Learner(seed=1).rank({}, ids, exclude=exclude)
    assert (decision.action, decision.index) == ("1", 0)


def test_missing_values_of_pandas_are_missing() -> None:
    wanted = wv.Learner(seed=1).rank({"a": None}, ["x"], at=0.0)
    for missing in (pd.NA, pd.NaT, np.nan, None, np.datetime64("NaT"), Decimal("NaN")):
        decision = wv.Learner(seed=1).rank({"a": missing}, ["x"], at=0.0)
        check_same_sides(decision.lesson, wanted.lesson)


@pytest.mark.parametrize("reward", [np.bool_(True), np.int8(1), np.float32(1), Decimal(1), True])
def test_rewards_are_numbers_of_any_library(reward: Any) -> None:
    learner, same = wv.Learner(seed=1), wv.Learner(seed=1)
    for each, value in ((learner, reward), (same, 1.0)):
        each.reward(each.rank({}, ["x"], at=0.0), value)
    assert learner == same


def test_a_table_is_no_context_and_its_columns_must_differ() -> None:
    with pytest.raises(FeatureError, match="the context must be a dict or a list of dicts"):
        wv.Learner(seed=1).rank(pd.DataFrame(ROWS), ["x"])
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(FeatureError, match="must have distinct names"):
        wv.Learner(seed=1).rank_many(twice, ["x"])


def test_a_prediction_is_the_sum_of_its_explanation_and_changes_nothing() -> None:
    learner = wv.Learner(seed=3)
    learner.learn_from(ROWS, actions=ACTIONS, **COLUMNS)
    before = copy.deepcopy(learner)
    predictions = learner.predict({"device": "phone", "visits": 3}, ACTIONS)
    assert learner == before
    for place, predicted in enumerate(predictions):
        decision = learner.rank({"device": "phone", "visits": 3}, ACTIONS[place : place + 1])
        total = sum(amount for _, amount in learner.explain(decision))
        assert predicted == pytest.approx(total, abs=1e-9)
    with pytest.raises(wv.WindvaneError, match="at least one action"):
        learner.predict({}, [])
