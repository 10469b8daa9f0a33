"""The formulas of the estimators as they are written, one decision after the other."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from scipy.integrate import quad

from windvane.evaluation.estimates.estimators import RewardRange
from windvane.types import Floats


def mean_and_error(scores: Floats, coefficients: Floats) -> tuple[float, float]:
    """Σ b x / Σ b and its standard error."""
    value = float((coefficients * scores).sum() / coefficients.sum())
    square = float((coefficients**2 * (scores - value) ** 2).sum())
    n = len(scores)
    return value, math.sqrt(n / (n - 1) * square) / float(coefficients.sum())


def sum_terms(terms: Sequence[float], prior: float) -> tuple[float, float]:
    """Σ X, and Σ (X − guess)² with a guess from the terms before it."""
    total = variance = 0.0
    for i, x in enumerate(terms, start=1):
        variance += (x - min(1.0, (prior + total) / i)) ** 2
        total += x
    return total, variance


def lower_bound(terms: Sequence[float], floor: float, prior: float, level: float) -> float:
    """(S − (1+ℓ) boundary)/n; the boundary by bisection of log M."""
    total, variance = sum_terms(terms, prior)
    scale = 1 + floor
    wealth = log_wealth_by_integral(variance / scale**2)
    low, high = 0.0, 10 * math.sqrt(variance / scale**2 + 1) + 20
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if wealth(middle) > math.log(1 / level) else (middle, high)
    return (total - scale * low) / len(terms)


def joint_lower_bound(
    sides: Sequence[tuple[Sequence[float], float]], prior: float, level: float
) -> float:
    """The smallest mean with which the average wealth of several (terms, ℓ) is at most 1/level."""
    sums = []
    for terms, floor in sides:
        total, variance = sum_terms(terms, prior)
        sums.append((total, 1 + floor, log_wealth_by_integral(variance / (1 + floor) ** 2)))
    n = len(sides[0][0])
    low, high = min(total / n for total, _, _ in sums) - 60.0, max(t / n for t, _, _ in sums)
    for _ in range(60):
        mean = (low + high) / 2
        wealths = [
            math.exp(min(wealth((total - n * mean) / scale), 600.0)) if total > n * mean else 0.0
            for total, scale, wealth in sums
        ]
        low, high = (mean, high) if np.mean(wealths) >= 1 / level else (low, mean)
    return low


def log_wealth_by_integral(variance: float) -> Callable[[float], float]:
    """log ∫ exp(λ s − ψ(λ) V) f(λ) dλ, with f(λ) = e^(λ − 1) / (1 − 1/e) on [0, 1]."""

    def log_wealth(s: float) -> float:
        def exponent(rate: float) -> float:
            return rate * s + variance * (math.log1p(-rate) + rate) + rate - 1

        def density(rate: float) -> float:
            return math.exp(exponent(min(rate, 1 - 1e-15)) - top)

        peak = (s + 1) / (s + 1 + variance)
        top = exponent(min(peak, 1 - 1e-12))
        width = 8 * math.sqrt(variance + 1) / (s + variance + 1)
        cuts = {0.0, peak - 2 * width, peak - width, peak, peak + width, peak + 2 * width, 1.0}
        ends = pairwise(sorted(cut for cut in cuts if 0 <= cut <= 1))
        total = sum(quad(density, *both, epsabs=0, epsrel=1e-11, limit=200)[0] for both in ends)
        return top + math.log(total) - math.log(1 - math.exp(-1))

    return log_wealth


def value_interval(
    rewards: Floats, weights: Floats, range: RewardRange, alpha: float
) -> tuple[float, float]:
    """The confidence sequence of the value after all decisions."""
    r = (rewards - range.low) / range.width
    low = lower_bound((weights * r).tolist(), 0.0, 0.5, alpha / 2)
    high = 1 - lower_bound((weights * (1 - r)).tolist(), 0.0, 0.5, alpha / 2)
    return (
        range.low + range.width * min(1.0, max(0.0, low)),
        range.low + range.width * max(0.0, min(1.0, high)),
    )


def gain_interval(
    rewards: Floats, weights: Floats, range: RewardRange, alpha: float
) -> tuple[float, float]:
    """The confidence sequence of the gain, by Y = ((w − 1) r + 1)/2 ≥ 0 with mean (Δ + 1)/2."""
    r = (rewards - range.low) / range.width
    better = lower_bound((((weights - 1) * r + 1) / 2).tolist(), 0.0, 0.5, alpha / 2)
    worse = lower_bound((((weights - 1) * (1 - r) + 1) / 2).tolist(), 0.0, 0.5, alpha / 2)
    ends = np.clip([2 * better - 1, 1 - 2 * worse], -1, 1) * range.width
    return float(ends[0]), float(ends[1])
