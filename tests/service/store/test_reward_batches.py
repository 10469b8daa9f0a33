"""Many rewards in one operation have the effect of as many operations in the same order."""

import random

import pytest

from store_helpers import SECOND, SUMMING_TERMS, TERMS, create_loop, hold_writer, put_decision
from windvane.service.store.log import Store
from windvane.service.store.rows import Lesson
from windvane.service.store.writer import reward_operations
from windvane.service.store.writer.group_commit import Operation
from windvane.service.store.writer.reward_operations import (
    PutReward,
    PutRewards,
    PutRewardsResult,
    RewardEntry,
    RewardTerms,
)


def draw_entries(seed: int, count: int) -> list[RewardEntry]:
    """Rewards of few events and request ids, so that many repeat."""
    generator = random.Random(seed)
    return [
        RewardEntry(
            f"e{generator.randrange(8)}",
            generator.uniform(-1, 1),
            generator.choice([None, "r1", "r2", "r3"]),
        )
        for _ in range(count)
    ]


def list_lessons(store: Store, loop: int) -> list[Lesson]:
    return [
        lesson._replace(id=0, decision=0)
        for batch in store.iterate_lessons(loop)
        for lesson in batch
    ]


@pytest.mark.parametrize("terms", [TERMS, SUMMING_TERMS])
def test_a_batch_is_as_its_rewards_one_by_one(store: Store, terms: RewardTerms) -> None:
    one, many = create_loop(store, "one"), create_loop(store, "many")
    for loop in (one, many):
        for number in range(6):  # e6 and e7 have no decision
            put = put_decision(loop, f"e{number}", deferred=number == 5, terms=terms)
            store.submit(put).result(20)
    entries = draw_entries(1, 60)
    expected = [
        store.submit(PutReward(one, *entry[:2], SECOND, terms, entry[2])).result(20)
        for entry in entries
    ]
    done: list[PutRewardsResult] = []
    with hold_writer(store):  # both batches in one group
        futures = [
            store.submit(PutRewards(many, tuple(part), SECOND, terms))
            for part in (entries[:25], entries[25:])
        ]
    done = [future.result(20) for future in futures]
    statuses = [status for result in done for status in result.statuses]
    assert statuses == [result.status for result in expected]
    assert {"learned", "duplicate", "held", "orphan"} < set(statuses)
    assert list_lessons(store, many) == list_lessons(store, one)
    learned = [lesson for result in done for lesson in result.lessons]
    assert [lesson.value for lesson in learned] == [
        lesson.value for result in expected for lesson in result.lessons
    ]
    assert store.read_funnel(many) == store.read_funnel(one)


def test_a_group_of_large_batches_is_split_into_statements(
    store: Store, loop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reward_operations, "REWARDS_PER_STATEMENT", 4)
    store.submit(put_decision(loop, "e")).result(20)
    entries = tuple(RewardEntry("e", 0.1, f"r{number % 7}") for number in range(11))
    operation: Operation[PutRewardsResult] = PutRewards(loop, entries, SECOND, TERMS)
    statuses = store.submit(operation).result(20).statuses
    assert statuses == ("learned", *["extra"] * 6, *["duplicate"] * 4)
