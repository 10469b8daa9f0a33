"""The leaderboard: every named policy in one suite of worlds.

The regret of a policy in a world is divided by the regret of playing at random there, so that all
worlds count alike. The score of a policy is the mean of these shares over all worlds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import polars as pl

from windvane import validation
from windvane.exploration import epsilon
from windvane.lab import worlds
from windvane.lab.engines.game import Player
from windvane.lab.experiments import Experiment, ExperimentResult, Report, open_report, run_all
from windvane.lab.studies import criteo, reproduction
from windvane.lab.studies.criteo import STAND_IN, Pools
from windvane.lab.studies.plan import describe_problem, make_player
from windvane.lab.studies.result import StudyResult, count_noun, standard_error
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


@dataclass(frozen=True, eq=False, repr=False)
class Leaderboard(StudyResult):
    """The result of `leaderboard`.

    `standings` has one row for each policy, the best first: rank, policy, score %,
    ± (the standard error of the score), and the share of each world, all in per cent of the regret
    of playing at random, rounded.
    """

    replications: int
    seed: int
    data: str  # the name of the data file, or STAND_IN
    standings: pl.DataFrame

    file = "leaderboard.json"
    picture = "leaderboard"
    keys: ClassVar = {"standings": "results"}

    def describe(self) -> str:
        """Return one line that says what was played."""
        policies = count_noun(self.standings.height, "policy", "policies")
        replications = count_noun(self.replications, "replication")
        return f"{policies}, {replications}, seed {self.seed}, ads: {self.data}"

    def figure(self) -> "Figure":
        """Draw the scores as bars, and the share of each world as a marker."""
        from windvane.lab.studies.figures import draw_leaderboard

        return draw_leaderboard(self.standings, f"ads: {STAND_IN}" if self.data == STAND_IN else "")


def leaderboard(
    replications: int = 20,
    data: str | PathLike[str] | None = None,
    seed: int = 1,
    *,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Report = False,
) -> Leaderboard:
    """Play every named policy in a suite of nine worlds, and rank them.

    `data` is the path of the Criteo file; without it, stand-in data is generated. `checkpoint`
    and `progress` are those of `simulate`.
    """
    replications = validation.whole("leaderboard", "replications", replications)
    with open_report(progress) as report:
        pools = criteo.load_pools(data, [10], "released", seed, progress=report)[10]
        experiments = {
            title: Experiment(make_players(world), world, replications, seed, POINTS_PER_CURVE)
            for title, world in make_suite(pools).items()
        }
        results = run_all(experiments, report, checkpoint)
    return Leaderboard(replications, seed, pools.source, rank_policies(results))


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
    return {**suite, "ads": reproduction.make_experiment((10, 10), "released", pools, 1, 1).world}


def make_players(world: World) -> tuple[Player, ...]:
    """Make a player of every name, tuned for a world, and one that plays at random."""
    problem = describe_problem(world)
    named = (make_player({"name": name.name}, world, problem) for name in NAMES)
    return *named, Player(AT_RANDOM, keep(), epsilon(1.0))


def rank_policies(results: Mapping[str, ExperimentResult]) -> pl.DataFrame:
    """Return the standings, the best policy first."""
    names = next(iter(results.values())).names
    shares: dict[str, Floats] = {}  # (players, replications) by world
    for title, result in results.items():
        end = result.regret[:, :, -1]
        shares[title] = 100.0 * end / end[names.index(AT_RANDOM)].mean()
    scores = np.mean([*shares.values()], axis=0)  # (players, replications)
    return pl.DataFrame(
        [
            {
                "rank": rank,
                "policy": names[p],
                "score %": round(float(scores[p].mean()), 1),
                "±": round(standard_error(scores[p]), 2),
                **{title: round(float(share[p].mean()), 1) for title, share in shares.items()},
            }
            for rank, p in enumerate(np.argsort(scores.mean(axis=1), kind="stable"), 1)
        ]
    )
