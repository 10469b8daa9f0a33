"""The value of a policy these days: old decisions fade with a half-life.

At a time t that is fixed beforehand, decision i has the weight g_i = 2^(−(t − t_i)/h). With X and X̂
of `confidence_sequence.py` for the sides `low` and `high`, and any λ in (0, 1),

    exp( λ Σ g_i (X_i − ν_i) − Σ ψ(λ g_i) (X_i − X̂_i)² ),   ψ(λ) = −log(1−λ) − λ

is at most 1 in the mean, and so is the average of this number over several λ. So with probability
1 − α/2 the mean Σ g_i ν_i / Σ g_i is at least (Σ g_i X_i − s) / Σ g_i, for the s at which the
average of exp(λ s − Σ ψ(λ g_i)(X_i − X̂_i)²) is 2/α. Here X̂_i is the mean of the X before, with the
same half-life, and at most 1.

ψ(λ g) is the series Σ_{k≥2} (λ g)^k/k. The sums Σ g_i^k (X_i − X̂_i)² fade by a factor when time
goes on, so that no decision has to be kept. The series ends at LAST_POWER, and a bound of its rest
is added.
"""

import math
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from windvane.evaluation.estimates.estimators import UNIT_RANGE, RewardRange
from windvane.types import Floats

LAST_POWER = 8  # last power in the series of ψ
POWERS = np.arange(2, LAST_POWER + 2)  # the last one is for the bound of the rest
LARGEST_LAMBDA = 0.5
DEVIATIONS = 2.0 ** np.arange(-3, 4)  # standard deviations of X; each is best for one of the λ
MAX_STEPS = 100
TOLERANCE = 1e-12  # relative
FADING = ("mass", "plain_mass", "sums", "plain", "weight", "plain_weight")  # halve in a half-life
CORNERS = 5  # products: low², high², low·(w−1), high·(w−1), (w−1)²


@dataclass(eq=False)
class RecentSums:
    """Fading sums of one policy; the leading axes of (..., n) are independent logs.

    >>> sums = RecentSums(half_life=3600.0)
    >>> rng = np.random.default_rng(1)
    >>> times = np.arange(20_000.0)
    >>> rewards = (rng.random(20_000) < np.where(times < 10_000, 0.2, 0.6)).astype(float)
    >>> sums.update(times, rewards, np.ones(20_000))
    >>> low, high = sums.bound_value(alpha=0.05)
    >>> bool(low < 0.56 < high), round(float(sums.estimate_value()), 2)
    (True, 0.55)
    """

    half_life: float  # seconds
    range: RewardRange = UNIT_RANGE
    at: float = -math.inf  # t, the latest time so far
    largest_coefficient: float = 0.0
    mass: float = 0.0  # Σ g b
    squared_mass: float = 0.0  # Σ (g b)²
    plain_mass: float = 0.0  # Σ g
    sums: Floats = field(default_factory=lambda: np.zeros(2))  # (..., 2) Σ g b X of low, high
    plain: Floats = field(default_factory=lambda: np.zeros(2))  # (..., 2) Σ g X
    weight: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ g b w
    plain_weight: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ g w
    products: Floats = field(  # (..., powers, 5) Σ (g b)^k of the products named at CORNERS
        default_factory=lambda: np.zeros((len(POWERS), CORNERS))
    )

    def update(
        self,
        times: Floats,  # (n,) seconds
        rewards: Floats,  # (..., n) inside the range
        weights: Floats,  # (..., n)
        coefficients: Floats | None = None,  # (n,)
    ) -> None:
        """Add decisions in the order of the log."""
        if len(times) == 0:
            return
        self.fade(max(self.at, float(times.max())))
        fading = np.exp2((times - self.at) / self.half_life)  # g
        counted = fading if coefficients is None else fading * coefficients  # g b
        low = weights * ((rewards - self.range.low) / self.range.width)
        terms = (low, weights - low)
        before = self.plain_mass + np.cumsum(fading)  # with the current decision as a prior
        excess = weights - 1
        surprises = []
        sums, plain = [], []
        for side, values in enumerate(terms):
            faded = fading * values
            earlier = np.cumsum(faded, axis=-1)
            plain.append(earlier[..., -1].copy())
            earlier -= faded
            earlier += self.plain[..., side, None] + fading / 2
            with np.errstate(divide="ignore", invalid="ignore"):
                earlier /= before
            earlier = np.where(before > 0, earlier, 0.5)  # both are 0 in the far past
            surprises.append(values - np.minimum(earlier, 1.0))
            sums.append(plain[-1] if coefficients is None else np.sum(counted * values, axis=-1))
        low, high = surprises
        products = [low**2, high**2, low * excess, high * excess, excess**2]
        corners = np.stack(products, axis=-2)  # (..., 5, n)
        powers, power = [], counted
        for _ in POWERS:
            power = power * counted
            powers.append(np.einsum("...ji,i->...j", corners, power))
        self.products = self.products + np.stack(powers, axis=-2)
        self.sums = self.sums + np.stack(sums, axis=-1)
        self.plain = self.plain + np.stack(plain, axis=-1)
        self.weight = self.weight + np.sum(counted * weights, axis=-1)
        self.plain_weight = self.plain_weight + np.sum(fading * weights, axis=-1)
        self.mass += float(counted.sum())
        self.squared_mass += float(np.einsum("i,i->", counted, counted))
        self.plain_mass += float(fading.sum())
        largest = 1.0 if coefficients is None else float(coefficients.max())
        self.largest_coefficient = max(self.largest_coefficient, largest)

    def fade(self, at: float) -> None:
        """Let the sums fade until a later time."""
        if at == self.at:
            return
        factor = 2.0 ** ((self.at - at) / self.half_life) if self.at > -math.inf else 0.0
        self.at = at
        for name in FADING:
            setattr(self, name, getattr(self, name) * factor)
        self.squared_mass *= factor**2
        self.products = self.products * (factor**POWERS)[:, None]

    def widen(self, range: RewardRange) -> None:
        """Compute the sums of a wider range of rewards, as `ConfidenceSequence.widen` does."""
        if range == self.range:
            return
        ratio = self.range.width / range.width
        shifts = np.array([self.range.low - range.low, range.high - self.range.high]) / range.width
        squares = self.products[..., 4, None]
        crossed = self.products[..., 2:4]
        both = ratio**2 * self.products[..., :2] + 2 * ratio * shifts * crossed
        parts = [both + shifts**2 * squares, ratio * crossed + shifts * squares, squares]
        self.products = np.concatenate(parts, axis=-1)
        self.sums = ratio * self.sums + shifts * self.weight[..., None]
        self.plain = ratio * self.plain + shifts * self.plain_weight[..., None]
        self.range = range

    def merge(self, other: "RecentSums") -> None:
        """Add the sums of another part of the log, with the same half-life; no wider range."""
        if other.mass == 0:
            return
        at = max(self.at, other.at)
        self.fade(at)
        other = copy(other)  # `widen` and `fade` replace arrays, and never change them
        other.widen(self.range)
        other.fade(at)
        for name in (*FADING, "squared_mass", "products"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest_coefficient = max(self.largest_coefficient, other.largest_coefficient)

    def estimate_value(self) -> Floats:
        """The SNIPS estimate with fading weights, Σ g w r / Σ g w, (...,); NaN if Σ g w = 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = self.sums[..., 0] / self.weight
        return self.range.low + self.range.width * scaled

    def bound_value(self, alpha: float = 0.05) -> tuple[Floats, Floats]:
        """The ends of the interval of Σ g ν / Σ g at the latest time, (...,) each."""
        sides = (self._bound_below(side, alpha / 2) for side in (0, 1))
        return self.range.unscale_value(*sides)

    def _bound_below(self, side: int, alpha: float) -> Floats:
        largest = self.largest_coefficient
        goal = math.log(1 / alpha)
        deviations = DEVIATIONS * math.sqrt(self.squared_mass) / largest
        lambdas = np.minimum(LARGEST_LAMBDA, math.sqrt(2 * goal) / deviations)  # (J,)
        scaled = self.products[..., side] / largest**POWERS  # (..., powers)
        series = lambdas[:, None] ** POWERS / POWERS  # (J, powers)
        series[:, -1] /= 1 - lambdas  # Σ_{k≥K} x^k/k ≤ x^K / (K (1 − x))
        costs = np.einsum("...k,jk->...j", np.maximum(scaled, 0), series)
        deviation = _find_deviation(lambdas, costs, goal + math.log(len(lambdas)))
        return (self.sums[..., side] - largest * deviation) / self.mass


def _find_deviation(lambdas: Floats, costs: Floats, goal: float) -> Floats:
    """The s at which log Σ_j exp(λ_j s − cost_j) is the goal, (...,).

    The logarithm is convex and increasing in s, and one of its terms alone reaches the goal at
    the first s, so Newton's method falls monotonically to the root.
    """
    s = np.min((costs + goal) / lambdas, axis=-1)
    for _ in range(MAX_STEPS):
        exponents = lambdas * s[..., None] - costs
        top = exponents.max(axis=-1)
        shares = np.exp(exponents - top[..., None])
        total = shares.sum(axis=-1)
        step = (top + np.log(total) - goal) * total / (shares * lambdas).sum(axis=-1)
        s = s - step
        if (step <= TOLERANCE * s).all():
            break
    result: Floats = s
    return result
