"""The export writes every decision of a loop as the client sent it, with its reward."""

from pathlib import Path

import polars as pl
import pytest

from store_helpers import TERMS, create_loop, make_decision, make_requested, put_summed_reward
from windvane.service.store import decision_queries
from windvane.service.store.files.parquet_export import SCHEMA, export_log
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import Expire, PutDecision

ACTIONS = '[{"id": "a", "features": []}, {"id": "b", "features": [{"é": 1}]}]'
ONE_ACTION = '[{"id":"only","features":[]}]'
CONTEXT = '[{"time": "morning"}]'


def write_log(store: Store) -> None:
    loop = create_loop(store)
    plain = f'{{"contextFeatures": {CONTEXT}, "actions": {ACTIONS}}}'
    without_a = plain[:-1] + ', "excludedActions": ["a"]}'
    first = f'{{"actions":{ONE_ACTION},"contextFeatures":[]}}'
    twice = f'{{"contextFeatures": [{{"same": {ONE_ACTION}}}], "actions": {ONE_ACTION}}}'
    for event, at, request, offer, ids in (
        ("plain", 10, plain, ACTIONS, ["a", "b"]),
        ("again", 20, without_a, ACTIONS, ["a", "b"]),
        ("first", 30, first, ONE_ACTION, ["only"]),
        ("twice", 40, twice, ONE_ACTION, ["only"]),
    ):
        decision = make_requested(loop, event, at, request, offer, ids)
        store.write(PutDecision(decision, TERMS))
    store.write(PutDecision(make_decision(loop, "whole", 50, deferred=True), TERMS))
    store.write(put_summed_reward(loop, "plain", 0.5))
    store.write(put_summed_reward(loop, "plain", 0.25))
    store.write(Expire(loop, 25, -1.0, 60))


def test_an_export_has_what_the_client_sent(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.parquet"
    reports: list[tuple[int, int]] = []
    for batch_rows in (2, 1000):
        monkeypatch.setattr(decision_queries, "BATCH_ROWS", batch_rows)
        with Store(where) as store:
            if store.find_loop("home") is None:
                write_log(store)
            assert export_log(store, "home", path, lambda *step: reports.append(step)) == 5
        table = pl.read_parquet(path)
        assert table.schema == SCHEMA
        assert table["event_id"].to_list() == ["plain", "again", "first", "twice", "whole"]
        assert table["time"].dt.timestamp("us").to_list() == [10, 20, 30, 40, 50]
        assert table["action"].to_list() == ["b", "b", "only", "only", "b"]
        both, one = ["a", "b"], ["only"]
        assert table["actions"].to_list() == [both, both, one, one, both]
        assert table["probability"].to_list() == [0.5, 0.5, 1.0, 1.0, 0.9]
        assert table["probabilities"].list.len().to_list() == [2, 2, 1, 1, 2]
        assert table["reward"].to_list() == [0.75, -1.0, None, None, None]
        assert table["defaulted"].to_list() == [False, True, False, False, False]
        assert table["deferred"].to_list() == [False] * 4 + [True]
        assert table["activated"].to_list() == [True] * 4 + [False]
        same = f'[{{"same": {ONE_ACTION}}}]'
        assert table["context_json"].to_list() == [CONTEXT, CONTEXT, "[]", same, '["é"]']
        sent = [ACTIONS, ACTIONS, ONE_ACTION, ONE_ACTION, "[]"]
        assert table["actions_json"].to_list() == sent
        assert table["excluded"].to_list() == [[], ["a"], [], [], []]
        assert table["schema_version"].to_list() == [2] * 5
    assert reports == [(2, 5), (4, 5), (5, 5), (5, 5)]


def test_a_log_without_decisions_is_exported_as_an_empty_table(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        create_loop(store)
        assert export_log(store, "home", tmp_path / "log.parquet") == 0
    table = pl.read_parquet(tmp_path / "log.parquet")
    assert (table.schema, len(table)) == (SCHEMA, 0)
