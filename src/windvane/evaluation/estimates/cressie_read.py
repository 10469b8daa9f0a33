"""The Cressie-Read estimate of the value of a policy, and its interval.

The mean of the weights is known to be 1. The decisions, and one more decision with an extreme
weight, are given shares under which the mean is 1. The shares that are closest to equal ones in
the Cressie-Read divergence with power −2 give the estimate. All that are close enough give the
interval. The possible weights are [w_min, w_max]; with a logging policy that
chooses each of K actions with at least ε/K, w_max = K/ε. Both ends must be those that are
possible, not those that were seen.

Karampatziakis, Langford & Mineiro (2020), "Empirical likelihood for contextual bandits".
"""

import math
from typing import NamedTuple

from scipy.special import fdtri

from windvane.evaluation.estimates.estimators import (
    ONE,
    REWARD,
    WEIGHT,
    WEIGHTED_REWARD,
    RewardRange,
    ValueSums,
)

SMALLEST_ROOT = 1e-9  # yz below its square counts as 0


class WeightRange(NamedTuple):
    """The smallest and the largest weight that is possible, low < 1 < high; high may be ∞."""

    low: float = 0.0
    high: float = math.inf


ANY_WEIGHT = WeightRange()


class CressieReadSums(NamedTuple):
    """The sums that the estimate and the interval need."""

    n: float
    w: float  # Σ w
    w2: float  # Σ w²
    wr: float  # Σ w r
    w2r: float  # Σ w² r
    w2r2: float  # Σ w² r²
    r: float  # Σ r

    @classmethod
    def from_value_sums(cls, sums: ValueSums) -> "CressieReadSums":
        """Take the sums of one group; coefficients b count as (Σ b)²/Σ b² equal decisions."""
        mass = float(sums.mass)
        squares = float(sums.product(ONE, ONE))
        n = mass**2 / squares
        first = n / mass  # both factors are 1 if all coefficients are 1
        second = n / squares
        return cls(
            n,
            first * float(sums.moments[WEIGHT]),
            second * float(sums.product(WEIGHT, WEIGHT)),
            first * float(sums.moments[WEIGHTED_REWARD]),
            second * float(sums.product(WEIGHT, WEIGHTED_REWARD)),
            second * float(sums.product(WEIGHTED_REWARD, WEIGHTED_REWARD)),
            first * float(sums.moments[REWARD]),
        )


def estimate_cressie_read(sums: CressieReadSums, weights: WeightRange = ANY_WEIGHT) -> float:
    """Compute the estimate from n > 0 decisions.

    With the extra weight f = w_max if Σw < n, else w_min, a = (f+Σw)/(1+n), b = (f²+Σw²)/(1+n):

        γ = (b−a)/(a²−b),  β = (1−a)/(a²−b);   if f = ∞:  γ = −(1+n)/n,  β = 0
        v = −(γ Σwr + β Σw²r)/(1+n) + missing · Σr/n,   missing = max(0, 1 + (γ Σw + β Σw²)/(1+n))
    """
    n = sums.n
    extra = weights.high if sums.w < n else weights.low
    if math.isinf(extra):
        gamma, beta = -(1 + n) / n, 0.0
    else:
        a = (extra + sums.w) / (1 + n)
        b = (extra**2 + sums.w2) / (1 + n)
        gamma = (b - a) / (a * a - b)
        beta = (1 - a) / (a * a - b)
    value = -(gamma * sums.wr + beta * sums.w2r) / (1 + n)
    missing = max(0.0, 1 + (gamma * sums.w + beta * sums.w2) / (1 + n))
    return value + missing * sums.r / n


def bound_cressie_read(
    sums: CressieReadSums,
    rewards: RewardRange,
    weights: WeightRange = ANY_WEIGHT,
    alpha: float = 0.05,
) -> tuple[float, float]:
    """Compute the ends of the interval, which misses with chance alpha for one look.

    φ = −(g + F)/(2(1+n)) with F the upper alpha quantile of the F law with 1 and n degrees of
    freedom, and g = (1+n)(a−1)²/(b−a²), or 1 + 1/n if f = ∞. Each end is the extreme of
    x − √(2yz) over the two extra weights.
    """
    n = sums.n
    extra = weights.high if sums.w < n else weights.low
    if math.isinf(extra):
        closest = 1 + 1 / n
    else:
        a = (extra + sums.w) / (1 + n)
        b = (extra**2 + sums.w2) / (1 + n)
        closest = (1 + n) * (a - 1) ** 2 / (b - a * a)
    quantile = float(fdtri(1.0, n, 1 - alpha))
    level = -(closest + quantile) / (2 * (1 + n))  # φ
    ends = []
    for reward, sign in ((rewards.low, 1.0), (rewards.high, -1.0)):
        candidates = [
            candidate
            for extra in weights
            if (candidate := _find_end(sums, extra, reward, sign, level)) is not None
        ]
        best = min(candidates) if candidates else sign * reward
        ends.append(min(rewards.high, max(rewards.low, sign * best)))
    return ends[0], ends[1]


def _find_end(
    sums: CressieReadSums, extra: float, reward: float, sign: float, level: float
) -> float | None:
    """The smallest of sign · value with one extra decision, or None if no reweighting is near."""
    n = sums.n
    if math.isinf(extra):
        x = sign * (reward + (sums.wr - sums.w * reward) / n)
        y = (reward * sums.w - sums.wr) ** 2 / (n * (1 + n)) - (
            reward**2 * sums.w2 - 2 * reward * sums.w2r + sums.w2r2
        ) / (1 + n)
        z = level + 1 / (2 * n)
    else:
        w = (extra + sums.w) / (1 + n)
        w2 = (extra**2 + sums.w2) / (1 + n)
        wr = sign * (extra * reward + sums.wr) / (1 + n)
        w2r = sign * (extra**2 * reward + sums.w2r) / (1 + n)
        w2r2 = (extra**2 * reward**2 + sums.w2r2) / (1 + n)
        variance = w2 - w * w
        if variance <= 0:
            return None
        covariance = w2r - w * wr
        x = wr + (1 - w) * covariance / variance
        y = covariance**2 / variance - (w2r2 - wr**2)
        z = level + (1 - w) ** 2 / (2 * variance)
    if abs(y * z) <= SMALLEST_ROOT**2:
        return x - math.sqrt(2) * SMALLEST_ROOT
    if z <= 0 and y * z >= 0:
        return x - math.sqrt(2 * y * z)
    return None
