"""The alert rules and the Grafana dashboard: Prometheus takes them, and every metric exists."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployment_files import DEPLOY
from server_process import Nursery, Server
from windvane.service.monitoring.metrics import MetricInfo, list_metrics

MONITORING = DEPLOY / "monitoring"
METRICS = {metric.name: metric for metric in list_metrics()}
SELECTOR = re.compile(r"\b(windvane_[a-z_]+)(?:\{([^}]*)\})?")
SUFFIX = re.compile(r"_(?:bucket|sum|count)$")
OF_SHARED_LOGS = {"windvane_clock_skew_seconds", "windvane_lesson_lag_seconds"}  # on PostgreSQL
SCRAPED = {"job", "instance", "le"}  # labels that Prometheus adds, or that a histogram has
yaml = pytest.importorskip("yaml", reason="pip install pyyaml to test the alert rules")


def run_promtool(*words: str) -> subprocess.CompletedProcess[str]:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("apt-get install prometheus to test the alert rules with promtool")
    return subprocess.run(
        [promtool, *words], capture_output=True, text=True, cwd=MONITORING, timeout=120
    )


def read_board() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((MONITORING / "grafana.json").read_text("utf-8"))
    return board


def list_alerts() -> dict[str, str]:
    """The expressions of the alert rules, by name."""
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def list_expressions() -> Iterator[str]:
    """All expressions of the rules and the dashboard, and those of its variables."""
    yield from list_alerts().values()
    board = read_board()
    for panel in board["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


def find_metric(name: str) -> MetricInfo:
    metric = METRICS.get(name) or METRICS[SUFFIX.sub("", name)]
    assert (name == metric.name) == (metric.kind != "histogram"), name
    return metric


@pytest.mark.parametrize(
    "words", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]]
)
def test_promtool_takes_the_rules_and_their_tests(words: list[str]) -> None:
    done = run_promtool(*words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_of_the_rules_can_fail(tmp_path: Path) -> None:
    rules = (MONITORING / "alerts.yaml").read_text("utf-8")
    (tmp_path / "alerts.yaml").write_text(
        rules.replace("windvane_degraded == 1", "windvane_degraded == 2")
    )
    shutil.copy(MONITORING / "alerts_test.yaml", tmp_path)
    done = run_promtool("test", "rules", str(tmp_path / "alerts_test.yaml"))
    assert done.returncode != 0
    assert "WindvaneDegraded" in done.stdout + done.stderr


def test_every_alert_is_raised_by_a_test() -> None:
    text = (MONITORING / "alerts_test.yaml").read_text("utf-8")
    assert [name for name in list_alerts() if not re.search(rf"\b{name}\b", text)] == []


def test_every_metric_and_label_of_the_files_exists() -> None:
    expressions = list(list_expressions())
    assert len(expressions) > 40
    for expression in expressions:
        for name, matchers in SELECTOR.findall(expression):
            labels = re.findall(r"(\w+)\s*[=!]~?", matchers or "")
            assert set(labels) <= {*find_metric(name).labels, *SCRAPED}, expression


def test_the_dashboard_shows_every_metric_of_the_service() -> None:
    text = " ".join(list_expressions())
    missing = [name for name in METRICS if not re.search(rf"\b{name}(?:_bucket)?\b", text)]
    assert missing == []


def test_every_metric_of_the_files_is_in_the_answer_of_a_server(
    nursery: Nursery, tmp_path: Path
) -> None:
    with Server(nursery, tmp_path / "data") as server:
        client = server.client()
        rank = {"eventId": "e", "actions": [{"id": "a", "features": []}]}
        assert client.rank(rank).status == 201
        text = client.call("GET", "/metrics").body.decode()
        client.close()
    shown = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    used = {
        find_metric(name).name for each in list_expressions() for name, _ in SELECTOR.findall(each)
    }
    assert used - shown <= OF_SHARED_LOGS


def test_panels_of_the_dashboard_have_a_place_a_title_and_a_description() -> None:
    panels = read_board()["panels"]
    places: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & places, panel["title"]
        places |= cells
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"].endswith(".")
    assert len({panel["id"] for panel in panels}) == len(panels)
