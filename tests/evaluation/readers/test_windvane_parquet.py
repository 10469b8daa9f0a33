"""Exports of Windvane: of this version, and of a version to come."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from windvane.errors import FileError
from windvane.evaluation.readers import file_log, open_log
from windvane.evaluation.readers.rows import NEVER_ACTIVATED
from windvane.evaluation.readers.windvane_parquet import NEWEST_SCHEMA_VERSION
from windvane.service.store.files.parquet_export import EXPORT_SCHEMA_VERSION, SCHEMA


def make_export(path: Path, **changes: object) -> None:
    """Write an export of three decisions among two actions."""
    columns = {
        "event_id": ["e1", "e2", "e3"],
        "time": pl.Series([1_500_000, 2_000_000, 3_000_000], dtype=pl.Datetime("us", "UTC")),
        "round": [0, 1, 2],
        "mode": ["Online"] * 3,
        "action": ["b", "a", "a"],
        "chosen": [1, 0, 0],
        "probability": [0.25, 1.0, 0.5],
        "actions": [["a", "b"]] * 3,
        "probabilities": [[0.75, 0.25], [1.0, 0.0], [0.5, 0.5]],
        "reward": [1.0, None, 0.5],
        "defaulted": [False, False, True],
        "deferred": [False] * 3,
        "activated": [True] * 3,
        "degraded": [False, True, False],
        "context_json": ['[{"time":"morning"}]'] * 3,
        "actions_json": ['[{"id":"a"},{"id":"b","features":[{"size":2}]}]'] * 3,
        "excluded": [[], ["b"], []],
        "schema_version": [EXPORT_SCHEMA_VERSION] * 3,
    }
    schema = {name: SCHEMA[name] for name in columns}  # without pages
    pl.DataFrame(columns | changes, schema=schema).write_parquet(path)


def test_an_export_has_all_columns_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_export(tmp_path / "log.parquet")
    log = open_log([tmp_path / "log.parquet"])
    (batch,) = log.iterate_batches()
    assert batch.event_ids == ["e1", "e2", "e3"]
    assert batch.times.tolist() == [1.5, 2.0, 3.0]
    np.testing.assert_equal(batch.rewards, [1.0, np.nan, 0.5])
    assert batch.chosen.tolist() == [1, 0, 0]
    assert batch.starts.tolist() == [0, 2, 4, 6]
    assert batch.probabilities.tolist() == [0.75, 0.25, 1.0, 0.0, 0.5, 0.5]
    assert batch.is_eligible.tolist() == [True, True, True, False, True, True]
    assert batch.is_defaulted.tolist() == [False, False, True]
    assert batch.is_degraded.tolist() == [False, True, False]
    assert batch.lines.tolist() == [1, 2, 3]
    assert batch.read_features is not None
    features = batch.read_features(2)
    assert features.context == [{"time": "morning"}]
    assert features.actions == [("a", []), ("b", [{"size": 2}])]
    monkeypatch.setattr(file_log, "BATCH_ROWS", 2)
    assert [each.lines.tolist() for each in log.iterate_batches()] == [[1, 2], [3]]


def test_a_deferred_decision_that_was_not_activated_is_left_out(tmp_path: Path) -> None:
    make_export(
        tmp_path / "log.parquet", deferred=[True, True, False], activated=[False, True, True]
    )
    log = open_log([tmp_path / "log.parquet"])
    (batch,) = log.iterate_batches()
    assert batch.event_ids == ["e2", "e3"]
    assert log.notes == {NEVER_ACTIVATED: 1}


def test_a_later_version_of_the_schema_is_refused(tmp_path: Path) -> None:
    assert EXPORT_SCHEMA_VERSION == NEWEST_SCHEMA_VERSION
    make_export(tmp_path / "log.parquet", schema_version=[EXPORT_SCHEMA_VERSION + 1] * 3)
    with pytest.raises(FileError, match="schema_version must be at most 2, got 3"):
        list(open_log([tmp_path / "log.parquet"]).iterate_batches())
