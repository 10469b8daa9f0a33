"""What the log says about its loop, against numbers worked out by hand."""

from collections import Counter
from math import isnan, sqrt
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import astuple

from logs import SECOND, TERMS
from windvane.arrays import Floats
from windvane.service import insight
from windvane.service import settings as told
from windvane.service.answers import Recent, answers, recent
from windvane.service.event import look_up
from windvane.service.insight import Bins, Decided, Ends, Estimate, Learned, bins, estimate, gain
from windvane.service.joining import PutDecision, PutReward
from windvane.service.keeping import PutLoop
from windvane.service.loop import Loop
from windvane.service.settings import Settings
from windvane.service.store import Store
from windvane.service.watch import Watch, Watches
from windvane.service.wire import Action, RankRequest


def decided(at: list[int], rewards: list[float], baseline: list[float]) -> Decided:
    blank = np.zeros(len(at), np.int64)
    weights = np.array(baseline)
    return Decided(np.array(at), np.array(rewards), weights, weights, blank, blank.astype(bool))


def learned(at: list[int], errors: list[float], path: Floats, alarms: list[int]) -> Learned:
    """Lessons, with an estimate after each."""
    times, steps = np.array(at), list(path.astype(np.float32))
    return Learned(times, np.array(errors), np.array(alarms), times, steps)


def new_loop(store: Store, settings: Settings) -> Loop:
    row = store.submit(PutLoop("home", told.write(settings), 0, "test")).result(20)
    return Loop(row, store)


def naive_estimate(rewards: Floats, weights: Floats, low: float, high: float) -> Estimate:
    """The formulas of the module, a term at a time."""
    pairs = list(zip(rewards, weights, strict=True))
    total, squares = sum(w for _, w in pairs), sum(w * w for _, w in pairs)
    value = sum(w * y for y, w in pairs) / total
    used = sum(w > 0 for _, w in pairs)
    variance = sum((w * (y - value)) ** 2 for y, w in pairs) / total**2
    variance *= used / (used - 1) if used > 1 else 1.0
    size = total**2 / squares
    variance += ((value - low) ** 2 + (high - value) ** 2) / size**2
    error = min(sqrt(variance), (high - low) / 2)
    return Estimate(value, error, sum(w * y for y, w in pairs) / len(pairs), len(pairs))


def test_estimate_is_that_of_the_formula() -> None:
    random = np.random.default_rng(6)
    for size in (1, 2, 5, 80):
        rewards, weights = random.random(size), random.exponential(size=size)
        weights[1::3] = 0.0
        found = estimate(rewards, weights, Ends(-0.5, 1.5))
        wanted = naive_estimate(rewards, weights, -0.5, 1.5)
        assert astuple(found) == pytest.approx(astuple(wanted))


def test_estimate_of_nothing_is_unknown() -> None:
    assert isnan(estimate(np.zeros(0), np.zeros(0)).value)
    assert isnan(estimate(np.ones(3), np.zeros(3)).value)


def test_estimate_of_many_equal_weights_is_the_mean_and_its_usual_error() -> None:
    rewards = np.random.default_rng(1).random(4000)
    found = estimate(rewards, np.ones(4000))
    assert found.value == pytest.approx(rewards.mean())
    assert found.error == pytest.approx(rewards.std(ddof=1) / sqrt(4000), rel=1e-2)


def test_equal_rewards_leave_room_for_one_that_was_not_seen() -> None:
    assert estimate(np.zeros(10), np.ones(10)).error == pytest.approx(0.1)
    assert estimate(np.ones(10), np.ones(10)).error == pytest.approx(0.1)
    assert estimate(np.zeros(1), np.ones(1)).error == 0.5
    assert estimate(np.zeros(10), np.ones(10), Ends(-1.0, 1.0)).error == pytest.approx(sqrt(0.02))


@pytest.mark.parametrize(
    ("size", "share", "truth", "most"),
    [(300, 0.3, 0.2, 0.99), (10, 1.0, 0.1, 1.0), (30, 1.0, 0.05, 1.0), (125, 0.05, 0.1, 1.0)],
)
def test_bands_cover_the_truth_as_often_as_they_should(
    size: int, share: float, truth: float, most: float
) -> None:
    random, inside, plays = np.random.default_rng(2), 0, 0
    for _ in range(400):
        first = random.random(size) < share
        rewards = (random.random(size) < np.where(first, truth, 0.7)).astype(float)
        found = estimate(rewards, first / share, Ends(0.0, 1.0))
        plays += int(first.any())
        inside += abs(found.value - truth) < 2 * found.error
    assert 0.93 < inside / plays <= most


def test_gain_over_itself_is_nothing() -> None:
    found = gain(np.array([1.0, 0.0, 1.0]), np.ones(3))
    assert (found.value, found.error) == (0.0, 0.0)


def test_gain_over_what_was_hardly_tried_is_not_sure() -> None:
    rewards, weights = np.tile([0.0, 1.0], 50), np.zeros(100)
    weights[[0, 2]] = 50.0  # twice, for nothing
    found = gain(rewards, weights)
    assert found.value == 0.5
    assert found.value < 2 * found.error


@pytest.mark.parametrize("span", [0, 1, 59 * SECOND, 86_400 * SECOND, 10**16])
def test_bins_hold_all_times_and_are_few(span: int) -> None:
    since = 1_700_000_000 * SECOND + 17
    found = bins(since, since + span)
    assert found.start <= since < found.start + found.width
    assert since + span < found.start + found.size * found.width
    assert found.size <= 61


def test_over_time_is_the_estimate_of_each_bin() -> None:
    random = np.random.default_rng(8)
    at = np.sort(random.integers(0, 200, 150))
    rewards = np.where(random.random(150) < 0.2, np.nan, random.random(150))
    log = decided(at.tolist(), rewards.tolist(), random.exponential(size=150).tolist())
    low, high = np.nanmin(rewards), np.nanmax(rewards)
    for reach in (0, 2):
        found = insight.over_time(Bins(0, 10, 20), log, log.baseline, reach)
        for k in range(20):
            near = (at >= 10 * (k - reach)) & (at < 10 * (k + 1 + reach)) & ~np.isnan(rewards)
            wanted = naive_estimate(rewards[near], log.baseline[near], low, high)
            assert found.value[k] == pytest.approx(wanted.value)
            assert found.error[k] == pytest.approx(wanted.error)


def test_over_time_leaves_out_what_waits() -> None:
    found = insight.over_time(
        Bins(0, 10, 3),
        log := decided([1, 2, 25], [1.0, 0.0, float("nan")], [1.0, 1.0, 1.0]),
        log.baseline,
        reach=2,
    )
    assert found.value[0] == 0.5
    assert isnan(found.value[1])
    assert isnan(found.value[2])


def test_waiting_is_what_can_still_get_a_reward() -> None:
    log = decided([1, 12, 15, 25], [float("nan")] * 2 + [1.0, float("nan")], [1.0] * 4)
    assert insight.waiting(Bins(0, 10, 3), log, open_since=10) == [0.0, 0.5, 1.0]


def test_errors_movement_and_alarms_of_each_bin() -> None:
    random = np.random.default_rng(9)
    at, errors = [3, 8, 15, 16, 17, 41], random.normal(size=6).tolist()
    path = random.normal(size=(6, 2))
    in_bins, log = Bins(0, 10, 5), learned(at, errors, path, alarms=[16, 17, 41])
    found = insight.errors(in_bins, log)
    for k, theirs in enumerate(([0, 1], [2, 3, 4], [], [], [5])):
        squares = [errors[i] ** 2 for i in theirs]
        if squares:
            assert found.value[k] == pytest.approx(sqrt(sum(squares) / len(squares)))
            assert 0 < found.error[k] < 2
        else:
            assert isnan(found.value[k])
    assert insight.alarms(in_bins, log) == [1, 4]
    moved = insight.movement(in_bins, log)
    assert isnan(moved[0])  # from where is not known
    steps = [np.linalg.norm(path[4] - path[1]), 0.0, 0.0, np.linalg.norm(path[5] - path[4])]
    assert moved[1:] == pytest.approx(steps, rel=1e-5)
    later = log.since(16)
    assert later.alarms.tolist() == [16, 17, 41]
    assert insight.movement(Bins(16, 10, 1), later) == pytest.approx(
        [np.linalg.norm(path[4] - path[2])], rel=1e-5
    )


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
        errors, baseline, uniform, picked = [], [], [], list[str]()
        total, explored = 0.0, 0
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
            picked.append(names[made.chosen])
            explored += chance < np.frombuffer(made.probabilities).max()
        watch = Watch(loop)
        assert all(isnan(each) for each in watch.drift(20))  # nothing was read yet
        watch.advance(budget=60)
        (log, _), lessons = watch.decided(), watch.learned()
        assert log.baseline == pytest.approx(np.array(baseline))
        assert log.uniform == pytest.approx(np.array(uniform))
        assert lessons.error == pytest.approx(np.array(errors))
        assert log.reward.sum() == total
        assert (watch.shadow.theta == loop.policy.theta).all()
        (alarms, error, movement), thetas = watch.drift(20), [theta for _, theta in watch.path]
        assert alarms == 0
        assert error == pytest.approx(sqrt(np.mean(np.square(errors[-20:]))))
        assert movement == pytest.approx(np.linalg.norm(thetas[-1] - thetas[-21]))
        assert len(thetas) == 61
        assert not thetas[0].any()
        assert watch.effective() == pytest.approx(sum(2 ** (-k / 50) for k in range(60)))
        said = answers(watch, recent(loop))
        assert said.learning.mean.value == pytest.approx(total / 60)
        assert said.learning.mean.count == said.forgetting.learned == 60
        assert said.learning.baseline.plain == pytest.approx(float(log.reward @ log.baseline) / 60)
        assert said.chosen.explored == pytest.approx(explored / 60)
        totals = {share.name: share.total for share in said.chosen.shares}
        assert totals == Counter(picked)
        assert said.recent == ["e59", "e58", "e57", "e56"]
        estimates = (
            loop.encoder.encode([], [Action(name, []) for name in names]) @ loop.policy.theta
        )
        weights = {weight.name: weight.amount for weight in said.features}
        assert weights["action"] > 0
        assert (said.arrived.funnel["ranked"], said.arrived.funnel["learned"]) == (60, 60)
        assert said.arrived.waiting == 0
        short = Watch(loop, most=10)
        short.advance(budget=60)
        assert len(short.rows) == 10
        assert short.truncated
        event = look_up(loop, "e59")
        assert event is not None
        assert event.rewards[0].status == "learned"
        assert event.chosen == picked[-1]
        for option in event.options:
            assert option.estimate == pytest.approx(estimates[names.index(option.name)])
            assert option.chosen == (option.name == event.chosen)
        mine = estimates[names.index(event.chosen)]
        assert sum(reason.amount for reason in event.reasons) == pytest.approx(mine)
        assert sum(option.chance for option in event.options) == pytest.approx(1.0)
        assert look_up(loop, "nobody's") is None


def test_board_marks_a_turn_of_taste_wherever_it_is_looked_at_from(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop = new_loop(store, Settings(dim=8, half_life="200 rounds"))
        random, turn = np.random.default_rng(1), 300
        names = ["a", "b"]
        for k in range(turn + 100):
            actions = [Action(name, []) for name in names]
            at = k * SECOND
            made = loop.decide(RankRequest(actions=actions, event_id=f"e{k}"))._replace(at=at)
            store.submit(PutDecision(made, loop.terms))
            likes = 0.9 if (names[made.chosen] == "a") == (k < turn) else 0.1
            put = PutReward(loop.id, f"e{k}", float(random.random() < likes), at, TERMS)
            if k % 40:  # of the others, long ago, nobody will hear
                loop.learn(store.submit(put).result(20).lessons)
        watch = Watch(loop)
        watch.advance(budget=60)
        (raised,) = watch.alarms
        assert turn * SECOND < raised <= (turn + 75) * SECOND
        assert watch.drift(1000)[0] == 1
        for since in (None, (turn - 10) * SECOND):
            said = answers(watch, Recent([], []), since)
            (place,) = said.drift.alarms
            assert said.starts[place] <= raised < said.starts[place] + said.width
            assert "worse than usual once" in said.drift.answer
        assert answers(watch, Recent([], []), raised + 1).drift.alarms == []
        assert said.learning.ends == (0.0, 1.0)
        assert said.learning.waiting == [0.0] * len(said.starts)


def test_watches_follow_a_loop_once_and_read_on(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        loop, watches = new_loop(store, Settings(dim=8)), Watches()
        watch = watches.of(loop)
        assert watches.of(loop) is watch
        request = RankRequest(actions=[Action("a", [])], event_id="e")
        store.submit(PutDecision(loop.decide(request), loop.terms)).result(20)
        watches.of(loop)
        assert len(watch.rows) == 0  # it was read just now
        watch.read -= 2.0
        watches.of(loop)
        assert len(watch.rows) == 1
        again = Loop(store.loops()[0], store)
        assert watches.of(again).loop is again
