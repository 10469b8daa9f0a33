"""The panels of the dashboard: sentences and alarms of a played loop."""

from pathlib import Path
from typing import Any

import pytest

from monitoring_helpers import ChangedLoop, create_loop, follow, put_one_decision
from store_helpers import SECOND
from windvane.service.loops.rank_requests import OfferedActions
from windvane.service.loops.settings import LoopSettings, Mode
from windvane.service.monitoring.panels import (
    build_dashboard,
    read_recent_requests,
    report_event,
)
from windvane.service.schemas import Action, RankRequest
from windvane.service.store.log import Store
from windvane.service.store.writer.decision_operations import PutDecision


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
    dashboard = build_dashboard(follower, since)
    (alarm_bin,) = dashboard.drift.alarms
    start = dashboard.starts[alarm_bin]
    assert start <= alarm_at < start + dashboard.width
    assert "worse than usual once" in dashboard.drift.answer
    after_alarm = build_dashboard(follower, alarm_at + 1)
    assert after_alarm.drift.alarms == []
    after_all = build_dashboard(follower, changed.end_at)
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
