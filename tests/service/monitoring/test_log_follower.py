"""A log follower: the same beliefs and numbers as the loop, and alarms that keep their place."""

from collections import Counter
from math import isnan, sqrt
from pathlib import Path

import numpy as np
import pytest

from monitoring_helpers import ChangedLoop, create_loop, follow, put_one_decision
from policy_access import read_bits, read_learner_bits
from store_helpers import TERMS
from windvane.service.loops.learner_model import Moment
from windvane.service.loops.loop import Loop
from windvane.service.loops.rank_requests import OfferedActions
from windvane.service.loops.settings import LoopSettings
from windvane.service.monitoring.log_follower import LogFollower, LogFollowers
from windvane.service.monitoring.panels import (
    View,
    build_dashboard,
    report_event,
)
from windvane.service.schemas import Action, RankRequest
from windvane.service.store.log import Store
from windvane.service.store.rows import SettingsChange
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.reward_operations import PutReward


def test_follower_dashboard_and_report_agree_with_the_played_loop(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop = create_loop(store, LoopSettings(half_life="50 rounds"))
        assert build_dashboard(LogFollower(loop)).decisions == 0
        errors: list[float] = []
        baseline: list[float] = []
        uniform: list[float] = []
        chosen: list[str] = []
        total = 0.0
        explored = 0
        names = ["c", "a", "b"]
        for k in range(60):
            request = RankRequest(
                actions=[Action(name, []) for name in names],
                event_id=f"e{k}",
                excluded_actions=["c"] if k % 2 else [],
            )
            decision = loop.decide(request, OfferedActions(request.actions))
            store.write(PutDecision(decision, loop.terms))
            value = float(names[decision.chosen] == "a")
            moment = Moment(decision.round, decision.at)
            errors.append(value - loop.model.predict(decision.features or b"", moment))
            put = PutReward(loop.id, f"e{k}", value, decision.at + 1, TERMS)
            loop.learn(store.write(put).lessons)
            probabilities = np.frombuffer(decision.probabilities)
            probability = probabilities[decision.chosen]
            baseline.append((decision.chosen == k % 2) / probability)
            uniform.append(1 / ((2 if k % 2 else 3) * probability))
            total += value
            chosen.append(names[decision.chosen])
            explored += probability < probabilities.max()

        follower = LogFollower(loop)
        assert all(isnan(number) for number in follower.measure_drift(20))  # nothing is read yet
        follower.advance(budget=60)
        decisions, _ = follower.collect_decisions()
        lessons = follower.collect_lessons()
        assert decisions.baseline == pytest.approx(np.array(baseline))
        assert decisions.uniform == pytest.approx(np.array(uniform))
        assert lessons.error == pytest.approx(np.array(errors))
        assert decisions.reward.sum() == total
        assert read_learner_bits(follower.shadow.learner) == read_bits(loop)
        alarms, click_alarms, error, movement = follower.measure_drift(20)
        thetas = [theta for _, theta in follower.path]
        assert alarms == click_alarms == 0
        assert error == pytest.approx(sqrt(np.mean(np.square(errors[-20:]))))
        assert movement == pytest.approx(np.linalg.norm(thetas[-1] - thetas[-21]))
        assert len(thetas) == 61
        assert not thetas[0].any()
        effective_count = sum(2 ** (-k / 50) for k in range(60))
        assert follower.compute_effective_count() == pytest.approx(effective_count)

        dashboard = build_dashboard(follower)
        learning = dashboard.learning
        assert learning.mean.value == pytest.approx(total / 60)
        assert learning.mean.count == dashboard.forgetting.learned == 60
        weighted = float(decisions.reward @ decisions.baseline) / decisions.baseline.sum()
        assert learning.baseline.value == pytest.approx(weighted)
        assert dashboard.chosen.explored == pytest.approx(explored / 60)
        totals = {share.name: share.total for share in dashboard.chosen.shares}
        assert totals == Counter(chosen)
        assert dashboard.recent == ["e59", "e58", "e57", "e56"]
        weights = {weight.name: weight.amount for weight in dashboard.features}
        assert weights["action"] > 0
        funnel = dashboard.arrived.funnel
        assert (funnel["ranked"], funnel["learned"]) == (60, 60)
        assert dashboard.arrived.waiting == 0

        actions = [Action(name, []) for name in names]
        estimates = loop.model.estimate_actions([], actions)
        report = report_event(loop, "e59")
        assert report is not None
        assert report.rewards[0].status == "learned"
        assert report.chosen == chosen[-1]
        for option in report.options:
            assert option.estimate == pytest.approx(estimates[names.index(option.name)])
            assert option.chosen == (option.name == report.chosen)
        of_chosen = estimates[names.index(report.chosen)]
        assert sum(reason.amount for reason in report.reasons) == pytest.approx(of_chosen)
        assert sum(option.chance for option in report.options) == pytest.approx(1.0)
        assert report_event(loop, "nobody's") is None

        short = LogFollower(loop, max_decisions=10)
        short.advance(budget=60)
        assert len(short.decisions) == 10
        assert short.is_truncated


def test_an_alarm_is_dropped_with_its_lessons(changed: ChangedLoop) -> None:
    follower = follow(changed.loop)
    follower.errors = type(follower.errors)(follower.errors, maxlen=50)
    assert len(follower.alarm_times) == 1
    (batch,) = changed.loop.store.iterate_lessons(changed.loop.id)
    follower.learn(batch[-1])
    assert len(follower.alarm_times) == 0


def test_new_settings_make_the_usual_error_unknown(changed: ChangedLoop) -> None:
    store = changed.loop.store
    loop = Loop(store.list_loops()[0], store)
    follower = follow(loop)
    follower.alarm.usual = follower.alarm.usual._replace(size=1000)
    clicks = follower.clicks
    settings = LoopSettings(half_life="20 rounds")
    loop.change_settings(SettingsChange(2, 0, settings.to_json(), "test", loop.last_lesson))
    follower.advance(budget=60)
    assert follower.alarm.usual.size == 0
    assert follower.clicks is not clicks
    assert read_learner_bits(follower.shadow.learner) == read_bits(loop)


def test_a_changed_share_of_clicks_is_found_once_no_earlier_decision_waits(tmp_path: Path) -> None:
    change, rounds = 800, 1000
    rates = np.repeat([0.5, 0.1], [change, rounds - change])
    rewards = (np.random.default_rng(5).random(rounds) < rates).astype(float)
    with Store(tmp_path) as store:
        loop = create_loop(store, LoopSettings(half_life="never"))
        request = RankRequest(actions=[Action("a", []), Action("b", [])])
        offer = OfferedActions(request.actions)
        puts: list[PutDecision | PutReward] = []
        for k, reward in enumerate(rewards):
            decision = loop.decide(request, offer)._replace(at=k, event_id=f"e{k}")
            puts.append(PutDecision(decision, loop.terms))
            if k:
                puts.append(PutReward(loop.id, f"e{k}", float(reward), k, TERMS))
        store.write_group(puts)
        follower = follow(loop)
        assert follower.measure_drift(1000).click_alarms == 0  # the first decision still waits
        assert not follower.rate_changes
        store.write(PutReward(loop.id, "e0", 0.0, rounds, TERMS))
        follower.advance(budget=60)
        assert follower.measure_drift(1000).click_alarms == 1
        (found,) = follower.rate_changes
        assert change < found.at < change + 200
        assert found.before == pytest.approx(0.5, abs=0.1)
        assert found.after == pytest.approx(0.1, abs=0.1)
        (again,) = follow(loop).rate_changes
        assert again == found

        drift = build_dashboard(follower).drift
        assert "the share of clicks changed once, from" in drift.answer
        assert len(drift.click_alarms) == 1
        after = build_dashboard(follower, View(found.at + 1)).drift
        assert after.click_alarms == []


def test_followers_follow_a_loop_once_and_read_new_entries(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop, followers = create_loop(store, LoopSettings()), LogFollowers()
        follower = followers.follow(loop)
        assert followers.follow(loop) is follower
        put_one_decision(store, loop, "a")
        followers.follow(loop)
        assert len(follower.decisions) == 0  # the log was read just before
        follower.read_at -= 2.0
        followers.follow(loop)
        assert len(follower.decisions) == 1
        again = Loop(store.list_loops()[0], store)
        assert followers.follow(again).loop is again


def test_decisions_that_are_deleted_from_the_log_are_dropped(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop = create_loop(store, LoopSettings())
        put_one_decision(store, loop, "a")
        follower = follow(loop)
        assert len(follower.decisions) == 1
        follower.decisions[0].id = 0  # before the first decision of the log
        follower._decisions_by_id = {0: follower.decisions[0]}
        follower.advance(budget=60)
        assert len(follower.decisions) == 0
