"""The leaderboard: every policy plays in every world, and shares and ranks follow the regrets."""

import json
from pathlib import Path

import numpy as np
import pytest

from windvane.lab import cli
from windvane.lab.experiments import ExperimentResult
from windvane.lab.studies import leaderboard
from windvane.names import NAMES


def test_standings_rank_by_the_mean_share_of_the_regret_at_random() -> None:
    """Shares, scores and standard errors by hand, for two worlds and two replications."""
    marks = np.array([1])
    names = ("good", "poor", leaderboard.AT_RANDOM)
    one = ExperimentResult(
        names, marks, np.array([[[10.0], [30.0]], [[50.0], [70.0]], [[90.0], [110.0]]])
    )
    two = ExperimentResult(names, marks, np.array([[[1.0], [1.0]], [[5.0], [3.0]], [[8.0], [2.0]]]))
    standings = leaderboard.rank_policies(leaderboard.share_regret({"one": one, "two": two}))
    assert standings.columns == ["rank", "policy", "score %", "±", "one", "two"]
    good, poor, chance = standings.rows()
    each = np.array([(0.1 + 0.2) / 2, (0.3 + 0.2) / 2])
    error = 100.0 * float(each.std(ddof=1)) / np.sqrt(2)
    assert good == (1, "good", pytest.approx(100.0 * each.mean()), round(error, 2), 20.0, 20.0)
    assert poor[:3] + poor[4:] == (2, "poor", 70.0, 60.0, 80.0)
    assert chance[:3] == (3, leaderboard.AT_RANDOM, 100.0)


def test_every_name_plays_in_every_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A whole leaderboard over short worlds, with its table, its JSON and its picture."""
    monkeypatch.setattr(leaderboard, "HORIZON", 200)
    monkeypatch.setattr("windvane.lab.studies.reproduction.HORIZON", 5000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cli.leaderboard(replications=2, seed=1, out=tmp_path / "out", as_json=True)
    document = json.loads(capsys.readouterr().out)
    rows = document["results"]
    assert {row["policy"] for row in rows} == {name.name for name in NAMES} | {"at random"}
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    worlds = {"abrupt", "slow", "periodic", "stationary"}
    assert {*rows[0]} >= worlds | {f"{name}, fixed" for name in worlds} | {"ads"}
    assert rows[0]["score %"] < 60 < rows[-1]["score %"]
    assert (tmp_path / "out" / "leaderboard.png").stat().st_size > 50_000
    assert json.loads((tmp_path / "out" / "leaderboard.json").read_text())["results"] == rows
