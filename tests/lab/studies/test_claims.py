"""The paper's panels, the signs that turn, and its claims, judged on made-up results."""

import math

import numpy as np
import pytest

from windvane.errors import SettingError
from windvane.lab.experiments import ExperimentResult
from windvane.lab.studies import reproduction


def test_signs_turn_as_published() -> None:
    for dim, turned in ((10, 9), (20, 16), (50, 31)):
        assert (reproduction.flip_signs(np.ones(dim), "released") < 0).sum() == turned
        assert (reproduction.flip_signs(np.ones(dim), "paper") < 0).sum() == math.floor(0.6 * dim)


def make_result(**ends: tuple[float, ...]) -> ExperimentResult:
    """A result with these end regrets, growing linearly."""
    names = ("D-LinUCB", "D-RandLinUCB", "D-LinTS", "LinTS", "LinTS-OR")
    marks = np.array([4001, 5500, 7000, 10_000])
    end = np.array([ends[name.replace("-", "_")] for name in names])
    return ExperimentResult(names, marks, end[:, :, None] * marks / 10_000)


def test_claims_are_judged_replication_by_replication() -> None:
    noise = np.array([0.0, 300.0, -200.0, 100.0, -250.0, 50.0])  # shared by all, so it pairs out
    wobble = np.array([1.0, -1.0, 2.0, -2.0, 0.5, -0.5])

    def around(level: float) -> tuple[float, ...]:
        return tuple(level + noise + wobble)

    result = make_result(
        D_LinUCB=tuple(1000 + noise),
        D_RandLinUCB=around(990),
        D_LinTS=around(1010),
        LinTS=around(5000),
        LinTS_OR=around(1100),
    )
    verdicts = {c.claim: c.verdict for c in reproduction.judge_claims((10, 100), result, 4001)}
    assert verdicts == {
        "D-RandLinUCB beats D-LinUCB": "holds",
        "D-LinTS beats D-LinUCB": "does not hold",
        "D-RandLinUCB is not worse than D-LinTS": "holds",
        "the stationary LinTS collapses": "holds",
        "the oracle LinTS-OR is the floor": "does not hold",
    }


def test_a_difference_within_chance_is_undecided() -> None:
    rng = np.random.default_rng(1)
    draws = {
        name: tuple(1000 + 100 * rng.standard_normal(20))
        for name in ("D_LinUCB", "D_RandLinUCB", "D_LinTS", "LinTS", "LinTS_OR")
    }
    verdicts = {
        c.claim: c.verdict for c in reproduction.judge_claims((20, 100), make_result(**draws), 4001)
    }
    assert verdicts["D-RandLinUCB beats D-LinUCB"] == "undecided"
    assert verdicts["D-RandLinUCB is not worse than D-LinTS"] == "holds"


def test_summary_stands_beside_the_published_numbers() -> None:
    ends = {name.replace("-", "_"): (1000.0, 1200.0) for name in reproduction.POLICIES}
    row = reproduction.summarize(
        (50, 100), make_result(**ends), reproduction.PROTOCOLS["released"]
    )[0]
    assert row["end regret"] == 1100
    assert row["standard error"] == pytest.approx(100)
    assert row["at 5500"] == pytest.approx(605)
    assert row["published"] == 4480
    other = reproduction.summarize(
        (50, 100), make_result(**ends), reproduction.PROTOCOLS["paper"]._replace(change=4001)
    )
    assert "published" not in other[0]


@pytest.mark.parametrize("text", ["10", "10x11", "x", "10x10,", "50x100;10x10"])
def test_panels_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"panels: .* is none of 10x10,20x10"):
        reproduction.parse_panels(text)


def test_panels_come_in_the_papers_order() -> None:
    assert reproduction.parse_panels("50x100, 10X10") == [(10, 10), (50, 100)]
