"""Sets of actions: arms that stay the same (`finite`), or actions too many to list.

For the latter, the best action for a θ is computed.

>>> from windvane.sets import ball
>>> ball(2).best([3.0, 4.0]).features
array([0.6, 0.8])
"""

from windvane.sets.base import ActionSet, Best
from windvane.sets.combinatorial import assignments, paths, subsets
from windvane.sets.continuous import ball, box, ellipsoid, oracle, polytope, simplex
from windvane.sets.finite_arms import Finite, finite

__all__ = [
    "ActionSet",
    "Best",
    "Finite",
    "assignments",
    "ball",
    "box",
    "ellipsoid",
    "finite",
    "oracle",
    "paths",
    "polytope",
    "simplex",
    "subsets",
]
