"""Short ways to write decisions and rewards into a store, for tests."""

import json
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Table, func, insert, select

from windvane.beliefs.bank.sides import encode_packed_lesson, pack_context
from windvane.features.packed_features import pack_actions
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.loops.rank_requests import cut_offer
from windvane.service.schemas import Action
from windvane.service.store.files.log_copy import read_last_ids, set_last_ids
from windvane.service.store.log import SELECT_DECISIONS, LogReader, Store
from windvane.service.store.rows import DecisionRow, Funnel
from windvane.service.store.schema import (
    clock,
    counters,
    decisions,
    evaluation_parts,
    evaluations,
    keys,
    lessons,
    loops,
    offers,
    positions,
    rewards,
    settings_log,
    snapshot_parts,
    snapshots,
    waiting,
)
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.group_commit import Operation, Transaction
from windvane.service.store.writer.loop_operations import PutLoop
from windvane.service.store.writer.reward_operations import PutReward, RewardTerms

SECOND = MICROSECONDS_PER_SECOND
TERMS = RewardTerms(wait_us=600 * SECOND)
SUMMING_TERMS = RewardTerms(wait_us=600 * SECOND, sums_rewards=True)


def create_loop(store: Store, name: str = "home") -> int:
    return store.write(PutLoop(name, "{}", 0, "test")).id


def make_features(number: float) -> bytes:
    """The features of a decision, as a loop writes them."""
    action = pack_actions([Action("b", [])]).single[0]
    return encode_packed_lesson(pack_context([{"size": number / 7}]), action)


def make_decision(loop: int, event: str, at: int = 0, deferred: bool = False) -> DecisionRow:
    number = sum(event.encode())
    return DecisionRow(
        loop=loop,
        event_id=event,
        round=number,
        at=at,
        mode="Online",
        deferred=deferred,
        degraded=False,
        chosen=1,
        features=make_features(number),
        probabilities=np.array([0.1, 0.9]).tobytes(),
        actions='["a", "b"]',
        request='{"contextFeatures": ["é"]}',
    )


def make_requested(
    loop: int, event: str, at: int, request: str, offer: str, ids: list[str]
) -> DecisionRow:
    """A decision of a request; `offer` is the text of its actions."""
    rest, offer_at = cut_offer(request, offer)
    assert rest is not None
    return make_decision(loop, event, at)._replace(
        request=rest,
        offer=offer,
        offer_at=offer_at,
        chosen=len(ids) - 1,
        actions=json.dumps(ids),
        probabilities=np.full(len(ids), 1 / len(ids)).tobytes(),
    )


def put_decision(
    loop: int, event: str, at: int = 0, deferred: bool = False, terms: RewardTerms = TERMS
) -> PutDecision:
    return PutDecision(make_decision(loop, event, at, deferred), terms)


def put_reward(
    loop: int, event: str, value: float = 1.0, at: int = SECOND, request: str | None = None
) -> PutReward:
    return PutReward(loop, event, value, at, TERMS, request)


def put_summed_reward(loop: int, event: str, value: float, at: int = SECOND) -> PutReward:
    return PutReward(loop, event, value, at, SUMMING_TERMS)


class FailHalfway(Operation[None], frozen=True):
    """Violates a constraint of the database after it has changed a counter."""

    loop: int

    def run(self, transaction: Transaction) -> None:
        transaction.counter_changes[self.loop, "ranked"] += 100
        transaction.connection.execute(lessons.insert(), {"loop": self.loop, "decision": None})


def list_decisions(log: LogReader, loop: int) -> list[DecisionRow]:
    """All decisions of a loop, in the order of their ids."""
    query = SELECT_DECISIONS.where(decisions.c.loop == loop).order_by(decisions.c.id)
    return [DecisionRow(*row) for row in log.fetch_all(query)]


class Snapshot(NamedTuple):
    lesson: int
    blob: bytes
    at: int


def find_snapshot(log: LogReader, loop: int) -> Snapshot | None:
    """The last snapshot of a loop."""
    for key in log.list_snapshots(loop):
        return Snapshot(key.lesson, log.read_snapshot(loop, key), key.at)
    return None


def count_rows(store: Store, loop: int) -> Funnel:
    """Count the funnel from the rows; `unactivated` decisions leave no row to be counted."""
    decision_counts = select(func.count(), func.count(decisions.c.activated_at))
    kind_counts = select(lessons.c.kind, func.count()).group_by(lessons.c.kind)
    status_counts = select(rewards.c.status, func.count()).group_by(rewards.c.status)
    ((ranked, activated),) = store.fetch_all(decision_counts.where(decisions.c.loop == loop))
    kinds = Counter(dict(map(tuple, store.fetch_all(kind_counts.where(lessons.c.loop == loop)))))
    statuses = dict(map(tuple, store.fetch_all(status_counts.where(rewards.c.loop == loop))))
    assert kinds["observe"] == statuses.get("learned", 0)
    assert kinds["amend"] == statuses.get("summed", 0)
    return Funnel(ranked=ranked, activated=activated, default=kinds["default"], **statuses)


EVERY_TABLE: dict[Table, list[dict[str, Any]]] = {  # rows of each table, with gaps between the ids
    loops: [
        {"id": 1, "name": "default", "settings": '{"é": 2}', "created": 11},
        {"id": 4, "name": "shop", "settings": "{}", "created": 12},
    ],
    settings_log: [{"id": 2, "loop": 4, "at": 13, "settings": "{}", "by": "key 1", "lesson": 0}],
    offers: [
        {"id": 1, "loop": 1, "hash": bytes(16), "last_used": 17, "ids": '["a"]', "actions": "[]"}
    ],
    decisions: [
        {
            "id": id_,
            "loop": 1,
            "event_id": event,
            "round": 3,
            "at": 1_700_000_000_000_001,
            "mode": "Online",
            "deferred": activated_at is None,
            "degraded": False,
            "activated_at": activated_at,
            "chosen": 1,
            "features": features,
            "probabilities": b"\x7f\xf0" * 8,
            "actions": '["a", "é"]' if offer is None else "",
            "request": '{"contextFeatures": ["é"]}',
            "offer": offer,
            "offer_at": None if offer is None else 4,
        }
        for id_, event, activated_at, features, offer in (
            (5, "first", 14, b"\x00\x01\xff", None),
            (7, "second", None, None, None),
            (12, "third", 14, b"", 1),
        )
    ],
    waiting: [{"loop": 1, "decision": 7, "at": 1_700_000_000_000_001}],
    rewards: [
        {"loop": 1, "at": 14, "id": id_, "event_id": event, "request_id": request}
        | {"value": value, "status": status}
        for id_, event, request, value, status in (
            (3, "first", None, 0.1, "learned"),
            (8, "nowhere", "r-1", -1.0, "orphan"),
        )
    ],
    lessons: [{"id": 9, "loop": 1, "decision": 5, "kind": "observe", "value": 0.1, "at": 14}],
    snapshots: [{"id": 6, "loop": 1, "lesson": 9, "blob": b"\x93NUMPY\x00", "at": 15}],
    snapshot_parts: [{"loop": 1, "at": 15, "place": 1, "blob": b"\xff\x00"}],
    evaluations: [
        {
            "id": 2,
            "loop": 4,
            "key": "e-1",
            "name": "one",
            "type": "Manual",
            "contract": "{}",
            "status": "Completed",
            "created": 18,
            "ended": 19,
            "outcome": None,
        }
    ],
    evaluation_parts: [{"evaluation": 2, "place": 0, "blob": b"\x28\xb5\x2f\xfd"}],
    keys: [{"id": 2, "role": "admin", "hash": "f" * 64, "created": 16, "expires": None}],
    clock: [{"at": 1_700_000_000_000_002}],
    positions: [
        {"loop": 1, "lesson": 9, "change": 0, "deleted_lesson": 0, "next_round": 0},
        {"loop": 4, "lesson": 0, "change": 2, "deleted_lesson": 0, "next_round": 0},
    ],
    counters: [{"loop": loop} | dict.fromkeys(Funnel._fields, loop) for loop in (1, 4)],
}


def fill_every_table(where: str) -> None:
    """Make a log with rows in every table that a copy has."""
    with Store(where) as store, store._write_engine.begin() as connection:
        for table, rows in EVERY_TABLE.items():
            connection.execute(insert(table), rows)
        last_ids = read_last_ids(connection, EVERY_TABLE)
        set_last_ids(connection, EVERY_TABLE, last_ids)  # the rows were inserted with their ids


def read_every_table(where: str) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of all tables that `fill_every_table` fills, in the columns that it knows."""
    with LogReader(where) as log:
        return {
            table.name: sorted(map(tuple, log.fetch_all(select(table))), key=repr)
            for table in EVERY_TABLE
        }
