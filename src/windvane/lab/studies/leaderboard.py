"""The leaderboard: every named policy in one suite of worlds.

The regret of a policy in a world is divided by the regret of playing at random there, so that all
worlds count alike. The score of a policy is the mean of these shares over all worlds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from windvane import validation
from windvane.exploration import epsilon
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.output.panels import read_json, write_json
from windvane.lab.output.tables import Standing, from_row, standard_error
from windvane.lab.progress import Report, TaskProgress, open_report
from windvane.lab.running.batch import run_all
from windvane.lab.running.experiment import Experiment, ExperimentResult
from windvane.lab.studies import criteo, paper
from windvane.lab.studies.criteo_features import Pools
from windvane.lab.studies.criteo_standin import STAND_IN
from windvane.lab.studies.plan import describe_problem, make_player
from windvane.lab.studies.result import StudyResult, count_noun
from windvane.lab.worlds import World
from windvane.memory import keep
from windvane.names import NAMES
from windvane.types import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIM = 10
ARMS = 20
HORIZON = 4000
AT_RANDOM = "at random"
POINTS_PER_CURVE = 20
LEADERBOARD_FILE = "leaderboard.json"


@dataclass(frozen=True, eq=False, repr=False)
class Leaderboard(StudyResult):
    """The result of `leaderboard`.

    `standings` has one row for each policy, the best first: rank, policy, score %,
    ± (the standard error of the score), and the share of each world, all in per cent of the regret
    of playing at random. The file holds rounded numbers, so a result that was read has them too.
    """

    replications: int
    seed: int
    data: str  # the name of the data file, or STAND_IN
    places: tuple[Standing, ...]  # the best first

    picture = "leaderboard"

    @property
    def standings(self) -> pl.DataFrame:
        """The standings in per cent, rounded."""
        rows = [standing.row(rank) for rank, standing in enumerate(self.places, 1)]
        return pl.DataFrame(rows, infer_schema_length=None)

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The standings."""
        return {"standings": self.standings}

    def describe(self) -> str:
        """Return one line that says what was played."""
        policies = count_noun(len(self.places), "policy", "policies")
        replications = count_noun(self.replications, "replication")
        return f"{policies}, {replications}, seed {self.seed}, ads: {self.data}"

    def to_dict(self) -> dict[str, Any]:
        """Return replications, seed, data and results (the rows of `standings`)."""
        return {
            "replications": self.replications,
            "seed": self.seed,
            "data": self.data,
            "results": self.standings.to_dicts(),
        }

    def figure(self) -> "Figure":
        """Draw the scores as bars, and the share of each world as a marker."""
        from windvane.lab.output.figures import draw_leaderboard

        return draw_leaderboard(self.places, f"ads: {STAND_IN}" if self.data == STAND_IN else "")

    def write(self, folder: Path) -> None:
        """Write leaderboard.json."""
        write_json(folder / LEADERBOARD_FILE, self.to_dict())

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the file that `save` or `windvane leaderboard` wrote."""
        document = read_json(folder / LEADERBOARD_FILE)
        places = tuple(from_row(row) for row in document["results"])
        return cls(document["replications"], document["seed"], document["data"], places)


def leaderboard(
    replications: int = 20,
    data: str | PathLike[str] | None = None,
    seed: int = 1,
    *,
    on: str = "threads",
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Report = False,
) -> Leaderboard:
    """Play every named policy in a suite of nine worlds, and rank them.

    `data` is the path of the Criteo file; without it, stand-in data is generated. `on`,
    `checkpoint` and `progress` are those of `simulate`.
    """
    replications = validation.whole("leaderboard", "replications", replications)
    with open_report(progress) as report:

        def report_bytes(done: int, total: int) -> None:
            report(TaskProgress("reading", done, total, "bytes"))

        pools = criteo.load_pools(data, [10], "released", seed, progress=report_bytes)[10]
        results = run_all(make_experiments(pools, replications, seed), on, report, checkpoint)
    return Leaderboard(replications, seed, pools.source, tuple(rank_policies(results)))


def make_suite(pools: Pools) -> dict[str, World]:
    """Make the worlds: four drifts with fresh and with fixed arms, and the paper's change."""
    drifts = {
        "abrupt": worlds.abrupt([HORIZON // 2], flip=0.6),
        "slow": worlds.rotation(2.0 * math.pi),
        "periodic": worlds.periodic(HORIZON // 2),
        "stationary": worlds.stationary(),
    }
    suite = {
        name + suffix: worlds.world(DIM, ARMS, HORIZON, drift, actions)
        for suffix, actions in (("", worlds.fresh()), (", fixed", worlds.fixed()))
        for name, drift in drifts.items()
    }
    return {**suite, "ads": paper.make_experiment((10, 10), "released", pools, 1, 1).world}


def make_experiments(pools: Pools, replications: int, seed: int) -> dict[str, Experiment]:
    """Make one experiment a world: every named policy, tuned for it, and playing at random."""
    return {
        title: Experiment(make_players(world), world, replications, seed, points=POINTS_PER_CURVE)
        for title, world in make_suite(pools).items()
    }


def make_players(world: World) -> tuple[Player, ...]:
    """Make a player of every name, tuned for a world, and one that plays at random."""
    problem = describe_problem(world)
    named = (make_player({"name": name.name}, world, problem) for name in NAMES)
    return *named, Player(AT_RANDOM, keep(), epsilon(1.0))


def rank_policies(results: Mapping[str, ExperimentResult]) -> list[Standing]:
    """Return the standing of every policy, the best first."""
    names = next(iter(results.values())).names
    shares: dict[str, Floats] = {}  # (players, replications) by world
    for title, result in results.items():
        end = result.regret[:, :, -1]
        shares[title] = end / end[names.index(AT_RANDOM)].mean()
    standings = []
    for p, name in enumerate(names):
        scores = np.mean([share[p] for share in shares.values()], axis=0)  # (replications,)
        by_world = {title: float(share[p].mean()) for title, share in shares.items()}
        standings.append(Standing(name, float(scores.mean()), standard_error(scores), by_world))
    return sorted(standings, key=lambda standing: standing.score)
