"""The lab's commands: reproduce, simulate, tune, leaderboard, plot."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from windvane._text_table import Cell, format_table
from windvane.errors import SettingError

if TYPE_CHECKING:
    from windvane.lab import worlds
    from windvane.lab.running.experiment import Experiment, Result, Runner

Count = Annotated[int, typer.Option(min=1, help="Replications.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of every draw.")]
Out = Annotated[Path, typer.Option(help="Directory for pictures and numbers.")]
On = Annotated[str, typer.Option(help="threads, ray, or the address of a Ray cluster.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Dim = Annotated[int, typer.Option(help="Dimension of the features.")]
Arms = Annotated[int, typer.Option(help="Arms a round.")]
Horizon = Annotated[int, typer.Option(help="Rounds.")]
Drift = Annotated[
    str, typer.Option(help="How the parameter moves; 6 of 10 signs flip half-way unless given.")
]
Actions = Annotated[
    str,
    typer.Option(help="fresh() or fixed() arms, or any of ball(RADIUS), routes(ROWS, COLUMNS)."),
]
Reward = Annotated[
    str, typer.Option(help="gaussian(VARIANCE), bounded(RADIUS), bernoulli(), poisson().")
]


def reproduce(
    protocol: Annotated[str, typer.Option(help="released or paper.")] = "released",
    replications: Count = 100,
    panels: Annotated[str, typer.Option(help="Panels as DxK, or all.")] = "all",
    data: Annotated[Path | None, typer.Option(help="The Criteo file (.tsv.gz).")] = None,
    out: Out = Path("out/figure"),
    seed: Seed = 1,
    on: On = "threads",
    as_json: AsJson = False,
) -> None:
    """Play the paper's experiment: its figure, its numbers, its claims."""
    from windvane.lab.output import figures, results
    from windvane.lab.studies import criteo, paper

    reading = paper.reading(protocol)
    sizes = list(paper.PANELS) if panels == "all" else paper.panel_sizes(panels)
    dims = sorted({dim for dim, _ in sizes})
    with _bars("bytes") as bar:
        pools = criteo.load(data, dims, protocol, seed, progress=bar("reading", 0).at)
    label = pools[dims[0]].source
    experiments = {
        f"(d, K) = ({d}, {k})": paper.experiment((d, k), protocol, pools[d], replications, seed)
        for d, k in sizes
    }
    played = _play(experiments, out, on)
    drawn = [figures.Panel(title, result, (reading.change,)) for title, result in played.items()]
    rows: list[dict[str, Cell]] = []
    claims: list[dict[str, Cell]] = []
    for size, result in zip(sizes, played.values(), strict=True):
        rows += paper.summary(size, result, reading)
        claims += paper.tally(paper.claims(size, result, reading.change))
    found = {
        "protocol": protocol,
        "data": label,
        "replications": replications,
        "seed": seed,
        "panels": rows,
        "claims": claims,
    }
    note = "" if data else label
    results.write(out, drawn, {**found, "note": note, "kind": "figure"})
    pictures = figures.save(figures.curves(drawn, note), out, "figure")
    if as_json:
        print(json.dumps({**found, "pictures": [str(p) for p in pictures]}, indent=2))
        return
    print(f"Protocol: {protocol}. Data: {label}. {replications} replications.\n")
    print(format_table(_rounded(rows)), "\n")
    print(format_table(_rounded(claims)), "\n")
    print(f"The picture is {pictures[0]}")


def simulate(
    plan: Annotated[Path | None, typer.Argument(help="A TOML file of worlds and policies.")] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help='A name, or "MEMORY * EXPLORATION"; repeatable.')
    ] = None,
    dim: Dim = 10,
    arms: Arms = 20,
    horizon: Horizon = 5000,
    drift: Drift = "",
    actions: Actions = "fresh()",
    reward: Reward = "gaussian(0.15)",
    replications: Annotated[int | None, typer.Option(min=1, help="Replications.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every draw.")] = None,
    out: Out = Path("out/simulation"),
    on: On = "threads",
    as_json: AsJson = False,
) -> None:
    """Play any policies in any worlds; stopped and called again, it goes on where it was."""
    from windvane.lab.output import figures, results
    from windvane.lab.studies.plan import Plan, changes_of, policies_from, read_plan

    if (plan is None) == (not policy):
        raise SettingError("simulate: give either a TOML file or at least one --policy")
    if plan is not None:
        chosen = read_plan(plan)
    else:
        place = _world(dim, arms, horizon, drift, actions, reward)
        chosen = Plan({"world": place}, policies_from(policy or []), 20, 1)
    chosen = chosen._replace(
        replications=replications or chosen.replications,
        seed=chosen.seed if seed is None else seed,
    )
    played = _play(chosen.experiments(), out, on)
    drawn = [
        figures.Panel(name, result, changes_of(chosen.worlds[name]))
        for name, result in played.items()
    ]
    rows = [row for name, result in played.items() for row in results.rows(name, result)]
    found: dict[str, Any] = {
        "worlds": {name: repr(world) for name, world in chosen.worlds.items()},
        "replications": chosen.replications,
        "seed": chosen.seed,
        "results": rows,
    }
    results.write(out, drawn, {**found, "note": "", "kind": "curves"})
    pictures = figures.save(figures.curves(drawn), out, "curves")
    _tell(found, rows, pictures, as_json)


def plot(
    directory: Annotated[Path, typer.Argument(help="What reproduce or simulate wrote.")],
) -> None:
    """Draw the picture of an earlier run again."""
    from windvane.lab.output import figures, results

    panels, summary = results.read(directory)
    figure = figures.curves(panels, str(summary.get("note", "")))
    pictures = figures.save(figure, directory, str(summary.get("kind", "curves")))
    print(f"The picture is {pictures[0]}")


def tune(
    memory: Annotated[str, typer.Option(help="discount, window or restart.")] = "discount",
    exploration: Annotated[str, typer.Option(help="What plays.")] = "thompson(0.4)",
    dim: Dim = 10,
    arms: Arms = 20,
    horizon: Horizon = 5000,
    drift: Drift = "",
    actions: Actions = "fresh()",
    reward: Reward = "gaussian(0.15)",
    replications: Count = 20,
    points: Annotated[int, typer.Option(min=3, help="Memories to try.")] = 13,
    seed: Seed = 1,
    out: Out = Path("out/tuning"),
    on: On = "threads",
    as_json: AsJson = False,
) -> None:
    """Draw the regret as a function of the memory, with theory's choices and the best marked."""
    from windvane.lab.output import figures
    from windvane.lab.studies import tuning

    place = _world(dim, arms, horizon, drift, actions, reward)
    search = tuning.search(memory, exploration, place, points)
    result = _play({"tuning": search.experiment(replications, seed)}, out, on)["tuning"]
    curve = search.curve(result)
    figure = figures.tuning(
        curve.values, curve.means, curve.errors, curve.marks, curve.axis, found=curve.found
    )
    out.mkdir(parents=True, exist_ok=True)
    pictures = figures.save(figure, out, "tuning")
    rows = curve.rows()
    found = {"world": repr(place), "exploration": exploration, "results": rows}
    (out / "tuning.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    _tell(found, rows, pictures, as_json)


def leaderboard(
    replications: Count = 20,
    data: Annotated[Path | None, typer.Option(help="The Criteo file (.tsv.gz).")] = None,
    seed: Seed = 1,
    out: Out = Path("out/leaderboard"),
    on: On = "threads",
    as_json: AsJson = False,
) -> None:
    """Play every named policy on one suite of worlds, and rank them."""
    from windvane.lab.output import figures, leaderboard_figure
    from windvane.lab.studies import criteo
    from windvane.lab.studies import leaderboard as board

    with _bars("bytes") as bar:
        pools = criteo.load(data, [10], "released", seed, progress=bar("reading", 0).at)[10]
    results = _play(board.experiments(pools, replications, seed), out, on)
    found = board.standings(results)
    rows = [standing.row(rank) for rank, standing in enumerate(found, 1)]
    told = {"replications": replications, "seed": seed, "data": pools.source, "results": rows}
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(told, indent=2, ensure_ascii=False)
    (out / "leaderboard.json").write_text(text + "\n", "utf-8")
    note = "" if data else f"ads: {pools.source}"
    pictures = figures.save(leaderboard_figure.ranking(found, note), out, "leaderboard")
    _tell(told, rows, pictures, as_json)


def _world(
    dim: int, arms: int, horizon: int, drift: str, actions: str, reward: str
) -> "worlds.World":
    from windvane.lab import worlds

    sizes = {"dim": dim, "arms": arms, "horizon": horizon}
    drift = drift or f"abrupt([{max(1, horizon // 2)}], flip=0.6)"
    return worlds.from_table({**sizes, "drift": drift, "actions": actions, "reward": reward})


def _tell(
    found: Mapping[str, Any], rows: list[dict[str, Cell]], pictures: list[Path], as_json: bool
) -> None:
    if as_json:
        print(json.dumps({**found, "pictures": [str(p) for p in pictures]}, indent=2))
    else:
        print(format_table(_rounded(rows)), f"\n\nThe picture is {pictures[0]}", sep="")


def _rounded(rows: list[dict[str, Cell]]) -> list[dict[str, Cell]]:
    """Numbers as a reader wants them: whole where large, two digits where small."""
    return [
        {
            name: value
            if not isinstance(value, float)
            else round(value)
            if abs(value) >= 100
            else float(f"{value:.2g}")
            if name == "p"
            else round(value, 6)
            for name, value in row.items()
        }
        for row in rows
    ]


def _play(experiments: Mapping[str, "Experiment"], out: Path, on: str) -> dict[str, "Result"]:
    """Run every experiment under a bar of its own; finished chunks survive an interruption."""
    from windvane.lab.running.experiment import run

    kept = out / "chunks"
    results = {}
    try:
        with _runner(on) as runner, _bars("replications") as bar:
            started = {
                name: bar(name, experiment.replications) for name, experiment in experiments.items()
            }
            for name, experiment in experiments.items():
                results[name] = run(experiment, runner, started[name].forward, kept)
    except KeyboardInterrupt:
        print(f"windvane: stopped; the same command goes on from what {out} keeps", file=sys.stderr)
        raise
    shutil.rmtree(kept, ignore_errors=True)
    return results


@contextmanager
def _runner(on: str) -> Iterator["Runner"]:
    """Where replications are played; a Ray is joined once for all of them."""
    if on == "threads":
        from windvane.lab.running.experiment import on_threads

        yield on_threads()
        return
    from windvane.lab.running.ray_runner import connected, on_ray

    runner = on_ray()
    with connected(None if on == "ray" else on):
        yield runner


class _Bar:
    """One line of progress."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task

    def forward(self, steps: int) -> None:
        """Count some more work as done."""
        self._progress.start_task(self._task)
        self._progress.advance(self._task, steps)

    def at(self, done: int, total: int) -> None:
        """Say how much is done of how much."""
        self._progress.start_task(self._task)
        self._progress.update(self._task, completed=done, total=total, visible=True)


@contextmanager
def _bars(unit: str) -> Iterator[Callable[[str, int], _Bar]]:
    """Bars on the screen with time left, and silence in a pipe."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield lambda name, total: _Bar(
            progress, progress.add_task(name, total=total, start=False, visible=total > 0)
        )
