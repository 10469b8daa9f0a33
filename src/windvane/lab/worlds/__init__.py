"""Worlds: what a simulation plays against, as actions, a drift of the parameter and rewards."""

from windvane.lab.worlds.definition import (
    Actions,
    Reward,
    World,
    ball,
    bernoulli,
    bounded,
    fixed,
    fresh,
    from_table,
    gaussian,
    poisson,
    pools,
    routes,
    world,
)
from windvane.lab.worlds.drift import Drift, abrupt, periodic, rotation, stationary, walk

__all__ = [
    "Actions",
    "Drift",
    "Reward",
    "World",
    "abrupt",
    "ball",
    "bernoulli",
    "bounded",
    "fixed",
    "fresh",
    "from_table",
    "gaussian",
    "periodic",
    "poisson",
    "pools",
    "rotation",
    "routes",
    "stationary",
    "walk",
    "world",
]
