"""The panels of the dashboard: sentences and alarms of a played loop."""

from pathlib import Path

import pytest

from monitoring_helpers import ChangedLoop, create_loop, follow, put_one_decision
from store_helpers import SECOND
from windvane.service.loops.settings import LoopSettings, Mode
from windvane.service.monitoring.panels import RecentRequests, build_dashboard
from windvane.service.store.log import Store

NO_REQUESTS = RecentRequests([], [])


@pytest.mark.parametrize("seconds_before_change", [None, 10])
def test_an_alarm_has_the_same_time_from_wherever_the_log_is_shown(
    changed: ChangedLoop, seconds_before_change: int | None
) -> None:
    follower = follow(changed.loop)
    (alarm_at,) = follower.alarm_times
    assert changed.change_at < alarm_at <= changed.change_at + 75 * SECOND
    assert follower.measure_drift(1000).alarms == 1
    since = None
    if seconds_before_change is not None:
        since = changed.change_at - seconds_before_change * SECOND
    dashboard = build_dashboard(follower, NO_REQUESTS, since)
    (alarm_bin,) = dashboard.drift.alarms
    start = dashboard.starts[alarm_bin]
    assert start <= alarm_at < start + dashboard.width
    assert "worse than usual once" in dashboard.drift.answer
    after_alarm = build_dashboard(follower, NO_REQUESTS, alarm_at + 1)
    assert after_alarm.drift.alarms == []
    after_all = build_dashboard(follower, NO_REQUESTS, changed.end_at)
    assert "Nothing was learned" in after_all.drift.answer


def test_decisions_that_can_get_no_reward_any_more_do_not_wait(changed: ChangedLoop) -> None:
    dashboard = build_dashboard(follow(changed.loop), NO_REQUESTS)
    assert dashboard.learning.waiting == [0.0] * len(dashboard.starts)
    assert dashboard.learning.ends == (0.0, 1.0)


@pytest.mark.parametrize(("mode", "word"), [("Apprentice", "apprentice"), ("LoggingOnly", "logs")])
def test_a_loop_that_is_not_online_says_so(tmp_path: Path, mode: Mode, word: str) -> None:
    with Store(tmp_path) as store:
        loop = create_loop(store, LoopSettings(learning_mode=mode))
        put_one_decision(store, loop, "a", "b")
        learning = build_dashboard(follow(loop), NO_REQUESTS).learning
        assert word in learning.answer
