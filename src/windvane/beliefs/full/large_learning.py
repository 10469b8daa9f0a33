"""Learn with a large belief: an observation waits, and the estimate follows it at once.

The belief is that of `learning`, but its matrices change only once for several observations.
"""

import math

import numpy as np

from windvane._numba.compilation import compiled
from windvane._numba.matrix_views import view_matrix
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.counters import add_error, advance_clock, weigh_age
from windvane.beliefs.full.large_widths import compute_large_widths
from windvane.beliefs.full.layout import HALF_LIFE, NOISE, PolicyArrays
from windvane.beliefs.full.learning import LEAST_FADE, LEAST_WEIGHT, check_observations
from windvane.beliefs.full.linalg import copy_vector, dot
from windvane.beliefs.full.pending import (
    COUNT,
    FADE,
    RATIO,
    Pending,
    add_pending_sums,
    change_inverse,
    correct_image,
    correct_spread_image,
    forget_pending,
    get_fade,
    multiply_one,
    refresh_in_blocks,
    solve_rows,
    view_pending,
)
from windvane.beliefs.full.symmetric_products import multiply_symmetric, multiply_symmetric_twice
from windvane.types import Floats

ESTIMATE_TOLERANCE = 1e-9  # relative error of θ̂
LEAST_LAG_SHARE = 1e-3  # of λ: a smaller lag is counted as this one
WIDTH_TOLERANCE = 1e-9  # error of the width behind an error of prediction, for ‖x‖/√λ = 1


@compiled
def learn_into_large_sums(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Learn one observation, whose arm was chosen at time or round `at`, and estimate θ̂.

    Return 0, or the code of a refusal; then nothing has changed.
    """
    refusal = check_observations(arrays, view_matrix(x, 0, 1, x.size))
    if refusal != 0:
        return refusal
    rule, counts, state = arrays.rules[0], arrays.tally[0], view_belief(arrays)
    pending = view_pending(arrays)
    fade, weight = rule.gamma, 1.0
    if rule.memory == HALF_LIFE:
        fade, weight = advance_clock(arrays, at)
    if fade * get_fade(pending) < LEAST_FADE and pending.head[COUNT] > 0.0:
        change_matrices(arrays, state, pending)
    is_sudden = fade < LEAST_FADE
    if is_sudden:
        pending.head[RATIO] = 0.0
        error = reward - dot(x, state.theta)
        if rule.unit == NOISE:
            width = compute_large_widths(arrays, view_matrix(x, 0, 1, x.size), WIDTH_TOLERANCE)[0]
            add_error(arrays, error, 1.0 + width * width, fade, weight)
        fade_matrices(arrays, state, fade)
        estimate_from_sums(arrays, state, pending)
        fade = 1.0
    variance, error = add_pending(arrays, state, x, reward, fade, weight)
    if rule.unit == NOISE and not is_sudden:
        add_error(arrays, error, variance, fade, weight)
    follow_ratio(pending, counts.energy == 0.0, fade, weight)
    counts.ridge *= fade
    counts.noise_ridge *= fade * fade if rule.twin else fade
    counts.energy = fade * counts.energy + weight * dot(x, x)
    counts.stale += 1
    counts.seen += 1
    is_stale = counts.stale >= rule.refresh or counts.ridge < rule.least * rule.ridge
    if is_stale or pending.head[COUNT] == rule.room:
        change_matrices(arrays, state, pending)
        estimate_from_sums(arrays, state, pending)
    return 0


@compiled
def follow_ratio(pending: Pending, is_blank: bool, fade: float, weight: float) -> None:
    """Raise τ so that W ≤ τW̃ still holds after an observation; W̃ of a blank belief is W.

    W' = fW + w·xxᵀ + (1−f)λ and W̃' = f²W̃ + w²·xxᵀ + (1−f²)λ, so τ' = max(τ/f, 1/w) suffices.
    """
    ratio = 1.0 if is_blank else pending.head[RATIO]
    if ratio >= 1.0:
        pending.head[RATIO] = max(ratio / fade, 1.0 / max(weight, LEAST_WEIGHT))


@compiled
def add_pending(
    arrays: PolicyArrays, state: State, x: Floats, reward: float, fade: float, weight: float
) -> tuple[float, float]:
    """Let one more observation wait, and estimate θ̂ with it.

    Return the variance of the error of prediction, 1 + ‖x‖²_{V⁻¹}, if the noise is estimated, and
    the error. Both are those before the observation.
    """
    rule, counts, pending = arrays.rules[0], arrays.tally[0], view_pending(arrays)
    d, m, older_fade = rule.dim, int(pending.head[COUNT]), get_fade(pending)
    lag, new_lag = rule.ridge - counts.ridge, rule.ridge - fade * counts.ridge
    systems = 2 if rule.unit == NOISE else 1
    residuals, images, answers = np.zeros((2, d)), np.empty((2, d)), np.zeros((2, d))
    residual, z, theta = residuals[0], pending.images[m], state.theta
    error, weight = reward - dot(x, theta), max(weight, LEAST_WEIGHT)
    for i in range(d):
        residual[i] = fade * pending.residual[i] + weight * (x[i] * error)
        residual[i] -= (1.0 - fade) * rule.ridge * theta[i]
        state.moment[i] = fade * state.moment[i] + weight * (x[i] * reward)
    is_exact = fade == 1.0 and lag == 0.0
    if is_exact:  # the residual is a multiple of x
        multiply_one(state.inverse, x, z)
    else:
        multiply_symmetric_twice(state.inverse, x, residual, z, images[0])
    correct_image(pending, m, x, z)
    copy_vector(x, pending.rows[m])
    pending.weights[m] = weight / (older_fade * fade)
    pending.divisors[m] = 1.0 / pending.weights[m] + dot(x, z)
    pending.head[COUNT], pending.head[FADE] = m + 1.0, older_fade * fade
    along = dot(x, z) / older_fade  # xᵀPx, with P before the observation
    if not is_exact:
        correct_image(pending, m + 1, residual, images[0])
    for i in range(d):
        images[1, i] = z[i] / (weight * pending.divisors[m])  # Px, with P after it
        images[0, i] = (
            weight * error * images[1, i] if is_exact else images[0, i] / (older_fade * fade)
        )
        residuals[1, i] = x[i]
    lags, limits = np.empty(2), np.empty(2)
    lags[0], lags[1] = new_lag, fade * lag
    size = max(dot(theta, theta), dot(images[0], images[0]))
    limits[0] = ESTIMATE_TOLERANCE * rule.ridge * math.sqrt(size)
    limits[1] = WIDTH_TOLERANCE * math.sqrt(dot(x, x)) / (1.0 + weight * along)
    limits[1] /= min(compute_lag_share(arrays), 1.0)
    solve_rows(
        *(state, pending, lags[:systems], residuals[:systems], answers[:systems]),
        *(images[:systems], limits[:systems]),
    )
    for i in range(d):
        theta[i] += answers[0, i]
        pending.residual[i] = residual[i]
    square = 0.0
    if systems == 2:
        square = finish_width(arrays, state, x, answers[1], older_fade)
    elif pending.spread_images.shape[0] > 0:
        q = pending.spread_images[m]
        multiply_one(state.spread, x, q)
        correct_spread_image(pending, m, x, q)
        pending.squares[m] = dot(x, q)
    return 1.0 + square, error


@compiled
def compute_lag_share(arrays: PolicyArrays) -> float:
    """(|λ−Λ| + |λ−Λ̃|)/λ: the share of an error of u that `finish_width` hands on to the width.

    There, u is multiplied by λ−Λ or λ−Λ̃ wherever it occurs.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    lags = abs(rule.ridge - counts.ridge) + abs(rule.ridge - counts.noise_ridge)
    share: float = lags / rule.ridge
    return max(share, LEAST_LAG_SHARE)


@compiled
def finish_width(
    arrays: PolicyArrays, state: State, x: Floats, later: Floats, older_fade: float
) -> float:
    """‖x‖²_{V⁻¹} before the newest observation, whose q and s are stored.

    `later` solves (fW + w·xxᵀ)·later = x. It is a multiple of u = W⁻¹x, and with p = Px
    xᵀu = xᵀp − (λ−Λ)pᵀu says of which. With x̂ = x − (λ−Λ)u, the square is x̂ᵀQx̂ + (λ−Λ̃)‖u‖².
    """
    rule, counts, pending = arrays.rules[0], arrays.tally[0], view_pending(arrays)
    m, lag = int(pending.head[COUNT]) - 1, rule.ridge - counts.ridge
    z = pending.images[m]
    along = dot(x, z) / older_fade
    multiple = along / (dot(x, later) + lag * dot(z, later) / older_fade) if along > 0.0 else 0.0
    if pending.spread_images.shape[0] == 0:
        return multiple * dot(x, later)
    q, target, image = pending.spread_images[m], np.empty(x.size), np.empty(x.size)
    for i in range(x.size):
        target[i] = x[i] - lag * multiple * later[i]
    multiply_symmetric_twice(state.spread, x, target, q, image)
    correct_spread_image(pending, m, x, q)
    correct_spread_image(pending, m, target, image)
    pending.squares[m] = dot(x, q)
    noise_lag = rule.ridge - counts.noise_ridge
    result: float = dot(target, image) + noise_lag * multiple * multiple * dot(later, later)
    return result


@compiled
def change_matrices(arrays: PolicyArrays, state: State, pending: Pending) -> None:
    """Let all matrices follow the observations that wait; invert W if that is due."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    add_pending_sums(arrays, state.gram, state.noise)
    if counts.stale >= rule.refresh or counts.ridge < rule.least * rule.ridge:
        refresh_in_blocks(arrays, state)
    else:
        change_inverse(arrays, state)
    forget_pending(pending)


@compiled
def fade_matrices(arrays: PolicyArrays, state: State, fade: float) -> None:
    """Let all weights fall by a factor so small that W is inverted; no observation waits."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    for i in range(rule.dim):
        state.moment[i] *= fade
        for j in range(rule.dim):
            state.gram[i, j] *= fade
            if rule.twin:
                state.noise[i, j] *= fade * fade
    counts.energy *= fade
    refresh_in_blocks(arrays, state)


@compiled
def estimate_from_sums(arrays: PolicyArrays, state: State, pending: Pending) -> None:
    """Refine θ̂ until W·θ̂ = b, from the residual against W itself; no observation waits."""
    rule, theta = arrays.rules[0], state.theta
    residual = pending.residual
    multiply_symmetric(state.gram, theta, residual)
    for i in range(rule.dim):
        residual[i] = state.moment[i] - residual[i] - rule.ridge * theta[i]
    refine_estimate(arrays, state, pending)


@compiled
def refine_estimate(arrays: PolicyArrays, state: State, pending: Pending) -> None:
    """Refine θ̂ until its residual is small."""
    rule, counts, theta = arrays.rules[0], arrays.tally[0], state.theta
    residuals = view_matrix(pending.residual, 0, 1, rule.dim)
    answers = view_matrix(theta, 0, 1, rule.dim)
    lags, limits = np.empty(1), np.empty(1)
    lags[0] = rule.ridge - counts.ridge
    limits[0] = ESTIMATE_TOLERANCE * rule.ridge * math.sqrt(dot(theta, theta))
    solve_rows(state, pending, lags, residuals, answers, residuals[:0], limits)


@compiled
def amend_large(arrays: PolicyArrays, x: Floats, more: float, at: float) -> None:
    """Add to the reward of an observation that was learned before: b ← b + w·x·more."""
    state, pending = view_belief(arrays), view_pending(arrays)
    weight = 1.0
    if arrays.rules[0].memory == HALF_LIFE:
        weight = weigh_age(arrays, min(at, arrays.tally[0].clock))
    for i in range(x.size):
        state.moment[i] += weight * (x[i] * more)
        pending.residual[i] += weight * (x[i] * more)
    refine_estimate(arrays, state, pending)
