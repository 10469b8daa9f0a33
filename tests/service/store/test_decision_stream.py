"""Pages of decisions: in the order of ids, of one loop, bounded, with rewards so far."""

import pytest

from store_helpers import (
    SECOND,
    SUMMING_TERMS,
    TERMS,
    create_loop,
    make_decision,
    put_decision,
    put_reward,
    put_summed_reward,
)
from windvane.service.store import decision_queries
from windvane.service.store.decision_queries import StreamRow, read_stream_page
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import Expire, PutDecision


def read_all(store: Store, loop: int, limit: int) -> list[StreamRow]:
    rows: list[StreamRow] = []
    while page := read_stream_page(store, loop, rows[-1].id if rows else 0, limit):
        rows += page
    return rows


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_have_every_decision_of_a_loop_once(store: Store, limit: int) -> None:
    home, other = create_loop(store, "home"), create_loop(store, "other")
    for number in range(7):
        store.write(put_decision(home, f"h{number}", at=number))
        store.write(put_decision(other, f"o{number}"))
    rows = read_all(store, home, limit)
    assert [row.event_id for row in rows] == [f"h{number}" for number in range(7)]
    assert [row.at for row in rows] == list(range(7))
    ids = [row.id for row in rows]
    assert ids == sorted(set(ids))


def test_rewards_are_those_of_the_lessons(store: Store, loop: int) -> None:
    for event in ("waits", "learned", "summed", "defaulted", "held"):
        terms = SUMMING_TERMS if event == "summed" else TERMS
        at = 0 if event == "defaulted" else SECOND
        put = put_decision(loop, event, at=at, deferred=event == "held", terms=terms)
        store.write(put)
    unlearned = make_decision(loop, "unlearned")._replace(features=None, degraded=True)
    store.write(PutDecision(unlearned, TERMS))
    store.write(put_reward(loop, "learned", 0.25))
    store.write(put_reward(loop, "held", 0.75))
    for value in (0.25, 0.5):
        store.write(put_summed_reward(loop, "summed", value))
    store.write(Expire(loop, SECOND, -0.5, 2 * SECOND))
    found = {
        row.event_id: (row.reward, row.first_kind, bool(row.is_waiting))
        for row in read_all(store, loop, 2)
    }
    assert found == {
        "waits": (None, None, True),
        "learned": (0.25, "observe", False),
        "summed": (0.75, "amend", False),
        "defaulted": (-0.5, "default", False),
        "held": (None, None, True),
        "unlearned": (None, None, False),
    }


def test_a_page_of_large_decisions_is_short(
    store: Store, loop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        store.write(put_decision(loop, f"e{number}"))
    row_bytes = decision_queries.ROW_BYTES + len('["a", "b"]') + 5 * 16
    for page_bytes, count in ((1, 1), (3 * row_bytes - 1, 2), (3 * row_bytes, 3)):
        monkeypatch.setattr(decision_queries, "PAGE_BYTES", page_bytes)
        assert len(read_stream_page(store, loop, 0, 100)) == count
        assert len(read_all(store, loop, 100)) == 6
