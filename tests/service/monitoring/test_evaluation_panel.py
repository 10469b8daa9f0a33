"""The panel of evaluations: sentences, order, changes of settings and steps of the chart."""

import html
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from windvane.service.evaluations.records import (
    ChartSeries,
    EvaluationOutcome,
    IpsSums,
    PolicyOutcome,
    encode,
)
from windvane.service.loops.settings import LoopSettings
from windvane.service.monitoring.evaluation_panel import (
    EvaluationPanel,
    EvaluationRecord,
    build_evaluation_panel,
)
from windvane.service.monitoring.evaluation_report import format_loop_report
from windvane.service.store.evaluations import EvaluationHeading
from windvane.service.store.rows import EvaluationRow, SettingsChange

SETTINGS = LoopSettings(half_life="7 days", exploration_percentage=0.1)
LOOP_VALUE = 0.4
HOUR = 3600 * 10**6
CHART = ChartSeries(60, [5], [0.25], [0.1], [10.0])


def make_policy(
    name: str,
    source: str,
    low: float,
    high: float,
    needed: int | None = 0,
    problems: Sequence[str] = (),
    changes: dict[str, Any] | None = None,
) -> PolicyOutcome:
    """A policy whose gain has this interval, and is in its middle."""
    gain = (low + high) / 2
    result = {
        "estimates": {"dr": {"value": LOOP_VALUE + gain}},
        "headline": "dr",
        "sequence": [LOOP_VALUE + low, LOOP_VALUE + high],
        "reward_range": [0.0, 1.0],
        "diagnostics": {"effective_rows": 1234.4},
        "gain": {
            "value": gain,
            "interval": [low, high],
            "verdict": "better" if low > 0 else "worse" if high < 0 else "not yet",
            "rows_needed": needed,
        },
        "warnings": [*problems, "its probabilities are counted"],
    }
    return PolicyOutcome(
        name=name,
        source=source,
        arguments="",
        total=IpsSums(),
        result=result,
        changes=changes,
        problems=[*problems],
    )


LOOP = make_policy("current", "Custom", 0.0, 0.0, changes={})
ONLINE = make_policy("online", "Online", -0.1, -0.02, changes={})
FIRST = make_policy("baseline1", "Baseline", -0.3, -0.2)
SHORT = make_policy(
    "Hyper1",
    "OfflineExperimentation",
    0.012,
    0.05,
    changes={"halfLife": "1 day", "explorationPercentage": 0.02},
)
UNSURE = make_policy("mine", "Custom", -0.02, 0.04, 12_345, changes={"halfLife": "7 days"})
WRONG = make_policy("other", "Custom", 0.5, 0.9, problems=["the mean weight is 1.31, not 1"])


def build(
    *policies: PolicyOutcome,
    status: str = "Succeeded",
    progress: float | None = None,
    charts: Sequence[ChartSeries] = (),
    changes: Sequence[SettingsChange] = (),
    **outcome: Any,
) -> EvaluationPanel:
    better = [each.name for each in policies if each.result["gain"]["verdict"] == "better"]
    found = EvaluationOutcome(
        policies=[*policies],
        optimal_policy=better[0] if better else "online",
        **{"rows": 86_400, "since": 0.0, "until": 864_000.0} | outcome,
    )
    text = None if status == "Running" else encode(found).decode()
    row = EvaluationRow(7, 1, "key", "name", "Manual", "{}", status, 5, 6, text)
    heading = EvaluationHeading("key", "name", "Manual", status, 5)
    record = EvaluationRecord(row, progress, charts or [CHART] * len(policies))
    return build_evaluation_panel(SETTINGS, changes, [heading], record, can_change=True)


def get_sentence(panel: EvaluationPanel, id_: str) -> str:
    assert panel.shown is not None
    (sentence,) = [line.sentence for line in panel.shown.policies if line.id == id_]
    return sentence


def test_the_loop_comes_first_and_the_others_by_their_gain() -> None:
    panel = build(LOOP, ONLINE, FIRST, SHORT, UNSURE)
    assert panel.shown is not None
    names = [line.name for line in panel.shown.policies]
    better = "half-life 1 day, exploration 2 %"
    others = ["what was logged", "always the first action"]
    assert names == ["this loop", better, "“mine”", *others]
    assert panel.shown.best == "Hyper1"
    sentence = (
        "Half-life 1 day, exploration 2 % would have earned 0.031 more a decision "
        "(between 0.012 and 0.050 more): better with 95 % confidence."
    )
    assert panel.answer == f"Yes. {sentence}"
    assert get_sentence(panel, "Hyper1") == sentence
    assert get_sentence(panel, "baseline1") == (
        "Always the first action would have earned 0.250 less a decision "
        "(between 0.300 and 0.200 less): worse with 95 % confidence."
    )
    # 86 400 decisions in 10 days, so 12 345 in 1.43 days, which is 34 hours
    assert get_sentence(panel, "mine") == (
        "“mine” would have earned 0.010 more a decision (between 0.020 less and 0.040 more): "
        "not known yet. About 12,000 more decisions are needed: 34 hours at the present rate."
    )
    assert get_sentence(panel, "online") == (
        "What was logged earned 0.060 less a decision (between 0.100 and 0.020 less): "
        "worse with 95 % confidence."
    )
    value_sentence = panel.shown.policies[0].value_sentence
    assert value_sentence.startswith("It would have earned 0.400 a decision")


def test_the_answer_depends_on_the_verdicts() -> None:
    other = structs.replace(SHORT, name="Hyper2")
    assert build(LOOP, ONLINE, SHORT, other).answer.endswith("confidence. So would another one.")
    assert build(LOOP, ONLINE, FIRST).answer.startswith(
        "Keep what you have. The other policy would have"
    )
    unsure = "Not known yet, so keep what you have. “mine” would have earned 0.010 more"
    assert build(LOOP, ONLINE, FIRST, UNSURE).answer.startswith(unsure)
    near = make_policy("near", "Custom", -0.05, 0.02, None)
    assert build(LOOP, ONLINE, FIRST, near).answer.startswith("Keep what you have: no other")
    assert "too close to 0" in get_sentence(build(LOOP, ONLINE, near), "near")


def test_what_cannot_be_trusted_is_neither_recommended_nor_counted() -> None:
    panel = build(LOOP, ONLINE, WRONG, UNSURE)
    assert panel.shown is not None
    assert panel.shown.best == "mine"
    (wrong,) = [line for line in panel.shown.policies if line.id == "other"]
    assert (wrong.verdict, wrong.verdict_words) == ("untrusted", "cannot be trusted")
    assert wrong.problems == ["The mean weight is 1.31, not 1."]
    assert wrong.notes == ["Its probabilities are counted."]
    assert wrong.sentence == (
        "The log cannot say what “other” would have earned: the mean weight is 1.31, not 1."
    )
    answer = "The log cannot answer this. The mean weight is 1.31, not 1."
    assert build(LOOP, ONLINE, WRONG).answer == answer
    doubtful = build(LOOP, ONLINE, SHORT, UNSURE, doubt="the mean weight is 1.31, not 1")
    assert doubtful.answer == answer
    assert doubtful.shown is not None
    verdicts = [line.verdict for line in doubtful.shown.policies]
    assert verdicts == ["reference", *["untrusted"] * 3]


def test_a_policy_shows_which_settings_it_would_change() -> None:
    panel = build(LOOP, ONLINE, SHORT, UNSURE, FIRST)
    assert panel.shown is not None
    assert panel.settings == "half-life 7 days, exploration 10 %"
    by_id = {line.id: line for line in panel.shown.policies}
    changes = [(each.setting, each.before, each.after) for each in by_id["Hyper1"].changes]
    assert changes == [("half-life", "7 days", "1 day"), ("exploration", "10 %", "2 %")]
    assert by_id["mine"].can_apply
    assert by_id["mine"].changes == []  # the loop has these settings
    assert not by_id["baseline1"].can_apply


def test_the_last_change_of_the_policy_is_found_in_the_log() -> None:
    other_wait = structs.replace(SETTINGS, reward_wait_time="PT1M")
    history = [
        SettingsChange(1, 10, LoopSettings(half_life="auto").to_json(), "cli", 0),
        SettingsChange(2, 20, SETTINGS.to_json(), "http", 0),
        SettingsChange(3, 30, other_wait.to_json(), "http", 0),  # the policy stays
    ]
    change = build(LOOP, ONLINE, FIRST, changes=history).last_change
    assert change is not None
    assert (change.at, change.by) == (20, "http")
    assert change.changes[0].before == "auto"
    assert build(LOOP, ONLINE, FIRST, changes=history[:1]).last_change is None


@pytest.mark.parametrize(
    ("status", "progress", "error", "answer"),
    [
        ("Running", None, None, "The evaluation waits until another one has ended."),
        ("Running", 0.25, None, "The evaluation reads the log."),
        ("Failed", None, "the disk is full", "The evaluation has no result: the disk is full."),
        ("Succeeded", None, None, "The evaluation has compared no other policy."),
    ],
)
def test_without_a_result_the_answer_says_why(
    status: str, progress: float | None, error: str | None, answer: str
) -> None:
    assert build(status=status, progress=progress, error=error).answer == answer


def test_steps_without_decisions_stay_empty_and_bands_have_pseudo_rewards() -> None:
    chart = ChartSeries(60, [5, 7], [0.25, None], [0.0, None], [10.0, 0.0])
    panel = build(LOOP, ONLINE, FIRST, charts=[chart] * 3)
    assert panel.shown is not None
    assert panel.shown.starts == [5 * HOUR, 6 * HOUR, 7 * HOUR]
    assert panel.shown.width == HOUR
    series = panel.shown.policies[0].series
    np.testing.assert_array_equal(series.value, [0.25, np.nan, np.nan])
    # no error of its own, and a pseudo-reward of weight 1/10 at each end of [0, 1]
    expected = [np.sqrt(0.25**2 + 0.75**2) / 10, np.nan, np.nan]
    np.testing.assert_allclose(series.error, expected)


def test_a_policy_has_its_lift_and_its_difference_over_time() -> None:
    difference = ChartSeries(60, [5], [-0.25], [0.0], [10.0])
    charts = [CHART, structs.replace(CHART, difference=difference)]
    panel = build(LOOP, SHORT, charts=charts)
    assert panel.shown is not None
    loop, short = panel.shown.policies
    assert (loop.lift, loop.change, loop.difference) == ("", "", None)
    assert short.lift == "+7.8 %"  # 0.031 of 0.4 is 7.75 %
    assert short.change == "0.031 more (between 0.012 and 0.050 more)"
    assert short.confidence == "better with 95 % confidence"
    assert short.effective_rows == 1234
    assert short.difference is not None
    assert short.difference.value == [-0.25]
    # pseudo-differences of weight 1/10 at the ends of [−1, 1]
    assert short.difference.error == pytest.approx([np.sqrt(0.75**2 + 1.25**2) / 10])


def test_the_report_says_what_the_panel_says() -> None:
    difference = ChartSeries(60, [5, 6], [0.03, 0.04], [0.01, 0.01], [90.0, 90.0])
    chart = ChartSeries(60, [5, 6], [0.4, 0.5], [0.1, 0.1], [90.0, 90.0], difference)
    hostile = make_policy("<script>", "Custom", -0.02, 0.04, 12_345)
    panel = build(LOOP, SHORT, hostile, WRONG, charts=[chart] * 4, warnings=["<b>careful</b>"])
    assert panel.shown is not None
    report = format_loop_report("a<b", panel.settings, panel.shown)
    assert "<script" not in report
    text = html.unescape(re.sub(r"<[^>]*>", "\n", report))
    assert "86,400 decisions of the loop a<b, 1970-01-01 00:00 to 1970-01-11 00:00 UTC." in text
    for said in (panel.answer, panel.settings, "<b>careful</b>.", "“<script>”"):
        assert said in text
    for line in panel.shown.policies:
        assert line.sentence in text
    assert "0.031 more (between 0.012 and 0.050 more)" in text
    assert "not known yet; about 12,345 more decisions at the present rate" in text
    assert "+7.8 %" in text
    assert "1.1" not in text  # the value of what cannot be trusted, 0.4 + 0.7
    assert report.count("<polyline") == 3 + 3  # values and differences of what can be trusted
