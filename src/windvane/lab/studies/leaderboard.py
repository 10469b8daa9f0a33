"""The leaderboard: every named policy on one suite of worlds.

What a policy loses in a world is given as a share of what playing at random loses there, so that
worlds count alike. Its score is the mean share over all worlds.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from windvane import memory as fade
from windvane._text_table import Cell
from windvane.exploration import epsilon
from windvane.lab import worlds
from windvane.lab.engines.linear import Player
from windvane.lab.running.experiment import Experiment, Result
from windvane.lab.studies import paper
from windvane.lab.studies.criteo import Pools
from windvane.lab.studies.paper import standard_error
from windvane.lab.studies.plan import player
from windvane.lab.worlds.definition import World
from windvane.names import NAMES
from windvane.types import Floats

DIM, ARMS, HORIZON = 10, 20, 4000
AT_RANDOM = "at random"
POINTS = 20


def suite(pools: Pools) -> dict[str, World]:
    """The worlds: four ways to move with fresh and with fixed arms, and the stand-in's change."""
    drifts = {
        "abrupt": worlds.abrupt([HORIZON // 2], flip=0.6),
        "slow": worlds.rotation(2.0 * math.pi),
        "periodic": worlds.periodic(HORIZON // 2),
        "stationary": worlds.stationary(),
    }
    places = {
        name if kind == "fresh" else f"{name}, fixed": worlds.world(
            DIM, ARMS, HORIZON, drift, worlds.fresh() if kind == "fresh" else worlds.fixed()
        )
        for kind in ("fresh", "fixed")
        for name, drift in drifts.items()
    }
    return {**places, "ads": paper.experiment((10, 10), "released", pools, 1, 1).world}


def experiments(pools: Pools, replications: int, seed: int) -> dict[str, Experiment]:
    """Every name in every world, tuned for it, and one who plays at random."""
    at_random = Player(AT_RANDOM, fade.keep(), epsilon(1.0))
    return {
        title: Experiment(
            (*(player({"name": name.name}, world) for name in NAMES), at_random),
            world,
            replications,
            seed,
            points=POINTS,
        )
        for title, world in suite(pools).items()
    }


class Standing(NamedTuple):
    """How a policy did."""

    name: str
    score: float  # mean share over the worlds
    error: float  # its standard error over replications
    shares: dict[str, float]  # by world

    def row(self, rank: int) -> dict[str, Cell]:
        """The standing as a row of a table, in per cent."""
        shares = {title: round(100.0 * share, 1) for title, share in self.shares.items()}
        score, error = round(100.0 * self.score, 1), round(100.0 * self.error, 2)
        return {"rank": rank, "policy": self.name, "score %": score, "±": error, **shares}


def standings(results: Mapping[str, Result]) -> list[Standing]:
    """Everyone's standing, the best first."""
    names = next(iter(results.values())).names
    shares: dict[str, Floats] = {}  # (players, replications) by world
    for title, result in results.items():
        end = result.regret[:, :, -1]
        shares[title] = end / end[names.index(AT_RANDOM)].mean()
    found = []
    for p, name in enumerate(names):
        each = np.mean([share[p] for share in shares.values()], axis=0)  # (replications,)
        by_world = {title: float(share[p].mean()) for title, share in shares.items()}
        found.append(Standing(name, float(each.mean()), standard_error(each), by_world))
    return sorted(found, key=lambda standing: standing.score)
