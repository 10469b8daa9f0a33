"""The Open Bandit Dataset: rows as its files have them, with the features of users and items."""

from pathlib import Path

from windvane.evaluation.readers import open_log

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
    assert (log.bad_row_count, log.warnings) == (0, [])
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
