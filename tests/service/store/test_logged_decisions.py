"""The decisions in the database are the log that an export of them is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from store_helpers import SECOND, create_loop, make_requested
from windvane.cli import app
from windvane.errors import SettingError
from windvane.evaluation.log_batch import LogBatch
from windvane.evaluation.readers import open_log
from windvane.service.store import decision_queries
from windvane.service.store.files.parquet_export import export_log
from windvane.service.store.log import Store
from windvane.service.store.logged_decisions import LoggedDecisions
from windvane.service.store.writer.decision_operations import Expire, PutDecision
from windvane.service.store.writer.reward_operations import PutReward, RewardTerms

TERMS = RewardTerms(10 * SECOND)
OFFERS = {
    '[{"id": "a", "features": []}, {"id": "b", "features": [{"size": 1}]}]': ["a", "b"],
    '[{"id":"a","features":[]},{"id":"é","features":[]},{"id":"c","features":[]}]': ["a", "é", "c"],
}


def write_decisions(store: Store) -> None:
    """Decisions of two offers: learned, waiting, defaulted, degraded, excluded, deferred."""
    loop = create_loop(store)
    for k in range(23):
        offer, ids = list(OFFERS.items())[k % 2]
        excluded = '["a"]' if k % 5 == 0 else "[]"
        request = (
            f'{{"contextFeatures": [{{"k": {k}}}], "actions": {offer}, '
            f'"excludedActions": {excluded}}}'
        )
        at = (100 - k) * SECOND if k < 3 else (100 + k) * SECOND  # the first came out of order
        decision = make_requested(loop, f"e{k}", at, request, offer, ids)
        decision = decision._replace(deferred=k % 7 == 6, degraded=k == 9)
        if k % 5 == 0:
            shares = np.array([0.0] + [1.0] * (len(ids) - 1)) / (len(ids) - 1)
            decision = decision._replace(probabilities=shares.tobytes())
        store.write(PutDecision(decision, TERMS))
        if k % 3:
            store.write(PutReward(loop, f"e{k}", k / 23, at, TERMS))
    store.write(Expire(loop, 110 * SECOND, -1.0, 120 * SECOND))


def join(batches: list[LogBatch]) -> dict[str, Any]:
    """All columns of a log that do not depend on where the log is."""
    rows = [
        (batch.event_ids[row], batch.read_features and batch.read_features(row))
        for batch in batches
        for row in range(batch.size)
    ]
    names = ("times", "rewards", "chosen", "action_counts", "probabilities", "is_eligible",
             "is_defaulted", "is_degraded")  # fmt: skip
    columns = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in names}
    return {"rows": rows, **columns}


def test_the_database_and_its_export_are_the_same_log(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_decisions(store)
    export_log(store, "home", tmp_path / "log.parquet")
    expected = join(list(open_log([tmp_path / "log.parquet"]).iterate_batches()))
    assert np.isnan(expected["rewards"]).any()
    for batch_rows in (4, 1000):
        monkeypatch.setattr(decision_queries, "BATCH_ROWS", batch_rows)
        log = LoggedDecisions(store, "home")
        found = join(list(log.iterate_batches()))
        np.testing.assert_equal(found, expected)
        assert (log.bad_row_count, log.count()) == (0, 23)
    assert (np.diff(found["times"]) >= 0).all()
    part = LoggedDecisions(store, "home", 105 * SECOND, 110 * SECOND)
    (batch,) = part.iterate_batches()
    assert batch.times.tolist() == [105.0, 107.0, 108.0, 109.0]  # 106 was never activated


def test_a_loop_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store, pytest.raises(SettingError, match="no loop 'none'"):
        LoggedDecisions(store, "none")


def test_windvane_check_reads_the_data_of_a_service(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        write_decisions(store)
    result = CliRunner().invoke(app, ["check", str(tmp_path / "data"), "--loop", "home"])
    assert result.stdout.startswith("the loop home"), result.output
    with pytest.raises(SettingError, match="--loop: LOG must be the data directory"):
        CliRunner().invoke(app, ["check", str(tmp_path), "--loop", "home"], catch_exceptions=False)
