"""Intervals of the value of a policy that hold at every moment.

Rewards are scaled to [0, 1]. Each decision gives four numbers, whose conditional means are

| side    | X_i               | mean of X_i      | X_i ≥ −ℓ |
|---------|-------------------|------------------|----------|
| `low`   | w r               | ν_i              | ℓ = 0    |
| `high`  | w (1 − r)         | 1 − ν_i          | ℓ = 0    |
| `above` | (w − 1) r         | ν_i − b_i        | ℓ = 1    |
| `below` | (w − 1) (1 − r)   | b_i − ν_i        | ℓ = 1    |

ν_i is the value of the policy for decision i and b_i the value of the policy that logged it. Both
may drift, and the logging may adapt to the past. With coefficients g_i in (0, 1], known before the
reward, mostly 1, the mean of all X up to now is bounded from below by the following number, at all
times with probability 1 − α/2.

    (S − (1+ℓ) boundary(V/(1+ℓ)², α/2)) / Σ g_i,   S = Σ g_i X_i,   V = Σ g_i² (X_i − X̂_i)²
    X̂_i = min(1, (c + Σ_{j<i} X_j) / i),   c = ½ for `low` and `high`, 0 for `above` and `below`

`low` and `high` bound the running mean of ν_i, `above` and `below` its gain over the logged policy.
Coefficients of any size are divided by the largest.

S, V and Σ g add over parts of a log that are summed apart. X̂ starts again in each part: it may be
any number that is known before X_i, and what came before in the same part is known.

Waudby-Smith, Wu, Ramdas, Karampatziakis & Mineiro (2024), "Anytime-valid off-policy inference for
contextual bandits"; Karampatziakis, Mineiro & Ramdas (2021), "Off-policy confidence sequences".
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from windvane.evaluation.mixture_boundary import find_boundary
from windvane.types import Floats

LOW, HIGH, ABOVE, BELOW = range(4)  # the sides
FLOORS = np.array([0.0, 0.0, 1.0, 1.0])  # ℓ of each side
PRIORS = np.array([0.5, 0.5, 0.0, 0.0])  # c of each side
NO_ROWS = np.zeros(4)


class RewardRange(NamedTuple):
    """The smallest and the largest reward that is possible."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """The distance between the ends."""
        return self.high - self.low

    def contains(self, other: "RewardRange") -> bool:
        """Whether another range lies inside this one."""
        return self.low <= other.low and other.high <= self.high


UNIT_RANGE = RewardRange(0.0, 1.0)


@dataclass(eq=False)
class ConfidenceSequence:
    """Four one-sided sums, from which value and gain are bounded at any time.

    `update` may be called with rewards and weights of shape (..., n): the leading axes are
    independent logs, such as the runs of a simulation.

    >>> sequence = ConfidenceSequence()
    >>> rng = np.random.default_rng(1)
    >>> logged = rng.integers(2, size=4000)                          # two actions, p = ½
    >>> rewards = (rng.random(4000) < np.where(logged == 1, 0.7, 0.4)).astype(float)
    >>> sequence.update(rewards, 2.0 * (logged == 1))                # always the second action
    >>> low, high = sequence.bound_value(alpha=0.05)
    >>> bool(0.6 < low < 0.7 < high < 0.8)
    True
    """

    range: RewardRange = UNIT_RANGE
    floors: Floats = field(default_factory=FLOORS.copy)  # (4,) ℓ
    rows: float = 0.0  # number of X, the same for all sides and runs
    largest_coefficient: float = 0.0
    plain: Floats = field(default_factory=NO_ROWS.copy)  # (..., 4) Σ X
    mass: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ g
    sums: Floats = field(default_factory=NO_ROWS.copy)  # (..., 4) S
    variances: Floats = field(default_factory=NO_ROWS.copy)  # (..., 4) V
    crossed: Floats = field(default_factory=NO_ROWS.copy)  # (..., 4) Σ g² (X − X̂)(w − 1)
    plain_weight: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ w
    weight: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ g w
    spread: Floats = field(default_factory=lambda: np.zeros(()))  # (...,) Σ g² (w − 1)²

    def update(self, rewards: Floats, weights: Floats, coefficients: Floats | None = None) -> None:
        """Add decisions, in the order of time, with rewards inside the range."""
        scaled = (rewards - self.range.low) / self.range.width
        excess = weights - 1
        weighted = weights * scaled
        gained = excess * scaled
        self.update_terms(
            (weighted, weights - weighted, gained, excess - gained), weights, coefficients
        )

    def update_terms(
        self,
        terms: tuple[Floats, Floats, Floats, Floats],
        weights: Floats,
        coefficients: Floats | None = None,
    ) -> None:
        """Add X of the four sides, (..., n) each; used if X is not the one of the table above."""
        size = terms[LOW].shape[-1]
        if size == 0:
            return
        counter = self.rows + np.arange(1, size + 1)
        excess = weights - 1
        squares = None if coefficients is None else coefficients * coefficients
        plain, sums, variances, crossed = [], [], [], []
        for side, values in enumerate(terms):
            before = np.cumsum(values, axis=-1)
            plain.append(before[..., -1].copy())
            before -= values
            before += self.plain[..., side, None] + PRIORS[side]
            before /= counter
            surprise = values - np.minimum(before, 1.0, out=before)  # X − X̂
            scaled = surprise if squares is None else surprise * squares
            sums.append(
                plain[-1] if coefficients is None else np.sum(coefficients * values, axis=-1)
            )
            variances.append(np.einsum("...i,...i->...", scaled, surprise))
            crossed.append(np.einsum("...i,...i->...", scaled, excess))
        self.plain = self.plain + np.stack(plain, axis=-1)
        self.sums = self.sums + np.stack(sums, axis=-1)
        self.variances = self.variances + np.stack(variances, axis=-1)
        self.crossed = self.crossed + np.stack(crossed, axis=-1)
        self.plain_weight = self.plain_weight + np.sum(weights, axis=-1)
        if coefficients is None or squares is None:
            self.mass = self.mass + float(size)
            self.weight = self.weight + np.sum(weights, axis=-1)
            self.spread = self.spread + np.einsum("...i,...i->...", excess, excess)
            self.largest_coefficient = max(self.largest_coefficient, 1.0)
        else:
            self.mass = self.mass + np.sum(coefficients, axis=-1)
            self.weight = self.weight + np.sum(coefficients * weights, axis=-1)
            self.spread = self.spread + np.einsum("...i,...i->...", squares * excess, excess)
            self.largest_coefficient = max(self.largest_coefficient, float(coefficients.max()))
        self.rows += size

    def widen(self, range: RewardRange) -> None:
        """Compute the sums of a wider range of rewards.

        With r' = ρ r + d the surprises become ρ (X − X̂) + d (w − 1), if the new X̂' = ρ X̂ + d for
        `low` and ρ X̂ for `above`: both are known before X' and at most 1.
        """
        if range == self.range:
            return
        ratio = self.range.width / range.width
        shift_low = (self.range.low - range.low) / range.width
        shift_high = (range.high - self.range.high) / range.width
        shifts = np.array([shift_low, shift_high, shift_low, shift_high])
        offset = np.array([0.0, 0.0, 1.0, 1.0])  # `above` and `below` have w − 1 in place of w
        self.variances = (
            ratio**2 * self.variances
            + 2 * ratio * shifts * self.crossed
            + shifts**2 * self.spread[..., None]
        )
        self.crossed = ratio * self.crossed + shifts * self.spread[..., None]
        self.sums = ratio * self.sums + shifts * (
            self.weight[..., None] - offset * self.mass[..., None]
        )
        self.plain = ratio * self.plain + shifts * (
            self.plain_weight[..., None] - offset * self.rows
        )
        self.range = range

    def merge(self, other: "ConfidenceSequence") -> None:
        """Add the sums of another part of the log, with the same range of rewards."""
        self.rows += other.rows
        self.largest_coefficient = max(self.largest_coefficient, other.largest_coefficient)
        self.floors = np.maximum(self.floors, other.floors)
        self.plain = self.plain + other.plain
        self.mass = self.mass + other.mass
        self.sums = self.sums + other.sums
        self.variances = self.variances + other.variances
        self.crossed = self.crossed + other.crossed
        self.plain_weight = self.plain_weight + other.plain_weight
        self.weight = self.weight + other.weight
        self.spread = self.spread + other.spread

    def bound_value(self, alpha: float = 0.05) -> tuple[Floats, Floats]:
        """The ends of the interval of the running mean of the value, (...,) each."""
        low = np.clip(self.bound_below(LOW, alpha / 2), 0, 1)
        high = np.clip(1 - self.bound_below(HIGH, alpha / 2), 0, 1)
        return (
            self.range.low + low * self.range.width,
            self.range.low + high * self.range.width,
        )

    def bound_gain(self, alpha: float = 0.05) -> tuple[Floats, Floats]:
        """The ends of the interval of the mean gain over the logged policy, (...,) each."""
        low = np.clip(self.bound_below(ABOVE, alpha / 2), -1, 1)
        high = np.clip(-self.bound_below(BELOW, alpha / 2), -1, 1)
        return low * self.range.width, high * self.range.width

    def find_scale(self, side: int) -> float:
        """The number (1 + ℓ) · (largest coefficient), by which the terms of a side are divided."""
        return float(self.largest_coefficient * (1 + self.floors[side]))

    def bound_below(self, side: int, alpha: float) -> Floats:
        """The lower bound of the mean of one side, not limited to [−1, 1]; −1 without decisions."""
        if self.rows == 0:
            return np.full(np.shape(self.mass), -1.0)
        scale = self.find_scale(side)
        boundary = find_boundary(np.maximum(self.variances[..., side], 0) / scale**2, alpha)
        bound: Floats = (self.sums[..., side] - scale * boundary) / self.mass
        return bound
