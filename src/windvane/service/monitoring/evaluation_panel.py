"""The panel of evaluations: would another policy earn more, by how much, and how sure is it?"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import msgspec

from windvane.evaluation.estimates.estimators import RewardRange
from windvane.evaluation.estimates.result import Gain, Interval, choose_decimals, clip_value
from windvane.evaluation.tables import format_lift
from windvane.service.clock import MICROSECONDS_PER_MINUTE, MICROSECONDS_PER_SECOND
from windvane.service.evaluations.compared_policies import describe_flags
from windvane.service.evaluations.records import (
    ALPHA,
    CONFIDENCE,
    CURRENT,
    OPTIMAL_IF_NONE_IS_SURE,
    ChartSeries,
    EvaluationOutcome,
    PolicyOutcome,
    decode_outcome,
)
from windvane.service.loops.settings import NOTE_MARK, LoopSettings
from windvane.service.monitoring.estimates import NAN, Bins, Series, widen_error
from windvane.service.monitoring.panels import PageStruct, capitalize
from windvane.service.store.evaluations import AUTO, EvaluationHeading
from windvane.service.store.rows import EvaluationRow, SettingsChange
from windvane.service.store.schema import RUNNING

SHOWN_EVALUATIONS = 20  # the newest ones, of which one can be chosen
STATUS_WORDS = {  # by status of the log
    RUNNING: "running",
    "Succeeded": "finished",
    "Failed": "failed",
    "Timeout": "took too long",
    "OptimalPolicyApplied": "finished, applied",
    "OnlinePolicyRetained": "finished, nothing applied",
}
NOT_ASKED = "No evaluation was made yet. It estimates what other policies would have earned."
ShownVerdict = Literal["reference", "better", "worse", "not yet", "untrusted"]
SECONDS_PER_DAY = 86_400.0
NAMES_BY_SOURCE = {
    "Online": "what was logged",
    "Baseline": "always the first action",
    "Random": "a random action",
}
WORDS_OF_SETTINGS = {"halfLife": "half-life", "explorationPercentage": "exploration"}
VERDICTS = {"better": "better", "worse": "worse", "not yet": "not known yet"}


class Heading(PageStruct, frozen=True):
    """An evaluation in the list from which one is chosen."""

    id: str
    name: str
    status: str
    at: int  # microseconds since 1970, as all times of the dashboard
    is_auto: bool


class Change(PageStruct, frozen=True):
    """A setting that changes, in words."""

    setting: str
    before: str
    after: str


class PolicyLine(PageStruct, frozen=True):
    """What one policy would have earned."""

    id: str  # its name on the wire, by which it is applied
    name: str
    text: str  # as it was written
    sentence: str  # how much more or less than the loop
    value_sentence: str
    verdict: ShownVerdict
    verdict_words: str
    confidence: str  # the verdict in full
    change: str  # the difference to the loop with its interval, in words
    lift: str  # in per cent of what the loop would have earned
    effective_rows: int
    value: float
    low: float  # ends of the interval of the value
    high: float
    gain: float
    gain_low: float  # ends of the interval of the gain
    gain_high: float
    problems: list[str]  # why the numbers cannot be trusted
    notes: list[str]
    can_apply: bool  # whether a loop can run it
    changes: list[Change]  # of the present settings; empty if the loop has them
    series: Series
    difference: Series | None  # to the loop, on the same decisions


class ShownEvaluation(PageStruct, frozen=True):
    """The evaluation that is shown."""

    id: str
    name: str
    status: str
    is_running: bool
    progress: float | None  # share that is done; None: it waits for another one, or has ended
    answer: str
    created: int
    decisions: int
    since: int | None  # times of the first and the last decision
    until: int | None
    notes: list[str]
    policies: list[PolicyLine]  # the loop first, then by their gain, at last the untrusted
    best: str | None  # id of the policy to show first; None: the loop itself
    starts: list[int]  # steps of the chart
    width: int


class AppliedChange(PageStruct, frozen=True):
    """The last change of the settings that make the policy."""

    at: int
    by: str
    note: str  # what of a policy that was put has no counterpart; "" if all of it has one
    changes: list[Change]


class EvaluationPanel(PageStruct, frozen=True):
    """Would another policy earn more?"""

    answer: str
    can_change: bool  # whether the key of the request may start, cancel and apply
    settings: str  # the present ones that make the policy, in words
    last_change: AppliedChange | None
    evaluations: list[Heading]  # the newest first
    shown: ShownEvaluation | None


class EvaluationRecord(NamedTuple):
    """What is known of the evaluation to show."""

    row: EvaluationRow
    progress: float | None = None
    charts: Sequence[ChartSeries] = ()  # in the order of its policies


def build_evaluation_panel(
    settings: LoopSettings,
    changes: Sequence[SettingsChange],
    headings: Sequence[EvaluationHeading],
    record: EvaluationRecord | None,
    can_change: bool,
) -> EvaluationPanel:
    shown = None if record is None else _build_shown(record, msgspec.to_builtins(settings))
    return EvaluationPanel(
        answer=NOT_ASKED if shown is None else shown.answer,
        can_change=can_change,
        settings=describe_settings(msgspec.to_builtins(settings)),
        last_change=_find_last_change(changes),
        evaluations=[
            Heading(each.key, each.name, STATUS_WORDS[each.status], each.created, each.type == AUTO)
            for each in headings
        ],
        shown=shown,
    )


def _find_last_change(changes: Sequence[SettingsChange]) -> AppliedChange | None:
    for old, new in reversed([*pairwise(changes)]):
        before, after = (
            msgspec.to_builtins(LoopSettings.from_json(each.settings)) for each in (old, new)
        )
        if differences := list_changes(before, after):
            author, _, note = new.by.partition(NOTE_MARK)
            sentence = f"{capitalize(note)}." if note else ""
            return AppliedChange(new.at, author, sentence, differences)
    return None


def list_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """List the settings of a policy that differ, in words; `after` may name only some."""
    return [
        Change(words, format_setting(name, before[name]), format_setting(name, after[name]))
        for name, words in WORDS_OF_SETTINGS.items()
        if name in after and after[name] != before[name]
    ]


def _build_shown(record: EvaluationRecord, settings: Mapping[str, Any]) -> ShownEvaluation:
    row = record.row
    outcome = EvaluationOutcome() if row.outcome is None else decode_outcome(row.outcome)
    steps = _find_steps(record.charts)
    rate = None  # decisions per second in the time of the log
    if outcome.since is not None and outcome.until is not None and outcome.until > outcome.since:
        rate = outcome.rows / (outcome.until - outcome.since)
    loop_value = next(
        (_get_value(each.result) for each in outcome.policies if each.name == CURRENT), 0.0
    )
    lines = [
        _build_line(policy, settings, rate, outcome.doubt, loop_value, chart, steps)
        for policy, chart in zip(outcome.policies, record.charts, strict=True)
    ]
    reference = [line for line in lines if line.id == CURRENT]
    others = [line for line in lines if line.id != CURRENT]
    others.sort(key=lambda line: (line.verdict == "untrusted", -line.gain))
    best = _find_best(others, outcome.optimal_policy)
    return ShownEvaluation(
        id=row.key,
        name=row.name,
        status=STATUS_WORDS[row.status],
        is_running=row.status == RUNNING,
        progress=record.progress,
        answer=_answer(row, outcome, record.progress, others, best),
        created=row.created,
        decisions=outcome.rows,
        since=_to_microseconds(outcome.since),
        until=_to_microseconds(outcome.until),
        notes=_make_sentences(outcome.warnings),
        policies=[*reference, *others],
        best=None if best is None or best.verdict == "untrusted" else best.id,
        starts=steps.list_starts(),
        width=steps.width,
    )


def _build_line(
    policy: PolicyOutcome,
    settings: Mapping[str, Any],
    rate: float | None,
    doubt: str,
    loop_value: float,
    chart: ChartSeries,
    steps: Bins,
) -> PolicyLine:
    result, gain = policy.result, policy.result["gain"]
    judged = Gain(gain["value"], Interval(*gain["interval"]), gain["verdict"], gain["rows_needed"])
    rewards = RewardRange(*result["reward_range"])
    differences = RewardRange(-rewards.width, rewards.width)
    is_reference, is_logged = policy.name == CURRENT, policy.source == "Online"
    name = "this loop"
    if not is_reference:
        name = name_policy(policy.source, policy.name, policy.arguments, policy.changes)
    low, high = result["sequence"]
    value = _get_value(result)
    problems = policy.problems or ([doubt] if doubt and not is_reference else [])
    verdict: ShownVerdict = "untrusted" if problems else gain["verdict"]
    verb = "It earned" if is_logged else "It would have earned"
    value_sentence = describe_value(verb, value, low, high)
    if is_reference:
        verdict, words = "reference", "a decision"
        sentence = "This is the loop as it is now, which had learned from all decisions before."
    elif problems:
        words = "cannot be trusted"
        sentence = f"The log cannot say what {name} would have earned: {problems[0]}."
    else:
        words = VERDICTS[gain["verdict"]]
        sentence = describe_gain(name, judged, rate, "earned" if is_logged else "would have earned")
    return PolicyLine(
        id=policy.name,
        name=name,
        text=policy.arguments,
        sentence=sentence,
        value_sentence=value_sentence,
        verdict=verdict,
        verdict_words=words,
        confidence=words if is_reference or problems else judged.describe_verdict(ALPHA),
        change="" if is_reference or problems else judged.describe_change(),
        lift="" if is_reference or problems else format_lift(judged.relate(loop_value)),
        effective_rows=round(result["diagnostics"]["effective_rows"]),
        value=value,
        low=low,
        high=high,
        gain=gain["value"],
        gain_low=gain["interval"][0],
        gain_high=gain["interval"][1],
        problems=_make_sentences(problems),
        notes=_make_sentences(
            each
            for each in (describe_flags(policy.arguments), *result["warnings"])
            if each and each not in problems
        ),
        can_apply=bool(policy.changes),
        changes=list_changes(settings, policy.changes or {}),
        series=_place_in_steps(rewards, chart, steps),
        difference=None
        if chart.difference is None
        else _place_in_steps(differences, chart.difference, steps),
    )


def _get_value(result: Mapping[str, Any]) -> float:
    value = result["estimates"][result["headline"]]["value"]
    return clip_value(value, result["sequence"])


def _make_sentences(clauses: Iterable[str]) -> list[str]:
    return [f"{capitalize(each)}." for each in clauses]


def _find_best(others: Sequence[PolicyLine], optimal: str) -> PolicyLine | None:
    """Find the policy to show first: the optimal one, or the one with the largest gain."""
    others = [line for line in others if line.id != OPTIMAL_IF_NONE_IS_SURE]  # what was logged
    trusted = [line for line in others if line.verdict != "untrusted"]
    for line in trusted:
        if line.id == optimal:
            return line
    return next(iter([*trusted, *others]), None)


def _answer(
    row: EvaluationRow,
    outcome: EvaluationOutcome,
    progress: float | None,
    others: Sequence[PolicyLine],
    best: PolicyLine | None,
) -> str:
    """Say whether another policy would earn more, or why this is not known."""
    if row.status == RUNNING:
        if progress is None:
            return "The evaluation waits until another one has ended."
        return "The evaluation reads the log."
    if outcome.error is not None:
        return f"The evaluation has no result: {outcome.error}."
    if best is None:
        return "The evaluation has compared no other policy."
    if best.verdict == "untrusted":
        return f"The log cannot answer this. {best.problems[0]}"
    if best.verdict == "better":
        count = sum(line.verdict == "better" for line in others) - 1
        rest = f" So would {'another one' if count == 1 else f'{count} others'}." if count else ""
        return f"Yes. {best.sentence}{rest}"
    others = [line for line in others if line.id != OPTIMAL_IF_NONE_IS_SURE]
    if all(line.verdict == "worse" for line in others):
        which = "The other policy" if len(others) == 1 else f"All {len(others)} other policies"
        return f"Keep what you have. {which} would have earned less, with {CONFIDENCE}."
    if best.gain > 0:
        return f"Not known yet, so keep what you have. {best.sentence}"
    return "Keep what you have: no other policy would have earned more than this loop."


def _find_steps(charts: Sequence[ChartSeries]) -> Bins:
    """The steps of the charts; none if there are no charts."""
    if not charts:
        return Bins(0, 0, 0)
    first = min(chart.starts[0] for chart in charts)
    last = max(chart.starts[-1] for chart in charts)
    width = charts[0].minutes * MICROSECONDS_PER_MINUTE
    return Bins(first * width, width, last + 1 - first)


def _place_in_steps(range_: RewardRange, chart: ChartSeries, steps: Bins) -> Series:
    """The value and the standard error of a policy in each step; NaN in steps without any."""
    values, errors = [NAN] * steps.size, [NAN] * steps.size
    for start, value, error, size in zip(
        chart.starts, chart.value, chart.error, chart.size, strict=True
    ):
        if value is not None and size > 0:
            place = start - steps.start // steps.width
            values[place] = value
            errors[place] = float(widen_error(error or 0.0, value, range_, 1.0 / size))
    return Series(values, errors)


def _to_microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * MICROSECONDS_PER_SECOND)


def name_policy(source: str, name: str, text: str, changes: Mapping[str, Any] | None) -> str:
    """The name of a policy in plain words; a client's own name of a policy is quoted.

    >>> name_policy("OfflineExperimentation", "Hyper3", "", {"halfLife": "1 day"})
    'half-life 1 day'
    >>> name_policy("Custom", "mine", "halfLife=1 day", {"halfLife": "1 day"})
    '“mine”'
    """
    if source in NAMES_BY_SOURCE:
        return NAMES_BY_SOURCE[source]
    has_own_name = source == "Custom" and name != text
    return f"“{name}”" if has_own_name or not changes else describe_settings(changes)


def describe_settings(settings: Mapping[str, Any]) -> str:
    """The half-life and the exploration in words.

    >>> describe_settings({"halfLife": "1 day", "explorationPercentage": 0.02})
    'half-life 1 day, exploration 2 %'
    """
    return ", ".join(
        f"{WORDS_OF_SETTINGS[name]} {format_setting(name, settings[name])}"
        for name in WORDS_OF_SETTINGS
        if name in settings
    )


def format_setting(name: str, value: object) -> str:
    if name == "explorationPercentage" and isinstance(value, (int, float)):
        return f"{100 * value:.4g} %"
    return str(value)


def describe_value(verb: str, value: float, low: float, high: float) -> str:
    """Say what was earned, or would have been earned; 0 has no sign.

    >>> describe_value("It earned", 0.4, 0.38, 0.42)
    'It earned 0.400 a decision (0.380 to 0.420).'
    >>> describe_value("It earned", -0.0001, -0.25, 0.25)
    'It earned 0.000 a decision (−0.250 to 0.250).'
    """
    decimals = choose_decimals(low, high)
    shown, least, most = (f"{each:z.{decimals}f}".replace("-", "−") for each in (value, low, high))
    return f"{verb} {shown} a decision ({least} to {most})."


def describe_gain(
    name: str,
    gain: Gain,
    decisions_per_second: float | None = None,
    verb: str = "would have earned",
) -> str:
    """Say how much more or less than the loop a policy would have earned, and how sure this is.

    >>> describe_gain("it", Gain(0.031, Interval(0.012, 0.05), "better", 0))
    'It would have earned 0.031 more a decision (between 0.012 and 0.050 more): better with 95 %
    confidence.'
    """
    change = gain.describe_change(" a decision")
    sentence = f"{capitalize(name)} {verb} {change}: {VERDICTS[gain.verdict]}"
    if gain.verdict != "not yet":
        return f"{sentence} with {CONFIDENCE}."
    return f"{sentence}. {describe_rows_needed(gain.rows_needed, decisions_per_second)}"


def describe_rows_needed(rows: int | None, decisions_per_second: float | None) -> str:
    """Say how many more decisions, in two digits, lead to a verdict if all stays as it is.

    >>> describe_rows_needed(12_345, 0.1)
    'About 12,000 more decisions are needed: 34 hours at the present rate.'
    >>> describe_rows_needed(None, 0.1)
    'The difference is too close to 0 to say how many more decisions are needed.'
    """
    if rows is None:
        return "The difference is too close to 0 to say how many more decisions are needed."
    rounded = int(float(f"{rows:.2g}"))
    sentence = f"About {rounded:,} more {'decision is' if rounded == 1 else 'decisions are'} needed"
    if not decisions_per_second:
        return f"{sentence}."
    return f"{sentence}: {format_duration(rows / decisions_per_second)} at the present rate."


def format_duration(seconds: float) -> str:
    """A duration in its largest unit of which there are at least two, rounded.

    >>> format_duration(90.0), format_duration(1e5), format_duration(1e10)
    ('2 minutes', '28 hours', 'over 100 years')
    """
    years = seconds / (365.25 * SECONDS_PER_DAY)
    if years > 100:
        return "over 100 years"
    for unit, length in (("year", 365.25), ("day", 1.0), ("hour", 1 / 24), ("minute", 1 / 1440)):
        count = seconds / (length * SECONDS_PER_DAY)
        if count >= 1.5:
            return f"{count:.0f} {unit}s"
    return "1 minute"
