"""Choose: draw what an exploration needs, score the arms and choose the best.

Widths read off `spread` have a known error bound. Arms that these widths cannot separate are scored
again, more exactly.
"""

import math
from collections.abc import Callable

import numpy as np

from windvane import _random, laws
from windvane._numba.compilation import compiled
from windvane._numba.instructions import view_matrix
from windvane._random import ANY_ARM_PLACE, FIRST_FREE_PLACE, MIX_PLACE, TIE_PLACE
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import (
    COMPARISON_TOLERANCE,
    read_ridge,
    reset,
    solve,
    view_belief,
)
from windvane.beliefs.full.layout import (
    GAP,
    GRID,
    HALF_LIFE,
    HISTORY,
    KALMAN,
    LARGEST,
    MEAN,
    NOISE,
    NORMAL,
    POINT,
    RADIUS,
    TALLY,
    WIDTH,
    PolicyArrays,
)
from windvane.beliefs.full.learning import NOT_FINITE, filter_observation, weigh_age
from windvane.beliefs.full.linalg import (
    copy_matrix,
    copy_vector,
    dot,
    factor_cholesky,
    multiply_vector,
)
from windvane.beliefs.full.noise import compute_noise
from windvane.beliefs.full.widths import (
    TrackedArms,
    bound_width_error,
    compute_closer_width,
    compute_exact_width,
    compute_squared_norms,
    measure_arms,
    read_width,
)
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
    if rule.filter:
        return sample_by_filter(arrays, state, compute_scale(arrays), start)
    if rule.style == HISTORY:
        return sample_from_history(arrays, state, start)
    if rule.root:
        return sample_from_sums(arrays, state, start)
    return sample_without_root(arrays, state, start)


@compiled
def sample_from_sums(arrays: PolicyArrays, state: State, start: np.uint64) -> Floats:
    """Draw θ̃ = W⁻¹(b + a·ξ), (d,): ξ = Rᵀz + √λ·ζ with RᵀR = S̃, z and ζ standard normal."""
    ridge, d, scale = read_ridge(arrays), arrays.rules[0].dim, compute_scale(arrays)
    z, right = np.empty(2 * d), np.empty(d)
    _random.fill_normals(start, FIRST_FREE_PLACE, z)
    copy_vector(state.moment, right)
    for k in range(d):
        row, own = state.root[k], scale * z[k]
        for i in range(d):  # entries left of the diagonal are 0
            right[i] += own * row[i]
        right[k] += math.sqrt(ridge) * (scale * z[d + k])
    return solve_from_estimate(arrays, state, right)


@compiled
def sample_without_root(arrays: PolicyArrays, state: State, start: np.uint64) -> Floats:
    """Draw θ̃ = W⁻¹(b + a·ξ), (d,): ξ = Lz, LLᵀ = S + λI, if no root of S is kept."""
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
    d, count, ridge = rule.dim, min(seen, past.shape[0]), read_ridge(arrays)
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
        right[i] += math.sqrt(ridge) * (scale * z[count + i])
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
    if arrays.rules[0].hidden > 0.0:
        return sample_predictively(arrays, state, scale, start)
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
def sample_predictively(
    arrays: PolicyArrays, state: State, scale: float, start: np.uint64
) -> Floats:
    """Draw what the future could reveal of the next θ, (d,): ρμ + a·C·L⁻ᵀz, LLᵀ = C + xI/ρ²."""
    rule, d = arrays.rules[0], arrays.rules[0].dim
    fade = rule.rho * rule.rho
    covariance, root, z, sample = np.empty((d, d)), np.empty((d, d)), np.empty(d), np.empty(d)
    _random.fill_normals(start, FIRST_FREE_PLACE, z)
    for i in range(d):
        for j in range(d):
            covariance[i, j] = fade * state.inverse[i, j]
        covariance[i, i] += (1.0 - fade) / rule.ridge
    copy_matrix(covariance, root)
    for i in range(d):
        root[i, i] += rule.hidden
    factor_cholesky(root)
    for i in range(d - 1, -1, -1):  # z ← L⁻ᵀz
        for j in range(i + 1, d):
            z[i] -= root[j, i] * z[j]
        z[i] /= root[i, i]
    multiply_vector(covariance, z, sample)
    for i in range(d):
        sample[i] = rule.rho * state.theta[i] + scale * sample[i]
    return sample


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
    reset(replayed)
    views = view_belief(replayed)
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


WIDTH_ROUNDING = 1e-7  # rounding error of a width that is read off `spread`, for ‖x‖/√λ = 1
TIE_MARGIN = 1e-12  # scores closer than this share of the largest absolute score are equal


ChooseKernel = Callable[[PolicyArrays, Floats, int, int], int]


def select_choose(rules: Records) -> ChooseKernel:
    """Return the kernel with which a policy chooses; the most usual ones compile no others."""
    style = rules["style"][0]
    if style in (MEAN, GAP):
        return choose_by_estimate
    if rules["room"][0] > 0:
        from windvane.beliefs.full.large import choose_by_large_widths

        return choose_by_large_widths
    if style == WIDTH:
        return choose_by_widths
    has_root = rules["root"][0] and not rules["filter"][0]
    return choose_by_sample if has_root else choose_by_any_sample


@compiled
def choose_by_estimate(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̂; return its place, or NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    return choose_along(arrays.rules, arms, view_belief(arrays).theta, start)


@compiled
def choose_by_widths(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̂ + z‖x‖_{V⁻¹}; return its place, or NOT_FINITE."""
    state = view_belief(arrays)
    start = _random.start_round(np.uint64(key), round_)
    norms = compute_squared_norms(arms)
    for k in range(norms.size):
        if not norms[k] <= LARGEST:
            return NOT_FINITE
    offered = TrackedArms(arms, norms, np.empty(norms.size), state.moment[:0])
    measure_arms(state, offered)
    z = draw_level(arrays.rules, compute_scale(arrays), start)
    return choose_by_scores(arrays.rules, score_with_widths(arrays, state, offered, z), start)


@compiled
def choose_by_sample(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̃, with θ̃ drawn from sums; else NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    theta = sample_from_sums(arrays, view_belief(arrays), start)
    return choose_along(arrays.rules, arms, theta, start)


@compiled
def choose_by_any_sample(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̃, with θ̃ from any belief; else NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    theta = sample_parameter(arrays, view_belief(arrays), start)
    return choose_along(arrays.rules, arms, theta, start)


@compiled
def choose_along(rules: Records, arms: Floats, direction: Floats, start: np.uint64) -> int:
    """Choose the arm (d,) with the largest xᵀ·direction; return its place, or NOT_FINITE."""
    for k in range(arms.shape[0]):
        if not dot(arms[k], arms[k]) <= LARGEST:
            return NOT_FINITE
    return choose_by_scores(rules, score_linearly(arms, direction), start)


@compiled
def choose_measured(
    arrays: PolicyArrays, state: State, offered: TrackedArms, start: np.uint64
) -> int:
    """Choose one of the arms by any exploration; if it needs widths, their squares must be known.

    A policy calls the kernel of its own exploration instead, because this one compiles them all.
    """
    rule = arrays.rules[0]
    if rule.style == MEAN or rule.style == GAP:
        scores = score_linearly(offered.arms, state.theta)
    elif rule.style == WIDTH:
        z = draw_level(arrays.rules, compute_scale(arrays), start)
        scores = score_with_widths(arrays, state, offered, z)
    else:
        scores = score_linearly(offered.arms, sample_parameter(arrays, state, start))
    return choose_by_scores(arrays.rules, scores, start)


@compiled
def choose_by_scores(rules: Records, scores: Floats, start: np.uint64) -> int:
    """Choose the arm with the best of the scores (K,), or another one by gap or by the floor."""
    rule = rules[0]
    chosen = choose_best(scores, _random.uniform(start, TIE_PLACE))
    if chosen >= 0 and rule.style == GAP:
        chosen = choose_by_gap(scores, chosen, rule.scale, _random.uniform(start, FIRST_FREE_PLACE))
    return mix_uniformly(rules, chosen, scores.size, start) if chosen >= 0 else chosen


@compiled
def score_linearly(arms: Floats, direction: Floats) -> Floats:
    """xᵀ·direction of every arm, (K,)."""
    scores = np.empty(arms.shape[0])
    multiply_vector(arms, direction, scores)
    return scores


@compiled
def score_with_widths(arrays: PolicyArrays, state: State, offered: TrackedArms, z: float) -> Floats:
    """xᵀθ̂ + z‖x‖_{V⁻¹} of every arm that can be the best, −inf for the others, (K,).

    First the widths read off `spread` bound each score. If several arms can be the best, closer
    widths bound theirs. If several are still left, their scores are computed exactly. The width of
    a blank belief is ‖x‖/√λ.
    """
    arms, relative_error = offered.arms, bound_width_error(arrays)
    is_blank = arrays.tally[0].seen == 0 and arrays.tally[0].energy == 0.0
    ridge = read_ridge(arrays)
    rounding = WIDTH_ROUNDING / math.sqrt(ridge)
    highest, lowest = np.empty(arms.shape[0]), np.empty(arms.shape[0])
    means = score_linearly(arms, state.theta)
    for k in range(means.size):
        width, error = read_width(arrays, offered, k, relative_error)
        error += rounding * math.sqrt(offered.squared_norms[k])
        highest[k] = means[k] + z * width + abs(z) * error
        lowest[k] = highest[k] - 2.0 * abs(z) * error
    count = drop_beaten_arms(highest, lowest)
    has_closer_widths = relative_error > 0.0 and offered.squared_images.size == 0
    if count > 1 and has_closer_widths and not is_blank:
        for k in range(means.size):
            if highest[k] > -np.inf:
                width, error = compute_closer_width(arrays, state, arms[k])
                highest[k] = means[k] + z * width + abs(z) * error
                lowest[k] = highest[k] - 2.0 * abs(z) * error
        count = drop_beaten_arms(highest, lowest)
    if count > 1:
        for k in range(means.size):
            if highest[k] > -np.inf and is_blank:
                highest[k] = means[k] + z * math.sqrt(offered.squared_norms[k] / ridge)
            elif highest[k] > -np.inf:
                highest[k] = means[k] + z * compute_exact_width(arrays, state, arms[k])
    return highest


@compiled
def drop_beaten_arms(highest: Floats, lowest: Floats) -> int:
    """Set the bounds (K,) of arms that cannot be the best to −inf; return how many are left."""
    bar, count = -np.inf, 0
    for k in range(lowest.size):
        bar = max(bar, lowest[k])
    for k in range(highest.size):
        if highest[k] < bar:
            highest[k] = -np.inf
            lowest[k] = -np.inf
        count += highest[k] > -np.inf
    return count


@compiled
def choose_best(scores: Floats, uniform: float) -> int:
    """The place of the largest score; ties are broken by `uniform`, a draw from (0, 1).

    Return NOT_FINITE if a score is NaN or +inf.
    """
    top = -np.inf
    largest = 0.0
    for k in range(scores.size):
        if math.isnan(scores[k]) or scores[k] == np.inf:
            return NOT_FINITE
        if scores[k] > -np.inf:
            top = max(top, scores[k])
            largest = max(largest, abs(scores[k]))
    least = top - TIE_MARGIN * largest
    ties = 0
    for k in range(scores.size):
        ties += scores[k] >= least
    remaining = int(uniform * ties)
    for k in range(scores.size):
        if scores[k] >= least:
            if remaining == 0:
                return k
            remaining -= 1
    return NOT_FINITE


@compiled
def choose_by_gap(scores: Floats, leader: int, eta: float, uniform: float) -> int:
    """Choose each arm but the leader with probability 1/(K + η·gap), else the leader."""
    for k in range(scores.size):
        if k != leader:
            uniform -= 1.0 / (scores.size + eta * max(scores[leader] - scores[k], 0.0))
            if uniform < 0.0:
                return k
    return leader


@compiled
def mix_uniformly(rules: Records, chosen: int, count: int, start: np.uint64) -> int:
    """Return the chosen arm or, with the probability of the floor and of ε, any of the arms."""
    if _random.uniform(start, MIX_PLACE) < rules[0].mix:
        return int(_random.uniform(start, ANY_ARM_PLACE) * count)
    return chosen
