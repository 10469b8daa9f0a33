"""The report of an evaluation: its numbers, escaping, and that it loads nothing."""

import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import windvane as wv
from simulated_log import simulate_log
from windvane.cli import main
from windvane.evaluation import Evaluation, evaluate, tune
from windvane.evaluation.cli import write_report
from windvane.evaluation.estimates.value_series import choose_minutes, list_curve
from windvane.evaluation.report import HEIGHT, choose_ticks

POLICIES = ["logged", "first", "random", "learner"]
HOSTILE = '<script>alert("1")</script> & $x$'
LOADING = ("src", "href", "srcset", "data", "action", "xlink:href", "style")


class Page(HTMLParser):
    """The elements, attributes and texts of an HTML file."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag != "meta":
            self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag  # every element is closed, in order

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.texts.append(data)
        if self._open and self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def list_kinds(self) -> set[str]:
        return {kind for kind, _ in self.elements}

    def find(self, kind: str, name: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind that have a class."""
        found = (each for each in self.elements if each[0] == kind)
        return [some for _, some in found if name in (some.get("class") or "").split()]


@pytest.fixture(scope="module")
def result() -> Evaluation:
    return evaluate(simulate_log(2000, seed=3, change=1000), POLICIES)


def read_number(text: str) -> float:
    return float(text.replace("−", "-").replace(",", "").rstrip(" %"))


def test_the_table_has_the_numbers_of_the_result(result: Evaluation) -> None:
    title, *rows = [row for row in Page(result.to_html()).rows if len(row) == 7][:5]
    assert title[0::3] == ["policy", "against learner", "effective rows"]
    base = result["learner"].value.value
    for policy, row in zip(result.policies, rows, strict=True):
        assert read_number(row[1]) == pytest.approx(policy.value.value, abs=5e-5)
        low, high = map(read_number, row[2].split(" to "))
        assert (low, high) == pytest.approx(policy.sequence, rel=5e-4)
        assert read_number(row[6]) == round(policy.diagnostics.effective_rows)
        if policy.name == "learner":
            assert row[3:6] == ["", "", "the reference"]
            continue
        gain = result.compare(policy.name)
        assert row[3] == gain.describe_change()
        assert read_number(row[4]) == pytest.approx(100 * gain.value / base, abs=0.05)
        assert row[5] == gain.describe_verdict(0.05)


def test_the_pictures_have_the_values_of_the_result(result: Evaluation) -> None:
    page = Page(result.to_html())
    dots = [float((each["cx"] or "").rstrip("%")) for each in page.find("circle", "dot")]
    values = [policy.value.value for policy in result.policies]
    gains = [result.compare(name).value for name in POLICIES[:3]]
    marks = [str(each["x1"]) for each in page.find("line", "mark")]
    lines = [float(each.rstrip("%")) for each in marks if each.endswith("%")]
    # The line is at the reference; the dot that is farthest from it gives the scale.
    parts = ((dots[:4], values, lines[0], values[3]), (dots[4:], gains, lines[4], 0.0))
    for shown, expected, line, reference in parts:
        far = max(range(len(expected)), key=lambda k: abs(expected[k] - reference))
        slope = (shown[far] - line) / (expected[far] - reference)  # per cent of the width
        assert slope > 0
        places = [line + slope * (each - reference) for each in expected]
        assert shown == pytest.approx(places, abs=0.05)
    traces = page.find("polyline", "trace")
    assert len(traces) == 4 + 2  # pairs with what was logged have no series
    minutes = choose_minutes(result.policies[0].series)
    heights = [
        HEIGHT - float(point.split(",")[1])
        for trace in traces[:4]
        for point in (trace["points"] or "").split()
    ]
    curve = [
        each for policy in result.policies for each in list_curve(policy.series, minutes).values
    ]
    assert len(heights) == len(curve)
    assert np.corrcoef(heights, curve)[0, 1] == pytest.approx(1.0, abs=1e-4)


def test_the_difference_over_time_adds_up_to_the_difference(result: Evaluation) -> None:
    for pair in result.pairs:
        points = pair.series.roll(60)
        rows = sum(point.rows for point in points)
        total = sum(point.rows * (point.value or 0.0) for point in points)
        assert rows == result.rows
        assert total / rows == pytest.approx(pair.gain.value, abs=1e-12)


def test_every_sentence_and_the_way_to_repeat_it_are_there(result: Evaluation) -> None:
    command = "windvane evaluate 'a b.csv' --seed 0"
    text = " ".join(Page(result.to_html(command)).texts)
    assert all(policy.sentence in text for policy in result.policies)
    assert all(each in text for policy in result.policies for each in policy.warnings)
    assert command in text
    assert f"Windvane {wv.__version__}, seed 0" in text


def test_texts_of_users_are_never_markup(result: Evaluation) -> None:
    renamed = [
        replace(policy, name=f"{HOSTILE}{policy.name}", text=HOSTILE, warnings=[HOSTILE])
        for policy in result.policies
    ]
    pairs = [
        replace(pair, first=f"{HOSTILE}{pair.first}", second=f"{HOSTILE}{pair.second}")
        for pair in result.pairs
    ]
    hostile = replace(
        result,
        policies=renamed,
        pairs=pairs,
        reference=f"{HOSTILE}learner",
        log=f"{HOSTILE}.csv",
        warnings=[HOSTILE],
        first_bad_rows=[HOSTILE],
    )
    for text in (hostile.to_html(HOSTILE), hostile._repr_html_()):
        assert "<script" not in text
        page = Page(text)
        assert page.list_kinds() <= Page(result.to_html("x")).list_kinds()
        assert HOSTILE in "".join(page.texts)
        labels = [each.get("aria-label") or "" for _, each in page.elements]
        assert any(HOSTILE in label for label in labels)


def test_the_file_loads_nothing_and_can_be_printed(result: Evaluation) -> None:
    text = result.to_html()
    page = Page(text)
    assert page.list_kinds().isdisjoint({"script", "link", "img", "iframe", "object", "image"})
    assert not [name for _, each in page.elements for name in each if name in LOADING]
    assert not [name for _, each in page.elements for name in each if name.startswith("on")]
    assert "http:" not in text
    assert "https:" not in text
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    assert "@media print" in style
    assert "@media screen and (prefers-color-scheme: dark)" in style
    colours = {each.rsplit(" ", 1)[-1] for each in re.findall(r'class="\w+ (k\d)"', text)}
    assert colours == {"k0", "k1", "k2", "k3"}
    assert all(f".{each} {{" in style for each in colours)


def test_an_evaluation_that_was_read_back_has_the_same_report(result: Evaluation) -> None:
    assert Evaluation.from_json(result.to_json()).to_html() == result.to_html()


def test_a_log_without_times_has_rows_instead(result: Evaluation) -> None:
    texts = Page(replace(result, has_times=False).to_html()).texts
    assert any("decisions; the bands" in each for each in texts)
    assert not any("1970" in each or "Jan" in each for each in texts)
    assert any("1970-01-01" in each for each in Page(result.to_html()).texts)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_log_of_few_rows_has_a_report_without_curves(rows: int) -> None:
    page = Page(evaluate(simulate_log(rows, seed=1), ["logged", "first"]).to_html())
    assert page.find("circle", "dot")
    assert not page.find("polyline", "trace")


def test_a_tuning_has_both_tables_and_its_recommendation() -> None:
    log = simulate_log(600, seed=4)
    log.description = HOSTILE
    tuning = tune(log, ["half-life"])
    text = tuning.to_html("windvane evaluate x --tune half-life")
    page = Page(text)
    assert "<script" not in text
    names = [row[0] for row in page.rows if len(row) == 7]
    grid, held_out = (
        [each.name for each in part.policies] for part in (tuning.grid, tuning.held_out)
    )
    shown = [name for name in names if name != "policy"]
    assert [name.replace("what was logged", "logged") for name in shown] == [*held_out, *grid]
    assert tuning.sentence[1:] in " ".join(page.texts)
    assert "windvane evaluate x --tune half-life" in page.texts
    assert tuning._repr_html_().startswith("<style>")


def test_the_command_is_in_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["action,reward,probability,time,count"]
    rows += [f"{k % 2},{int(k % 4 == 1)},0.5,{60 * k},2" for k in range(200)]
    log, report = tmp_path / "<b>.csv", tmp_path / "new" / "report.html"
    log.write_text("\n".join(rows))
    arguments = ["windvane", "evaluate", str(log), "--policy", "first", "--report", str(report)]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, None)
    assert capsys.readouterr().out.endswith(f"The report is {report}\n")
    texts = Page(report.read_text("utf-8")).texts
    assert shlex.join(arguments) in texts
    assert f"200 rows of {log}" in " ".join(texts)


def test_the_password_of_a_database_is_not_in_the_report(
    tmp_path: Path, result: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["windvane", "evaluate", "postgresql://me:secret@db/log"])
    write_report(result, tmp_path / "report.html", as_json=True)
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "secret" not in text
    assert "@db/log" in text


def test_ticks_are_round_and_within() -> None:
    rng = np.random.default_rng(0)
    for low, width in zip(rng.normal(size=200), 10.0 ** rng.uniform(-5, 4, 200), strict=True):
        ticks = choose_ticks(low, low + width)
        assert 2 <= len(ticks) <= 7
        assert low - 1e-6 * width <= ticks[0] <= ticks[-1] <= low + width * (1 + 1e-6)
        digits = f"{ticks[1] - ticks[0]:.0e}"[0]
        assert digits in "125"


def test_a_chart_has_few_lines_and_the_reference_among_them() -> None:
    policies = [*POLICIES[:3], "action=a0", "action=a1", "action=a2", "learner"]
    page = Page(evaluate(simulate_log(600, seed=5), policies).to_html())
    drawn = [each["class"] for each in page.find("polyline", "trace")]
    values, differences = ["k0", "k1", "k2", "k3", "k6"], ["k1", "k2", "k3"]
    assert drawn == [f"trace {each}" for each in (*values, *differences)]
    assert any("Only 5 policies are drawn." in each for each in page.texts)
