"""Tables of anybody: which actions were offered, fitted probabilities, types, and refusals."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from windvane.errors import SettingError
from windvane.evaluation.log_batch import LogBatch
from windvane.evaluation.readers import open_log
from windvane.evaluation.readers.column_mapping import map_columns, parse_columns
from windvane.evaluation.readers.file_log import FileLog


def open_text(folder: Path, text: str, columns: str = "") -> FileLog:
    path = folder / "log.csv"
    path.write_text(text, "utf-8")
    return open_log([path], columns=parse_columns(columns))


def read_one(log: FileLog) -> LogBatch:
    (batch,) = log.iterate_batches()
    return batch


def test_without_probabilities_the_share_of_each_action_is_its_probability(tmp_path: Path) -> None:
    """Three files, 10 rows: a 5 times, b 3 times, c 2 times."""
    for name, actions in (("1", "aab"), ("2", "abca"), ("3", "bac")):
        rows = "".join(f"{action},1\n" for action in actions)
        (tmp_path / f"{name}.csv").write_text("action,reward\n" + rows)
    log = open_log([tmp_path])
    batches = list(log.iterate_batches())
    assert log.has_fitted_probabilities
    assert (log.has_fitted_probabilities, log.has_times) == (True, False)
    for batch in batches:
        expected = np.tile([0.5, 0.3, 0.2], batch.size)
        np.testing.assert_allclose(batch.probabilities, expected, rtol=1e-12)
    assert np.concatenate([batch.times for batch in batches]).tolist() == list(range(10))


def test_fitted_probabilities_follow_which_actions_a_row_offered(tmp_path: Path) -> None:
    """Rates: a 2 of 4, b 1 of 3, c 1 of 2; the last row offers a and c: ½ and ½."""
    log = open_text(
        tmp_path,
        'action;reward;offered\na;0;["a","b"]\nb;1;["a","b"]\nc;1;["a","b","c"]\na;0;["a","c"]\n',
        "actions=offered",
    )
    batch = read_one(log)
    rates = {"a": 2 / 4, "b": 1 / 3, "c": 1 / 2}
    two = [rates["a"] / (rates["a"] + rates["b"]), rates["b"] / (rates["a"] + rates["b"])]
    three = [rate / sum(rates.values()) for rate in rates.values()]
    np.testing.assert_allclose(batch.probabilities, [*two, *two, *three, 0.5, 0.5], rtol=1e-12)
    assert batch.chosen.tolist() == [0, 1, 2, 0]


def test_actions_can_be_numbers_below_a_count(tmp_path: Path) -> None:
    text = "action,reward,probability,n\n2,1,0.5,4\n0,0,0.25,3\n3,0,0.25,3\n1,0,1,1.5\n"
    log = open_text(tmp_path, text, "count=n")
    batch = read_one(log)
    assert batch.action_counts.tolist() == [4, 3]
    assert batch.chosen.tolist() == [2, 0]
    np.testing.assert_equal(batch.probabilities, [np.nan] * 2 + [0.5, np.nan, 0.25] + [np.nan] * 2)
    assert [bad.line for bad in log.bad_rows] == [5, 4]
    fixed = read_one(open_text(tmp_path, text, "count=5"))
    assert fixed.action_counts.tolist() == [5] * 4


def test_context_has_the_types_of_the_columns(tmp_path: Path) -> None:
    log = open_text(
        tmp_path,
        "action,reward,probability,age,zip,new,city,extra_1\n"
        'a,1,0.5,30,12345,true,"Paris, France",1\nb,,0.5,,00501,false,"a\nb",2\n',
        "context=age;zip:text;new;city;extra_*",
    )
    batch = read_one(log)
    assert batch.read_features is not None
    assert batch.read_features(0).context == [
        {"age": 30.0, "zip": "12345", "new": True, "city": "Paris, France", "extra_1": 1.0}
    ]
    assert batch.read_features(1).context == [
        {"zip": "00501", "new": False, "city": "a\nb", "extra_1": 2.0}
    ]
    np.testing.assert_equal(batch.rewards, [1.0, np.nan])
    assert batch.lines.tolist() == [2, 3]


def test_bad_rows_of_a_table_are_named_with_their_lines(tmp_path: Path) -> None:
    log = open_text(
        tmp_path,
        "action,reward,probability,time,multiplicity\n"
        "a,1,0.5,2021-01-01,1\n"
        "a,yes,0.5,2021-01-01,1\n"
        "a,1,,2021-01-01,1\n"
        "a,1,0.5,soon,1\n"
        "a,1,0.5\n"
        ",1,0.5,2021-01-01,1\n"
        "a,1,1.5,2021-01-01,1\n"
        "b,1,0,2021-01-01,1\n"
        "b,1,0.5,1609459200.5,0.5\n"
        "b,1,0.5,1609459200.5,4\n",
    )
    batch = read_one(log)
    assert batch.times.tolist() == [1609459200.0, 1609459200.5]
    assert batch.multiplicities.tolist() == [1.0, 4.0]
    reasons = {bad.line: bad.reason for bad in log.bad_rows}
    assert sorted(reasons) == [3, 4, 5, 6, 7, 8, 9, 10]
    assert "reward must be a number, got 'yes' in column reward" in reasons[3]
    assert "probability must be known" in reasons[4]
    assert "time must be a time in ISO 8601 or a number, got 'soon'" in reasons[5]
    assert "must have 5 fields, got 3" in reasons[6]
    assert "action must be known" in reasons[7]
    assert "must lie in [0, 1]" in reasons[8]
    assert "must be > 0" in reasons[9]
    assert "stands for must be finite and >= 1, got 0.5" in reasons[10]


def test_a_parquet_file_with_times_nulls_and_excluded_actions(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "action": [7, 8, 8],
            "reward": [1, None, 0],
            "time": pl.Series([1, 2, None], dtype=pl.Datetime("us")),
            "probabilities": [[0.25, 0.75], [0.0, 1.0], [0.5, 0.5]],
            "actions": [[7, 8]] * 3,
            "excluded": [[], [7], []],
            "context_json": ['{"x":1}', '[{"y":2}]', None],
            "defaulted": [True, None, False],
        }
    )
    frame.write_parquet(tmp_path / "log.parquet")
    log = open_log([tmp_path / "log.parquet"])
    batch = read_one(log)
    assert batch.times.tolist() == [1e-6, 2e-6]
    np.testing.assert_equal(batch.rewards, [1.0, np.nan])
    assert batch.is_eligible.tolist() == [True, True, False, True]
    assert batch.is_defaulted.tolist() == [True, False]
    assert batch.read_features is not None
    assert batch.read_features(1).context == [{"y": 2}]
    assert [action.id for action in batch.read_features(1).actions] == ["7", "8"]
    assert [bad.line for bad in log.bad_rows] == [3]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("reward=click", "such as action=arm; the columns of the table are arm, click, ts"),
        ("action=arm,reward=clicks", "reward must name a column, got 'clicks'"),
        ("action=arm,reward=click,reword=ts", "a key must be one of action, reward"),
        ("action=arm,reward=click,context=age*", "context must name columns, got 'age*'"),
        ("action=arm,reward=click,probabilities=p_*", "a column must start with 'p_'"),
        ("action=arm,reward=click,actions=a|a", "ids of actions must differ"),
        ("action=arm,reward=click,count=0", "count must be at least 1"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(columns: str, reason: str) -> None:
    with pytest.raises(SettingError) as raised:
        map_columns(parse_columns(columns), ["arm", "click", "ts"])
    assert reason in str(raised.value)


def test_a_star_maps_all_columns_that_nothing_else_uses() -> None:
    names = ["arm", "click", "p_a", "p_b", "age", "ts"]
    columns = parse_columns("action=arm,reward=click,probabilities=p_*,time=ts:ms,context=*")
    mapping = map_columns(columns, names)
    assert mapping.context == ("age",)
    assert mapping.action_ids == ("a", "b")
    assert mapping.seconds_per_unit == 1e-3


LOG = """,timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,\
user-item_affinity_0,user-item_affinity_1,user-item_affinity_2
0,2019-11-24 00:03:13.442536+00:00,2,3,0,0.25,cef3,03a5,0.0,1.5,0.0
1,2019-11-24 00:03:36+00:00,0,1,1,0.5,cef3,2d03,0.0,0.0,0.0
"""
ITEMS = """,item_id,item_feature_0,item_feature_1
0,0,-0.677,ceca
1,1,-0.72,270d
2,2,0.5,ceca
"""


def test_a_row_is_a_decision_for_one_position(tmp_path: Path) -> None:
    (tmp_path / "men.csv").write_text(LOG)
    (tmp_path / "item_context.csv").write_text(ITEMS)
    log = open_log([tmp_path])
    (batch,) = log.iterate_batches()
    assert (log.bad_row_count, log.has_fitted_probabilities, log.has_times) == (0, False, True)
    assert batch.times.tolist() == [1574553793.442536, 1574553816.0]
    assert batch.chosen.tolist() == [2, 0]
    assert batch.rewards.tolist() == [0.0, 1.0]
    assert batch.chosen_probabilities.tolist() == [0.25, 0.5]
    assert batch.action_counts.tolist() == [3, 3]
    assert batch.read_features is not None
    context, actions = batch.read_features(0)
    assert context == [{"position": "3", "user_feature_0": "cef3", "user_feature_1": "03a5"}]
    assert actions[1] == (
        "1",
        [{"item_feature_0": -0.72, "item_feature_1": "270d"}, {"affinity": 1.5}],
    )
