"""What follows from the counters of a policy: the clock of `half_life`, CUSUM of `detect`, noise σ.

Under `half_life` the weight of an observation is 2^(−age/span). Its age is that of its choice, and
counts from the newest choice that was learned, whose time is the clock. The noise is estimated from
errors of prediction, if the scale of the exploration is a share of it. The estimate outlives
restarts and alarms: they drop what was learned about θ, and the noise is a property of the rewards.
"""

import numpy as np

from windvane import laws
from windvane._numba.compilation import compiled
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.layout import PolicyArrays
from windvane.beliefs.full.linalg import dot, multiply_vector
from windvane.types import Floats

LARGEST_ERROR = 9.0  # r² is cut here: an outlier counts as three standard deviations

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


@compiled
def weigh_age(arrays: PolicyArrays, at: float) -> float:
    """The weight of an observation whose arm was chosen at time `at`."""
    weight: float = 0.5 ** ((arrays.tally[0].clock - at) / arrays.rules[0].span)
    return weight


@compiled
def advance_clock(arrays: PolicyArrays, at: float) -> tuple[float, float]:
    """Set the clock for an observation chosen at time `at`.

    Return the factor by which all older weights fall, and the weight of the observation.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    if counts.seen == 0:
        counts.clock = at
    fade = 1.0
    weight = 1.0
    if at >= counts.clock:
        fade = 0.5 ** ((at - counts.clock) / rule.span)
        counts.clock = at
    else:
        weight = weigh_age(arrays, at)
    counts.held = fade * fade * counts.held + weight * weight
    return fade, weight


@compiled
def update_cusum(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> bool:
    """Add the prediction error of an observation to the CUSUM of a full belief."""
    image = np.empty(x.size)  # W⁻¹x
    multiply_vector(state.inverse, x, image)
    return add_to_cusum(arrays, reward - dot(x, state.theta), dot(x, image))


@compiled
def add_to_cusum(arrays: PolicyArrays, error: float, variance: float) -> bool:
    """Add one squared prediction error to the CUSUM C; return whether C exceeds the alarm level.

    `variance` is ‖x‖²_{W⁻¹}.

    r² = (y − xᵀθ̂)² / (σ² + (σ² + λS²)‖x‖²_{W⁻¹}),  C ← max(0, C + min(r², 9) − slack)

    This statistic knows σ and the uncertainty of θ̂, so it can drop a belief. The drift alarm of the
    service is another CUSUM: it estimates the noise from the log and only warns.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    expected = rule.variance + (rule.variance + rule.bias) * variance
    step = min(error * error / expected, LARGEST_ERROR) - rule.slack
    counts.surprise = max(0.0, counts.surprise + step)
    return bool(counts.surprise > rule.alarm)
