"""PolicyRecord: batches, merging, ranges, series, and results as JSON."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from windvane.errors import FileError, RewardError, SettingError
from windvane.evaluation import ActionModel, Evaluation, PolicyRecord, PolicyResult
from windvane.evaluation.estimates import policy_record, value_series
from windvane.types import Floats

N = 3000
ESTIMATES = {"ips", "snips", "dm", "dr", "sndr", "cressie_read"}


def draw_columns(low: float = 0.0) -> tuple[Floats, ...]:
    """Times over two days, rewards, weights, model values and model predictions."""
    rng = np.random.default_rng(5)
    times = 1e9 + np.sort(rng.random(N)) * 2 * 86_400
    rewards = low + (rng.random(N) < 0.4) / (1 / (1 - low))
    weights = (rng.random(N) < 0.25) / 0.25
    predictions = np.full(N, 0.4) + rng.normal(0, 0.05, N)
    return times, rewards, weights, np.full(N, 0.4) + 0 * times, predictions


def record_parts(
    cuts: list[int], columns: tuple[Floats, ...], **settings: tuple[float, float]
) -> PolicyRecord:
    record = PolicyRecord("candidate", **settings)  # type: ignore[arg-type]
    for start, end in pairwise([0, *cuts, N]):
        record.add(*(column[start:end] for column in columns))
    return record


def strip(result: PolicyResult) -> dict[str, object]:
    plain = result.to_json()
    del plain["series"]
    return plain


def flatten(value: object) -> list[float]:
    """All numbers of a result without its series, in order."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in flatten(item)]
    if isinstance(value, list | tuple):
        return [number for item in value for number in flatten(item)]
    return [float(value)] if isinstance(value, int | float) else []


def test_batches_of_any_size_and_order_of_intervals_give_the_same_result() -> None:
    columns = draw_columns()
    whole = record_parts([], columns).summarize()
    parts = record_parts([1, 7, 1500], columns).summarize()
    assert set(whole.estimates) == ESTIMATES
    assert whole.headline == "dr"
    assert flatten(strip(parts)) == pytest.approx(flatten(strip(whole)), rel=1e-9, abs=1e-9)


def test_chunks_of_a_batch_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = draw_columns()
    whole = record_parts([], columns).summarize()
    monkeypatch.setattr(policy_record, "CHUNK_ROWS", 700)
    chunks = record_parts([], columns).summarize()
    assert flatten(strip(chunks)) == pytest.approx(flatten(strip(whole)), rel=1e-9, abs=1e-9)


def test_merged_records_have_all_decisions() -> None:
    columns = draw_columns()
    whole = record_parts([], columns).summarize()
    first, second = PolicyRecord("candidate"), PolicyRecord("candidate")
    first.add(*(column[:1000] for column in columns))
    second.add(*(column[1000:] for column in columns))
    second.merge(first)  # in any order
    second.merge(PolicyRecord("candidate"))
    merged = second.summarize()
    assert flatten(merged.to_json()["estimates"]) == pytest.approx(
        flatten(whole.to_json()["estimates"]), rel=1e-9
    )
    assert flatten(merged.to_json()["diagnostics"]) == pytest.approx(
        flatten(whole.to_json()["diagnostics"]), rel=1e-9
    )
    assert flatten(merged.sequence) == pytest.approx(flatten(whole.sequence), abs=0.01)
    with pytest.raises(SettingError, match="the same ranges"):
        second.merge(PolicyRecord("candidate", reward_range=(0.0, 2.0)))


def test_the_range_of_rewards_is_found_or_given() -> None:
    def summarize(rewards: list[float], **settings: tuple[float, float]) -> PolicyResult:
        record = PolicyRecord("candidate", **settings)  # type: ignore[arg-type]
        for i, reward in enumerate(rewards):  # one by one, so that the range is widened
            record.add(np.array([float(i)]), np.array([reward]), np.ones(1))
        return record.summarize()

    assert tuple(summarize([0.0, 1.0]).reward_range) == (0.0, 1.0)
    assert tuple(summarize([0.0, -0.5, 1.0]).reward_range) == (-1.0, 1.0)
    unusual = summarize([0.0, -0.5, 7.0])
    assert tuple(unusual.reward_range) == (-1.0, 7.0)
    assert any("rewards lie outside [-1, 1]" in warning for warning in unusual.warnings)
    assert tuple(summarize([0.0, 3.0], reward_range=(0.0, 10.0)).reward_range) == (0.0, 10.0)
    with pytest.raises(RewardError, match=r"must lie in \[0, 2\], got 3 in row 0"):
        summarize([0.0, 3.0], reward_range=(0.0, 2.0))


def test_a_found_range_gives_nearly_the_interval_of_the_given_range() -> None:
    columns = draw_columns(low=-1.0)
    columns[1][:1000] = np.abs(columns[1][:1000])  # the first negative reward comes late
    found = record_parts([500, 1000], columns).summarize()
    given = record_parts([], columns, reward_range=(-1.0, 1.0)).summarize()
    assert found.reward_range == given.reward_range
    assert flatten(found.sequence) == pytest.approx(flatten(given.sequence), abs=0.03)


def test_counts_weigh_decisions() -> None:
    times, rewards, weights, model_values, model_chosen = draw_columns()
    counts = np.random.default_rng(1).uniform(0.1, 1.0, N)
    record = PolicyRecord("learner")
    record.add(times, rewards, weights, model_values, model_chosen, counts)
    scores = model_values + weights * (rewards - model_chosen)
    expected = (counts * scores).sum() / counts.sum()
    assert record.summarize().estimates["dr"].value == pytest.approx(expected, rel=1e-9)
    single, double = PolicyRecord("a"), PolicyRecord("a")
    single.add(times, rewards, weights)
    double.add(times, rewards, weights, counts=np.full(N, 4.0))
    one, two = single.summarize(), double.summarize()
    assert flatten(two.to_json()["estimates"]) == pytest.approx(
        flatten(one.to_json()["estimates"]), rel=1e-9
    )
    assert flatten(two.sequence) == pytest.approx(flatten(one.sequence), rel=1e-9)
    assert two.series.expand()[-1].mass == 4 * N


def draw_modelled_log() -> tuple[Floats, Floats, Floats, ActionModel]:
    """Times, rewards and weights of a policy that chooses action 1 with chance 0.9."""
    rng = np.random.default_rng(9)
    chosen = rng.integers(2, size=N)
    rewards = np.where(chosen == 0, 0.3, 0.8) + rng.uniform(-0.1, 0.1, N)
    weights = 0.2 + (chosen == 1) / 0.625
    actions = ActionModel(
        np.tile([0.3, 0.8], N),
        np.tile([0.1, 0.9], N),
        np.full(2 * N, 0.5),
        np.arange(0, 2 * N + 1, 2),
        chosen,
    )
    return np.linspace(0.0, 1e6, N), rewards, weights, actions


def test_the_largest_weight_that_was_possible_bounds_the_cressie_read_estimate() -> None:
    times, rewards, weights, actions = draw_modelled_log()
    known, given = PolicyRecord("a"), PolicyRecord("a", weight_range=(0.0, 0.9 / 0.5))
    known.add(times, rewards, weights, action_model=actions)
    given.add(times, rewards, weights)
    mine, expected = (each.summarize().estimates["cressie_read"] for each in (known, given))
    assert mine == expected
    unknown = PolicyRecord("a")
    unknown.add(times, rewards, weights)
    assert unknown.summarize().estimates["cressie_read"] != expected


@pytest.mark.parametrize("reward_range", [(0.0, 1.0), None])
def test_an_action_model_makes_the_sequence_narrower(
    reward_range: tuple[float, float] | None,
) -> None:
    times, rewards, weights, actions = draw_modelled_log()
    plain = PolicyRecord("a", reward_range=reward_range)
    helped = PolicyRecord("a", reward_range=reward_range)
    for start in range(0, N, 1000):
        part = slice(start, start + 1000)
        is_selected = np.zeros(N, dtype=bool)
        is_selected[part] = True
        plain.add(times[part], rewards[part], weights[part])
        helped.add(
            times[part], rewards[part], weights[part], action_model=actions.select(is_selected)
        )
    wide, narrow = plain.summarize(), helped.summarize()
    assert (wide.sequence_kind, narrow.sequence_kind) == ("ips", "dr")
    low, high = narrow.sequence
    assert low < 0.75 < high
    assert high - low < 0.6 * (wide.sequence.high - wide.sequence.low)
    assert narrow.gain.verdict == "better"


def test_records_with_an_action_model_merge_and_forget_it_if_a_row_has_none() -> None:
    times, rewards, weights, actions = draw_modelled_log()
    whole, halves = PolicyRecord("a"), [PolicyRecord("a"), PolicyRecord("a")]
    whole.add(times, rewards, weights, action_model=actions)
    for half, is_first in zip(halves, (True, False), strict=True):
        is_selected = (np.arange(N) < 1000) == is_first
        part = np.flatnonzero(is_selected)
        half.add(
            times[part], rewards[part], weights[part], action_model=actions.select(is_selected)
        )
    halves[0].merge(halves[1])
    merged, together = halves[0].summarize(), whole.summarize()
    assert merged.sequence_kind == "dr"
    assert flatten(merged.sequence) == pytest.approx(flatten(together.sequence), abs=0.01)
    negative = PolicyRecord("a")  # whose range is wider, and which has no model
    negative.add(times[:1], np.array([-0.5]), weights[:1])
    halves[0].merge(negative)
    assert halves[0].summarize().sequence_kind == "ips"
    plain = PolicyRecord("a")
    plain.add(times, rewards, weights)
    plain.merge(negative)
    assert flatten(halves[0].summarize().gain.interval) == pytest.approx(
        flatten(plain.summarize().gain.interval), abs=0.01
    )


def test_the_series_has_the_numbers_of_the_wire_format() -> None:
    """Both rows of the published example: half-width 1.96 √((Σ(wr)² − (Σwr)²/n)/(n−1)/n)."""
    columns = draw_columns()
    times, rewards, weights = columns[:3]
    result = record_parts([100, 2000], columns).summarize()
    points = result.series.expand()
    assert all(point.time % 300 == 0 for point in points)
    for point in (points[10], points[-1]):
        is_before = times < point.time
        n, scores = is_before.sum(), (weights * rewards)[is_before]
        assert (point.rows, point.mass) == (n, n)
        assert point.weighted_reward == pytest.approx(scores.sum())
        assert point.squared_weighted_reward == pytest.approx((scores**2).sum())
        assert point.weight == pytest.approx(weights[is_before].sum())
        assert point.positive == (weights[is_before] > 0).sum()
        assert point.ips == pytest.approx(scores.mean())
        variance = ((scores**2).sum() - scores.sum() ** 2 / n) / (n - 1)
        assert point.ips_error == pytest.approx(np.sqrt(variance / n), rel=1e-9)
    hours = result.series.roll(60)
    inside = (times >= hours[3].time - 3600) & (times < hours[3].time)
    assert hours[3].rows == inside.sum()
    assert sum(point.rows for point in hours) == N


def test_a_long_series_gets_longer_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(value_series, "MAX_INTERVALS", 100)
    columns = draw_columns()
    times = columns[0]
    shuffled = np.random.default_rng(1).permutation(N)
    result = record_parts([900], tuple(column[shuffled] for column in columns)).summarize()
    assert result.series.minutes == 60
    assert len(result.series.starts) == len(np.unique(times // 3600))
    assert float(result.series.sums.rows.sum()) == N
    with pytest.raises(SettingError, match="must be a multiple of 60, got 5"):
        result.series.roll(5)


def test_results_are_written_as_json_and_read_back() -> None:
    result = record_parts([], draw_columns()).summarize()
    evaluation = Evaluation([result, replace(result, name="other")], "a log", 1.0, 2.0, N)
    text = json.dumps(evaluation.to_json(), allow_nan=False)
    back = Evaluation.from_json(json.loads(text))
    assert json.dumps(back.to_json()) == text
    assert back["other"].estimates == result.estimates
    assert back["candidate"].series.roll(60) == result.series.roll(60)
    with pytest.raises(FileError, match="from_json"):
        PolicyResult.from_json({"name": 3})


def test_bad_rows_are_refused_and_change_nothing() -> None:
    record = record_parts([], draw_columns())
    before = record.summarize().to_json()
    good = np.ones(3)
    for message, columns in {
        "rewards must be finite, got nan in row 1": (good, np.array([1, np.nan, 1]), good),
        "weights must be at least 0, got -1 in row 2": (good, good, np.array([1, 1, -1.0])),
        r"weights must have shape \(3,\), got \(2,\)": (good, good, good[:2]),
    }.items():
        with pytest.raises((RewardError, SettingError), match=message):
            record.add(*columns)
    with pytest.raises(SettingError, match="belong together"):
        record.add(good, good, good, model_values=good)
    with pytest.raises(SettingError, match="must be above 0"):
        record.add(good, good, good, good, good, counts=np.array([1.0, 0.0, 1.0]))
    with pytest.raises(SettingError, match="or none of them"):
        record.add(good, good, good)
    with pytest.raises(SettingError, match="must have 3 decisions, got 3000"):
        record.add(good, good, good, good, good, action_model=draw_modelled_log()[3])
    assert record.summarize().to_json() == before
    with pytest.raises(SettingError, match="at least one decision"):
        PolicyRecord("empty").summarize()
