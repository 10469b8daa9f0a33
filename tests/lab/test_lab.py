"""The lab as a library: results with frames, figures, files and a display for notebooks."""

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from matplotlib.figure import Figure

import windvane as wv
from simulation_plan import PLAN
from windvane import lab
from windvane.errors import FileError, SettingError
from windvane.lab import cli, worlds
from windvane.lab.studies.result import format_text

WORLD = worlds.world(4, 6, 400, worlds.abrupt([200], flip=0.5))
POLICIES = ["D-LinTS", "window(50) * greedy()"]


@pytest.fixture(scope="module")
def simulation() -> lab.Simulation:
    return lab.simulate(worlds={"a": WORLD}, policies=POLICIES, replications=4, seed=3)


@pytest.fixture(scope="module")
def tuning() -> lab.Tuning:
    return lab.tune("window", wv.thompson(0.4), WORLD, replications=3, points=4)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache folder of its own, because stand-in data takes seconds to generate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def reproduction(cache: None) -> lab.Reproduction:
    return lab.reproduce(replications=2, panels=[(10, 10)])


@pytest.fixture(scope="module")
def leaderboard() -> lab.Leaderboard:
    rows = [(1, "good", 16.2, 1.0, 12.3, 20.0), (2, "at random", 100.0, 2.0, 100.0, 100.0)]
    columns = ["rank", "policy", "score %", "±", "abrupt", "ads"]
    standings = pl.DataFrame(rows, columns, orient="row")
    columns = ["world", "policy", "replication", "regret", "share %"]
    shares = pl.DataFrame([("ads", "good", 0, 2.0, 20.0)], columns, orient="row")
    return lab.Leaderboard(2, 1, "stand-in data (not Criteo)", standings, shares)


@pytest.fixture(scope="module")
def coverage() -> lab.Coverage:
    return lab.coverage(replications=2, horizon=200, drifts="stationary()", looks=2, seed=3)


@pytest.fixture(params=["simulation", "tuning", "reproduction", "leaderboard", "coverage"])
def result(request: pytest.FixtureRequest) -> lab.StudyResult:
    """Each kind of result."""
    study = request.getfixturevalue(request.param)
    assert isinstance(study, lab.StudyResult)
    return study


def list_files(picture: str) -> list[str]:
    return [f"{picture}.{kind}" for kind in ("png", "pdf", "svg")] + ["tables.md", "tables.tex"]


FILES = {
    "Simulation": {"curves.parquet", "summary.json", *list_files("curves")},
    "Reproduction": {"curves.parquet", "summary.json", *list_files("figure")},
    "Tuning": {"tuning.json", *list_files("tuning")},
    "Leaderboard": {"leaderboard.json", "shares.parquet", *list_files("leaderboard")},
    "Coverage": {"coverage.json", "intervals.parquet", *list_files("coverage")},
}


def test_a_saved_result_is_loaded_equal_and_draws_the_same_picture(
    result: lab.StudyResult, tmp_path: Path
) -> None:
    pictures = result.save(tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert {file.name for file in folder.iterdir()} == FILES[type(result).__name__]
    loaded = lab.load(folder)
    assert loaded == result
    assert loaded.tables.keys() == result.tables.keys()
    assert all(frame.equals(result.tables[name]) for name, frame in loaded.tables.items())
    before = [picture.read_bytes() for picture in pictures]
    assert [picture.read_bytes() for picture in loaded.save_figure(folder)] == before


def test_copies_and_pickles_are_equal(result: lab.StudyResult) -> None:
    for twin in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert twin == result
        assert repr(twin) == repr(result)


def test_results_of_different_studies_differ(
    simulation: lab.Simulation, tuning: lab.Tuning
) -> None:
    other = lab.simulate(worlds={"a": WORLD}, policies=POLICIES, replications=4, seed=4)
    assert simulation != other
    assert simulation != tuning
    assert simulation != "simulation"


def test_the_figure_is_a_matplotlib_figure(result: lab.StudyResult) -> None:
    figure = result.figure()
    assert isinstance(figure, Figure)
    assert len(figure.axes) == (2 if isinstance(result, lab.Coverage) else 1)


def test_a_notebook_shows_the_tables_and_the_figure(result: lab.StudyResult) -> None:
    shown = result._repr_html_()
    for frame in result.tables.values():
        text = format_text(frame)
        assert text in str(result)
        assert all(f">{name}</th>" in shown for name in frame.columns)
        words = [word for line in text.splitlines()[2:] for word in line.split()]
        numbers = [word for word in words if word.replace(".", "").isdigit()]
        assert len(numbers) > 3
        assert all(f">{number}<" in shown for number in numbers)
    assert 'src="data:image/png;base64,' in shown
    assert str(Path.cwd()) not in shown
    assert str(Path.home()) not in shown


def test_names_are_escaped_in_a_notebook() -> None:
    result = lab.simulate(
        worlds={"<b>": WORLD},
        policies={"name": "<script>", "memory": "keep()", "exploration": "greedy()"},
        replications=1,
    )
    assert "<script>" not in result._repr_html_()
    assert "&lt;script&gt;" in result._repr_html_()


def test_repr_says_what_was_played(
    simulation: lab.Simulation, leaderboard: lab.Leaderboard, coverage: lab.Coverage
) -> None:
    assert repr(simulation) == "<Simulation: 1 world, 2 policies, 4 replications, seed 3>"
    sentence = "2 policies, 2 replications, seed 1, ads: stand-in data (not Criteo)"
    assert repr(leaderboard) == f"<Leaderboard: {sentence}>"
    assert repr(coverage) == "<Coverage: 1 drift, 9 estimators, 2 replications, seed 3>"


def test_frames_have_the_documented_columns(
    simulation: lab.Simulation,
    tuning: lab.Tuning,
    reproduction: lab.Reproduction,
    coverage: lab.Coverage,
) -> None:
    curves = ["world", "policy", "replication", "rounds", "regret"]
    summary = ["world", "policy", "end regret", "standard error", "half-way"]
    assert simulation.summary.columns == summary
    assert simulation.curves.columns == reproduction.curves.columns == curves
    tried = ["window w", "end regret", "standard error", "to the best", "choice"]
    assert tuning.table.columns == tried
    assert reproduction.summary.columns == [
        *("world", "policy", "end regret", "standard error"),
        *("at the change", "at 5500", "at 7000", "published"),
    ]
    assert reproduction.claims.columns == ["claim", "world", "verdict", "difference", "p"]
    assert coverage.summary.columns == [
        *("world", "estimator", "every look", "standard error"),
        *("last look", "width", "bias", "rms error"),
    ]
    assert coverage.intervals.columns == [
        *("world", "policy", "estimator", "replication", "look"),
        *("truth", "value", "low", "high"),
    ]


def test_the_summary_is_the_mean_of_the_curves(
    simulation: lab.Simulation, reproduction: lab.Reproduction
) -> None:
    for result, horizon in ((simulation, 400), (reproduction, 10_000)):
        ends = result.curves.filter(pl.col("rounds") == horizon)
        means = ends.group_by("policy", maintain_order=True).agg(pl.mean("regret"))
        assert means["policy"].to_list() == result.summary["policy"].to_list()
        assert means["regret"].to_list() == pytest.approx(result.summary["end regret"].to_list())


def test_library_and_commands_give_the_same_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN)
    cli.simulate(plan, out=tmp_path / "simulation", as_json=True)
    result = lab.simulate(plan)
    assert lab.load(tmp_path / "simulation") == result
    printed = json.loads(capsys.readouterr().out)
    assert printed["results"] == result.summary.to_dicts()
    cli.tune(
        "window",
        dim=4,
        arms=6,
        horizon=400,
        drift="abrupt([200], flip=0.5)",
        replications=3,
        points=4,
        out=tmp_path / "tuning",
    )
    tuned = lab.tune("window", "thompson(0.4)", WORLD, 3, 4)
    assert lab.load(tmp_path / "tuning") == tuned
    assert capsys.readouterr().out.startswith(f"{tuned}\n\nThe picture is ")


def test_reproduce_gives_the_result_of_the_command(
    reproduction: lab.Reproduction, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.reproduce(replications=2, panels="10x10", out=tmp_path / "out")
    assert lab.load(tmp_path / "out") == reproduction
    assert capsys.readouterr().out.startswith(str(reproduction))


def test_a_plan_a_file_texts_and_objects_play_the_same(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.split("[worlds.still]")[0])
    table = {"dim": 4, "arms": 6, "horizon": 400, "drift": "abrupt([200], flip=0.5)"}
    pair = (wv.window(50), wv.greedy())
    results = [
        lab.simulate(path),
        lab.simulate(str(path)),
        lab.simulate(lab.read_plan(path)),
        lab.simulate(lab.make_plan({"abrupt": WORLD}, ["D-LinTS", pair]), replications=6, seed=4),
        lab.simulate(worlds=WORLD, policies=POLICIES, replications=6, seed=4),
        lab.simulate(
            worlds=table,
            policies=["D-LinTS", {"name": "x", "memory": pair[0], "exploration": pair[1]}],
            replications=6,
            seed=4,
        ),
    ]
    regrets = [result.curves["regret"].to_list() for result in results]
    assert all(regret == regrets[0] for regret in regrets)
    assert lab.simulate(worlds=WORLD, policies=pair, replications=1).summary.height == 1
    assert lab.simulate(worlds=WORLD, policies="LinTS", replications=1).summary.height == 1


def test_progress_goes_to_the_callback_and_nothing_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    steps: list[lab.TaskProgress] = []
    lab.simulate(worlds=WORLD, policies="LinTS", replications=7, progress=steps.append)
    assert [step.done for step in steps] == [0, 7]  # a chunk has up to 8 replications
    assert {step._replace(done=0) for step in steps} == {
        lab.TaskProgress("world", 0, 7, "replications")
    }
    lab.simulate(worlds=WORLD, policies="LinTS", replications=1)
    lab.simulate(worlds=WORLD, policies="LinTS", replications=1, progress=True)
    assert capfd.readouterr() == ("", "")


def test_mistakes_are_refused(tmp_path: Path) -> None:
    play: Callable[..., object] = partial(lab.simulate, worlds=WORLD, policies="LinTS")
    for study, given, sentence in (
        (play, {"worlds": None}, "a plan, or worlds and policies, must be given"),
        (play, {"plan": PLAN}, "either a plan or worlds and policies, got both"),
        (play, {"policies": []}, "at least one policy must be given"),
        (play, {"worlds": 3}, "worlds must be a world or worlds by name, got 3"),
        (play, {"policies": [3]}, "a policy must be a name, a table, "),
        (play, {"policies": "discount * thompson"}, r"such as 'discount.* got 'discount \* thomp"),
        (play, {"replications": 0}, "replications must be a whole number >= 1, got 0"),
        (lab.tune, {"points": 2}, "points must be a whole number >= 3, got 2"),
        (lab.reproduce, {"panels": []}, "at least one panel is needed"),
        (lab.reproduce, {"panels": [(11, 10)]}, "'11x10' is none of 10x10"),
    ):
        with pytest.raises(SettingError, match=sentence):
            study(**given)
    with pytest.raises(FileError, match="holds no finished run of reproduce, simulate, tune"):
        lab.load(tmp_path)
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(FileError, match="holds no finished run"):
        lab.load(tmp_path)
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = lab.nothing  # type: ignore[attr-defined]


def test_importing_the_lab_is_cheap() -> None:
    """Polars comes with the first study, matplotlib with the first figure."""
    code = """if True:
        import sys
        from windvane import lab
        assert not {"polars", "matplotlib", "rich", "scipy"} & sys.modules.keys()
        assert {"simulate", "load", "worlds"} <= {*dir(lab)}
        lab.simulate
        assert "polars" in sys.modules and "matplotlib" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True)
