"""Decisions and rewards: repeated requests, orphans, wait times, activation, the default reward."""

import random
from typing import Any

import pytest

from store_helpers import (
    SECOND,
    SUMMING_TERMS,
    TERMS,
    count_rows,
    create_loop,
    make_decision,
    put_decision,
    put_reward,
)
from windvane.service.store.log import Store
from windvane.service.store.rows import Funnel
from windvane.service.store.writer import reward_operations
from windvane.service.store.writer.decision_operations import (
    Activate,
    Expire,
    PutDecision,
    PutDecisionResult,
)
from windvane.service.store.writer.group_commit import Operation, Result
from windvane.service.store.writer.loop_operations import PutSettings
from windvane.service.store.writer.reward_operations import MatchResult, PutReward, RewardTerms

WAIT = TERMS.wait_us


def write(store: Store, operation: Operation[Result]) -> Result:
    return store.write(operation)


def test_a_lesson_has_the_features_and_times_of_its_decision(store: Store, loop: int) -> None:
    write(store, put_decision(loop, "e", at=5))
    (lesson,) = write(store, put_reward(loop, "e", 0.25, at=9)).lessons
    put = make_decision(loop, "e")
    assert lesson[1:] == (1, "observe", 0.25, 9, put.round, 5, put.features, 0, 1, None)
    assert list(store.iterate_lessons(loop)) == [[lesson._replace(previous=0, change=0)]]


def test_a_lesson_names_the_lesson_and_the_change_of_settings_before_it(store: Store) -> None:
    loop, other = create_loop(store, "one"), create_loop(store, "other")
    for event in ("a", "b", "c"):
        write(store, put_decision(loop, event))
        write(store, put_decision(other, event))
    (first,) = write(store, put_reward(loop, "a")).lessons
    write(store, put_reward(other, "a"))
    change = store.write(PutSettings(loop, "{}", 0, "test"))
    (second,) = write(store, put_reward(loop, "b")).lessons
    assert (first.previous, first.change) == (0, change.previous)
    assert (second.previous, second.change) == (first.id, change.id)
    assert (change.previous, change.lesson) == (1, first.id)
    position = store.read_positions(loop)[loop]
    assert (position.lesson, position.change) == (second.id, change.id)


def test_a_repeated_reward_request_is_learned_once(store: Store, loop: int) -> None:
    write(store, put_decision(loop, "e"))
    write(store, put_decision(loop, "f"))
    sent = [PutReward(loop, "e", 1.0, SECOND, SUMMING_TERMS, "request 1")] * 3
    assert [write(store, put).status for put in sent] == ["learned", "duplicate", "duplicate"]
    group = store.write_group([PutReward(loop, "f", 1.0, SECOND, SUMMING_TERMS, "r")] * 2)
    assert [result.status for result in group] == ["learned", "duplicate"]
    assert store.read_funnel(loop) == count_rows(store, loop)
    assert [one.request_id for one in store.list_rewards(loop, "e")] == ["request 1", None, None]


@pytest.mark.parametrize(("at", "status"), [(WAIT, "learned"), (WAIT + 1, "late")])
def test_a_reward_after_the_wait_time_is_late(
    store: Store, loop: int, at: int, status: str
) -> None:
    write(store, put_decision(loop, "e"))
    assert write(store, put_reward(loop, "e", at=at)).status == status
    assert store.list_rewards(loop, "e")[0].status == status


def test_rewards_before_their_decision_are_learned_when_it_arrives(store: Store, loop: int) -> None:
    assert write(store, put_reward(loop, "e", 0.5, at=1)) == ("orphan", (), "")
    assert write(store, put_reward(loop, "e", 0.25, at=2)).status == "orphan"
    assert store.read_funnel(loop).orphan == 2
    ranked = write(store, put_decision(loop, "e", at=3, terms=SUMMING_TERMS))
    found = [(lesson.kind, lesson.value, lesson.at) for lesson in ranked.lessons]
    assert found == [("observe", 0.5, 3), ("amend", 0.25, 3)]
    assert [one.status for one in store.list_rewards(loop, "e")] == ["learned", "summed"]
    assert store.read_funnel(loop) == count_rows(store, loop)
    assert write(store, put_decision(loop, "e", at=4)).lessons == ()


def test_a_deferred_decision_learns_once_it_is_activated(store: Store, loop: int) -> None:
    write(store, put_decision(loop, "e", deferred=True))
    assert write(store, put_reward(loop, "e", 0.5)) == ("held", (), "")
    activated = write(store, Activate(loop, "e", 2 * SECOND, TERMS))
    assert activated.status == "activated"
    assert [lesson.value for lesson in activated.lessons] == [0.5]
    assert write(store, Activate(loop, "e", 3 * SECOND, TERMS)) == ("already", (), "")
    assert write(store, Activate(loop, "unknown", 0, TERMS)) == ("unknown", (), "")
    assert store.read_funnel(loop) == count_rows(store, loop)
    kept = store.find_decision(loop, "e")
    assert kept is not None
    assert kept.activated_at == 2 * SECOND


def test_never_activated_means_never_learned(store: Store, loop: int) -> None:
    write(store, put_decision(loop, "e", deferred=True))
    write(store, put_reward(loop, "e"))
    assert write(store, Expire(loop, 1, 0.0, WAIT + 1)) == (1, ())
    assert write(store, Activate(loop, "e", SECOND, TERMS)).status == "late"
    assert write(store, Activate(loop, "e", WAIT + 1, TERMS)).status == "late"
    assert list(store.iterate_lessons(loop)) == []
    assert store.read_funnel(loop) == Funnel(ranked=1, unactivated=1, held=1)


def test_expired_decisions_learn_the_default_in_the_order_of_their_ids(store: Store) -> None:
    loop, other = create_loop(store), create_loop(store, "other")
    for at in range(6):
        write(store, put_decision(loop, f"e{at}", at=at))
    write(store, put_decision(other, "e0", at=0))
    write(store, put_reward(loop, "e1"))
    first = write(store, Expire(loop, 4, -1.0, at=9, limit=2)).lessons
    second = write(store, Expire(loop, 4, -1.0, at=9, limit=2)).lessons
    assert [lesson.decision for lesson in first + second] == [1, 3, 4]
    assert {lesson[2:5] for lesson in first + second} == {("default", -1.0, 9)}
    assert write(store, Expire(loop, 4, -1.0, at=9)) == (0, ())
    assert write(store, put_reward(loop, "e0")) == ("late", (), "")
    assert store.read_funnel(loop) == count_rows(store, loop)


def test_nothing_is_learned_from_a_decision_without_features(store: Store, loop: int) -> None:
    degraded = make_decision(loop, "e")._replace(features=None, degraded=True)
    write(store, PutDecision(degraded, TERMS))
    assert write(store, put_reward(loop, "e")) == ("unlearned", (), "")
    assert write(store, Expire(loop, WAIT, 0.0, WAIT)) == (0, ())
    assert store.find_decision(loop, "e") == degraded._replace(id=1, activated_at=0)


def make_groups(loop: int) -> list[list[Operation[Any]]]:
    """Make groups of operations on few events, so that every combination occurs."""
    generator = random.Random(3)
    groups: list[list[Operation[Any]]] = []
    for number in range(20):
        group: list[Operation[Any]] = []
        for _ in range(generator.randrange(1, 20)):
            event, at = f"e{generator.randrange(40)}", number * 10 * SECOND
            terms = RewardTerms(60 * SECOND, generator.random() < 0.5)
            kind, value = generator.random(), generator.random()
            request_id = generator.choice([None, "r1", "r2"])
            if kind < 0.3:
                group.append(put_decision(loop, event, at, generator.random() < 0.4, terms))
            elif kind < 0.5:
                group.append(Activate(loop, event, at, terms))
            else:
                group.append(PutReward(loop, event, value, at, terms, request_id))
        groups.append(sorted(group, key=lambda step: step.batch_key or ()))
    return groups


def test_a_group_has_the_effect_of_its_operations_one_by_one(store: Store) -> None:
    one, many = create_loop(store, "one by one"), create_loop(store, "in groups")
    pairs = zip(make_groups(one), make_groups(many), strict=True)
    for number, (steps, same) in enumerate(pairs):
        alone = [describe(store.write(step)) for step in steps]
        assert [describe(result) for result in store.write_group(same)] == alone
        for loop in (one, many):
            write(store, Expire(loop, (number - 6) * 10 * SECOND, 0.0, number))
    assert store.read_funnel(one) == store.read_funnel(many)
    assert min(store.read_funnel(one)._replace(unlearned=1)) > 0  # every status occurred
    assert store.read_funnel(one)._replace(unactivated=0) == count_rows(store, one)


def describe(result: PutDecisionResult | MatchResult) -> list[object]:
    """The parts of a result that do not depend on ids."""
    status = result.is_new if isinstance(result, PutDecisionResult) else result.status
    return [status, *(lesson[2:8] for lesson in result.lessons)]


def test_an_event_keeps_a_bounded_number_of_rewards(
    store: Store, loop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reward_operations, "MAX_REWARDS_PER_EVENT", 3)
    requests = ["a", "b", "c", "d", "d", "a"]
    expected = ["orphan", "orphan", "orphan", "refused", "refused", "duplicate"]
    results = store.write_group([put_reward(loop, "e", request=each) for each in requests])
    assert [result.status for result in results] == expected
    one_by_one = [write(store, put_reward(loop, "f", request=each)) for each in requests]
    assert [result.status for result in one_by_one] == expected
    assert len(store.list_rewards(loop, "e")) == len(store.list_rewards(loop, "f")) == 3
    assert store.read_funnel(loop)[-3:] == (6, 2, 0)


def test_the_first_reward_is_learned_however_many_came_before(
    store: Store, loop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reward_operations, "MAX_REWARDS_PER_EVENT", 1)
    write(store, put_reward(loop, "e", at=WAIT + 1))
    write(store, put_decision(loop, "e"))  # too early for the reward, which was late
    results = store.write_group([put_reward(loop, "e")] * 2)
    assert [result.status for result in results] == ["learned", "refused"]
