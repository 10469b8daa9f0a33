"""The report of an evaluation: one HTML file with tables, pictures and sentences.

It needs nothing from outside, no script and no matplotlib. `element` escapes every text, because
names of policies, files and actions come from users.
"""

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from windvane import __version__
from windvane._terminal.tables import Cell, format_cell, is_number
from windvane.evaluation.estimates.result import Evaluation, HtmlResult, Interval
from windvane.evaluation.estimates.value_series import (
    Curve,
    ValueSeries,
    choose_minutes,
    list_curve,
)
from windvane.evaluation.tables import (
    describe_rows,
    format_time,
    list_page_rows,
    list_parts,
    list_policy_rows,
    list_sentences,
    name_policy,
    name_reference,
)
from windvane.evaluation.tuning import LearnerTuning
from windvane.settings import format_half_life

STYLE = files("windvane.evaluation").joinpath("report.css").read_text("utf-8")
STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; base-uri 'none'; form-action 'none'"
)
TITLE = "Would another policy earn more?"
COLOURS = 8  # in the style sheet: k0 to k7
MOST_CURVES = 5  # of a chart, that of the reference included
WIDTH, HEIGHT = 860.0, 260.0  # of a chart, in pixels
LEFT, RIGHT, BOTTOM, TOP = 48.0, 836.0, 26.0, 8.0  # edges and margins of what it shows
ROW_HEIGHT, AXIS_HEIGHT = 24, 20
SHORT_CELL = 18  # letters that stay on one line
WIDEST_BAR = 2.0  # half of a bar, in multiples of the distance between the farthest dots
DAY, HOUR, MINUTE = 86_400.0, 3600.0, 60.0
TIME_STEPS = (
    *(MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR),
    *(days * DAY for days in (1, 2, 4, 7, 14, 28, 91, 364, 3640)),
)


class Markup(str):
    """Text that is HTML already."""


def element(kind: str, *content: str, **attributes: object) -> Markup:
    """An element of HTML or SVG; its attributes and all content that is no markup are escaped.

    >>> element("b", "1 < 2", class_="note", stroke_width=2)
    '<b class="note" stroke-width="2">1 &lt; 2</b>'
    """
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
    )
    inner = "".join(each if isinstance(each, Markup) else escape(each) for each in content)
    return Markup(f"<{kind}{written}>{inner}</{kind}>")


class Bar(NamedTuple):
    """One row of a picture of intervals."""

    name: str
    value: float
    interval: Interval
    colour: int


class Line(NamedTuple):
    """One line of a picture over time."""

    name: str
    curve: Curve
    colour: int


def format_report(result: HtmlResult, command: str = "") -> str:
    """The report of an evaluation or a tuning as one HTML file."""
    return make_page(TITLE, _list_parts(result, command))


def format_notebook_cell(result: HtmlResult) -> str:
    """The report as a part of another page."""
    body = element("div", *_list_parts(result, ""), class_="windvane")
    return f"<style>{STYLE}</style>{body}"


def make_page(title: str, parts: Sequence[Markup]) -> str:
    """An HTML file that loads nothing."""
    policy = escape(CONTENT_SECURITY_POLICY)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="content-security-policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"{element('title', title)}\n<style>{STYLE}</style>\n</head>\n"
        f"{element('body', *parts, class_='windvane')}\n</html>\n"
    )


def _list_parts(result: HtmlResult, command: str) -> list[Markup]:
    if isinstance(result, LearnerTuning):
        return [*_describe_tuning(result, command)]
    assert isinstance(result, Evaluation)
    return [
        element("h1", TITLE),
        element("p", f"{describe_rows(result)}.", class_="note"),
        element("p", _summarize(result), class_="answer"),
        *list_results(result),
        *list_remarks(result),
        *_describe_repetition(result, command),
    ]


def _describe_tuning(tuning: LearnerTuning, command: str) -> Iterator[Markup]:
    grid, held_out = tuning.grid, tuning.held_out
    rows = held_out[tuning.best].rows
    since = f", since {format_time(tuning.split)}" if held_out.has_times else ""
    yield element("h1", "Which settings of a learner would earn more?")
    yield element("p", f"{describe_rows(held_out)}.", class_="note")
    sentence = f"{tuning.sentence[0].upper()}{tuning.sentence[1:]}."
    yield element("p", sentence, class_="answer")
    if tuning.is_better:
        yield element("p", "Such a loop, with what this log teaches:")
        commands = f"windvane loop create NAME {tuning.flags}\nwindvane import LOG... --loop NAME"
        yield element("pre", commands)
    yield element("h2", f"The best of the grid, on the last {rows:,} rows{since}")
    yield element("p", "These rows had no part in choosing the best.", class_="note")
    yield from list_results(held_out)
    yield from list_remarks(held_out)
    yield element("h2", f"The grid, on {describe_rows(grid)}")
    yield from list_results(grid)
    yield from list_sentences_of(grid)
    yield from _describe_repetition(grid, command)


def _describe_repetition(evaluation: Evaluation, command: str) -> Iterator[Markup]:
    texts = [(name_policy(policy), policy.text) for policy in evaluation.policies]
    return describe_repetition(texts, command, f", seed {evaluation.seed}")


def _summarize(evaluation: Evaluation) -> str:
    if not evaluation.reference:
        return ""
    names: dict[str, list[str]] = {"better": [], "worse": [], "not yet": []}
    by_page = {page.name: page.against for page in evaluation.pages}
    for policy in evaluation.policies:
        if policy.name != evaluation.reference:
            gain = by_page.get(policy.name) or evaluation.compare(policy.name)
            names[gain.verdict].append(name_policy(policy))
    return summarize_verdicts(name_reference(evaluation), names)


def summarize_verdicts(reference: str, names: Mapping[str, Sequence[str]]) -> str:
    """Say which policies are better and worse than a reference.

    >>> summarize_verdicts("the loop", {"better": ["a", "b"], "worse": [], "not yet": ["c"]})
    'Better than the loop: a, b. Not known yet: c.'
    >>> summarize_verdicts("the loop", {"better": [], "worse": ["a"], "not yet": []})
    'No policy is better than the loop. Worse: a.'
    """
    first = f"No policy is better than {reference}."
    if names["better"]:
        first = f"Better than {reference}: {', '.join(names['better'])}."
    words = (("Worse", names["worse"]), ("Not known yet", names["not yet"]))
    return " ".join([first, *(f"{word}: {', '.join(found)}." for word, found in words if found)])


def list_results(evaluation: Evaluation) -> Iterator[Markup]:
    """The tables and the pictures of an evaluation."""
    if evaluation.pages:
        yield element("h2", "Whole pages")
        yield make_table(list_page_rows(evaluation))
        yield element("h2", "The first slot alone")
    yield make_table(list_policy_rows(evaluation))
    yield from _draw_intervals(evaluation)
    yield from _draw_times(evaluation)
    for title, part in list_parts(evaluation):
        yield element("h2", title)
        yield make_table(list_policy_rows(part))
        yield from _draw_intervals(part)


def _draw_intervals(evaluation: Evaluation) -> Iterator[Markup]:
    policies, reference = evaluation.policies, evaluation.reference
    percent = f"{100 * (1 - policies[0].alpha):.3g} %"
    bars = [
        Bar(name_policy(policy), policy.value.value, policy.sequence, colour)
        for colour, policy in enumerate(policies)
    ]
    line = evaluation[reference].value.value if reference else None
    note = f"The bars are intervals that hold at any time with {percent} confidence."
    yield make_figure("Reward of a decision", draw_bars(bars, line), note)
    if not reference or len(policies) < 2:
        return
    gains = [
        Bar(name_policy(policy), gain.value, gain.interval, colour)
        for colour, policy in enumerate(policies)
        if policy.name != reference
        for gain in [evaluation.compare(policy.name)]
    ]
    note = "A policy whose bar does not cross the line is better or worse"
    note += ", with the same confidence."
    title = f"Difference to {name_reference(evaluation)}, on the same decisions"
    yield make_figure(title, draw_bars(gains, 0.0), note)


def _draw_times(evaluation: Evaluation) -> Iterator[Markup]:
    places = {policy.name: place for place, policy in enumerate(evaluation.policies)}
    others = [name for name in places if name != evaluation.reference]
    kept = {evaluation.reference, *others[: MOST_CURVES - 1]}
    policies = [policy for policy in evaluation.policies if policy.name in kept]
    minutes = choose_minutes(policies[0].series)
    has_times = evaluation.has_times
    part = format_half_life(60.0 * minutes) if has_times else f"{60 * minutes} decisions"
    note = f"In parts of {part}; the bands are two standard errors wide on each side."
    if len(policies) < len(places):
        note += f" Only {len(policies)} policies are drawn."

    def list_lines(series: Mapping[str, ValueSeries]) -> list[Line]:
        return [
            Line(name_policy(evaluation[name]), list_curve(each, minutes), places[name])
            for name, each in series.items()
        ]

    lines = list_lines({policy.name: policy.series for policy in policies})
    title = "Reward of a decision over time"
    yield from draw_chart(title, lines, 60.0 * minutes, note, has_times)
    pairs = [pair for pair in evaluation.pairs if pair.second == evaluation.reference]
    lines = list_lines({pair.first: pair.series for pair in pairs if pair.first in kept})
    title = f"Difference to {name_reference(evaluation)} over time"
    yield from draw_chart(title, lines, 60.0 * minutes, note, has_times, mark=0.0)


def list_remarks(evaluation: Evaluation) -> Iterator[Markup]:
    """What exactly was evaluated, and what to be careful about."""
    yield element("h2", "What was evaluated")
    yield make_list([f"{policy.sentence}." for policy in evaluation.policies])
    against = name_reference(evaluation)
    compared = f" The column “against {against}” has the difference on the same decisions."
    yield element(
        "p",
        "A value is the mean reward of a decision. Its interval holds however often you look, also "
        f"under drift.{compared if evaluation.reference else ''} Effective rows are the decisions "
        "of its own that would tell as much about a policy.",
        class_="note",
    )
    yield from list_sentences_of(evaluation)


def list_sentences_of(evaluation: Evaluation) -> Iterator[Markup]:
    sentences = [f"{each}." for each in list_sentences(evaluation)]
    sentences += [f"bad row {each}" for each in evaluation.first_bad_rows]
    if sentences:
        yield element("h3", "To be careful about")
        yield make_list(sentences)


def describe_repetition(
    policies: Sequence[tuple[str, str]], command: str = "", seed: str = ""
) -> Iterator[Markup]:
    """How to make the numbers again; the policies have names and texts."""
    yield element("h2", "How to repeat it")
    if command:
        yield element("pre", command)
    yield element("p", f"Windvane {__version__}{seed}. The policies, as they were written:")
    yield make_list([f"{name}: {text}" for name, text in policies])


def make_table(rows: Sequence[Mapping[str, Cell]]) -> Markup:
    """A table; the first column names the rows, numbers are right-aligned."""
    titles = [*rows[0]]
    numbers = {title for title in titles if all(is_number(row[title]) for row in rows)}

    def make_cell(kind: str, title: str, text: str) -> Markup:
        first = text.split(" ")[0] if title == "verdict" else ""
        kinds = [first if first in ("better", "worse") else "", "number" * (title in numbers)]
        kinds.append("short" * (len(text) <= SHORT_CELL))
        return element(kind, text, class_=" ".join(filter(None, kinds)))

    head = element("tr", *(make_cell("th", title, title) for title in titles))
    body = [
        element(
            "tr",
            element("th", format_cell(row[titles[0]]), scope="row"),
            *(make_cell("td", title, format_cell(row[title])) for title in titles[1:]),
        )
        for row in rows
    ]
    table = element("table", element("thead", head), element("tbody", *body))
    return element("div", table, class_="scroll")


def make_list(sentences: Sequence[str]) -> Markup:
    return element("ul", *(element("li", sentence) for sentence in sentences))


def make_figure(title: str, picture: Markup, note: str) -> Markup:
    return element("figure", element("h3", title), picture, element("p", note, class_="note"))


def draw_bars(bars: Sequence[Bar], mark: float | None) -> Markup:
    """One row a policy: a dot with a bar for its interval; `mark` is a line through all rows."""
    low, high = _find_bar_range(bars, mark)

    def place(value: float) -> str:
        return f"{100 * (min(max(value, low), high) - low) / (high - low):.2f}%"

    rows = []
    for bar in bars:
        shapes = []
        if mark is not None:
            ends = {"x1": place(mark), "x2": place(mark), "y1": -8, "y2": ROW_HEIGHT + 8}
            shapes.append(element("line", class_="mark", **ends))
        middle, colour = ROW_HEIGHT / 2, f"k{bar.colour % COLOURS}"
        left, right = (place(end) for end in bar.interval)
        ends = {"x1": left, "x2": right, "y1": middle, "y2": middle}
        shapes.append(element("line", class_=f"interval {colour}", **ends))
        shapes.append(
            element("circle", class_=f"dot {colour}", cx=place(bar.value), cy=middle, r=5.5)
        )
        decimals = max(3, 2 - math.floor(math.log10(high - low)))  # tell the values apart
        low_end, high_end = (f"{end:.{decimals}f}" for end in bar.interval)
        label = f"{bar.name}: {bar.value:.{decimals}f} ({low_end} to {high_end})"
        picture = element("svg", *shapes, height=ROW_HEIGHT, role="img", aria_label=label)
        rows.append(element("tr", element("th", bar.name, scope="row"), element("td", picture)))
    ticks = [
        element("text", _format_number(tick), x=place(tick), y=15, text_anchor="middle")
        for tick in choose_ticks(low, high)
    ]
    axis = element("svg", *ticks, height=AXIS_HEIGHT, aria_hidden="true")
    rows.append(element("tr", element("th"), element("td", axis)))
    return element("table", element("tbody", *rows), class_="bars")


def _find_bar_range(bars: Sequence[Bar], mark: float | None) -> Interval:
    """The range of all dots and bars; bars that are far longer than others are cut."""
    dots = [*(bar.value for bar in bars), *([] if mark is None else [mark])]
    least, most = min(dots), max(dots)
    typical = median((bar.interval.high - bar.interval.low) / 2 for bar in bars)
    longest = max(WIDEST_BAR * (most - least), typical)
    low = min(least, *(max(bar.interval.low, least - longest) for bar in bars))
    high = max(most, *(min(bar.interval.high, most + longest) for bar in bars))
    margin = 0.05 * (high - low) or 0.5
    return Interval(low - margin, high + margin)


def draw_chart(
    title: str,
    lines: Sequence[Line],
    step: float,
    note: str,
    has_times: bool = True,
    mark: float | None = None,
) -> Iterator[Markup]:
    """Lines with bands of two standard errors over time; nothing if there are no points.

    `step` is the time between two points, in seconds; a line has a gap where one is missing.
    """
    lines = [line for line in lines if line.curve.times]
    if not lines:
        return
    scale = _Scale.fit(lines, step, mark)
    shapes = [*_draw_axes(scale, has_times)]
    if mark is not None:
        ends = {"x1": LEFT, "x2": RIGHT, "y1": scale.y(mark), "y2": scale.y(mark)}
        shapes.append(element("line", class_="mark", **ends))
    items = []
    for line in lines:
        shapes += _draw_line(line, scale, step)
        trace = element("line", class_=f"trace k{line.colour % COLOURS}", x1=0, x2=26, y1=5, y2=5)
        sample = element("svg", trace, height=10, aria_hidden="true")
        items.append(element("li", sample, line.name))
    names = ", ".join(line.name for line in lines)
    box = f"0 0 {WIDTH:g} {HEIGHT:g}"
    picture = element("svg", *shapes, viewBox=box, role="img", aria_label=f"{title}: {names}")
    legend = element("ul", *items, class_="legend")
    yield make_figure(title, Markup(picture + legend), note)


class _Scale(NamedTuple):
    """Where times and values are in a chart."""

    since: float
    until: float
    low: float
    high: float

    @classmethod
    def fit(cls, lines: Sequence[Line], step: float, mark: float | None) -> "_Scale":
        """All values, and the bands as far as they are not far wider than the values."""
        times = [time for line in lines for time in line.curve.times]
        values = [value for line in lines for value in line.curve.values]
        values += [] if mark is None else [mark]
        errors = sorted(error for line in lines for error in line.curve.errors)
        half = 2 * errors[3 * len(errors) // 4]
        low, high = min(values) - half, max(values) + half
        if low == high:
            low, high = low - 0.5, high + 0.5
        return cls(min(times) - step / 2, max(times) + step / 2, low, high)

    def x(self, time: float) -> float:
        """Pixels from the left."""
        share = (time - self.since) / (self.until - self.since)
        return round(LEFT + share * (RIGHT - LEFT), 1)

    def y(self, value: float) -> float:
        """Pixels from above; what is out of range is at the edge."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP), 1)


def _draw_axes(scale: _Scale, has_times: bool) -> Iterator[Markup]:
    for tick in choose_ticks(scale.low, scale.high):
        y = scale.y(tick)
        yield element("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y)
        yield element("text", _format_number(tick), x=LEFT - 8, y=y + 4, text_anchor="end")
    if has_times:
        times = [*_choose_times(scale.since, scale.until)]
    else:
        ticks = choose_ticks(max(scale.since, 0.0), scale.until)
        times = [(tick, f"{tick:,.0f}") for tick in ticks]
    for time, text in times:
        x = scale.x(time)
        yield element("line", class_="grid", x1=x, x2=x, y1=TOP, y2=HEIGHT - BOTTOM)
        yield element("text", text, x=x, y=HEIGHT - 8, text_anchor="middle")


def _draw_line(line: Line, scale: _Scale, step: float) -> Iterator[Markup]:
    colour = f"k{line.colour % COLOURS}"
    points = [*zip(*line.curve, strict=True)]
    ends = [k + 1 for k, (a, b) in enumerate(pairwise(points)) if b[0] - a[0] > 1.5 * step]
    for first, last in pairwise([0, *ends, len(points)]):
        run = points[first:last]
        middle = [(scale.x(time), scale.y(value)) for time, value, _ in run]
        above = [(scale.x(time), scale.y(value + 2 * error)) for time, value, error in run]
        below = [(scale.x(time), scale.y(value - 2 * error)) for time, value, error in run]
        if len(run) == 1:
            [(x, y)], [(_, top)], [(_, bottom)] = middle, above, below
            yield element("line", class_=f"interval {colour}", x1=x, x2=x, y1=top, y2=bottom)
            yield element("circle", class_=f"dot {colour}", cx=x, cy=y, r=4.5)
            continue
        yield element("polygon", class_=f"band {colour}", points=_join([*above, *below[::-1]]))
        yield element("polyline", class_=f"trace {colour}", points=_join(middle))


def _join(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def choose_ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round values between two numbers: multiples of 1, 2 or 5 times a power of 10.

    >>> choose_ticks(0.13, 0.62)
    [0.2, 0.3, 0.4, 0.5, 0.6]
    """
    least = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.999 * least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.10g}") for k in range(first, last + 1)]


def _format_number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _choose_times(since: float, until: float) -> Iterator[tuple[float, str]]:
    """Round times within a span and their texts, in UTC."""
    step = next((each for each in TIME_STEPS if 8 * each >= until - since), TIME_STEPS[-1])
    days = step >= DAY
    has_day = until - since > DAY
    for k in range(math.ceil(since / step), math.floor(until / step) + 1):
        time = datetime.fromtimestamp(k * step, UTC)
        day = f"{time.day} {time:%b}" + (f" {time:%Y}" if step > 28 * DAY else "")
        yield k * step, day if days else f"{day} {time:%H:%M}" if has_day else f"{time:%H:%M}"
