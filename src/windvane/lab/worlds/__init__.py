"""Worlds: a drift of the parameter, a source of arms and a law of rewards."""

from windvane.lab.worlds.actions import Actions, ball, fixed, fresh, pools, routes
from windvane.lab.worlds.definition import World, world
from windvane.lab.worlds.drift import Drift, abrupt, periodic, rotation, stationary, walk
from windvane.lab.worlds.rewards import Reward, bernoulli, bounded, gaussian, poisson
from windvane.lab.worlds.table import from_table

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
