"""Laws of rewards, and draws: one replication of a world, with its arms, means and rewards."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import validation
from windvane.beliefs.links import IDENTITY, POISSON, mean
from windvane.errors import SettingError
from windvane.lab.worlds.drift import Eras
from windvane.types import Floats, Places

Picks = npt.NDArray[np.int32]
Marks = npt.NDArray[np.int64]


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
    table: Floats = np.empty((0, 0))  # (T, K) mean rewards instead of those that follow from θ
    logged: Places = np.empty(0, np.int64)  # (T,) the arm whose reward a log has, if it is a log

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.era)

    @property
    def dim(self) -> int:
        """d."""
        return int(self.theta.shape[1])

    @property
    def has_context(self) -> bool:
        """Whether `arms` are contexts, which arm k of K has in block k of its features."""
        return bool(self.arms.shape[1] < self.dim)

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


def compute_means(draw: Draw, t: int) -> Floats:
    """The mean reward of each arm in round t, (K,)."""
    if draw.table.size:
        row: Floats = draw.table[t]
        return row
    picks = draw.picks[t if len(draw.picks) > 1 else 0]
    scores = draw.arms[picks] @ draw.theta[draw.era[t]]
    return np.array([compute_mean(draw, score) for score in scores.tolist()])


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
