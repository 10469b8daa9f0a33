"""The memory `parts`: θ is still, or a sum of parts that fade at different speeds.

θ = θ₁ + … + θ_S. Each part is a Gaussian process in time: θ_s ~ N(0, v_s·I) before any data, and
θ_s ← φ_s·θ_s + N(0, (1−φ_s²)v_s·I) with φ_s = 2^{−1/h_s}, so that it halves with its half-life h_s.
One Kalman filter follows all parts. With their mean m, their covariance Σ in units of σ², and the
features x repeated for each part as u:

    m_s ← φ_s·m_s,  Σ_st ← φ_s·φ_t·Σ_st + [s = t](1−φ_s²)v_s·I
    p = Σu,  c = 1 + uᵀp,  e = y − uᵀm,  m ← m + p·e/c,  Σ ← Σ − ppᵀ/c

θ̂ is the sum of the m_s, and V⁻¹ the sum of the Σ_st. A reward for a choice of an earlier time τ is
an observation of θ_s(τ) = ψ_s·θ_s + N(0, (1−ψ_s²)v_s·I), ψ_s = 2^{−age/h_s}: exact if all that was
learned before has one time, and close if it does not.

If the shares of the parts are not given, three rules find what nobody has to choose:

1. Variances, by MacKay's fixed point with n₀ imagined weights. Both sums fade with every lesson.

       v_s = (n₀·v₀ + Σ ‖m_s‖²/σ̂²)/(n₀ + Σ (d − tr Σ_ss/v_s)),  at least a tenth of its first share

   At first, the variance of the mean reward is that of the noise: v₀ = share/‖x‖². While a part has
   hardly faded, its prior is exchanged: Σ⁻¹ ← Σ⁻¹ + (1/v' − 1/v)I after 8, 16, 32, … lessons.
2. A second filter, of d numbers, believes that θ is still. The log odds of the two beliefs follow
   from what each had predicted, at most MOST_ODDS, and the more probable one chooses.
3. If the odds fall to −MOST_ODDS, θ has moved: the still belief starts again, with half of these
   odds against it, at N(θ̂, V⁻¹ + Σ v_s·I) of the parts. The added variance is that of weights which
   were not seen since and may have moved too.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane._numba.instructions import view_matrix
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.layout import PolicyArrays
from windvane.beliefs.full.linalg import copy_matrix, copy_vector, dot, multiply_vector
from windvane.beliefs.full.noise import add_error, compute_noise
from windvane.types import Floats

IMAGINED_WEIGHTS = 10.0  # n₀ of a part
IMAGINED_STILL_WEIGHTS = 2.0  # n₀ of the belief that θ is still
EVIDENCE_FADE = 0.9995
NOISE_FADE = 0.9995
LEAST_SHARE = 0.1  # of the first share of a part in the variance of all parts
MOST_FIRST_VARIANCE = 1e8  # times 1/λ; larger ones would leave too few digits
FIRST_EXCHANGE = 8  # lessons after which the first variances are exchanged for better ones
FIRST_ODDS = 1.0  # in nats, that θ is still
MOST_ODDS = 5.0


class PartsState(NamedTuple):
    """What the memory keeps beside θ̂ and V⁻¹, as views of the block."""

    means: Floats  # (S·d,) m
    covariance: Floats  # (S·d, S·d) Σ
    still_mean: Floats  # (d,)
    still_covariance: Floats  # (d, d)
    variances: Floats  # (S,) v
    determined: Floats  # (S,) faded Σ (d − tr Σ_ss/v_s)
    squares: Floats  # (S,) faded Σ ‖m_s‖²/σ̂²
    numbers: Floats  # (4,)


ODDS, STILL_VARIANCE, FIRST_VARIANCE, FIRST_TIME = range(4)  # of the numbers


@compiled
def view_parts(arrays: PolicyArrays) -> PartsState:
    """Return views of what follows θ̂ and V⁻¹ in the block."""
    d, parts, block = arrays.rules[0].dim, arrays.rules[0].parts, arrays.block
    size, start = parts * d, 2 * d + d * d
    still = start + size + size * size
    small = still + d + d * d
    return PartsState(
        block[start : start + size],
        view_matrix(block, start + size, size, size),
        block[still : still + d],
        view_matrix(block, still + d, d, d),
        block[small : small + parts],
        block[small + parts : small + 2 * parts],
        block[small + 2 * parts : small + 3 * parts],
        block[small + 3 * parts : small + 3 * parts + 4],
    )


@compiled
def update_parts(arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float) -> None:
    """Learn one observation, whose arm was chosen at time `at`."""
    rule, counts, parts = arrays.rules[0], arrays.tally[0], view_parts(arrays)
    if counts.seen == 0:
        start_parts(arrays, parts, x, at)
    elapsed, age = pass_time(arrays, at)
    fade_parts(arrays, parts, elapsed)
    u, extra, square = np.empty(parts.means.size), 0.0, dot(x, x)
    for s in range(rule.parts):
        past = 0.5 ** (age / rule.half_lives[s])
        extra += (1.0 - past * past) * parts.variances[s] * square
        for i in range(rule.dim):
            u[s * rule.dim + i] = past * x[i]
    variance = compute_noise(arrays) ** 2
    error, total = correct(parts.means, parts.covariance, u, reward, 1.0 + extra, np.empty(u.size))
    if rule.finds:
        still_error, still_total = correct(
            parts.still_mean, parts.still_covariance, x, reward, 1.0, np.empty(x.size)
        )
        odds = parts.numbers[ODDS]
        parts.numbers[ODDS] = judge(odds, error, total, still_error, still_total, variance)
        if parts.numbers[ODDS] > 0.0:
            error, total = still_error, still_total
    add_error(arrays, error, total, NOISE_FADE, 1.0)
    counts.seen += 1
    counts.energy += square
    if rule.finds:
        find_variances(arrays, parts)
    sum_parts(arrays, parts, state)


@compiled
def pass_time(arrays: PolicyArrays, at: float) -> tuple[float, float]:
    """Set the clock for a choice made at time `at`; return how long parts fade, and its age."""
    counts = arrays.tally[0]
    if not arrays.rules[0].in_time:
        return 1.0, 0.0
    elapsed, age = max(at - counts.clock, 0.0), max(counts.clock - at, 0.0)
    counts.clock = max(counts.clock, at)
    return elapsed, age


@compiled
def judge(
    odds: float, error: float, total: float, still_error: float, still_total: float, noise: float
) -> float:
    """Return the log odds that θ is still, after both beliefs have made an error; noise is σ̂²."""
    surprise = error * error / total - still_error * still_error / still_total
    gain = 0.5 * (math.log(total / still_total) + surprise / noise)
    return min(MOST_ODDS, odds + gain)


@compiled
def choose_first_variance(arrays: PolicyArrays, square: float) -> float:
    """Return the first variance of θ: 1/‖x‖² of the first features if it will be found."""
    first: float = 1.0 / arrays.rules[0].ridge
    if arrays.rules[0].finds and square > 0.0:
        first = min(1.0 / square, MOST_FIRST_VARIANCE * first)
    return first


@compiled
def find_variance(imagined: float, first: float, squares: float, determined: float) -> float:
    """Return MacKay's estimate of a variance, given so many imagined weights of the first one."""
    return (imagined * first + squares) / (imagined + determined)


@compiled
def start_parts(arrays: PolicyArrays, parts: PartsState, x: Floats, at: float) -> None:
    """Set the first variances; if they will be found, by the size of the first features."""
    rule, d = arrays.rules[0], arrays.rules[0].dim
    first = choose_first_variance(arrays, dot(x, x))
    for s in range(rule.parts):
        parts.variances[s] = first * rule.shares[s]
        for i in range(s * d, (s + 1) * d):
            parts.covariance[i, i] = parts.variances[s]
    for i in range(d):
        parts.still_covariance[i, i] = first
    numbers = parts.numbers
    numbers[ODDS], numbers[STILL_VARIANCE] = FIRST_ODDS, first
    numbers[FIRST_VARIANCE], numbers[FIRST_TIME] = first, at
    arrays.tally[0].clock = at


@compiled
def fade_parts(arrays: PolicyArrays, parts: PartsState, elapsed: float) -> None:
    """Let all parts fade for some observations or some time."""
    rule, d = arrays.rules[0], arrays.rules[0].dim
    for s in range(rule.parts):
        fade = 0.5 ** (elapsed / rule.half_lives[s])
        for t in range(rule.parts):
            both = fade * 0.5 ** (elapsed / rule.half_lives[t])
            for i in range(s * d, (s + 1) * d):
                for j in range(t * d, (t + 1) * d):
                    parts.covariance[i, j] *= both
        for i in range(s * d, (s + 1) * d):
            parts.means[i] *= fade
            parts.covariance[i, i] += (1.0 - fade * fade) * parts.variances[s]


@compiled
def correct(
    mean: Floats, covariance: Floats, u: Floats, reward: float, variance: float, p: Floats
) -> tuple[float, float]:
    """Correct a filter by an observation of uᵀθ; return the error e and its variance c.

    p = Σu is written to `p`.
    """
    multiply_vector(covariance, u, p)
    error, total = reward - dot(u, mean), variance + dot(u, p)
    for i in range(u.size):
        mean[i] += p[i] * (error / total)
        for j in range(u.size):
            covariance[i, j] -= (p[i] * p[j]) / total
    return error, total


@compiled
def find_variances(arrays: PolicyArrays, parts: PartsState) -> None:
    """Find the variances of the parts, and that of a still θ until it starts again."""
    rule, counts, d = arrays.rules[0], arrays.tally[0], arrays.rules[0].dim
    first, noise = parts.numbers[FIRST_VARIANCE], compute_noise(arrays) ** 2
    is_due = counts.seen >= FIRST_EXCHANGE and counts.seen & (counts.seen - 1) == 0
    lived = counts.clock - parts.numbers[FIRST_TIME] if rule.in_time else float(counts.seen)
    whole, found = 0.0, np.empty(rule.parts)
    for s in range(rule.parts):
        whole += parts.variances[s]
    for s in range(rule.parts):
        trace, square = measure_filter(parts.means, parts.covariance, s * d, d)
        determined = d - trace / parts.variances[s]
        parts.determined[s] = EVIDENCE_FADE * parts.determined[s] + determined
        parts.squares[s] = EVIDENCE_FADE * parts.squares[s] + square / noise
        found[s] = find_variance(
            IMAGINED_WEIGHTS, first * rule.shares[s], parts.squares[s], parts.determined[s]
        )
        found[s] = max(found[s], LEAST_SHARE * rule.shares[s] * whole)
    for s in range(rule.parts):
        is_young = rule.half_lives[s] > 2.0 * lived
        if is_young and is_due:
            more = 1.0 / found[s] - 1.0 / parts.variances[s]
            exchange_prior(parts.means, parts.covariance, s * d, d, more)
        if is_due or not is_young:
            parts.variances[s] = found[s]
    old = parts.numbers[STILL_VARIANCE]
    if is_due and old > 0.0:
        trace, square = measure_filter(parts.still_mean, parts.still_covariance, 0, d)
        new = find_variance(IMAGINED_STILL_WEIGHTS, first, square / noise, d - trace / old)
        exchange_prior(parts.still_mean, parts.still_covariance, 0, d, 1.0 / new - 1.0 / old)
        parts.numbers[STILL_VARIANCE] = new


@compiled
def measure_filter(mean: Floats, covariance: Floats, first: int, count: int) -> tuple[float, float]:
    """Return the trace of a diagonal block of the covariance, and ‖m‖² of its mean."""
    trace, square = 0.0, 0.0
    for i in range(first, first + count):
        trace += covariance[i, i]
        square += mean[i] * mean[i]
    return trace, square


@compiled
def exchange_prior(mean: Floats, covariance: Floats, first: int, count: int, more: float) -> None:
    """Add `more` to the prior precision of some weights, whose prior mean is 0, one by one."""
    column = np.empty(mean.size)
    for k in range(first, first + count):
        own, divisor = mean[k], 1.0 + more * covariance[k, k]
        for i in range(mean.size):
            column[i] = covariance[i, k]
        for i in range(mean.size):
            step = more / divisor * column[i]
            mean[i] -= step * own
            for j in range(mean.size):
                covariance[i, j] -= more / divisor * (column[i] * column[j])


@compiled
def sum_parts(arrays: PolicyArrays, parts: PartsState, state: State) -> None:
    """Write θ̂ and V⁻¹ of the belief that chooses: that of the parts, or that θ is still."""
    rule, d = arrays.rules[0], arrays.rules[0].dim
    is_still = rule.finds and parts.numbers[ODDS] > 0.0
    if not is_still:
        for i in range(d):
            state.theta[i] = 0.0
            for j in range(d):
                state.inverse[i, j] = 0.0
        for s in range(rule.parts):
            for i in range(d):
                state.theta[i] += parts.means[s * d + i]
            for t in range(rule.parts):
                for i in range(d):
                    for j in range(d):
                        state.inverse[i, j] += parts.covariance[s * d + i, t * d + j]
    if rule.finds and parts.numbers[ODDS] <= -MOST_ODDS:
        copy_vector(state.theta, parts.still_mean)
        copy_matrix(state.inverse, parts.still_covariance)
        for s in range(rule.parts):
            for i in range(d):
                parts.still_covariance[i, i] += parts.variances[s]
        parts.numbers[ODDS], parts.numbers[STILL_VARIANCE] = -0.5 * MOST_ODDS, 0.0
    if is_still:
        copy_vector(parts.still_mean, state.theta)
        copy_matrix(parts.still_covariance, state.inverse)
