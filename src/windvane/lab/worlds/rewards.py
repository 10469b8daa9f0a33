"""Rewards: how the score ⟨x, θ⟩ of an arm becomes a reward."""

import math
from dataclasses import dataclass

import numpy as np

from windvane import validation
from windvane.errors import SettingError
from windvane.types import Floats


@dataclass(frozen=True)
class RewardLaw:
    """The law of the rewards."""

    law: str
    parameter: float | str  # a variance, a radius, or the form of the mean

    @property
    def link(self) -> str:
        """The link function of the mean, apart from a shift and a scale."""
        links = {"logistic": "logistic", "exp": "poisson"}
        return links.get(str(self.parameter), "identity")

    def draw_noise(self, rounds: int, rng: np.random.Generator) -> Floats:
        """Draw the noise of every round; for clicks and counts it is uniform on [0, 1)."""
        if isinstance(self.parameter, str):
            return rng.random(rounds)
        if self.law == "bounded":
            return rng.uniform(-self.parameter, self.parameter, rounds)
        return rng.normal(0.0, math.sqrt(self.parameter), rounds)

    def __repr__(self) -> str:
        return "poisson()" if self.law == "poisson" else f"{self.law}({self.parameter!r})"


def gaussian(variance: float) -> RewardLaw:
    """The mean plus normal noise: y = ⟨x, θ⟩ + σz,  σ² = variance.

    >>> from windvane.lab.worlds import gaussian, world
    >>> noise = world(2, 2, 10_000, reward=gaussian(0.25)).draw(1).noise
    >>> round(float(noise.std()), 1)
    0.5
    """
    return RewardLaw("gaussian", validation.not_negative("gaussian", "variance", variance))


def bounded(radius: float) -> RewardLaw:
    """The mean plus uniform noise: y = ⟨x, θ⟩ + u,  u uniform on [−radius, radius].

    >>> from windvane.lab.worlds import bounded, world
    >>> noise = world(2, 2, 10_000, reward=bounded(0.5)).draw(1).noise
    >>> round(float(noise.max()), 1)
    0.5
    """
    return RewardLaw("bounded", validation.not_negative("bounded", "radius", radius))


def bernoulli(mean: str = "affine") -> RewardLaw:
    """1 with probability μ, else 0. Regret is counted in μ.

    affine: μ = ½ + ⟨x, θ⟩/(2SL), always in [0, 1];  clip: μ = min(1, max(0, ⟨x, θ⟩))
    logistic: μ = 1/(1 + exp(−⟨x, θ⟩))

    >>> from windvane.lab.worlds import bernoulli, fixed, world
    >>> from windvane.lab.worlds.draw import compute_means
    >>> arms = fixed([[1, 0], [0, 1]])
    >>> clipped = world(2, 2, 9, actions=arms, reward=bernoulli("clip"), start=[0.7, -0.2])
    >>> compute_means(clipped.draw(1), 0)
    array([0.7, 0. ])
    """
    if mean not in ("affine", "clip", "logistic"):
        raise SettingError(f"bernoulli: mean must be 'affine', 'clip' or 'logistic', got {mean!r}")
    return RewardLaw("bernoulli", mean)


def poisson() -> RewardLaw:
    """A count with mean μ = exp(⟨x, θ⟩). Regret is counted in μ.

    >>> from windvane.lab.worlds import fixed, poisson, world
    >>> from windvane.lab.worlds.draw import compute_means
    >>> arms = fixed([[1, 0], [0, 1]])
    >>> counts = world(2, 2, 9, actions=arms, reward=poisson(), start=[0.0, 1.0])
    >>> compute_means(counts.draw(1), 0).round(3)
    array([1.   , 2.718])
    """
    return RewardLaw("poisson", "exp")
