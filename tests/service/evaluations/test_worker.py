"""Which policy an evaluation calls optimal, and when nothing can be trusted."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from evaluation_helpers import START, STEP, write_log
from store_helpers import SECOND
from windvane.evaluation.estimates.policy_record import PolicyRecord
from windvane.evaluation.estimates.result import PolicyResult
from windvane.evaluation.readers import open_log
from windvane.service.evaluations.log_import import import_log
from windvane.service.evaluations.records import EvaluationContract
from windvane.service.evaluations.worker import (
    Origins,
    count_origins,
    find_doubt,
    find_optimal,
    list_problems,
)
from windvane.service.loops.settings import LoopSettings
from windvane.service.store.files.parquet_export import export_log
from windvane.service.store.log import Store
from windvane.service.store.writer.loop_operations import PutSettings

ROWS = 4000


def evaluate_second_action(probability: float, logged: float) -> PolicyResult:
    """Always the second of two actions, whose rewards are 0.4 and 0.6.

    The second action was chosen with `probability`, and the log says `logged`.
    """
    draws = np.random.default_rng(1)
    is_second = draws.random(ROWS) < probability
    rewards = (draws.random(ROWS) < np.where(is_second, 0.6, 0.4)).astype(float)
    record = PolicyRecord("second")
    record.add(
        60.0 * np.arange(ROWS, dtype=np.float64), rewards, np.where(is_second, 1 / logged, 0.0)
    )
    return record.summarize()


@pytest.mark.parametrize(
    ("probability", "logged", "optimal", "is_doubtful"),
    [
        (0.5, 0.5, "second", False),
        (0.5, 0.3, "online", True),  # a mean weight of 1.67, and rewards that are as wrong
        (0.0005, 0.0008, "online", False),  # few decisions, which are no reason to doubt the log
    ],
)
def test_a_policy_is_optimal_only_if_the_log_can_be_trusted(
    probability: float, logged: float, optimal: str, is_doubtful: bool
) -> None:
    result = evaluate_second_action(probability, logged)
    assert result.gain.verdict == ("better" if probability == 0.5 else "not yet")
    assert find_optimal([result]) == optimal
    assert bool(list_problems(result)) == is_doubtful
    assert ("the logged probabilities are wrong" in find_doubt([result])) == is_doubtful


def test_decisions_of_other_settings_and_of_other_systems_are_counted_apart(tmp_path: Path) -> None:
    with Store(tmp_path / "source") as store:
        write_log(store, "home", 40)
        export_log(store, "home", tmp_path / "log.parquet")
    rows = pl.read_parquet(tmp_path / "log.parquet")
    renamed = pl.concat_str(pl.lit("other-"), "event_id").alias("event_id")
    rows.with_columns(renamed).write_parquet(tmp_path / "log.parquet")
    with Store(tmp_path / "data") as store:
        loop, _ = write_log(store, "home", 100, start=START + 100 * STEP)
        counts = import_log(store, open_log([tmp_path / "log.parquet"]), "home")
        assert counts.imported == 40, counts
        first = LoopSettings(exploration_percentage=0.3)
        waits = first.merge({"rewardWaitTime": "PT1M"})  # changes no policy
        policy = waits.merge({"halfLife": "2 days"})
        for row, settings in ((160, waits), (130, policy)):
            at = (START + row * STEP) * SECOND
            store.write(PutSettings(loop, settings.to_json(), at, "test"))
        contract = EvaluationContract(name="x", since=START * SECOND, until=2 * START * SECOND)
        assert count_origins(store, "home", contract) == (40, 30)
        late = EvaluationContract(
            name="x", since=(START + 130 * STEP) * SECOND, until=2 * START * SECOND
        )
        assert count_origins(store, "home", late) == (0, 0)
    assert Origins(40, 30).describe() == [
        "30 decisions were made with other settings of the loop: what was logged is not what this "
        "loop does now"
    ]
