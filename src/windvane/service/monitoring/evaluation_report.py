"""The report of an evaluation of a loop, as HTML to pass on."""

import math
from collections.abc import Iterator

from windvane._terminal.tables import Cell
from windvane.evaluation.estimates.result import Interval
from windvane.evaluation.estimates.value_series import Curve
from windvane.evaluation.report import (
    MOST_CURVES,
    TITLE,
    Bar,
    Line,
    Markup,
    describe_repetition,
    draw_bars,
    draw_chart,
    element,
    make_figure,
    make_list,
    make_page,
    make_table,
)
from windvane.evaluation.tables import format_time, name_level
from windvane.service.clock import MICROSECONDS_PER_SECOND
from windvane.service.evaluations.records import ALPHA
from windvane.service.monitoring.estimates import Series
from windvane.service.monitoring.evaluation_panel import PolicyLine, ShownEvaluation

UNTRUSTED = "untrusted"
BANDS = "The bands are two standard errors wide on each side."


def format_loop_report(loop: str, settings: str, shown: ShownEvaluation) -> str:
    """The report of an evaluation that has ended; `settings` are those of the loop, in words."""
    trusted = [line for line in shown.policies if line.verdict != UNTRUSTED]
    facts = f"{shown.decisions:,} decisions of the loop {loop}"
    if shown.since is not None and shown.until is not None:
        times = (format_time(each / MICROSECONDS_PER_SECOND) for each in (shown.since, shown.until))
        facts += f", {' to '.join(times)} UTC"
    parts = [
        element("h1", TITLE),
        element("p", f"{facts}. The loop has {settings}.", class_="note"),
        element("p", shown.answer, class_="answer"),
        make_table([_describe(line) for line in shown.policies]),
        *_draw_pictures(trusted, shown),
        element("h2", "What was evaluated"),
        make_list([f"{line.name}: {_explain(line)}" for line in shown.policies]),
        *_list_cautions(shown),
        *describe_repetition([(line.name, line.text) for line in shown.policies]),
    ]
    return make_page(f"{TITLE} {loop}", parts)


def _describe(line: PolicyLine) -> dict[str, Cell]:
    is_trusted = line.verdict != UNTRUSTED
    return {
        "policy": line.name,
        "value": round(line.value, 4) if is_trusted else None,
        name_level(ALPHA): f"{line.low:.4g} to {line.high:.4g}" if is_trusted else "",
        "against this loop": line.change,
        "lift": line.lift,
        "verdict": "the reference" if line.verdict == "reference" else line.confidence,
        "effective rows": line.effective_rows,
    }


def _explain(line: PolicyLine) -> str:
    return line.sentence if line.verdict == UNTRUSTED else f"{line.sentence} {line.value_sentence}"


def _draw_pictures(lines: list[PolicyLine], shown: ShownEvaluation) -> Iterator[Markup]:
    values = [
        Bar(line.name, line.value, Interval(line.low, line.high), colour)
        for colour, line in enumerate(lines)
    ]
    gains = [
        Bar(line.name, line.gain, Interval(line.gain_low, line.gain_high), colour)
        for colour, line in enumerate(lines)
        if line.verdict != "reference"
    ]
    note = "The bars are intervals that hold at any time, for all policies at once."
    yield make_figure("Reward of a decision", draw_bars(values, values[0].value), note)
    if gains:
        title = "Difference to this loop, on the same decisions"
        note = "A policy whose bar does not cross the line is better or worse."
        yield make_figure(title, draw_bars(gains, 0.0), note)
    drawn = [*enumerate(lines[:MOST_CURVES])]
    note = BANDS if len(drawn) == len(lines) else f"{BANDS} Only {len(drawn)} policies are drawn."
    curves = [Line(line.name, _make_curve(line.series, shown), colour) for colour, line in drawn]
    step = shown.width / MICROSECONDS_PER_SECOND
    yield from draw_chart("Reward of a decision over time", curves, step, note)
    curves = [
        Line(line.name, _make_curve(line.difference, shown), colour)
        for colour, line in drawn
        if line.difference is not None
    ]
    yield from draw_chart("Difference to this loop over time", curves, step, note, mark=0.0)


def _make_curve(series: Series, shown: ShownEvaluation) -> Curve:
    points = [
        ((start + shown.width / 2) / MICROSECONDS_PER_SECOND, value, error)
        for start, value, error in zip(shown.starts, series.value, series.error, strict=True)
        if not math.isnan(value)
    ]
    return Curve(*([each[k] for each in points] for k in range(3)))


def _list_cautions(shown: ShownEvaluation) -> Iterator[Markup]:
    cautions = [*shown.notes]
    for line in shown.policies:
        cautions += [f"{line.name}: {each}" for each in (*line.problems, *line.notes)]
    if cautions:
        yield element("h3", "To be careful about")
        yield make_list(cautions)
