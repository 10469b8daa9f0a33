"""What single memories keep beside the sums, and the estimate of the noise σ.

- `half_life`: the weight of an observation is 2^(−age/span). Its age is that of its choice, and
  counts from the newest choice that was learned, whose time is the clock.
- `detect`: the CUSUM of squared prediction errors.
- `window`: each new observation replaces the oldest one, which leaves the sums.
- `kalman`: θ moves by θ ← ρθ + N(0, (1−ρ²)I/λ), and a Kalman filter follows θ. Its mean is θ̂, its
  covariance Σ is `inverse`. Both are exact, so they need neither sums nor a refresh.

The noise is estimated from errors of prediction, if the scale of the exploration is a share of it.
The estimate outlives restarts and alarms: they drop what was learned about θ, and the noise is a
property of the rewards.
"""

import numpy as np

from windvane import laws
from windvane._numba.compilation import compiled
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.layout import NOISE, PolicyArrays
from windvane.beliefs.full.linalg import dot, multiply_matrices, multiply_vector
from windvane.beliefs.full.widths import RankOneStep, TrackedArms
from windvane.types import Floats, Records

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


LEAST_DIVISOR = 1e-2  # 1 − xᵀPx below this loses too many digits of P
LEAST_ENERGY_SHARE = 1e-6  # of the peak: sums that shrink below this lose too many digits


@compiled
def slide_window(arrays: PolicyArrays, state: State, oldest: Floats, slot: int) -> bool:
    """Remove the oldest observation (d + 1,), x and y, from the sums and from `inverse`.

    Return False if the sums were recomputed and `inverse` must be too: if too few digits would be
    left, and once for every pass through the window, so that rounding errors do not accumulate.
    """
    d = arrays.rules[0].dim
    if remove_observation(arrays, state, oldest[:d], oldest[d]) and slot < arrays.past.shape[0] - 1:
        return True
    sum_window(arrays, state)
    return False


@compiled
def remove_observation(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> bool:
    """Remove an observation by a rank-one step: P' = P + ppᵀ/c with p = Px and c = 1 − xᵀp.

    Return False if too few digits would be left; then nothing is removed.
    """
    d, counts = x.size, arrays.tally[0]
    p = np.empty(d)
    multiply_vector(state.inverse, x, p)
    c = 1.0 - dot(x, p)
    counts.peak = max(counts.peak, counts.energy)
    counts.energy -= dot(x, x)
    least_energy = LEAST_ENERGY_SHARE * counts.peak
    if c < LEAST_DIVISOR or counts.energy + arrays.rules[0].ridge < least_energy:
        return False
    for i in range(d):
        state.moment[i] -= x[i] * reward
        for j in range(d):
            state.gram[i, j] -= x[i] * x[j]
            state.inverse[i, j] += (p[i] * p[j]) / c
    return True


@compiled
def sum_window(arrays: PolicyArrays, state: State) -> None:
    """Recompute the sums from the observations in the window."""
    d, counts = state.moment.size, arrays.tally[0]
    count = arrays.past.shape[0]
    features, columns, rewards = np.empty((count, d)), np.empty((d, count)), np.empty(count)
    for k in range(count):
        rewards[k] = arrays.past[k, d]
        for i in range(d):
            features[k, i] = arrays.past[k, i]
            columns[i, k] = arrays.past[k, i]
    multiply_matrices(columns, features, state.gram)
    multiply_vector(columns, rewards, state.moment)
    counts.energy = 0.0
    for i in range(d):
        counts.energy += state.gram[i, i]
    counts.peak = counts.energy


@compiled
def filter_observation(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> RankOneStep:
    """Predict one step of θ, then correct mean and covariance by one observation.

    Σ ← ρ²Σ + (1−ρ²)I/λ,  μ ← ρμ;  with p = Σx and c = σ² + xᵀp: μ ← μ + p(y − xᵀμ)/c, Σ ← Σ − ppᵀ/c
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    d, fade = rule.dim, rule.rho * rule.rho
    mean, covariance = state.theta, state.inverse
    for i in range(d):
        mean[i] *= rule.rho
        for j in range(d):
            covariance[i, j] *= fade
        covariance[i, i] += (1.0 - fade) / rule.ridge
    p = np.empty(d)
    multiply_vector(covariance, x, p)
    c = rule.variance + dot(x, p)
    if rule.unit == NOISE:
        add_error(arrays, reward - dot(x, mean), c / rule.variance, rule.rho, 1.0)
    error = (reward - dot(x, mean)) / c
    for i in range(d):
        mean[i] += p[i] * error
        for j in range(d):
            covariance[i, j] -= (p[i] * p[j]) / c
    counts.energy = fade * counts.energy + dot(x, x) / rule.variance
    return RankOneStep(p, p, c, dot(x, p), fade)


@compiled
def follow_filter(rules: Records, tracked: TrackedArms, step: RankOneStep) -> None:
    """Update the squared widths of tracked arms: w² ← ρ²w² + (1−ρ²)‖x‖²/λ − (xᵀp)²/c."""
    rule = rules[0]
    fade, more = rule.rho * rule.rho, (1.0 - rule.rho * rule.rho) / rule.ridge
    for k in range(tracked.squared_widths.size):
        a = dot(tracked.arms[k], step.image)
        square, norm = tracked.squared_widths[k], tracked.squared_norms[k]
        tracked.squared_widths[k] = fade * square + more * norm - a * a / step.divisor
