"""Draws: one replication of a world, and how a round of it is played in plain NumPy."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.glm.links import IDENTITY, POISSON, mean
from windvane.lab.worlds.drift import Eras
from windvane.types import Floats

Picks = npt.NDArray[np.int32]
Marks = npt.NDArray[np.int64]


class Draw(NamedTuple):
    """One replication: everything that chance decides, before the first round."""

    theta: Floats  # (P, d) the distinct parameters
    era: Eras  # (T,) the row of theta that holds in a round
    arms: Floats  # (N, d) every vector that may be offered
    picks: Picks  # (T, K) the rows of arms offered in a round; (1, K) when they never change
    noise: Floats  # (T,) added to the mean; for clicks and counts, uniform on [0, 1)
    binary: bool  # the reward is 1 where noise < mean, else 0
    centre: float  # mean = μ(centre + slope·⟨x, θ⟩), cut to [0, 1] for binary rewards
    slope: float
    link: int = IDENTITY  # of μ; a Poisson link draws counts

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.era)

    @property
    def dim(self) -> int:
        """d."""
        return int(self.theta.shape[1])

    @property
    def variation(self) -> float:
        """B = Σ ‖θ_{t+1} − θ_t‖."""
        last = np.flatnonzero(np.diff(self.era))  # rounds before a change
        steps = self.theta[self.era[last + 1]] - self.theta[self.era[last]]
        return float(np.linalg.norm(steps, axis=1).sum())

    @property
    def theta_norm(self) -> float:
        """S = max ‖θ‖."""
        return float(np.linalg.norm(self.theta, axis=1).max())

    @property
    def arm_norm(self) -> float:
        """L = max ‖x‖ over every vector that may be offered."""
        return float(np.linalg.norm(self.arms, axis=1).max())


def offered(draw: Draw, t: int) -> Floats:
    """The arms of round t, one a row."""
    arms: Floats = draw.arms[draw.picks[t if len(draw.picks) > 1 else 0]]
    return arms


def means(draw: Draw, t: int) -> Floats:
    """The mean reward of each arm in round t: μ_t(x) = μ(centre + slope·⟨x, θ_t⟩)."""
    scores = draw.centre + draw.slope * (offered(draw, t) @ draw.theta[draw.era[t]])
    found = np.array([mean(draw.link, score) for score in scores.tolist()])
    return np.clip(found, 0.0, 1.0) if draw.binary else found


def payoff(draw: Draw, t: int, arm: int) -> float:
    """The reward of an arm in round t."""
    return paid(draw, float(means(draw, t)[arm]), float(draw.noise[t]))


def paid(draw: Draw, expected: float, noise: float) -> float:
    """The reward that the noise of a round makes of a mean."""
    if draw.binary:
        return float(noise < expected)
    return count(expected, noise) if draw.link == POISSON else expected + noise


def count(mean: float, chance: float) -> float:
    """The least k at which the distribution function of a Poisson law exceeds `chance`."""
    k, mass = 0.0, math.exp(-mean)
    reached = mass
    while reached <= chance and mass > 0.0:
        k += 1.0
        mass *= mean / k
        reached += mass
    return k


def regret(draw: Draw, played: Iterable[int]) -> Floats:
    """What the arms played fell short, round by round: max_x μ_t(x) − μ_t(x_t)."""
    rounds = ((means(draw, t), arm) for t, arm in enumerate(played))
    return np.array([found.max() - found[arm] for found, arm in rounds])
