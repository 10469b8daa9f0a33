"""The memory `kalman`: θ moves by θ ← ρθ + N(0, (1−ρ²)I/λ), and a Kalman filter follows θ.

The mean of the filter is θ̂, its covariance Σ is `inverse`. Both are exact, so they need neither
sums nor a refresh.
"""

import math

import numpy as np

from windvane import _random
from windvane._cholesky import factor_cholesky
from windvane._layout import HISTORY, NOISE, TALLY, PolicyArrays
from windvane._numba.compilation import compiled
from windvane._numba.matrix_views import view_matrix
from windvane.belief import State
from windvane.kernels.belief_block import reset_state, view_belief
from windvane.kernels.linalg import copy_matrix, copy_vector, dot, multiply_vector
from windvane.kernels.noise import add_error
from windvane.kernels.round_draws import FIRST_FREE_PLACE, draw_pseudo_rewards
from windvane.kernels.widths import RankOneStep, TrackedArms
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


@compiled
def sample_by_filter(arrays: PolicyArrays, state: State, scale: float, start: np.uint64) -> Floats:
    """Draw θ̃ = μ + a·Σ^{½}z, (d,), a = `scale`, or replay the filter over a perturbed history."""
    if arrays.rules[0].style == HISTORY:
        return replay_filter(arrays, start)
    d = arrays.rules[0].dim
    z, noise, root = np.empty(d), np.empty(d), np.empty((d, d))
    _random.fill_normals(start, FIRST_FREE_PLACE, z)
    copy_matrix(state.inverse, root)
    factor_cholesky(root)
    multiply_vector(root, z, noise)
    for i in range(d):
        noise[i] = state.theta[i] + scale * noise[i]
    return noise


@compiled
def replay_filter(arrays: PolicyArrays, start: np.uint64) -> Floats:
    """The mean of a filter, (d,), that learns the history with pseudo-rewards.

    The rewards, the first θ and every step of θ get noise of their own, so this mean is distributed
    as N(μ, a²Σ).
    """
    rule, past, d = arrays.rules[0], arrays.past, arrays.rules[0].dim
    count = min(arrays.tally[0].seen, past.shape[0])
    z = np.empty((count + 1) * (d + 1))
    draw_pseudo_rewards(arrays.rules, start, count, z)
    if rule.coins == 0:
        for i in range(count):
            z[i] *= rule.scale * math.sqrt(rule.variance)
        for i in range(count, z.size):
            z[i] *= rule.scale / math.sqrt(rule.ridge)
    steps = view_matrix(z, count, count + 1, d)
    tally, block = np.zeros(1, TALLY), np.empty(arrays.block.size)
    replayed = PolicyArrays(arrays.rules, tally, block, past)
    views = view_belief(replayed)
    reset_state(replayed, views)
    copy_vector(steps[count], views.theta)
    for age in range(count - 1, -1, -1):
        slot = (arrays.tally[0].seen - 1 - age) % past.shape[0]
        for i in range(d):  # divided by ρ, because the filter multiplies the mean by ρ
            views.theta[i] += math.sqrt(1.0 - rule.rho * rule.rho) / rule.rho * steps[age, i]
        filter_observation(replayed, views, past[slot, :d], past[slot, d] + z[age])
    if rule.coins > 0:
        for i in range(d):
            views.theta[i] /= rule.coins + 1.0
    return views.theta
