"""A loop counts the age of observations in rounds or in seconds, as its half-life says."""

import pytest

from monitoring_helpers import create_loop
from policy_access import read_bits, read_learner_bits
from windvane.service.loops.loop import Loop
from windvane.service.loops.rank_requests import OfferedActions
from windvane.service.loops.settings import LoopSettings
from windvane.service.monitoring.log_follower import LogFollower
from windvane.service.schemas import Action, RankRequest
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.loop_operations import PutSettings
from windvane.service.store.writer.reward_operations import PutReward

REQUEST = RankRequest(actions=[Action(name, [{"name": name}]) for name in ("ice", "tea")])
OFFER = OfferedActions(REQUEST.actions)


def learn(store: Store, loop: Loop, rewards: int) -> None:
    for _ in range(rewards):
        decision = loop.decide(REQUEST, OFFER)
        store.write(PutDecision(decision, loop.terms))
        put = PutReward(loop.id, decision.event_id, 1.0, decision.at, loop.terms)
        loop.learn(store.write(put).lessons)


@pytest.mark.parametrize(
    ("before", "after"), [("500 seconds", "500 rounds"), ("500 ROUNDS", "500 seconds")]
)
def test_a_loop_learns_on_if_seconds_become_rounds(store: Store, before: str, after: str) -> None:
    """Both half-lives have the length 500, and the memory looks the same."""
    loop = create_loop(store, LoopSettings(half_life=before))
    learn(store, loop, 5)
    follower = LogFollower(loop)
    follower.advance(budget=60)
    settings = loop.settings.merge({"halfLife": after}).to_json()
    loop.change_settings(store.write(PutSettings(loop.id, settings, 0, "test")))
    assert loop.model.learner.bank.now == loop.model.clock_of(loop.state.newest)
    learn(store, loop, 5)
    estimates = loop.model.estimate_actions([], REQUEST.actions)
    assert max(estimates) > 0.8  # each of ten rewards of 1 has a weight near 1
    follower.advance(budget=60)
    assert read_learner_bits(follower.shadow.learner) == read_bits(loop)
    assert read_bits(Loop(store.list_loops()[0], store)) == read_bits(loop)
