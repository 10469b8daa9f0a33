"""The panels of the dashboard: sentences and alarms of a played loop."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from monitoring_helpers import ChangedLoop, create_loop, follow, put_one_decision
from store_helpers import SECOND, TERMS
from windvane.service.loops.loop import Loop
from windvane.service.loops.rank_requests import OfferedActions, cut_offer
from windvane.service.loops.settings import LoopSettings, Mode
from windvane.service.monitoring.panels import (
    View,
    build_dashboard,
    read_recent_requests,
    report_event,
)
from windvane.service.schemas import Action, RankRequest
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision
from windvane.service.store.writer.reward_operations import PutReward


@pytest.mark.parametrize("seconds_before_change", [None, 10])
def test_an_alarm_has_the_same_time_from_wherever_the_log_is_shown(
    changed: ChangedLoop, seconds_before_change: int | None
) -> None:
    follower = follow(changed.loop)
    (alarm_at,) = follower.alarm_times
    assert changed.change_at < alarm_at <= changed.change_at + 75 * SECOND
    assert follower.measure_drift(1000).alarms == 1
    since = 0
    if seconds_before_change is not None:
        since = changed.change_at - seconds_before_change * SECOND
    dashboard = build_dashboard(follower, View(since))
    (alarm_bin,) = dashboard.drift.alarms
    start = dashboard.starts[alarm_bin]
    assert start <= alarm_at < start + dashboard.width
    assert "worse than usual once" in dashboard.drift.answer
    after_alarm = build_dashboard(follower, View(alarm_at + 1))
    assert after_alarm.drift.alarms == []
    after_all = build_dashboard(follower, View(changed.end_at))
    assert "Nothing was learned" in after_all.drift.answer


def test_decisions_that_can_get_no_reward_any_more_do_not_wait(changed: ChangedLoop) -> None:
    dashboard = build_dashboard(follow(changed.loop))
    assert dashboard.learning.waiting == [0.0] * len(dashboard.starts)
    assert dashboard.learning.ends == (0.0, 1.0)


@pytest.mark.parametrize(("mode", "word"), [("Apprentice", "apprentice"), ("LoggingOnly", "logs")])
def test_a_loop_that_is_not_online_says_so(tmp_path: Path, mode: Mode, word: str) -> None:
    with Store(tmp_path) as store:
        loop = create_loop(store, LoopSettings(learning_mode=mode))
        put_one_decision(store, loop, "a", "b")
        learning = build_dashboard(follow(loop)).learning
        assert word in learning.answer


def test_a_damaged_decision_is_reported_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    with Store(tmp_path / "data") as store:
        loop = create_loop(store, LoopSettings())
        actions = [Action("a", []), Action("b", [])]
        damages: dict[str, dict[str, Any]] = {
            "whole": {},
            "request": {"request": "{"},
            "row": {"probabilities": b"123"},
        }
        for event, damage in damages.items():
            request = RankRequest(actions=actions, event_id=event)
            decision = loop.decide(request, OfferedActions(actions))._replace(**damage)
            store.write(PutDecision(decision, loop.terms))
        assert [weight.name for weight in read_recent_requests(loop).features] == []
        assert read_recent_requests(loop).events == ["row", "request", "whole"]
        whole, damaged = report_event(loop, "whole"), report_event(loop, "request")
        assert whole is not None
        assert damaged is not None
        assert all(option.estimate is not None for option in whole.options)
        assert [option.estimate for option in damaged.options] == [None, None]
        row = report_event(loop, "row")
        assert row is not None
        assert "damaged in the log" in row.why
        assert report_event(loop, "who\0le") is None


def play_devices(store: Store, loop: Loop, first: int, until: int) -> None:
    """Visitors on phones like b, and those on desks the first action a; every fifth is unknown."""
    random = np.random.default_rng(first)
    actions = [Action("a", []), Action("b", [])]
    for k in range(first, until):
        device = ("phone", "desk")[k % 2]
        context = [{"user": {"device": device}, "size": [1, 2], "_key": 1, "hour": k % 3}]
        request = RankRequest(
            actions=actions, event_id=f"e{k}", context_features=[] if k % 5 == 0 else context
        )
        offer = msgspec.json.encode(actions).decode()
        text, offer_at = cut_offer(msgspec.json.encode(request).decode(), offer)
        assert text is not None
        decision = loop.decide(request, OfferedActions(actions))._replace(
            at=k * SECOND, chosen=k % 3 % 2, probabilities=np.array([0.5, 0.5]).tobytes(),
            request=text, offer=offer, offer_at=offer_at,
        )  # fmt: skip
        store.write(PutDecision(decision, loop.terms))
        is_liked = ("a", "b")[decision.chosen] == ("b" if device == "phone" else "a")
        value = float(random.random() < (0.9 if is_liked else 0.1))
        loop.learn(store.write(PutReward(loop.id, f"e{k}", value, k * SECOND, TERMS)).lessons)


def test_segments_are_the_values_of_a_context_feature(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop = create_loop(store, LoopSettings())
        play_devices(store, loop, 0, 300)
        follower = follow(loop)
        panel = build_dashboard(follower).segments
        assert panel.features == ["hour", "user.device"]
        assert panel.segments == []
        panel = build_dashboard(follower, View(feature="user.device")).segments
        counts = {row.name: row.count for row in panel.segments}
        assert counts == {"phone": 120, "desk": 120, "none": 60}
        gains = {row.name: row.gain for row in panel.segments}
        assert gains["phone"].low > 0.0 > gains["desk"].high
        assert "3 values of user.device in 300 decisions." in panel.answer
        assert "earns more than the first action for phone." in panel.answer
        assert "earns less than the first action for desk." in panel.answer

        play_devices(store, loop, 300, 400)  # only these are read from the log
        follower.advance(budget=60)
        view = View(since=150 * SECOND, until=350 * SECOND, feature="user.device")
        dashboard = build_dashboard(follower, view)
        assert dashboard.decisions == sum(row.count for row in dashboard.segments.segments) == 200
        assert [row.count for row in dashboard.chosen.actions] == [133, 67]  # b in every third
        assert sum(dashboard.counts) == sum(dashboard.drift.lessons) == 200
        nothing = build_dashboard(follower, View(feature="shoe size")).segments
        assert [row.name for row in nothing.segments] == ["none"]


def test_labels_that_are_not_read_in_time_come_with_the_next_look(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop = create_loop(store, LoopSettings())
        play_devices(store, loop, 1, 4)
        follower = follow(loop)
        assert follower.label_decisions("user.device", budget=-1.0) == [None] * 3
        assert follower.label_decisions("user.device") == ["desk", "phone", "desk"]
        for name in "abcd":
            follower.label_decisions(name)
        assert list(follower._labels) == list("abcd")  # those asked for last are kept
