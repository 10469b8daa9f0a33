"""The copy of the weights of the leader, and a table of weights with limited memory."""

import numpy as np
import pytest

import windvane as wv
from learner_helpers import HOUR, Stream
from windvane.beliefs.bank.bank import AUTO_BELIEFS, MAX_FILL, NO_LEADER_COPY, BeliefBank
from windvane.beliefs.bank.choosing import copy_columns
from windvane.beliefs.bank.feature_parts import make_parts
from windvane.beliefs.bank.layout import build_row, compute_contributions
from windvane.beliefs.bank.sides import join_request
from windvane.features.packed_features import pack_actions
from windvane.features.request_reader import read_offered_action


def assert_copy_is_current(bank: BeliefBank) -> None:
    """A copy of the leader's components, if there is one, has their bits."""
    if bank.leader_copy.belief == bank.leader < bank.sparse_count:
        wanted = copy_columns(bank.bank.sums, *bank.rules.starts[bank.leader : bank.leader + 2])
        assert bank.leader_copy.sums.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("crossings", ["context*action", "user*action", "none"])
def test_every_prediction_is_the_sum_of_its_contributions(crossings: str) -> None:
    """Some actions share parts; the copy is current after every lesson and amendment."""
    learner, stream = wv.Learner(seed=1, crossings=crossings), Stream(4)
    bank, leaders, copies = learner.bank, set[int](), 0
    for visitor in range(400):
        context, actions = stream.draw_context(), stream.draw_actions()
        decision = learner.rank(context, actions, at=stream.advance(6 * HOUR))
        learner.reward(decision, stream.draw_reward(decision))
        assert_copy_is_current(bank)
        if visitor % 5 == 0:
            learner.amend(decision.lesson, 0.5, decision.at, decision.round)
            assert_copy_is_current(bank)
        if visitor % 40 == 0:  # every belief that is not dense leads at times
            bank.leader = visitor // 40
        leaders.add(bank.leader)
        copies += bank.leader_copy.belief == bank.leader
        offers = [read_offered_action(action) for action in actions]
        sides = join_request([context], pack_actions(offers), learner.parsed_crossings)
        predictions = bank.predict(sides, bank.now)
        for offer, prediction in zip(offers, predictions, strict=True):
            single = join_request([context], pack_actions([offer]), learner.parsed_crossings)
            row = build_row(make_parts(single, bank.scales))
            if bank.leader < bank.sparse_count:
                amounts = compute_contributions(bank.rules, bank.bank, bank.leader, bank.now, row)
                assert prediction == pytest.approx(amounts.sum() + bank.bank.level[0], abs=1e-12)
    assert leaders >= set(range(len(AUTO_BELIEFS)))
    assert 100 < copies < 400


def test_the_copy_is_current_after_sums_were_scaled_back_and_tables_grew() -> None:
    learner = wv.Learner(seed=1, half_life="1 hours")
    for visitor in range(300):  # a day between two of them, so that sums are scaled back often
        decision = learner.rank({"user": f"u{visitor}"}, ["news", "match"], at=86_400.0 * visitor)
        learner.reward(decision, float(visitor % 2))
        assert_copy_is_current(learner.bank)
        if visitor % 3 == 0:
            learner.amend(decision.lesson, 0.5, 86_400.0 * (visitor + 1), decision.round)
            assert_copy_is_current(learner.bank)
    assert len(learner.bank.bank.keys) == 1024  # of 256 at first


def test_a_prediction_keeps_no_copy_so_that_another_thread_may_predict() -> None:
    learner = wv.Learner(seed=1)
    decision = learner.rank({"device": "phone"}, ["news", "match"], at=0.0)
    learner.reward(decision, 1.0)
    learner.bank.leader_copy = NO_LEADER_COPY
    predictions = learner.bank.predict(decision.lesson, 0.0)
    assert learner.bank.leader_copy is NO_LEADER_COPY
    learner.bank.prepare()
    assert learner.bank.leader_copy.belief == learner.bank.leader
    assert (learner.bank.predict(decision.lesson, 0.0) == predictions).all()


def test_a_limited_table_drops_weights_and_a_row_that_is_larger_still_fits() -> None:
    learner = wv.Learner(seed=1)
    learner.bank.max_places = 512
    for visitor in range(300):
        context = {"user": f"u{visitor}", "device": "phone" if visitor % 2 else "desktop"}
        decision = learner.rank(context, ["news", "match"], at=float(visitor))
        learner.reward(decision, float((decision.action == "match") == bool(visitor % 2)))
        assert len(learner.bank.bank.keys) <= 512
        assert learner.bank.weight_count <= MAX_FILL * 512
        assert np.count_nonzero(learner.bank.bank.keys) == learner.bank.weight_count
    assert len(learner.bank.bank.keys) == 512
    context = {"device": "phone"}
    assert learner.rank(context, ["news", "match"], at=300.0).action == "match"
    long = {f"f{i}": True for i in range(30)}
    decision = learner.rank(long, [{"id": "x", **long}], at=301.0)
    learner.reward(decision, 1.0)
    assert learner.bank.weight_count > 900
