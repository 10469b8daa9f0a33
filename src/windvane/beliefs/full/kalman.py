"""The memory `kalman`: θ moves by θ ← ρθ + N(0, (1−ρ²)I/λ), and a Kalman filter follows θ.

The mean of the filter is θ̂, its covariance Σ is `inverse`. Both are exact, so they need neither
sums nor a refresh.
"""

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.counters import add_error
from windvane.beliefs.full.layout import NOISE, PolicyArrays
from windvane.beliefs.full.linalg import dot, multiply_vector
from windvane.beliefs.full.widths import RankOneStep, TrackedArms
from windvane.types import Floats, Records


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
