"""A loop counts the age of observations in rounds or in seconds, as its half-life says."""

from dataclasses import replace
from pathlib import Path

import pytest

from policy_access import full_settings, policy_of, policy_of_model
from store_helpers import SECOND
from windvane.service.loops.loop import Loop
from windvane.service.loops.offered_actions import Offer
from windvane.service.monitoring.log_follower import LogFollower
from windvane.service.schemas import Action, RankRequest
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutLoop, PutSettings, PutSnapshot
from windvane.service.store.writer.reward_operations import PutReward

REQUEST = RankRequest(actions=[Action(name, [{"name": name}]) for name in ("ice", "tea")])
OFFER = Offer(REQUEST.actions)


def create_loop(store: Store, half_life: str) -> Loop:
    settings = full_settings(dim=4, half_life=half_life).to_json()
    return Loop(store.submit(PutLoop("home", settings, 0, "test")).result(20), store)


def learn(store: Store, loop: Loop, rewards: int) -> None:
    for _ in range(rewards):
        decision = loop.decide(REQUEST, OFFER)
        store.submit(PutDecision(decision, loop.terms)).result(20)
        put = PutReward(loop.id, decision.event_id, 1.0, decision.at, loop.terms)
        loop.learn(store.submit(put).result(20).lessons)


@pytest.mark.parametrize("text", ["500 rounds", "500 ROUNDS", "500 Rounds", " 500round "])
def test_a_half_life_in_rounds_is_one_in_any_case(tmp_path: Path, text: str) -> None:
    with Store(tmp_path) as store:
        loop = create_loop(store, text)
        learn(store, loop, 3)
        assert policy_of(loop).memory.span == 500.0
        assert policy_of(loop).belief.clock == 2.0


@pytest.mark.parametrize(
    ("before", "after"), [("500 seconds", "500 rounds"), ("500 ROUNDS", "500 seconds")]
)
def test_a_loop_learns_on_if_seconds_become_rounds(tmp_path: Path, before: str, after: str) -> None:
    """Both half-lives have the length 500, and the memory looks the same."""
    with Store(tmp_path) as store:
        loop = create_loop(store, before)
        learn(store, loop, 5)
        follower = LogFollower(loop)
        follower.advance(budget=60)
        settings = replace_half_life(loop, after)
        loop.change_settings(store.submit(PutSettings(loop.id, settings, 0, "test")).result(20))
        assert policy_of(loop).belief.clock == loop.model.clock_of(loop.newest)
        learn(store, loop, 5)
        belief = policy_of(loop).belief
        assert belief.held == pytest.approx(10.0, rel=0.05)  # each observation has a weight near 1
        follower.advance(budget=60)
        assert policy_of_model(follower.shadow).belief.gram == pytest.approx(belief.gram)
        again = policy_of(Loop(store.list_loops()[0], store)).belief
        assert again.gram.tobytes() == belief.gram.tobytes()


def replace_half_life(loop: Loop, text: str) -> str:
    return loop.settings.merge({"halfLife": text}).to_json()


def test_a_snapshot_that_counts_capital_rounds_in_seconds_is_corrected(tmp_path: Path) -> None:
    """Release 0.1.0 read "500 ROUNDS" as 500 seconds."""
    with Store(tmp_path) as store:
        loop = create_loop(store, "500 ROUNDS")
        learn(store, loop, 5)
        seconds = loop.newest[1] / SECOND
        policy_of(loop).belief = replace(policy_of(loop).belief, clock=seconds)
        put = PutSnapshot(loop.id, loop.last_lesson, loop.encode_snapshot(), 0)
        store.submit(put).result(20)
        again = Loop(store.list_loops()[0], store)
        learn(store, again, 5)
        assert policy_of(again).belief.clock == 9.0
        assert policy_of(again).belief.held == pytest.approx(10.0, rel=0.05)
