"""The noise: sums over errors of prediction, and the estimate σ̂ that follows from them."""

from windvane import laws
from windvane._numba.compilation import compiled
from windvane.beliefs.full.layout import PolicyArrays

estimate_noise = compiled(laws.estimate_noise)


@compiled
def add_error(
    arrays: PolicyArrays, error: float, variance: float, fade: float, weight: float
) -> None:
    """Add the error e of a prediction, whose variance is S times σ², to the sums of the estimate.

    Σ w·e²/S ← f·Σ w·e²/S + w·e²/S,  Σ w ← f·Σ w + w;  in a window of n observations f = 1 − 1/n
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    if rule.window > 0:
        fade = 1.0 - 1.0 / rule.window
    counts.squared_errors = fade * counts.squared_errors + weight * (error * error / variance)
    counts.error_weight = fade * counts.error_weight + weight


@compiled
def forget_errors(arrays: PolicyArrays) -> None:
    """Drop all errors, for arrays that stand for a new policy."""
    counts = arrays.tally[0]
    counts.squared_errors = 0.0
    counts.error_weight = 0.0


@compiled
def compute_noise(arrays: PolicyArrays) -> float:
    """The estimate σ̂."""
    counts = arrays.tally[0]
    return estimate_noise(counts.squared_errors, counts.error_weight)
