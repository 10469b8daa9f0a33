"""The commands of the lab, run as processes if the process matters."""

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from simulation_plan import PLAN
from waiting import wait_until
from windvane.lab.studies import criteo, reproduction

RunHere = Callable[..., subprocess.CompletedProcess[str]]
MAIN = [sys.executable, "-c", "from windvane.cli import main; main()"]


def run(*words: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with its own cache folder."""
    settings = {**os.environ, "XDG_CACHE_HOME": str(home)}
    command = [*MAIN, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=settings)


@pytest.fixture
def run_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_here: RunHere) -> RunHere:
    """Run a command in this process, with its own cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return run_here


def test_reproduce_writes_picture_curves_and_summary(tmp_path: Path, run_lab: RunHere) -> None:
    out = tmp_path / "out"
    words = ["reproduce", "--panels", "10x10", "--replications", "3"]
    output = run(*words, "--out", out, home=tmp_path)
    assert output.returncode == 0, output.stderr
    assert output.stderr == ""
    assert criteo.STAND_IN in output.stdout
    assert "published" in output.stdout
    assert output.stdout.splitlines()[-1] == f"The picture is {out / 'figure.png'}"
    assert (out / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert (out / "figure.pdf").read_bytes()[:4] == b"%PDF"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["data"] == summary["note"] == criteo.STAND_IN
    assert [row["policy"] for row in summary["results"]] == list(reproduction.POLICIES)
    assert not (out / "chunks").exists()
    before = (out / "figure.png").read_bytes()
    (out / "figure.png").unlink()
    assert run_lab("plot", out).returncode == 0
    assert (out / "figure.png").read_bytes() == before


def test_reproduce_reads_a_real_file(tmp_path: Path, run_lab: RunHere) -> None:
    data = tmp_path / "data.tsv.gz"
    impressions = criteo.generate_impressions(rows=30_000)
    data.write_bytes(gzip.compress(impressions.write_csv(separator="\t").encode()))
    words = ["reproduce", "--panels", "10x10", "--replications", "1", "--protocol", "paper"]
    output = run_lab(*words, "--data", data, "--out", tmp_path / "out", "--json")
    assert output.returncode == 0, output.stderr
    assert json.loads(output.stdout)["protocol"] == "paper"


def test_flags_and_a_plan_give_the_same_numbers(tmp_path: Path, run_lab: RunHere) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.split("[worlds.still]")[0])
    by_plan = run_lab("simulate", plan, "--out", tmp_path / "a", "--json")
    flags = ["--policy", "D-LinTS", "--policy", "window(50) * greedy()", "--dim", "4"]
    flags += ["--arms", "6", "--horizon", "400", "--drift", "abrupt([200], flip=0.5)"]
    flags += ["--replications", "6", "--seed", "4", "--out", str(tmp_path / "b"), "--json"]
    by_flags = run_lab("simulate", *flags)
    ends = [
        [row["end regret"] for row in json.loads(output.stdout)["results"]]
        for output in (by_plan, by_flags)
    ]
    assert ends[0] == ends[1]


def test_an_interrupted_command_continues_from_its_chunks(tmp_path: Path, run_lab: RunHere) -> None:
    """The numbers are those of an uninterrupted run, and saved chunks are not played again."""
    flags = ["simulate", "--policy", "keep() * perturbed_history(1.0)", "--horizon", "1500"]
    flags += ["--drift", "stationary()", "--replications", "40", "--seed", "1", "--json", "--out"]
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [*MAIN, *flags, str(tmp_path / "cut")]
    process = subprocess.Popen(command, env=settings, stderr=subprocess.PIPE)
    chunks = tmp_path / "cut" / "chunks"
    wait_until(lambda: list(chunks.glob("*.npy")) or process.poll() is not None, 120)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert "the same command goes on" in output
    assert output.count("\n") == 1
    assert 0 < len(list(chunks.glob("*.npy"))) < 8
    resumed = run_lab(*flags, tmp_path / "cut")
    alone = run_lab(*flags, tmp_path / "alone")
    assert json.loads(resumed.stdout)["results"] == json.loads(alone.stdout)["results"]


def test_tune_marks_theory_and_the_best(tmp_path: Path, run_lab: RunHere) -> None:
    flags = ["tune", "--dim", "4", "--arms", "6", "--horizon", "400", "--points", "5"]
    flags += ["--drift", "abrupt([200], flip=0.5)", "--replications", "4"]
    for family in ("discount", "window", "restart"):
        out = tmp_path / family
        output = run_lab(*flags, "--memory", family, "--out", out, "--json")
        assert output.returncode == 0, output.stderr
        rows = json.loads(output.stdout)["results"]
        named = {name.strip() for row in rows for name in row["choice"].split(";")}
        assert named >= {"theory's choice", "older, uncorrected choice", "best"}
        fixed, adaptive = rows[:-3], rows[-3:]
        best = min(fixed, key=lambda row: row["end regret"])
        assert "best" in best["choice"]
        assert best["to the best"] == 1.0
        names = ["bandits over bandits", "the same, warm", "predictive memory"]
        assert [row["choice"] for row in adaptive] == names
        assert all(row["end regret"] > 0 for row in adaptive)
        assert (out / "tuning.png").exists()
        assert (out / "tuning.pdf").exists()


def test_progress_is_shown_only_on_a_terminal(tmp_path: Path, run_lab: RunHere) -> None:
    flags = ["simulate", "--policy", "D-LinTS", "--horizon", "500", "--replications", "5"]
    flags += ["--drift", "abrupt([200], flip=0.5)", "--out", str(tmp_path / "out")]
    terminal, child = pty.openpty()
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(
        [*MAIN, *flags], stdout=subprocess.PIPE, stderr=child, env=settings, text=True
    )
    os.close(child)
    shown = b""
    while True:
        try:
            block = os.read(terminal, 4096)
        except OSError:
            break
        if not block:
            break
        shown += block
    out = process.communicate()[0]
    assert process.returncode == 0
    assert b"5/5" in shown
    assert b"left" in shown
    assert "end regret" in out
    assert run_lab(*flags).stderr == ""


def test_a_mistake_of_a_process_is_one_line(tmp_path: Path) -> None:
    output = run("simulate", home=tmp_path)
    assert (output.returncode, output.stdout) == (2, "")
    assert "give either a TOML file or" in output.stderr
    assert output.stderr.count("\n") == 1
