"""The click alarm: a changed share of clicks raises it soon; without a change it stays silent.

How often it errs by chance is known from `benchmarks/alarms.py`; the seeds here are fixed.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import log

import numpy as np
import pytest

from windvane.service.monitoring.alarms import (
    LENGTHS,
    MIN_BLOCKS_AFTER,
    MIN_BLOCKS_BEFORE,
    PREDICTION_THRESHOLD,
    RATE_THRESHOLD,
    WINDOW_BLOCKS,
    ClickAlarm,
    ClickMonitor,
    Outcomes,
    RateChange,
    measure_evidence,
)

BUCKET = 32  # decisions that are counted together
RATES = (0.005, 0.02, 0.1)


def draw_outcomes(
    generator: np.random.Generator, rates: Iterable[float], predictions: Iterable[float]
) -> Iterator[Outcomes]:
    """The outcomes of one bucket of decisions for each rate."""
    for rate, prediction in zip(rates, predictions, strict=True):
        yield Outcomes(BUCKET, float(generator.binomial(BUCKET, rate)), BUCKET * prediction)


def list_changes(outcomes: Iterable[Outcomes]) -> list[RateChange]:
    """The alarms; their time is the number of the bucket."""
    alarm = ClickAlarm()
    changes = [alarm.update(bucket, number) for number, bucket in enumerate(outcomes)]
    return [change for change in changes if change is not None]


def make_step(rate: float, factor: float, clicks_before: int, clicks_after: int) -> np.ndarray:
    """The rate of each bucket: before the step, and after it; clicks as without the step."""
    before, after = (round(clicks / rate / BUCKET) for clicks in (clicks_before, clicks_after))
    return np.repeat([rate, rate * factor], [before, after])


def compute_evidence_naively(counts: list[float], expected: list[float]) -> float:
    """L as in the docstring, for two parts."""
    terms = [o * log(o / e) if o else 0.0 for o, e in zip(counts, expected, strict=True)]
    return sum(terms) - sum(counts) * log(sum(counts) / sum(expected))


def list_changes_naively(outcomes: list[Outcomes]) -> list[int]:
    """The rule of the docstring, computed from lists of blocks each time."""
    found: list[int] = []
    blocks: list[Outcomes] = []
    seen = [0.0, 0.0]
    block: list[Outcomes] = []
    for number, bucket in enumerate(outcomes):
        block.append(bucket)
        seen = [seen[0] + bucket.lessons, seen[1] + bucket.clicks]
        rate = (seen[1] + 1) / (seen[0] + 2)
        if sum(each.lessons for each in block) * rate * (1 - rate) < 5:
            continue
        blocks.append(Outcomes(*(sum(column) for column in zip(*block, strict=True))))
        blocks, block = blocks[-WINDOW_BLOCKS:], []
        for length in LENGTHS:
            if len(blocks) - length < MIN_BLOCKS_BEFORE:
                break
            parts = blocks[:-length], blocks[-length:]
            n, o, e = ([sum(each[i] for each in part) for part in parts] for i in range(3))
            misses = [n[0] - o[0], n[1] - o[1]]
            of_rate = compute_evidence_naively(o, n) + compute_evidence_naively(misses, n)
            rest = [n[0] - e[0], n[1] - e[1]]
            of_predictions = compute_evidence_naively(o, e) + compute_evidence_naively(misses, rest)
            is_same = (o[1] / n[1] > o[0] / n[0]) == (o[1] / e[1] > o[0] / e[0])
            if of_rate >= RATE_THRESHOLD and of_predictions >= PREDICTION_THRESHOLD and is_same:
                found.append(number)
                blocks, seen = [], [0.0, 0.0]
                break
    return found


def test_alarms_agree_with_a_naive_computation_of_the_formula() -> None:
    generator = np.random.default_rng(2)
    rates = np.repeat([0.1, 0.04, 0.12, 0.3, 0.9], 250)
    predictions = 0.1 + 0.9 * np.clip(np.cumsum(rates - 0.1) / 200, 0, 0.8)
    outcomes = list(draw_outcomes(generator, rates, predictions))
    found = [change.at for change in list_changes(outcomes)]
    assert len(found) >= 3
    assert found == list_changes_naively(outcomes)


def test_the_second_part_has_lengths_on_a_geometric_grid() -> None:
    assert LENGTHS[0] == MIN_BLOCKS_AFTER
    assert LENGTHS[-1] <= WINDOW_BLOCKS - MIN_BLOCKS_BEFORE
    assert all(1 <= after - before <= 0.2 * before + 1 for before, after in pairwise(LENGTHS))


def test_a_constant_factor_of_the_predictions_cancels_out_if_clicks_are_rare() -> None:
    before, after = np.array([[1e7], [600.0], [600.0]]), np.array([[4e6], [100.0], [200.0]])
    factors = np.array([[1.0], [1.0], [3.0]])
    exact, wrong = (
        measure_evidence(before, after),
        measure_evidence(before * factors, after * factors),
    )
    assert wrong.of_predictions == pytest.approx(exact.of_predictions, rel=1e-3)
    assert (wrong.of_rate == exact.of_rate).all()


def test_predictions_that_err_in_the_other_direction_are_no_evidence() -> None:
    before, fewer = (
        np.array([[30_000.0], [600.0], [600.0]]),
        np.array([[10_000.0], [100.0], [200.0]]),
    )
    assert measure_evidence(before, fewer).of_predictions > PREDICTION_THRESHOLD
    foretold_even_fewer = np.array([[10_000.0], [100.0], [50.0]])
    evidence = measure_evidence(before, foretold_even_fewer)
    assert evidence.of_rate > RATE_THRESHOLD
    assert evidence.of_predictions == 0.0
    assert not evidence.is_change.any()


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("factor", [1.0, 0.7])
def test_a_constant_share_raises_no_alarm_in_a_hundred_thousand_decisions(
    rate: float, factor: float
) -> None:
    # Measured: fewer than 0.01 alarms in a run. One alarm in the 6 runs here would be bad luck.
    generator = np.random.default_rng(11)
    rates = np.full(100_000 // BUCKET, rate)
    noisy = rate * (factor + generator.normal(0.0, 0.2, len(rates)))
    assert list_changes(draw_outcomes(generator, rates, noisy)) == []


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(("factor", "median", "most"), [(0.5, 120, 200), (2.0, 60, 100)])
def test_a_changed_share_is_found_soon(
    rate: float, factor: float, median: float, most: float
) -> None:
    # Expected clicks until the alarm, with 600 before the change: the median and 90 % of the runs.
    generator = np.random.default_rng(12)
    delays = []
    for _ in range(10):
        rates = make_step(rate, factor, clicks_before=600, clicks_after=400)
        changes = list_changes(draw_outcomes(generator, rates, np.full(len(rates), rate)))
        change = round(600 / rate / BUCKET)
        (first, *_) = (each for each in changes if each.at >= change)
        delays.append((first.at + 1 - change) * BUCKET * rate)
        assert first.before == pytest.approx(rate, rel=0.3)
        assert (first.after < first.before) == (factor < 1)
    assert sorted(delays)[5] <= median
    assert sorted(delays)[8] <= most


def test_a_change_is_found_although_the_predictions_learn_it() -> None:
    generator, rate = np.random.default_rng(13), 0.02
    rates = make_step(rate, 0.5, clicks_before=1000, clicks_after=400)
    clicks_since = np.maximum(np.arange(len(rates)) * BUCKET * rate - 1000, 0)
    learned = rate * (0.5 + 0.5 * np.exp(-clicks_since / 200))
    (change,) = list_changes(draw_outcomes(generator, rates, learned))
    assert change.before > 1.5 * change.after


def test_a_foreseen_change_raises_no_alarm() -> None:
    rates = make_step(0.02, 0.5, clicks_before=600, clicks_after=600)
    foreseen = draw_outcomes(np.random.default_rng(14), rates, rates)
    assert list_changes(foreseen) == []
    unforeseen = draw_outcomes(np.random.default_rng(14), rates, np.full(len(rates), 0.02))
    assert len(list_changes(unforeseen)) == 1


def test_if_predictions_are_no_shares_the_clicks_decide_alone() -> None:
    rates = make_step(0.02, 0.5, clicks_before=600, clicks_after=400)
    for prediction in (0.0, -0.5, 2.0):
        outcomes = draw_outcomes(np.random.default_rng(15), rates, np.full(len(rates), prediction))
        assert len(list_changes(outcomes)) == 1


def observe(
    monitor: ClickMonitor, at: int, reward: float, prediction: float, is_explored: bool = False
) -> None:
    monitor.count(at, at, reward, Outcomes(1, reward, prediction), is_explored)


def feed_monitor(monitor: ClickMonitor, rewards: Iterable[float], prediction: float) -> int:
    """Observe one reward of each decision, in order; returns the number of alarms."""
    decision = -1
    for decision, reward in enumerate(rewards):
        observe(monitor, decision, reward, prediction)
    return len(monitor.advance(decision + 1))


def draw_clicks(rate: float, factor: float) -> np.ndarray:
    """Rewards of 6000 decisions, after 4000 of which the share of clicks changes."""
    generator = np.random.default_rng(16)
    return (generator.random(6000) < np.repeat([rate, rate * factor], [4000, 2000])).astype(float)


def test_clicks_count_in_the_order_of_decisions_not_of_lessons() -> None:
    # The traffic is tenfold from decision 4000 on. Clicks come at once, all others after a wait.
    rewards = draw_clicks(0.2, 1.0)
    arrivals = np.where(np.arange(6000) < 4000, np.arange(6000), 3600 + np.arange(6000) / 10)
    arrivals = arrivals + np.where(rewards == 1.0, 0, 200)
    order = [int(k) for k in np.argsort(arrivals, kind="stable")]
    unordered, monitor = ClickMonitor(), ClickMonitor()
    assert feed_monitor(unordered, rewards[order], 0.2) > 0
    changes = []
    waiting = set(range(6000))
    for step, decision in enumerate(order):
        observe(monitor, decision, rewards[decision], 0.2)
        waiting.remove(decision)
        if step % 20 == 0:
            changes += monitor.advance(min(waiting))
    assert changes == []
    assert monitor.alarm.is_calibrated


def test_what_comes_too_late_for_its_place_still_counts() -> None:
    monitor = ClickMonitor()
    monitor.advance(first_waiting=640)
    for decision in range(320):
        observe(monitor, decision, 0.0, 0.5)
        monitor.count(decision, decision, 1.0, Outcomes(0, 1.0, 0.0))
    seen: list[Outcomes] = []
    monitor.alarm.update = lambda outcomes, at: seen.append(outcomes)  # type: ignore[method-assign]
    monitor.advance(first_waiting=672)
    assert seen == [Outcomes(320, 320.0, 160.0)]


def test_other_rewards_are_left_out_if_rare_and_silence_the_alarm_if_not() -> None:
    rewards = draw_clicks(0.2, 0.4)
    assert feed_monitor(ClickMonitor(), rewards, 0.2) == 1
    rare = rewards.copy()
    rare[1000::1000] = 0.5
    assert feed_monitor(ClickMonitor(), rare, 0.2) == 1
    graded = ClickMonitor()
    assert feed_monitor(graded, np.where(rewards == 1.0, 0.7, 0.0), 0.14) == 0
    assert not graded.alarm.is_calibrated


def test_an_amended_reward_above_one_is_another_reward() -> None:
    monitor = ClickMonitor()
    for decision in range(3200):
        observe(monitor, decision, float(decision % 2), 0.5)
        if decision % 2:
            monitor.count(decision, decision, 2.0, Outcomes(0, 1.0, 0.0))
    monitor.advance(first_waiting=3200)
    assert not monitor.alarm.is_calibrated


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_a_rarely_chosen_action_that_gets_better_is_found_among_explored_decisions(
    factor: float,
) -> None:
    """One decision of 20 is explored; its share of clicks, 5 %, becomes 20 % halfway."""
    random, count = np.random.default_rng(21), 100_000
    monitor, changes = ClickMonitor(), []
    for decision in range(count):
        is_explored = bool(random.random() < 0.05)
        rate = prediction = 0.05 if is_explored else 0.1
        if is_explored and decision >= count // 2:
            rate *= factor
        reward = float(random.random() < rate)
        observe(monitor, decision, reward, prediction, is_explored)
        if decision % 100 == 0:
            changes += monitor.advance(decision)
    if factor == 1.0:
        assert changes == []
    else:
        (change,) = changes
        assert change.is_of_explored
        assert count // 2 < change.at < count // 2 + 10_000  # 500 explored decisions, 25 clicks
        assert (change.before, change.after) == pytest.approx((0.05, 0.2), abs=0.07)


def test_a_change_of_all_decisions_is_told_once() -> None:
    monitor, rewards = ClickMonitor(), draw_clicks(0.2, 0.4)
    changes = []
    for decision, reward in enumerate(rewards):
        observe(monitor, decision, reward, 0.2, is_explored=decision % 2 == 0)
        changes += monitor.advance(decision)
    assert [change.is_of_explored for change in changes] == [False]
