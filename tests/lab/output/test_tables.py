"""Numbers for a paper: paired tests with Holm's correction, tables, and where files come from."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from windvane import __version__, lab
from windvane.errors import SettingError
from windvane.lab import worlds
from windvane.lab.studies.result import (
    compare_policies,
    compute_p_value,
    correct_by_holm,
    format_latex,
    format_markdown,
)

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def simulation() -> lab.Simulation:
    world = worlds.world(3, 4, 300)
    policies = ["D-LinTS", "keep() * epsilon(1.0)", "keep() * greedy()"]
    return lab.simulate(worlds={"one": world}, policies=policies, replications=8, seed=5)


def test_holm_rejects_as_the_step_down_procedure_does() -> None:
    """The procedure as written: go up from the smallest p, stop at the first above α/(m − i)."""
    random = np.random.default_rng(3)
    for _ in range(200):
        values = random.random(6) ** 4
        for alpha in (0.01, 0.05, 0.3):
            rejected = set()
            for step, place in enumerate(np.argsort(values)):
                if values[place] > alpha / (6 - step):
                    break
                rejected.add(int(place))
            assert {
                i for i, p in enumerate(correct_by_holm(values.tolist())) if p <= alpha
            } == rejected


def test_differences_are_those_of_paired_t_tests() -> None:
    random = np.random.default_rng(4)
    ends = {world: random.normal([[0.0], [0.3], [3.0]], 1.0, (3, 12)) for world in ("u", "v")}
    frame = compare_policies(NAMES, ends)
    assert frame.height == 6
    for row in frame.iter_rows(named=True):
        one, other = (ends[row["world"]][NAMES.index(row[key])] for key in ("policy", "reference"))
        expected = stats.ttest_rel(one, other)
        assert row["p"] == pytest.approx(expected.pvalue, rel=1e-12)
        assert row["difference"] == pytest.approx((one - other).mean())
    assert frame["p Holm"].to_list() == correct_by_holm(frame["p"].to_list())
    clear = frame.filter(pl.col("reference") == "c")
    assert clear["verdict"].to_list() == ["better"] * 4
    against = compare_policies(NAMES, ends, "c")
    assert against.select("policy", "reference").rows() == [("a", "c"), ("b", "c")] * 2
    assert (against["p Holm"] <= clear["p Holm"]).all()  # four tests instead of six


def test_with_correction_false_discoveries_are_rare() -> None:
    """Of 300 families of 10 true hypotheses, 5 % may have a verdict; without correction, 40 %."""
    random = np.random.default_rng(5)
    names = tuple("abcde")
    wrong = uncorrected = 0
    for _ in range(300):
        frame = compare_policies(names, {"w": random.normal(0.0, 1.0, (5, 10))})
        wrong += bool((frame["verdict"] != "undecided").any())
        uncorrected += bool((frame["p"] < 0.05).any())
    assert wrong / 300 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    assert uncorrected / 300 > 0.15


def test_equal_numbers_are_no_difference() -> None:
    assert compute_p_value(np.zeros(5)) == 1.0
    assert compute_p_value(np.full(5, 2.0)) == 0.0


def test_compare_refuses_what_it_cannot_test(simulation: lab.Simulation) -> None:
    with pytest.raises(SettingError, match="the reference must have played, got 'LinTS'"):
        simulation.compare("LinTS")
    with pytest.raises(SettingError, match="at least two replications are needed"):
        compare_policies(NAMES, {"w": np.zeros((3, 1))})


def test_a_result_compares_its_policies(simulation: lab.Simulation) -> None:
    frame = simulation.compare("keep() * epsilon(1.0)")
    assert frame["world"].to_list() == ["one", "one"]
    assert frame["verdict"].to_list() == ["better", "better"]


def test_tables_are_valid_in_markdown_and_latex() -> None:
    frame = pl.DataFrame({"a_b": ["50 % | x", "~^\\"], "±": [1234.5, 0.123456789], "n": [1, None]})
    assert format_markdown(frame).splitlines() == [
        "| a_b | ± | n |",
        "| --- | ---: | ---: |",
        "| 50 % \\| x | 1234 | 1 |",
        "| ~^\\ | 0.12346 |  |",
    ]
    assert format_latex(frame).splitlines() == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"a\_b & $\pm$ & n \\",
        r"\midrule",
        r"50 \% | x & 1234 & 1 \\",
        r"\textasciitilde{}\textasciicircum{}\textbackslash{} & 0.12346 &  \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_every_file_of_numbers_has_the_seed_and_the_versions(
    simulation: lab.Simulation, tmp_path: Path
) -> None:
    pictures = simulation.save(tmp_path)
    document = json.loads((tmp_path / "summary.json").read_text())
    assert document["seed"] == 5
    assert document["versions"]["windvane"] == __version__
    assert document["versions"]["numpy"] == np.__version__
    origins = [
        (tmp_path / "tables.md").read_text().splitlines()[0],
        (tmp_path / "tables.tex").read_text().splitlines()[0],
        pl.read_parquet_metadata(tmp_path / "curves.parquet")["windvane"],
    ]
    for origin in origins:
        assert "seed 5" in origin
        assert f"windvane {__version__}" in origin
    assert [picture.suffix for picture in pictures] == [".png", ".pdf", ".svg"]


def test_a_result_is_a_pandas_frame_too(simulation: lab.Simulation) -> None:
    pandas = pytest.importorskip("pandas")
    summary = simulation.to_pandas()
    assert isinstance(summary, pandas.DataFrame)
    assert summary["policy"].tolist() == simulation.summary["policy"].to_list()
    assert len(simulation.to_pandas("curves")) == simulation.curves.height
