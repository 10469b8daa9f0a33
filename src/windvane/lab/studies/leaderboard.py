"""The leaderboard: every named policy, and those of your own, in one suite of worlds.

The regret of a policy in a world is divided by the regret of playing at random there, so that all
worlds count alike. The score of a policy is the mean of these shares over all worlds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import polars as pl

from windvane import validation
from windvane.exploration import epsilon
from windvane.lab import worlds as kinds
from windvane.lab.engines.game import Player
from windvane.lab.experiments import Experiment, ExperimentResult, Report, open_report, run_all
from windvane.lab.studies import criteo, plan, reproduction
from windvane.lab.studies.criteo import STAND_IN, Pools
from windvane.lab.studies.plan import PolicySpec, WorldSpec, make_player, read_policies
from windvane.lab.studies.result import (
    Panel,
    StudyResult,
    compare_policies,
    count_noun,
    list_curves,
    standard_error,
)
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
    of playing at random, rounded. `shares` has one row for each replication: world, policy,
    replication, regret (at the end), share % (not rounded).
    """

    replications: int
    seed: int
    data: str  # the name of the data file, or STAND_IN; empty without the world of ads
    standings: pl.DataFrame
    shares: pl.DataFrame

    file = "leaderboard.json"
    picture = "leaderboard"
    keys: ClassVar = {"standings": "results"}
    long_frames = ("shares",)

    def describe(self) -> str:
        policies = count_noun(self.standings.height, "policy", "policies")
        replications = count_noun(self.replications, "replication")
        ads = f", ads: {self.data}" if self.data else ""
        return f"{policies}, {replications}, seed {self.seed}{ads}"

    def compare(self, reference: str = "") -> pl.DataFrame:
        """Test in pairs whether policies differ in their score; as `Simulation.compare`.

        The score of a replication is the mean of its shares over all worlds; `world` is "all".
        """
        names = tuple(self.shares["policy"].unique(maintain_order=True))
        scores = self.shares.group_by("policy", "replication", maintain_order=True)
        numbers = scores.agg(pl.mean("share %"))["share %"].to_numpy().reshape(len(names), -1)
        return compare_policies(names, {"all": numbers}, reference)

    def figure(self) -> "Figure":
        """Draw the scores as bars, and the share of each world as a marker."""
        from windvane.lab.studies.figures import draw_leaderboard

        return draw_leaderboard(self.standings, f"ads: {STAND_IN}" if self.data == STAND_IN else "")


def leaderboard(
    replications: int = 20,
    data: str | PathLike[str] | None = None,
    seed: int = 1,
    *,
    policies: PolicySpec | Sequence[PolicySpec] | None = None,
    also: PolicySpec | Sequence[PolicySpec] = (),
    worlds: WorldSpec | Sequence[str] | Mapping[str, WorldSpec] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Report = False,
) -> Leaderboard:
    """Play policies in worlds, by default every named one in a suite of nine, and rank them.

    `data` is the path of the Criteo file; without it, stand-in data is generated. `policies` and
    `worlds` replace the default ones, and `also` adds policies; all of them, `checkpoint` and
    `progress` are those of `simulate`.
    """
    replications = validation.whole("leaderboard", "replications", replications)
    seed = validation.whole("leaderboard", "seed", seed, least=0)
    tables = read_policies([name.name for name in NAMES] if policies is None else policies)
    tables += read_policies(also) if also else []
    with open_report(progress) as report:
        if worlds is None:
            pools = criteo.load_pools(data, [10], "released", seed, progress=report)[10]
        suite = make_suite(pools) if worlds is None else plan.read_worlds(worlds)
        experiments = {
            name: Experiment(
                make_players(world, tables), world, replications, seed, POINTS_PER_CURVE
            )
            for name, world in suite.items()
        }
        results = run_all(experiments, report, checkpoint)
    shares, source = share_regret(results), pools.source if worlds is None else ""
    return Leaderboard(replications, seed, source, rank_policies(shares), shares)


def make_suite(pools: Pools) -> dict[str, World]:
    """Make the worlds: four drifts with fresh and with fixed arms, and the paper's change."""
    drifts = {
        "abrupt": kinds.abrupt([HORIZON // 2], flip=0.6),
        "slow": kinds.rotation(2.0 * math.pi),
        "periodic": kinds.periodic(HORIZON // 2),
        "stationary": kinds.stationary(),
    }
    suite = {
        name + suffix: kinds.world(DIM, ARMS, HORIZON, drift, actions)
        for suffix, actions in (("", kinds.fresh()), (", fixed", kinds.fixed()))
        for name, drift in drifts.items()
    }
    return {**suite, "ads": reproduction.make_experiment((10, 10), "released", pools, 1, 1).world}


def make_players(world: World, tables: Sequence[Mapping[str, object]]) -> tuple[Player, ...]:
    """Make a player of every policy, tuned for a world, and one that plays at random."""
    problem = plan.describe_problem(world)
    players = [make_player(table, world, problem) for table in tables]
    return plan.check_names([*players, Player(AT_RANDOM, keep(), epsilon(1.0))])


def share_regret(results: Mapping[str, ExperimentResult]) -> pl.DataFrame:
    """Return the end regret of every replication, and its share of the mean regret at random."""
    curves = pl.concat([list_curves(Panel(world, result)) for world, result in results.items()])
    ends = curves.filter(pl.col("rounds") == pl.col("rounds").max().over("world")).drop("rounds")
    at_random = pl.col("regret").filter(pl.col("policy") == AT_RANDOM).mean().over("world")
    return ends.with_columns((100.0 * pl.col("regret") / at_random).alias("share %"))


def rank_policies(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the standings, the best policy first."""
    names = frame["policy"].unique(maintain_order=True).to_list()
    shares: dict[str, Floats] = {  # (players, replications) by world
        str(world): rows["share %"].to_numpy().reshape(len(names), -1)
        for (world,), rows in frame.group_by("world", maintain_order=True)
    }
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
