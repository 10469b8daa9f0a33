"""A loop is a learner with a durable log."""

from typing import NamedTuple

import numpy as np
import pytest

from monitoring_helpers import create_loop
from policy_access import read_bits
from windvane.beliefs.bank.bank import MAX_PLACES
from windvane.beliefs.bank.layout import LOSS
from windvane.service.loops.learner_model import SUMMARY_SIZE
from windvane.service.loops.loop import Loop
from windvane.service.loops.rank_requests import OfferedActions
from windvane.service.loops.settings import LoopSettings
from windvane.service.monitoring.log_follower import LogFollower
from windvane.service.schemas import Action, RankRequest
from windvane.service.sharing.fold import FORGET
from windvane.service.store.log import Store
from windvane.service.store.rows import DecisionRow
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import (
    PutSettings,
    PutSnapshot,
)
from windvane.service.store.writer.reward_operations import PutReward

HOUR_US = 3_600_000_000
DAY = 86_400.0
ARMS = ("ice", "tea", "soup")


def make_request(number: int, **options: object) -> RankRequest:
    context = [{"sky": "sun" if number % 2 else "rain", "warmth": float(number % 7)}]
    actions = [
        Action(name, [{"price": 100.0 * k, "place": [0.5, k]}]) for k, name in enumerate(ARMS)
    ]
    return RankRequest(context_features=context, actions=actions, **options)  # type: ignore[arg-type]


def decide(store: Store, loop: Loop, number: int, **options: object) -> DecisionRow:
    request = make_request(number, event_id=f"e{number}", **options)
    decision = loop.decide(request, OfferedActions(request.actions))
    decision = decision._replace(at=number * HOUR_US)
    store.write(PutDecision(decision, loop.terms))
    return decision


def reward(store: Store, loop: Loop, number: int, value: float) -> None:
    put = PutReward(loop.id, f"e{number}", value, number * HOUR_US + 1, loop.terms)
    loop.learn(store.write(put).lessons)


def play(store: Store, loop: Loop, numbers: range, period: int = 1000) -> None:
    """Decide once an hour; every `period` hours another action earns 1."""
    for number in numbers:
        decision = decide(store, loop, number)
        best = number // period % len(ARMS)
        reward(store, loop, number, float(decision.chosen == best))


def save_snapshot(store: Store, loop: Loop) -> None:
    blob = loop.encode_snapshot()
    store.write(PutSnapshot(loop.id, loop.last_lesson, blob, loop.last_lesson))


def change_settings(store: Store, loop: Loop, changes: dict[str, object], by: str = "test") -> None:
    settings = loop.settings.merge(changes).to_json()
    loop.change_settings(store.write(PutSettings(loop.id, settings, 0, by)))


class WithoutSnapshots:
    """Reads a log as if it had no snapshot."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def list_snapshots(self, loop: int) -> list[object]:
        return []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def check_snapshots(store: Store, loop: Loop) -> None:
    """Check that the last snapshot and the later lessons give the same bits."""
    restored = Loop(store.list_loops()[0], store)
    assert restored.damage is None
    assert read_bits(restored) == read_bits(loop)


def check_restores(store: Store, loop: Loop) -> None:
    """Check that the last snapshot and the later lessons, and all lessons, give the same bits."""
    row = store.list_loops()[0]
    restored, folded = Loop(row, store), Loop(row, WithoutSnapshots(store))  # type: ignore[arg-type]
    assert folded.state.lessons_since_snapshot > restored.state.lessons_since_snapshot
    assert restored.damage is None
    assert read_bits(restored) == read_bits(folded) == read_bits(loop)
    assert restored.model.learner.round == folded.model.learner.round == loop.model.learner.round


def test_a_snapshot_and_the_later_lessons_have_the_bits_of_all_lessons(store: Store) -> None:
    loop = create_loop(store, LoopSettings(seed=1))
    play(store, loop, range(60), period=20)
    save_snapshot(store, loop)
    play(store, loop, range(60, 90), period=20)
    check_restores(store, loop)


def test_sums_and_late_rewards_are_restored_to_the_bit(store: Store) -> None:
    loop = create_loop(store, LoopSettings(reward_aggregation="sum", reward_wait_time="7 days"))
    for number in range(30):
        decide(store, loop, number)
    save_snapshot(store, loop)  # of a belief that has learned nothing
    for number in range(29, 0, -3):
        reward(store, loop, number, 0.25 * (number % 3))
    check_snapshots(store, loop)
    save_snapshot(store, loop)
    for number in range(0, 30, 2):
        reward(store, loop, number, 0.25 * (number % 3))
    funnel = store.read_funnel(loop.id)
    assert funnel.summed > 0
    check_restores(store, loop)


@pytest.mark.parametrize(
    "changes",
    [
        [{"halfLife": "1 day"}],
        [{"halfLife": "6 hours"}, {"halfLife": "auto"}],
        [{"halfLife": "50 rounds"}, {"halfLife": "never"}, {"halfLife": "auto"}],
        [{"explorationPercentage": 0.5}],
    ],
)
def test_changes_of_settings_are_restored_to_the_bit(
    store: Store, changes: list[dict[str, object]]
) -> None:
    loop = create_loop(store, LoopSettings(seed=1))
    play(store, loop, range(30))
    save_snapshot(store, loop)
    for change in changes:
        change_settings(store, loop, change)
    check_restores(store, loop)
    play(store, loop, range(30, 50))
    check_restores(store, loop)


def test_a_reset_is_restored_to_the_bit(store: Store) -> None:
    loop = create_loop(store, LoopSettings(seed=1))
    play(store, loop, range(30))
    save_snapshot(store, loop)
    change_settings(store, loop, {}, by=FORGET)
    assert loop.model.observation_count == 0
    play(store, loop, range(30, 40))
    assert loop.model.observation_count == 10
    check_restores(store, loop)


def test_a_part_of_a_reward_after_a_reset_is_restored_to_the_bit(store: Store) -> None:
    loop = create_loop(store, LoopSettings(reward_aggregation="sum", reward_wait_time="7 days"))
    play(store, loop, range(5))
    change_settings(store, loop, {}, by=FORGET)
    reward(store, loop, 3, 0.5)  # adds to a lesson that was forgotten
    assert loop.model.observation_count == 0
    save_snapshot(store, loop)
    check_snapshots(store, loop)


def estimate(loop: Loop) -> list[float]:
    request = make_request(1)
    return loop.model.estimate_actions(request.context_features, request.actions)


def test_a_fixed_half_life_starts_from_what_never_fades(store: Store) -> None:
    loop = create_loop(store, LoopSettings())
    play(store, loop, range(100), period=30)
    bank = loop.model.learner.bank
    bank.leader = bank.sparse_count - 1
    expected = estimate(loop)
    change_settings(store, loop, {"halfLife": "5 days"})
    assert set(loop.model.learner.bank.rules.half_lives.tolist()) == {5 * DAY}
    assert estimate(loop) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("fixed", ["1 day", "never", "200 rounds"])
def test_all_beliefs_start_from_a_fixed_half_life(store: Store, fixed: str) -> None:
    loop = create_loop(store, LoopSettings(half_life=fixed))
    play(store, loop, range(100), period=30)
    expected = estimate(loop)
    assert max(map(abs, expected)) > 0.05
    change_settings(store, loop, {"halfLife": "auto"})
    bank = loop.model.learner.bank
    assert not bank.bank.judgements[:, LOSS].any()
    assert bank.rules.half_lives[bank.rules.starts[bank.leader]] == np.inf
    priors = bank.rules.first_priors[bank.rules.starts[:-1]]
    is_single = np.diff(bank.rules.starts) == 1
    for belief in np.flatnonzero(is_single & (priors == priors[bank.leader])).tolist():
        bank.leader = belief
        assert estimate(loop) == pytest.approx(expected, abs=1e-12)


def test_other_settings_leave_the_model_as_it_is(store: Store) -> None:
    loop = create_loop(store, LoopSettings())
    play(store, loop, range(10))
    model = loop.model
    change_settings(store, loop, {"rewardWaitTime": "PT1H"})
    assert loop.model is model
    assert loop.model.settings == loop.settings


def test_the_log_keeps_the_features_of_the_chosen_action(store: Store) -> None:
    loop = create_loop(store, LoopSettings())
    decision = decide(store, loop, 1)
    stored = store.find_decision(loop.id, "e1")
    assert stored is not None
    assert stored.features == decision.features
    assert decision.features is not None
    request = make_request(1)
    packed = OfferedActions(request.actions).packed_actions
    chosen = loop.model.encode_action(request.context_features, packed, decision.chosen)
    assert decision.features == chosen


def test_lessons_are_long_by_their_entries(store: Store) -> None:
    model = create_loop(store, LoopSettings()).model
    feature = bytes(9)  # its kind and its hash
    assert not model.is_long_lesson([31 * feature])
    assert model.is_long_lesson([400 * feature])
    assert model.is_long_lesson(100 * [31 * feature])


def test_an_estimate_is_the_sum_of_its_explanation(store: Store) -> None:
    loop = create_loop(store, LoopSettings())
    play(store, loop, range(60), period=20)
    request = make_request(3)
    context, actions = request.context_features, request.actions
    estimates = loop.model.estimate_actions(context, actions)
    features = loop.model.encode_action(context, OfferedActions(actions).packed_actions, 2)
    assert loop.model.predict(features, loop.state.newest) == pytest.approx(estimates[2], abs=1e-12)
    for index in range(len(ARMS)):
        parts = loop.model.explain(context, actions, index)
        assert sum(part.amount for part in parts) == pytest.approx(estimates[index], abs=1e-12)
    importances = dict(loop.model.measure_importance([(context, actions)], 1000))
    assert set(importances) > {"action", "action.price", "context.sky × action", "context.sky"}
    assert importances["context.sky"] == pytest.approx(0.0, abs=1e-15)
    assert importances["action"] > 0.0
    assert loop.model.measure_importance([(context, actions)], 10) == []


def test_summaries_have_about_the_distance_of_the_weights(store: Store) -> None:
    loop = create_loop(store, LoopSettings())
    assert not loop.model.summarize().any()
    play(store, loop, range(60), period=20)
    summary = loop.model.summarize()
    assert len(summary) == SUMMARY_SIZE
    assert np.linalg.norm(summary) == pytest.approx(loop.model.compute_norm(), rel=0.3)


def test_speeds_say_what_moves(store: Store) -> None:
    loop = create_loop(store, LoopSettings(seed=1))
    play(store, loop, range(400), period=48)
    request = make_request(3)
    speeds = loop.model.measure_speeds([(request.context_features, request.actions)], 1000)
    assert {each.name for each in speeds} > {"action", "context.sky × action", "context.sky"}
    assert loop.model.speeds.tolist() == [30.0, 300.0, 3000.0, np.inf]
    for each in speeds:
        assert len(each.shares) == 4
        assert sum(each.shares) == pytest.approx(1.0)
        assert min(each.shares) >= 0.0
    assert loop.model.half_life is None
    assert loop.model.measure_speeds([(request.context_features, request.actions)], 0) == []


def test_a_fixed_half_life_is_that_of_the_model(store: Store) -> None:
    assert create_loop(store, LoopSettings(half_life="2 days")).model.half_life == 172_800.0


class Size(NamedTuple):
    weights: int
    lessons: int


@pytest.mark.parametrize("size", [Size(10, 1000), Size(90_000, 5800)])
def test_a_large_belief_is_stored_less_often(store: Store, size: Size) -> None:
    loop = create_loop(store, LoopSettings())
    loop.model.learner.bank.weight_count = size.weights
    loop.state.lessons_since_snapshot = size.lessons - 1
    assert not loop.needs_snapshot
    loop.state.lessons_since_snapshot = size.lessons
    assert loop.needs_snapshot


def test_a_shadow_with_limited_memory_takes_an_eighth_and_keeps_the_limit_when_settings_change(
    store: Store,
) -> None:
    loop = create_loop(store, LoopSettings())
    follower = LogFollower(loop)
    assert loop.model.learner.bank.max_places == MAX_PLACES
    play(store, loop, range(3))
    follower.advance(60)
    change_settings(store, loop, {"halfLife": "3 days"})
    play(store, loop, range(3, 5))
    follower.advance(60)
    shadow = follower.shadow
    assert shadow.learner.half_life == "3 days"
    assert shadow.observation_count == 5
    assert shadow.learner.bank.max_places == MAX_PLACES // 8
    assert loop.model.learner.bank.max_places == MAX_PLACES
