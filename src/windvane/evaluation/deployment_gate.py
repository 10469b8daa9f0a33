"""Whether a policy is surely better than the one that logged: "better", "worse" or "not yet".

The verdict uses the confidence sequences of the gain, so it holds although the question is asked
after every batch. For m candidates use α/m.
"""

import math
from collections.abc import Sequence

from windvane.evaluation.confidence_sequence import ABOVE, BELOW, ConfidenceSequence
from windvane.evaluation.joint_bounds import bound_gain, compute_log_wealth
from windvane.evaluation.result import Gain, Interval, Verdict

MOST_ROWS = 1e12  # more cannot be waited for


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
