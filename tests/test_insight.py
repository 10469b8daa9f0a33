"""What the log says about its loop, against numbers worked out by hand."""

from math import isnan, sqrt
from pathlib import Path

import numpy as np
import pytest

from logs import SECOND, TERMS
from windvane.arrays import Floats
from windvane.service import insight
from windvane.service import settings as told
from windvane.service.answers import Recent, answers
from windvane.service.event import look_up
from windvane.service.insight import Bins, Decided, Learned, bins, estimate, gain
from windvane.service.joining import PutDecision, PutReward
from windvane.service.keeping import PutLoop
from windvane.service.loop import Loop
from windvane.service.settings import Settings
from windvane.service.store import Store
from windvane.service.watch import Watch
from windvane.service.wire import Action, RankRequest


def decided(at: list[int], rewards: list[float], baseline: list[float]) -> Decided:
    blank = np.zeros(len(at), np.int64)
    weights = np.array(baseline)
    return Decided(np.array(at), np.array(rewards), weights, weights, blank, blank.astype(bool))


def learned(errors: Floats) -> Learned:
    at = np.arange(len(errors))
    return Learned(at, errors, np.array([], np.int64), np.zeros((0, 2)))


def new_loop(store: Store, settings: Settings) -> Loop:
    row = store.submit(PutLoop("home", told.write(settings), 0, "test")).result(20)
    return Loop(row, store)


def test_estimate_is_the_weighted_mean_with_its_error() -> None:
    found = estimate(np.array([1.0, 0.0, 1.0]), np.array([2.0, 4.0, 0.0]))
    assert found.value == pytest.approx(1 / 3)
    assert found.plain == pytest.approx(2 / 3)
    spread = (2 * 2 / 3) ** 2 + (4 / 3) ** 2
    assert found.error == pytest.approx(sqrt(2 * spread) / 6)


def test_estimate_of_nothing_is_unknown() -> None:
    assert isnan(estimate(np.zeros(0), np.zeros(0)).value)
    assert isnan(estimate(np.ones(3), np.zeros(3)).value)


def test_estimate_with_weights_of_one_is_the_mean_and_its_usual_error() -> None:
    rewards = np.random.default_rng(1).normal(size=40)
    found = estimate(rewards, np.ones(40))
    assert found.value == pytest.approx(rewards.mean())
    assert found.error == pytest.approx(rewards.std(ddof=1) / sqrt(40))


def test_bands_cover_the_truth_as_often_as_they_should() -> None:
    random, inside = np.random.default_rng(2), 0
    for _ in range(400):
        first = random.random(300) < 0.3
        rewards = (random.random(300) < np.where(first, 0.2, 0.7)).astype(float)
        found = estimate(rewards, first / 0.3)
        inside += abs(found.value - 0.2) < 2 * found.error
    assert 0.91 < inside / 400 < 0.98


def test_gain_over_itself_is_nothing() -> None:
    found = gain(np.array([1.0, 0.0, 1.0]), np.ones(3))
    assert (found.value, found.error) == (0.0, 0.0)


@pytest.mark.parametrize("span", [0, 1, 59 * SECOND, 86_400 * SECOND, 10**16])
def test_bins_hold_all_times_and_are_few(span: int) -> None:
    since = 1_700_000_000 * SECOND + 17
    found = bins(since, since + span)
    assert found.start <= since < found.start + found.width
    assert since + span < found.start + found.size * found.width
    assert found.size <= 61


def test_over_time_leaves_out_what_waits() -> None:
    found = insight.over_time(
        Bins(0, 10, 3),
        log := decided([1, 2, 25], [1.0, 0.0, float("nan")], [1.0, 1.0, 1.0]),
        log.baseline,
    )
    assert found.value[0] == 0.5
    assert isnan(found.value[1])
    assert isnan(found.value[2])
    assert insight.waiting(Bins(0, 10, 3), log) == [0.0, 0.0, 1.0]


def test_alarm_follows_a_change_and_not_its_absence() -> None:
    random = np.random.default_rng(3)
    calm = random.normal(size=3000)
    in_bins = Bins(0, 50, 60)
    assert insight.alarms(in_bins, learned(calm)) == []
    changed = np.where(np.arange(3000) < 1500, calm, 2 * calm)
    raised = insight.alarms(in_bins, learned(changed))
    assert 30 <= raised[0] <= 32


def test_shares_name_the_top_and_sum_the_others() -> None:
    actions = np.array([0] * 5 + list(range(1, 12)))
    at = np.zeros(16, np.int64)
    none = np.zeros(16)
    log = Decided(at, none, none, none, actions, at.astype(bool))
    found = insight.shares(Bins(0, 1, 1), log, [f"a{k}" for k in range(12)])
    assert [each.name for each in found] == [f"a{k}" for k in range(8)] + [None]
    assert found[0].total == 5
    assert sum(each.value[0] for each in found) == pytest.approx(1.0)


def test_watch_of_a_played_loop(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop = new_loop(store, Settings(dim=8, half_life="50 rounds"))
        assert answers(Watch(loop), Recent([], [])).decisions == 0
        errors, baseline, uniform, total = [], [], [], 0.0
        for k in range(60):
            names = ["c", "a", "b"]
            request = RankRequest(
                actions=[Action(name, []) for name in names],
                event_id=f"e{k}",
                excluded_actions=["c"] if k % 2 else [],
            )
            made = loop.decide(request)
            store.submit(PutDecision(made, loop.terms)).result(20)
            value = float(names[made.chosen] == "a")
            row = np.frombuffer(made.features or b"")
            errors.append(value - float(row @ loop.policy.theta))
            put = PutReward(loop.id, f"e{k}", value, made.at + 1, TERMS)
            loop.learn(store.submit(put).result(20).lessons)
            chance = np.frombuffer(made.probabilities)[made.chosen]
            baseline.append((made.chosen == k % 2) / chance)
            uniform.append(1 / ((2 if k % 2 else 3) * chance))
            total += value
        watch = Watch(loop)
        watch.advance(budget=60)
        (log, _), lessons = watch.decided(), watch.learned()
        assert log.baseline == pytest.approx(np.array(baseline))
        assert log.uniform == pytest.approx(np.array(uniform))
        assert lessons.error == pytest.approx(np.array(errors))
        assert log.reward.sum() == total
        assert (watch.shadow.theta == loop.policy.theta).all()
        assert watch.effective() == pytest.approx(sum(2 ** (-k / 50) for k in range(60)))
        said = answers(watch, Recent([], []))
        assert (said.arrived.funnel["ranked"], said.arrived.funnel["learned"]) == (60, 60)
        assert said.arrived.waiting == 0
        short = Watch(loop, most=10)
        short.advance(budget=60)
        assert len(short.rows) == 10
        assert short.truncated
        event = look_up(loop, "e59")
        assert event is not None
        assert event.rewards[0].status == "learned"
        assert sum(option.chance for option in event.options) == pytest.approx(1.0)
        assert look_up(loop, "nobody's") is None
