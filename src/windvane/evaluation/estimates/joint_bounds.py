"""Bounds from several confidence sequences of the same decisions, and the verdict on a gain.

The sequences have the same means, but other bounds k of the reward model. Which of them is the
narrowest depends on the log and on the number of decisions. Each side of sequence j has a
supermartingale M_j that starts at 1 if the mean is m, and so has their average. It stays below 2/α
at all times with probability 1 − α/2. The lower bound is therefore the smallest m for which

    (1/J) Σ_j M_j(m) ≤ 2/α

It is never much lower than the best of the J bounds, which has J/α in place of 1/α there. M_j is 0
here if the sum lies below m, where it is at most 1.

The verdict uses the bounds of the gain, so it holds although the question is asked after every
batch. For m candidates use α/m.
"""

import math
from collections.abc import Sequence

import numpy as np

from windvane.evaluation.estimates.confidence_sequence import (
    ABOVE,
    BELOW,
    HIGH,
    LOW,
    ConfidenceSequence,
    log_wealth,
)
from windvane.evaluation.estimates.result import Gain, Interval, Verdict
from windvane.types import Floats

BISECTIONS = 30  # steps of the bisection of an interval, mostly shorter than 0.1
MOST_ROWS = 1e12  # more cannot be waited for


def bound_value(
    sequences: Sequence[ConfidenceSequence], alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """The ends of the interval of the running mean of the value, (...,) each."""
    sides = (_bound_below(sequences, side, alpha / 2) for side in (LOW, HIGH))
    return sequences[0].range.unscale_value(*sides)


def bound_gain(
    sequences: Sequence[ConfidenceSequence], alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """The ends of the interval of the mean gain over the logged policy, (...,) each."""
    sides = (_bound_below(sequences, side, alpha / 2) for side in (ABOVE, BELOW))
    return sequences[0].range.unscale_gain(*sides)


def compute_log_wealth(
    sequences: Sequence[ConfidenceSequence],
    side: int,
    mean: Floats | float,
    factor: float = 1.0,
) -> Floats:
    """The logarithm of the average of M_j(mean), if there were `factor` times the decisions."""
    logs = []
    for each in sequences:
        scale = each.find_scale(side)
        deviation = factor * (each.sums[..., side] - mean * each.mass) / scale
        variance = factor * np.maximum(each.variances[..., side], 0) / scale**2
        wealth = log_wealth(np.maximum(deviation, 0.0), variance)
        logs.append(np.where(deviation > 0, wealth, -np.inf))
    total: Floats = np.logaddexp.reduce(logs, axis=0) - math.log(len(sequences))
    return total


def _bound_below(sequences: Sequence[ConfidenceSequence], side: int, alpha: float) -> Floats:
    """The lower bound of the mean of one side, by bisection; −1 without decisions."""
    if sequences[0].rows == 0 or len(sequences) == 1:
        return sequences[0].bound_below(side, alpha)
    share = alpha / len(sequences)
    low = np.max([each.bound_below(side, share) for each in sequences], axis=0)
    high = np.max([each.bound_below(side, alpha) for each in sequences], axis=0)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        is_rejected = compute_log_wealth(sequences, side, middle) >= -math.log(alpha)
        low, high = np.where(is_rejected, middle, low), np.where(is_rejected, high, middle)
    return np.asarray(low)


def judge_gain(sequences: Sequence[ConfidenceSequence], value: float, alpha: float) -> Gain:
    """Judge the gain by its interval, and estimate how many rows are still needed."""
    low, high = (float(end) for end in bound_gain(sequences, alpha))
    verdict: Verdict = "better" if low > 0 else "worse" if high < 0 else "not yet"
    needed = 0 if verdict != "not yet" else estimate_rows_needed(sequences, alpha)
    return Gain(value, Interval(low, high), verdict, needed)


def estimate_rows_needed(sequences: Sequence[ConfidenceSequence], alpha: float) -> int | None:
    """Estimate how many further rows lead to a verdict, if gain and variance stay as they are.

    After n times as many decisions the sums are n·S and n·V, and the bound is above 0 if the
    wealth at a gain of 0 exceeds 2/α. Return None if no number up to 10¹² is enough: the gain is
    too close to 0. The number is an estimate from the gain so far, not a promise.
    """
    rows = sequences[0].rows
    if rows == 0:
        return None
    factors = [_find_factor(sequences, side, alpha) for side in (ABOVE, BELOW)]
    reachable = [factor for factor in factors if factor is not None]
    return max(1, math.ceil((min(reachable) - 1) * rows)) if reachable else None


def _find_factor(sequences: Sequence[ConfidenceSequence], side: int, alpha: float) -> float | None:
    """How many times as many decisions bring the bound of one side above 0."""

    def is_enough(factor: float) -> bool:
        return bool(compute_log_wealth(sequences, side, 0.0, factor) > math.log(2 / alpha))

    least, most = 1.0, MOST_ROWS / sequences[0].rows
    if not is_enough(most):
        return None
    while most > least * (1 + 1e-6):  # the wealth grows with the factor once it is above 1
        middle = math.sqrt(least * most)
        least, most = (least, middle) if is_enough(middle) else (middle, most)
    return most
