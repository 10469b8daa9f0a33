"""Whether a policy is surely better than the one that logged: "better", "worse" or "not yet".

The verdict uses the confidence sequence of the gain, so it holds although the question is asked
after every batch. For m candidates use α/m.
"""

import math

from windvane.evaluation.confidence_sequence import ABOVE, BELOW, ConfidenceSequence
from windvane.evaluation.mixture_boundary import find_boundary
from windvane.evaluation.result import Gain, Interval, Verdict

MOST_ROWS = 1e12  # more cannot be waited for


def judge_gain(sequence: ConfidenceSequence, value: float, alpha: float) -> Gain:
    """Judge the gain by its interval, and estimate how many rows are still needed."""
    low, high = (float(end) for end in sequence.bound_gain(alpha))
    verdict: Verdict = "better" if low > 0 else "worse" if high < 0 else "not yet"
    needed = 0 if verdict != "not yet" else estimate_rows_needed(sequence, alpha)
    return Gain(value, Interval(low, high), verdict, needed)


def estimate_rows_needed(sequence: ConfidenceSequence, alpha: float) -> int | None:
    """Estimate how many further rows lead to a verdict, if gain and variance stay as they are.

    After n times as many decisions the sums are n·S and n·V, and the bound is above 0 if

        n S > (1+ℓ) boundary(n V/(1+ℓ)², α/2)

    Return None if no number up to 10¹² is enough: the gain is too close to 0. The number is an
    estimate from the gain so far, not a promise.
    """
    if sequence.rows == 0:
        return None
    side = ABOVE if sequence.sums[ABOVE] >= sequence.sums[BELOW] else BELOW
    scale = sequence.largest_coefficient * (1 + sequence.floors[side])
    total = float(sequence.sums[side]) / scale
    variance = max(float(sequence.variances[side]), 0.0) / scale**2

    def is_enough(factor: float) -> bool:
        return bool(factor * total > find_boundary(factor * variance, alpha / 2))

    most = MOST_ROWS / sequence.rows
    if total <= 0 or not is_enough(most):
        return None
    least = 1.0
    while most > least * (1 + 1e-6):  # the boundary grows more slowly than the sum
        middle = math.sqrt(least * most)
        least, most = (least, middle) if is_enough(middle) else (middle, most)
    return max(1, math.ceil((most - 1) * sequence.rows))
