"""The random draws of an exploration: a confidence level Z, or a parameter θ̃."""

import math

import numpy as np

from windvane import _random, laws
from windvane._numba.compilation import compiled
from windvane._numba.matrix_views import view_matrix
from windvane._random import FIRST_FREE_PLACE
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import COMPARISON_TOLERANCE, reset_state, solve, view_belief
from windvane.beliefs.full.layout import (
    GRID,
    HALF_LIFE,
    HISTORY,
    KALMAN,
    MEAN,
    NOISE,
    NORMAL,
    POINT,
    RADIUS,
    TALLY,
    WINDOW,
    PolicyArrays,
)
from windvane.beliefs.full.linalg import copy_matrix, copy_vector, factor_cholesky, multiply_vector
from windvane.beliefs.full.memories import compute_noise, filter_observation, weigh_age
from windvane.types import Floats, Records

mass = compiled(laws.mass)
radius_of = compiled(laws.radius)
anytime = compiled(laws.anytime)


@compiled
def compute_scale(arrays: PolicyArrays) -> float:
    """The scale of the exploration: a number, or a multiple of the radius or of the noise.

    The covariance of a Kalman filter contains its σ², so that the noise counts in units of σ.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    scale: float = rule.scale
    if rule.unit == NOISE:
        scale *= compute_noise(arrays)
        if rule.memory == KALMAN:
            scale /= math.sqrt(rule.variance)
    if rule.unit == RADIUS:
        delta = anytime(rule.delta, counts.seen) if rule.anytime else rule.delta
        squared_weights = counts.held
        if rule.memory != HALF_LIFE:
            fade = rule.rho if rule.memory == KALMAN else rule.gamma
            squared_weights = mass(counts.seen, fade, rule.window)
        scale *= radius_of(
            squared_weights,
            rule.space,
            rule.ridge,
            delta,
            rule.noise,
            rule.theta_norm,
            rule.arm_norm,
        )
    return scale


@compiled
def draw_level(rules: Records, scale: float, start: np.uint64) -> float:
    """Draw the confidence level Z of a round."""
    rule = rules[0]
    if rule.law == POINT:
        return scale
    if rule.law == GRID:
        return scale * invert_grid_law(rules, _random.uniform(start, FIRST_FREE_PLACE))
    draw = np.empty(1)
    _random.fill_normals(start, FIRST_FREE_PLACE, draw)
    z = float(draw[0])
    return scale * (z if rule.law == NORMAL else abs(z))


@compiled
def invert_grid_law(rules: Records, probability: float) -> float:
    """The point of the unit grid at which the distribution function reaches `probability`."""
    weights = compute_grid_weights(rules)
    total = 0.0
    for m in range(weights.size):
        total += weights[m]
        if probability <= total:
            return m / (weights.size - 1)
    return 1.0


@compiled
def compute_grid_weights(rules: Records) -> Floats:
    """The probability of each grid point: `top` for the last one, a Gaussian shape for the rest."""
    rule = rules[0]
    weights = np.empty(rule.points)
    total = 0.0
    for m in range(rule.points - 1):
        place = m / (rule.points - 1)
        weights[m] = math.exp(-0.5 * (place / rule.sigma) ** 2)
        total += weights[m]
    share = (1.0 - rule.top) / total
    for m in range(rule.points - 1):
        weights[m] *= share
    weights[rule.points - 1] = rule.top
    return weights


@compiled
def choose_parameter(arrays: PolicyArrays, key: int, round_: int) -> Floats:
    """The θ, (d,), by which a round chooses if it needs no widths: θ̂, or a sample θ̃."""
    state = view_belief(arrays)
    if arrays.rules[0].style == MEAN:
        return state.theta.copy()
    return sample_parameter(arrays, state, _random.start_round(np.uint64(key), round_))


@compiled
def sample_parameter(arrays: PolicyArrays, state: State, start: np.uint64) -> Floats:
    """Draw θ̃ = W⁻¹(b + a·ξ), (d,), with ξ ~ N(0, W̃) or from a perturbed history."""
    rule = arrays.rules[0]
    if rule.memory == KALMAN:
        return sample_by_filter(arrays, state, compute_scale(arrays), start)
    if rule.style == HISTORY:
        return sample_from_history(arrays, state, start)
    if rule.memory == WINDOW:
        return sample_from_window(arrays, state, start)
    return sample_from_sums(arrays, state, start)


@compiled
def sample_from_sums(arrays: PolicyArrays, state: State, start: np.uint64) -> Floats:
    """Draw θ̃ = W⁻¹(b + a·ξ), (d,): ξ = Rᵀz + √λ·ζ with RᵀR = S̃, z and ζ standard normal."""
    rule, d, scale = arrays.rules[0], arrays.rules[0].dim, compute_scale(arrays)
    z, right = np.empty(2 * d), np.empty(d)
    _random.fill_normals(start, FIRST_FREE_PLACE, z)
    copy_vector(state.moment, right)
    for k in range(d):
        row, own = state.root[k], scale * z[k]
        for i in range(d):  # entries left of the diagonal are 0
            right[i] += own * row[i]
        right[k] += math.sqrt(rule.ridge) * (scale * z[d + k])
    return solve_from_estimate(arrays, state, right)


@compiled
def sample_from_window(arrays: PolicyArrays, state: State, start: np.uint64) -> Floats:
    """Draw θ̃ = W⁻¹(b + a·ξ), (d,): ξ = Lz with LLᵀ = S + λI, because a window keeps no root."""
    rule, d, scale = arrays.rules[0], arrays.rules[0].dim, compute_scale(arrays)
    precision, z, right = np.empty((d, d)), np.empty(d), np.empty(d)
    for i in range(d):
        copy_vector(state.gram[i], precision[i])
        precision[i, i] += rule.ridge
    _random.fill_normals(start, FIRST_FREE_PLACE, z)
    factor_cholesky(precision)
    multiply_vector(precision, z, right)
    for i in range(d):
        right[i] = state.moment[i] + scale * right[i]
    return solve_from_estimate(arrays, state, right)


@compiled
def sample_from_history(arrays: PolicyArrays, state: State, start: np.uint64) -> Floats:
    """Draw θ̃, (d,), from a pseudo-reward for every past reward: W·θ̃ = b + Σ w·x·Z + √λ·a·ζ."""
    rule, seen, past = arrays.rules[0], arrays.tally[0].seen, arrays.past
    d, count = rule.dim, min(seen, past.shape[0])
    z, right = np.empty(count + d), np.empty(d)
    draw_pseudo_rewards(arrays.rules, start, count, z)
    copy_vector(state.moment, right)
    scale = rule.scale if rule.coins == 0 else 1.0
    weight = 1.0
    fade = rule.gamma if rule.twin or rule.coins > 0 else math.sqrt(rule.gamma)
    for age in range(count):
        slot = (seen - 1 - age) % past.shape[0]
        if rule.memory == HALF_LIFE:
            weight = weigh_age(arrays, past[slot, d + 1])
        for i in range(d):
            right[i] += weight * (scale * z[age]) * past[slot, i]
        weight *= fade
    for i in range(d):
        right[i] += math.sqrt(rule.ridge) * (scale * z[count + i])
        if rule.coins > 0:
            right[i] /= rule.coins + 1.0
    return solve_from_estimate(arrays, state, right)


@compiled
def solve_from_estimate(arrays: PolicyArrays, state: State, right: Floats) -> Floats:
    """Solve W·θ̃ = right for θ̃ (d,), refined from θ̂."""
    sample = np.empty(right.size)
    copy_vector(state.theta, sample)
    solve(arrays, state, right, sample, COMPARISON_TOLERANCE)
    return sample


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


@compiled
def draw_pseudo_rewards(rules: Records, start: np.uint64, observations: int, z: Floats) -> None:
    """Fill `z` with draws for perturbed_history, those of the past observations first.

    Coins give the number of heads of each observation and 0 for the rest, else all are N(0, 1).
    """
    coins = rules[0].coins
    if coins > 0:
        for i in range(observations):
            z[i] = count_heads(_random.draw_word(start, FIRST_FREE_PLACE + i), coins)
        for i in range(observations, z.size):
            z[i] = 0.0
    else:
        _random.fill_normals(start, FIRST_FREE_PLACE, z)


@compiled
def count_heads(bits: np.uint64, coins: int) -> float:
    """Count the ones among the first `coins` bits."""
    count = 0.0
    for k in range(coins):
        count += np.float64((bits >> np.uint64(k)) & np.uint64(1))
    return count
