"""Draws: one replication of a world, and the arms, means and rewards of its rounds in NumPy."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane.beliefs.glm.links import IDENTITY, POISSON, mean
from windvane.lab.worlds.drift import Eras
from windvane.types import Floats

Picks = npt.NDArray[np.int32]
Marks = npt.NDArray[np.int64]


class Draw(NamedTuple):
    """One replication: all random quantities of a world, drawn before the first round."""

    theta: Floats  # (P, d) the distinct parameters
    era: Eras  # (T,) the row of `theta` that is the parameter of a round
    arms: Floats  # (N, d) all arms that can be offered
    picks: Picks  # (T, K) the rows of `arms` offered in a round; (1, K) if they never change
    noise: Floats  # (T,) added to the mean; for binary rewards and counts, uniform on [0, 1)
    binary: bool  # the reward is 1 if noise < mean, else 0
    centre: float  # mean = μ(centre + slope·⟨x, θ⟩), cut to [0, 1] for binary rewards
    slope: float
    link: int = IDENTITY  # the link function μ; with a Poisson link, rewards are counts

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
        """L = max ‖x‖ over all arms that can be offered."""
        return float(np.linalg.norm(self.arms, axis=1).max())


def list_arms(draw: Draw, t: int) -> Floats:
    """The arms of round t, (K, d)."""
    arms: Floats = draw.arms[draw.picks[t if len(draw.picks) > 1 else 0]]
    return arms


def compute_means(draw: Draw, t: int) -> Floats:
    """The mean reward of each arm in round t, (K,)."""
    scores = list_arms(draw, t) @ draw.theta[draw.era[t]]
    return np.array([compute_mean(draw, score) for score in scores.tolist()])


def compute_reward(draw: Draw, t: int, arm: int) -> float:
    """The reward of an arm in round t."""
    return realize_reward(draw, float(compute_means(draw, t)[arm]), float(draw.noise[t]))


def compute_mean(draw: Draw, score: float) -> float:
    """The mean reward μ(centre + slope·⟨x, θ⟩) of an arm with score ⟨x, θ⟩; binary: in [0, 1]."""
    expected = mean(draw.link, draw.centre + draw.slope * score)
    return min(max(expected, 0.0), 1.0) if draw.binary else expected


def realize_reward(draw: Draw, expected: float, noise: float) -> float:
    """The reward that a mean and the noise of a round give."""
    if draw.binary:
        return 1.0 if noise < expected else 0.0
    return invert_poisson(expected, noise) if draw.link == POISSON else expected + noise


def invert_poisson(expected: float, probability: float) -> float:
    """The least k at which the Poisson distribution function exceeds `probability`."""
    k = 0.0
    mass = math.exp(-expected)
    total = mass
    while total <= probability and mass > 0.0:
        k += 1.0
        mass *= expected / k
        total += mass
    return k


def compute_regret(draw: Draw, played: Iterable[int]) -> Floats:
    """The regret of each round for the arms played, (T,): max_x μ_t(x) − μ_t(x_t)."""
    rounds = ((compute_means(draw, t), arm) for t, arm in enumerate(played))
    return np.array([expected.max() - expected[arm] for expected, arm in rounds])
