"""The actions of a request are stored once, and deleted with the last decision that uses them."""

from sqlalchemy import func, select

from store_helpers import TERMS, create_loop, list_decisions, make_decision
from windvane.service.store.log import Store
from windvane.service.store.monitoring_queries import (
    find_request,
    list_decision_summaries,
    list_recent_requests,
)
from windvane.service.store.rows import DecisionRow, get_answer
from windvane.service.store.schema import offers
from windvane.service.store.writer.decision_operations import USE_RESOLUTION_US, PutDecision
from windvane.service.store.writer.loop_operations import DeleteLogs

HOUR = USE_RESOLUTION_US
ACTIONS = '[{"id": "a", "features": []}, {"id": "b", "features": [{"é": 1}]}]'


def make_offered(loop: int, event: str, at: int = 0, offer: str = ACTIONS) -> DecisionRow:
    """A decision as the service writes it: the offer is cut out."""
    decision = make_decision(loop, event, at)
    return decision._replace(offer=offer, offer_at=11, request='{"actions":}')


def count_offers(store: Store) -> int:
    ((count,),) = store.fetch_all(select(func.count()).select_from(offers))
    return int(count)


def put(store: Store, decision: DecisionRow) -> None:
    assert store.write(PutDecision(decision, TERMS)).is_new


def test_an_offer_is_stored_once_and_the_decision_reads_as_it_was_written(store: Store) -> None:
    loop, other = create_loop(store), create_loop(store, "other")
    for number in range(3):
        put(store, make_offered(loop, f"e{number}", at=number))
    put(store, make_offered(loop, "different", offer="[]"))
    put(store, make_offered(other, "e0"))
    assert count_offers(store) == 3
    expected = make_offered(loop, "e1", at=1)
    stored = store.find_decision(loop, "e1")
    assert stored is not None
    assert stored == expected._replace(activated_at=1, id=stored.id)
    assert stored.whole_request == '{"actions":' + ACTIONS + "}"
    assert find_request(store, stored.id) == stored.whole_request
    assert list_recent_requests(store, loop, 4)[2] == ("e1", stored.whole_request)
    summaries = list_decision_summaries(store, loop, 0, 4)
    assert [summary.actions for summary in summaries] == [expected.actions] * 4


def test_a_repeated_event_gets_the_answer_of_its_first_decision(store: Store, loop: int) -> None:
    first = make_offered(loop, "e")
    second = first._replace(chosen=0, probabilities=first.probabilities[::-1])
    results = store.write_group([PutDecision(each, TERMS) for each in (first, second)])
    later = store.write(PutDecision(second, TERMS))
    stored = store.find_decision(loop, "e")
    assert stored is not None
    assert results[0].is_new
    assert results[1] == later == (get_answer(stored), False, ())
    assert b'"rewardActionId":"b"' in get_answer(stored)


def test_an_offer_is_deleted_with_its_last_decision(store: Store) -> None:
    loop, other = create_loop(store), create_loop(store, "other")
    old, both, new = '["old"]', '["both"]', '["new"]'
    put(store, make_offered(loop, "e1", at=0, offer=old))
    put(store, make_offered(loop, "e2", at=0, offer=both))
    put(store, make_offered(loop, "e3", at=5 * HOUR, offer=both))
    put(store, make_offered(loop, "e4", at=4 * HOUR, offer=both))  # the clock was set back
    put(store, make_offered(loop, "e5", at=5 * HOUR, offer=new))
    put(store, make_offered(other, "e6", at=0, offer=old))
    store.write(DeleteLogs(loop, 1, include_waiting=True))
    rows = store.fetch_all(select(offers.c.loop, offers.c.actions).order_by(offers.c.id))
    assert [tuple(row) for row in rows] == [(loop, both), (loop, new), (other, old)]
    for event in ("e3", "e4", "e5"):
        decision = store.find_decision(loop, event)
        assert decision is not None
        assert decision.offer in (both, new)
    store.write(DeleteLogs(loop, 9 * HOUR, include_waiting=True))
    assert count_offers(store) == 1


def test_an_offer_of_a_decision_is_never_deleted(store: Store, loop: int) -> None:
    """Whatever the order of times: the last use of an offer is recorded to the hour only."""
    times = [0, HOUR // 2, HOUR, HOUR + 1, 3 * HOUR, 2 * HOUR, HOUR // 3, 9 * HOUR]
    for number, at in enumerate(times):
        put(store, make_offered(loop, f"e{number}", at, offer=f'["{number % 2}"]'))
    for before in sorted(times):
        store.write(DeleteLogs(loop, before, include_waiting=True))
        assert all(row.offer is not None for row in list_decisions(store, loop))
    assert count_offers(store) == 1


def test_known_offers_are_not_written_again(store: Store, loop: int) -> None:
    for number in range(5):
        put(store, make_offered(loop, f"e{number}", at=number * HOUR // 4))
    ((last_used,),) = store.fetch_all(select(offers.c.last_used))
    assert last_used == 0
    put(store, make_offered(loop, "later", at=HOUR + 1))
    ((last_used,),) = store.fetch_all(select(offers.c.last_used))
    assert last_used == HOUR + 1
