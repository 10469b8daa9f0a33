"""Sets of actions that are too many to list: the best action for a θ is computed.

>>> from windvane.sets import ball
>>> ball(2).best([3.0, 4.0]).features
array([0.6, 0.8])
"""

from windvane.sets.base import ActionSet, Best
from windvane.sets.combinatorial import assignments, paths, subsets
from windvane.sets.continuous import ball, box, ellipsoid, oracle, polytope, simplex

__all__ = [
    "ActionSet",
    "Best",
    "assignments",
    "ball",
    "box",
    "ellipsoid",
    "oracle",
    "paths",
    "polytope",
    "simplex",
    "subsets",
]
