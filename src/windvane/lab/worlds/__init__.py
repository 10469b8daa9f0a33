"""Worlds: a drift of the parameter, a source of arms and a law of rewards."""

from windvane.lab.worlds.actions import Actions, ball, fixed, fresh, pools, routes
from windvane.lab.worlds.definition import World, from_table, world
from windvane.lab.worlds.draw import RewardLaw, bernoulli, bounded, gaussian, poisson
from windvane.lab.worlds.drift import Drift, abrupt, periodic, rotation, stationary, walk

__all__ = [
    "Actions",
    "Drift",
    "RewardLaw",
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
