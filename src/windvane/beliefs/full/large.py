"""Large beliefs: matrices that change once for several observations, by BLAS and LAPACK.

To change four matrices for every observation takes longer than to read them. So the matrices of a
large belief stay as they are for some observations, and these are kept beside the matrices, as a
correction of low rank. With the factor F by which older weights have fallen since, the weights
ω = w/F and the vectors z, q and numbers e and s of each observation:

    S = F·(S₀ + Σ ω·xxᵀ),  S̃ = F²·(S̃₀ + Σ ω²·xxᵀ),  P = (P₀ − Σ zzᵀ/e)/F,
    Q = Q₀ + Σ ((1+s)·zzᵀ/e² − (zqᵀ + qzᵀ)/e)

The estimate follows every observation at once. Sums of BLAS depend on its number of threads, so
that the last bits of a large belief do, too.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.blas import compute_forms, multiply_rows
from windvane._numba.compilation import compiled
from windvane._numba.instructions import view_matrix
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.choosing import (
    WIDTH_ROUNDING,
    choose_by_scores,
    compute_scale,
    draw_level,
    drop_beaten_arms,
    score_linearly,
)
from windvane.beliefs.full.layout import (
    HALF_LIFE,
    LARGEST,
    NOISE,
    PENDING_COUNTERS,
    WIDTH,
    PolicyArrays,
)
from windvane.beliefs.full.learning import (
    LEAST_FADE,
    LEAST_WEIGHT,
    NOT_FINITE,
    advance_clock,
    check_observations,
    weigh_age,
)
from windvane.beliefs.full.linalg import copy_vector, dot, fill
from windvane.beliefs.full.noise import add_error
from windvane.beliefs.full.widths import bound_width_error, compute_squared_norms
from windvane.types import Floats

COUNT, FADE = 0, 1  # places in `head`
RIVALS_AT_ONCE = 2  # arms whose widths are corrected together
MOST_STEPS = 60  # of conjugate gradients
ESTIMATE_TOLERANCE = 1e-9  # relative error of θ̂
WIDTH_TOLERANCE = 1e-9  # error of widths behind propensities and noise, for ‖x‖/√λ = 1
EXACT_TOLERANCE = 1e-10  # error of the widths that decide, for ‖x‖/√λ = 1


class Pending(NamedTuple):
    """The observations that wait: views of the end of the block."""

    head: Floats  # (2,)  how many observations wait, and F
    residual: Floats  # (d,)  b − W·θ̂, which the next estimate takes into account
    divisors: Floats  # (room,)  e = 1/ω + xᵀz
    weights: Floats  # (room,)  ω
    squares: Floats  # (room,)  s = xᵀq
    rows: Floats  # (room, d)  x
    images: Floats  # (room, d)  z = F·Px, with F and P before the observation
    spread_images: Floats  # (room, d)  q = Qx, with Q before it; (0, d) if Q is P


@compiled
def view_pending(arrays: PolicyArrays) -> Pending:
    """Return the observations that wait as views of the block."""
    rule, block = arrays.rules[0], arrays.block
    d, room = rule.dim, rule.room
    spread_rows = room if rule.twin and rule.style == WIDTH else 0
    first = PENDING_COUNTERS + d
    tail = block[block.size - first - 3 * room - (2 * room + spread_rows) * d :]
    numbers, rows = tail[first : first + 3 * room], tail[first + 3 * room :]
    return Pending(
        tail[:PENDING_COUNTERS],
        tail[PENDING_COUNTERS:first],
        numbers[:room],
        numbers[room : 2 * room],
        numbers[2 * room :],
        view_matrix(rows, 0, room, d),
        view_matrix(rows, room * d, room, d),
        view_matrix(rows, 2 * room * d, spread_rows, d),
    )


@compiled
def get_fade(pending: Pending) -> float:
    """F, by which older weights have fallen since the matrices were changed."""
    return pending.head[FADE] if pending.head[COUNT] > 0.0 else 1.0


@compiled
def multiply_by_inverse(state: State, pending: Pending, rows: Floats) -> Floats:
    """P·row of every row, (n, d)."""
    out, m = multiply_rows(rows, state.inverse), int(pending.head[COUNT])
    if m > 0:
        z = pending.images[:m]
        out -= np.dot(np.dot(rows, z.T) / pending.divisors[:m], z)
        out /= get_fade(pending)
    return out


@compiled
def multiply_by_spread(state: State, pending: Pending, rows: Floats) -> Floats:
    """Q·row of every row, (n, d)."""
    if pending.spread_images.shape[0] == 0:
        return multiply_by_inverse(state, pending, rows)
    out, m = multiply_rows(rows, state.spread), int(pending.head[COUNT])
    if m > 0:
        z, q, e = pending.images[:m], pending.spread_images[:m], pending.divisors[:m]
        along_z, along_q = np.dot(rows, z.T) / e, np.dot(rows, q.T) / e
        out += np.dot((1.0 + pending.squares[:m]) / e * along_z - along_q, z)
        out -= np.dot(along_z, q)
    return out


@compiled
def compute_inverse_forms(state: State, pending: Pending, arms: Floats) -> Floats:
    """xᵀPx of every arm, (K,)."""
    forms, m = compute_forms(state.inverse, arms), int(pending.head[COUNT])
    if m > 0:
        along_z = np.dot(arms, pending.images[:m].T)
        for k in range(forms.size):
            for i in range(m):
                forms[k] -= along_z[k, i] * along_z[k, i] / pending.divisors[i]
            forms[k] /= get_fade(pending)
    return forms


@compiled
def compute_spread_forms(state: State, pending: Pending, arms: Floats) -> Floats:
    """xᵀQx of every arm, (K,)."""
    if pending.spread_images.shape[0] == 0:
        return compute_inverse_forms(state, pending, arms)
    forms, m = compute_forms(state.spread, arms), int(pending.head[COUNT])
    if m > 0:
        e, s = pending.divisors, pending.squares
        along_z = np.dot(arms, pending.images[:m].T)
        along_q = np.dot(arms, pending.spread_images[:m].T)
        for k in range(forms.size):
            for i in range(m):
                share = along_z[k, i] / e[i]
                forms[k] += share * ((1.0 + s[i]) * share - 2.0 * along_q[k, i])
    return forms


@compiled
def multiply_by_noise(arrays: PolicyArrays, state: State, rows: Floats) -> Floats:
    """W̃·row of every row, (n, d)."""
    rule, pending = arrays.rules[0], view_pending(arrays)
    out, m, power = multiply_rows(rows, state.noise), int(pending.head[COUNT]), 1 + rule.twin
    if m > 0:
        x = pending.rows[:m]
        out += np.dot(np.dot(rows, x.T) * pending.weights[:m] ** power, x)
        out *= get_fade(pending) ** power
    out += rule.ridge * rows
    return out


@compiled
def solve_rows(
    state: State, pending: Pending, lag: float, residuals: Floats, images: Floats, limits: Floats
) -> Floats:
    """The answers (n, d) whose residuals (n, d) have norms up to `limits` (n,), from 0.

    Conjugate gradients for (P⁻¹ + lag·I)·answer = right, preconditioned by P. Because of
    (P⁻¹ + lag·I)·P = I + lag·P, a step needs one product with P, and no other. `images` is
    P·residuals, and the residuals are replaced by those of the answers.
    """
    n, d = residuals.shape
    answers, steps, changes = np.zeros((n, d)), np.zeros((n, d)), np.zeros((n, d))
    energies = np.ones(n)
    for count in range(MOST_STEPS):
        unsolved = 0
        for k in range(n):
            residual, image, step, change = residuals[k], images[k], steps[k], changes[k]
            energy = dot(residual, image)
            if dot(residual, residual) <= limits[k] * limits[k] or not energy > 0.0:
                continue
            ratio = energy / energies[k] if count > 0 else 0.0
            for i in range(d):
                step[i] = image[i] + ratio * step[i]
                change[i] = residual[i] + lag * image[i] + ratio * change[i]
            length = energy / dot(step, change)
            for i in range(d):
                answers[k, i] += length * step[i]
                residual[i] -= length * change[i]
            energies[k] = energy
            unsolved += dot(residual, residual) > limits[k] * limits[k]
        if unsolved == 0:
            break
        images = multiply_by_inverse(state, pending, residuals)
    return answers


@compiled
def compute_large_widths(
    arrays: PolicyArrays, arms: Floats, images: Floats, tolerance: float
) -> Floats:
    """‖x‖_{V⁻¹} = √(uᵀW̃u) with W·u = x of every arm, (K,); `images` is P·x of every arm, (K, d).

    The error is at most ‖x − W·u‖/√λ, because W̃ is not larger than W and W not smaller than λ; up
    to rounding this is `tolerance` times ‖x‖/√λ.
    """
    rule, state, pending = arrays.rules[0], view_belief(arrays), view_pending(arrays)
    limits, lag = (
        tolerance * np.sqrt(compute_squared_norms(arms)),
        rule.ridge - arrays.tally[0].ridge,
    )
    solutions = solve_rows(state, pending, lag, arms.copy(), images, limits)
    noise_images = multiply_by_noise(arrays, state, solutions) if rule.twin else arms
    widths = np.empty(arms.shape[0])
    for k in range(widths.size):
        widths[k] = math.sqrt(max(dot(solutions[k], noise_images[k]), 0.0))
    return widths


@compiled
def measure_large(arrays: PolicyArrays, arms: Floats) -> Floats:
    """‖x‖_{V⁻¹} of every arm, (K,), as propensities need it."""
    images = multiply_by_inverse(view_belief(arrays), view_pending(arrays), arms)
    return compute_large_widths(arrays, arms, images, WIDTH_TOLERANCE)


@compiled
def learn_into_large_sums(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Learn one observation, whose arm was chosen at time or round `at`, and estimate θ̂.

    Return 0, or the code of a refusal; then nothing has changed.
    """
    row = view_matrix(x, 0, 1, x.size)
    refusal = check_observations(arrays, row)
    if refusal != 0:
        return refusal
    rule, counts, state = arrays.rules[0], arrays.tally[0], view_belief(arrays)
    pending = view_pending(arrays)
    fade, weight = rule.gamma, 1.0
    if rule.memory == HALF_LIFE:
        fade, weight = advance_clock(arrays, at)
    images = multiply_by_inverse(state, pending, row)
    if rule.unit == NOISE:
        width = compute_large_widths(arrays, row, images, WIDTH_TOLERANCE)[0]
        add_error(arrays, reward - dot(x, state.theta), 1.0 + width * width, fade, weight)
    if fade * get_fade(pending) < LEAST_FADE:
        change_matrices(arrays)
        if fade < LEAST_FADE:
            fade_sums(arrays, state, fade)
            fade = 1.0
        images = multiply_by_inverse(state, pending, row)
    add_pending(arrays, row, images, reward, fade, weight)
    counts.stale += 1
    counts.seen += 1
    if is_stale(arrays) or pending.head[COUNT] == rule.room:
        change_matrices(arrays)
        estimate_from_sums(arrays, state)
    return 0


@compiled
def add_pending(
    arrays: PolicyArrays, row: Floats, images: Floats, reward: float, fade: float, weight: float
) -> None:
    """Let one more observation wait, and estimate θ̂ with it; `images` is P·row, (1, d)."""
    rule, counts, state = arrays.rules[0], arrays.tally[0], view_belief(arrays)
    pending = view_pending(arrays)
    x, m, older_fade = row[0], int(pending.head[COUNT]), get_fade(pending)
    weight = max(weight, LEAST_WEIGHT)
    error, residual = reward - dot(x, state.theta), pending.residual
    if pending.spread_images.shape[0] > 0:
        copy_vector(multiply_by_spread(state, pending, row)[0], pending.spread_images[m])
        pending.squares[m] = dot(x, pending.spread_images[m])
    copy_vector(x, pending.rows[m])
    copy_vector(older_fade * images[0], pending.images[m])
    pending.weights[m] = weight / (older_fade * fade)
    pending.divisors[m] = 1.0 / pending.weights[m] + dot(x, pending.images[m])
    pending.head[COUNT], pending.head[FADE] = m + 1.0, older_fade * fade
    for i in range(x.size):
        state.moment[i] = fade * state.moment[i] + weight * (x[i] * reward)
        residual[i] = fade * residual[i] + weight * (x[i] * error)
        residual[i] -= (1.0 - fade) * rule.ridge * state.theta[i]
    counts.ridge *= fade
    counts.noise_ridge *= fade * fade if rule.twin else fade
    counts.energy = fade * counts.energy + weight * dot(x, x)
    refine_estimate(arrays, state)


@compiled
def refine_estimate(arrays: PolicyArrays, state: State) -> None:
    """Refine θ̂ until its residual is small."""
    rule, pending, limits = arrays.rules[0], view_pending(arrays), np.empty(1)
    residuals = view_matrix(pending.residual, 0, 1, rule.dim)
    images = multiply_by_inverse(state, pending, residuals)
    size = max(dot(state.theta, state.theta), dot(images[0], images[0]))
    limits[0] = ESTIMATE_TOLERANCE * rule.ridge * math.sqrt(size)
    lag = rule.ridge - arrays.tally[0].ridge
    change = solve_rows(state, pending, lag, residuals, images, limits)[0]
    for i in range(rule.dim):
        state.theta[i] += change[i]


@compiled
def estimate_from_sums(arrays: PolicyArrays, state: State) -> None:
    """Refine θ̂ until W·θ̂ = b, from the residual against W itself; no observation waits."""
    product, residual = np.dot(state.gram, state.theta), view_pending(arrays).residual
    for i in range(residual.size):
        residual[i] = state.moment[i] - product[i] - arrays.rules[0].ridge * state.theta[i]
    refine_estimate(arrays, state)


@compiled
def amend_large(arrays: PolicyArrays, x: Floats, more: float, at: float) -> None:
    """Add to the reward of an observation that was learned before: b ← b + w·x·more."""
    state, residual, weight = view_belief(arrays), view_pending(arrays).residual, 1.0
    if arrays.rules[0].memory == HALF_LIFE:
        weight = weigh_age(arrays, min(at, arrays.tally[0].clock))
    for i in range(x.size):
        state.moment[i] += weight * (x[i] * more)
        residual[i] += weight * (x[i] * more)
    refine_estimate(arrays, state)


@compiled
def is_stale(arrays: PolicyArrays) -> bool:
    """Whether W must be inverted."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    return bool(counts.stale >= rule.refresh or counts.ridge < rule.least * rule.ridge)


@compiled
def change_matrices(arrays: PolicyArrays) -> None:
    """Let all matrices follow the observations that wait; invert W if that is due."""
    rule, state, pending = arrays.rules[0], view_belief(arrays), view_pending(arrays)
    m, fade = int(pending.head[COUNT]), get_fade(pending)
    if m == 0:
        return
    roots = np.sqrt(pending.weights[:m]).reshape(m, 1)
    add_squares(state.gram, pending.rows[:m] * roots, 1.0, fade)
    if rule.twin:
        add_squares(state.noise, pending.rows[:m] * (roots * roots), 1.0, fade * fade)
    if is_stale(arrays):
        refresh_large(arrays, state)
    else:
        z, e = pending.images[:m], pending.divisors[:m].reshape(m, 1)
        add_squares(state.inverse, z / np.sqrt(e), -1.0, 1.0 / fade)
        if pending.spread_images.shape[0] > 0:
            own = 0.5 * (1.0 + pending.squares[:m].reshape(m, 1)) / (e * e)
            half = np.dot((own * z - pending.spread_images[:m] / e).T, z)
            spread = state.spread
            spread += half + half.T
    residual = pending.residual.copy()
    fill(arrays.block[arrays.block.size - count_pending_numbers(pending) :], 0.0)
    copy_vector(residual, pending.residual)


@compiled
def count_pending_numbers(pending: Pending) -> int:
    """The numbers at the end of the block that belong to observations that wait."""
    matrices = pending.rows.size + pending.images.size + pending.spread_images.size
    return pending.head.size + pending.residual.size + 3 * pending.weights.size + matrices


@compiled
def add_squares(matrix: Floats, rows: Floats, sign: float, factor: float) -> None:
    """matrix ← factor·(matrix + sign·rowsᵀ·rows)."""
    products = np.dot(rows.T, rows)
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] = factor * (matrix[i, j] + sign * products[i, j])


@compiled
def fade_sums(arrays: PolicyArrays, state: State, fade: float) -> None:
    """Let all weights fall by a factor so small that W is inverted; no observation waits."""
    rule = arrays.rules[0]
    for i in range(rule.dim):
        state.moment[i] *= fade
        for j in range(rule.dim):
            state.gram[i, j] *= fade
            if rule.twin:
                state.noise[i, j] *= fade * fade
    arrays.tally[0].energy *= fade
    refresh_large(arrays, state)
    estimate_from_sums(arrays, state)


@compiled
def refresh_large(arrays: PolicyArrays, state: State) -> None:
    """Recompute `inverse` and `spread` from the sums, as `refresh` does."""
    rule, counts, d = arrays.rules[0], arrays.tally[0], arrays.rules[0].dim
    counts.ridge = rule.ridge * rule.lead
    counts.noise_ridge = rule.ridge * (rule.lead * rule.lead if rule.twin else rule.lead)
    counts.stale = 0
    inverse = np.linalg.inv(state.gram + counts.ridge * np.eye(d))
    symmetrize(inverse, state.inverse)
    if rule.twin and rule.style == WIDTH:
        half = np.dot(state.noise + counts.noise_ridge * np.eye(d), state.inverse)
        symmetrize(np.dot(state.inverse, half), state.spread)


@compiled
def symmetrize(matrix: Floats, out: Floats) -> None:
    """Write the mean of a matrix (d, d) and its transpose to `out`."""
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            out[i, j] = 0.5 * (matrix[i, j] + matrix[j, i])
            out[j, i] = out[i, j]


@compiled
def choose_by_large_widths(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) by xᵀθ̂ + z‖x‖_{V⁻¹}; return its place, or NOT_FINITE."""
    start = _random.start_round(np.uint64(key), round_)
    norms = compute_squared_norms(arms)
    for k in range(norms.size):
        if not norms[k] <= LARGEST:
            return NOT_FINITE
    z = draw_level(arrays.rules, compute_scale(arrays), start)
    return choose_by_scores(arrays.rules, score_with_large_widths(arrays, arms, norms, z), start)


@compiled
def score_with_large_widths(
    arrays: PolicyArrays, arms: Floats, squared_norms: Floats, z: float
) -> Floats:
    """xᵀθ̂ + z‖x‖_{V⁻¹} of every arm that can be the best, −inf for the others, (K,).

    As in `score_with_widths`, widths of growing accuracy bound the scores until one arm is left.
    """
    state, pending, n = view_belief(arrays), view_pending(arrays), arms.shape[0]
    highest, lowest = np.empty(n), np.empty(n)
    means, relative_error = score_linearly(arms, state.theta), bound_width_error(arrays)
    roundings = WIDTH_ROUNDING * np.sqrt(squared_norms / arrays.rules[0].ridge)
    squares = compute_spread_forms(state, pending, arms)
    for k in range(n):
        width = math.sqrt(max(squares[k], 0.0))
        error = relative_error * width + roundings[k]
        highest[k], lowest[k] = bound_score(means[k], z, width, error)
    count = drop_beaten_arms(highest, lowest)
    if count > 1 and relative_error > 0.0:
        places = np.flatnonzero(highest > -np.inf)
        forms = compute_inverse_forms(state, pending, arms[places])
        for m in range(count):
            k = places[m]
            width, error = bound_width(arrays, squares[k], forms[m])
            highest[k], lowest[k] = bound_score(means[k], z, width, error + roundings[k])
        count = drop_beaten_arms(highest, lowest)
    if count > 1 and relative_error > 0.0:
        places, bar = np.argsort(-highest)[:count], lowest.max()
        for first in range(0, count, RIVALS_AT_ONCE):  # the best exclude most of the others
            some = places[first : first + RIVALS_AT_ONCE]
            some = some[highest[some] >= bar]
            images = multiply_by_inverse(state, pending, arms[some])  # Px
            spread_images = multiply_by_spread(state, pending, arms[some])  # Qx
            for m in range(some.size):
                k = some[m]
                width, error = correct_width(arrays, squares[k], images[m], spread_images[m])
                highest[k], lowest[k] = bound_score(means[k], z, width, error + roundings[k])
                bar = max(bar, lowest[k])
        count = drop_beaten_arms(highest, lowest)
    if count > 1:
        places = np.flatnonzero(highest > -np.inf)
        rivals = arms[places]
        images = multiply_by_inverse(state, pending, rivals)
        widths = compute_large_widths(arrays, rivals, images, EXACT_TOLERANCE)
        for m in range(count):
            highest[places[m]] = means[places[m]] + z * widths[m]
    return highest


@compiled
def bound_score(mean: float, z: float, width: float, error: float) -> tuple[float, float]:
    """The highest and the lowest score of an arm, given the largest error of its width."""
    highest = mean + z * width + abs(z) * error
    return highest, highest - 2.0 * abs(z) * error


@compiled
def bound_width(arrays: PolicyArrays, square: float, form: float) -> tuple[float, float]:
    """A width of x for the ridge λ, given xᵀQx and xᵀPx, and the largest error of it.

    From the ridges Λ and Λ̃ to λ on a straight line, with ℓ = λ−Λ, ν = λ−Λ̃, g = Λ−Λ̃, u = W⁻¹x,
    D = S−S̃ and t falling from 1 to 0, the square f = uᵀW̃u changes by
    f' = (ν−2ℓ)‖u‖² + 2ℓ·uᵀW⁻¹Du + 2ℓtg·uᵀW⁻¹u. Because of 0 ≤ D ≤ S and W = S + ridge, the
    product uᵀW⁻¹Du is at most √(uᵀDu)·‖u‖/(2√ridge), and the same bounds how ‖u‖² and uᵀDu change.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    lag, noise_lag = rule.ridge - counts.ridge, rule.ridge - counts.noise_ridge
    gap, least = abs(counts.ridge - counts.noise_ridge), min(rule.ridge, counts.ridge)
    share = abs(lag) / least
    length = max(min(square / counts.noise_ridge, form / counts.ridge), 0.0)  # ≥ ‖u‖²
    root = math.sqrt(max(form - square, 0.0) + gap * length)  # ≥ √(uᵀDu)
    length *= math.exp(2.0 * share)
    root += 0.5 * share * math.sqrt(least * length)
    change = (abs(noise_lag - 2.0 * lag) + 2.0 * share * gap) * length
    change += share * root * math.sqrt(least * length)
    low, high = math.sqrt(max(square - change, 0.0)), math.sqrt(max(square + change, 0.0))
    return 0.5 * (high + low), 0.5 * (high - low)


@compiled
def correct_width(arrays: PolicyArrays, square: float, p: Floats, q: Floats) -> tuple[float, float]:
    """The width of x for the ridge λ, given xᵀQx, p = Px and q = Qx, and the largest error of it.

    With ℓ = λ−Λ, ν = λ−Λ̃ and ũ = p − ℓPp: w² = xᵀQx + ν‖p‖² − 2ℓpᵀq differs from ‖ũ‖²_W̃ by
    2ℓν·pᵀPp − ℓ²‖Pp‖²_W̃, and u − ũ = ℓ²P²u. Both are bounded by P ≤ 1/Λ and W̃ ≤ W ≤ P⁻¹ + |ℓ|.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    lag, noise_lag = rule.ridge - counts.ridge, rule.ridge - counts.noise_ridge
    share, noise_share = abs(lag) / counts.ridge, abs(noise_lag) / counts.ridge
    length = dot(p, p)
    square = max(square + noise_lag * length - 2.0 * lag * dot(p, q), 0.0)
    unit = counts.ridge * length
    slack = unit * (2.0 * share * noise_share + share * share * (1.0 + share))
    low, high = math.sqrt(max(square - slack, 0.0)), math.sqrt(square + slack)
    error = share * share * math.sqrt(unit * (1.0 + share)) / max(1.0 - share, 0.1)
    return 0.5 * (high + low), 0.5 * (high - low) + error
