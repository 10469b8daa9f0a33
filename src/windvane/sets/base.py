"""ActionSet: what every set of actions has in common."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.types import Floats


class Best(NamedTuple):
    """The best action of a set: its features and its name in the terms of the set.

    >>> import windvane as wv
    >>> wv.sets.subsets([[1.0, 0.0], [0.0, 1.0]], 1).best([0.1, 0.7]).action
    (1,)
    """

    features: Floats  # (d,)
    action: tuple[int, ...] | None = None  # items, edges or columns; None for a point


class ActionSet:
    """A set of actions whose best action for a given θ can be computed.

    A policy chooses from such a set without a list of its actions.

    >>> import windvane as wv
    >>> policy = wv.Policy(2, wv.keep(), wv.greedy())
    >>> policy.learn([3.0, 4.0], reward=1.0)
    >>> policy.choose(wv.sets.ball(2)).features
    array([0.6, 0.8])
    """

    def __init__(self, dim: int, text: str, find_best: Callable[[Floats], Best]) -> None:
        self.dim = dim
        self._text = text
        self._find_best = find_best  # for a θ of d finite numbers; can be pickled

    def __repr__(self) -> str:
        return self._text

    def best(self, theta: npt.ArrayLike) -> Best:
        """Return the action with the largest mean reward under θ: argmax ⟨x, θ⟩."""
        return self._find_best(validation.check_vector("best", "theta", theta, self.dim))


def normalize(vector: Floats) -> Floats:
    """Scale a vector to length 1; return the first axis if the vector is 0."""
    largest = np.abs(vector).max()
    if largest == 0.0:
        return np.eye(1, vector.size).ravel()
    scaled = vector / largest  # otherwise the squares of small numbers would be 0
    direction: Floats = scaled / np.sqrt(scaled @ scaled)
    return direction
