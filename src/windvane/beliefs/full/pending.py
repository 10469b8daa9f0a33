"""Observations that wait until the matrices of a large belief follow them.

To change four matrices for every observation takes longer than to read them, and to read them takes
longer than all else. So the matrices of a large belief stay as they are for some observations, and
these are kept beside the matrices, as a correction of low rank. With the factor F by which older
weights have fallen since, the weights ω = w/F and the vectors z, q, e and s of each observation:

    S = F·(S₀ + Σ ω·xxᵀ),  S̃ = F²·(S̃₀ + Σ ω²·xxᵀ),  P = (P₀ − Σ zzᵀ/e)/F,
    Q = Q₀ + Σ ((1+s)·zzᵀ/e² − (zqᵀ + qzᵀ)/e)

Only the lower halves of the matrices are kept up to date.
"""

from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane._numba.matrix_views import view_matrix
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.blocked_inverse import (
    Span,
    add_row_products,
    invert_in_blocks,
    is_positive_definite,
)
from windvane.beliefs.full.layout import PENDING_COUNTERS, WIDTH, PolicyArrays
from windvane.beliefs.full.linalg import copy_matrix, dot, fill
from windvane.beliefs.full.symmetric_products import (
    add_outer_products,
    find_non_zeros,
    is_sparse,
    mirror_lower_half,
    multiply_rows_symmetric,
    multiply_symmetric,
    multiply_symmetric_sparse,
)
from windvane.types import Floats, Places

COUNT, FADE, RATIO = 0, 1, 2  # places in `head`
MOST_STEPS = 60  # of conjugate gradients
FIRST_RATIO = 4.0  # the τ that is tried if none is known
RATIO_STEP = 0.8  # by which τ − 1 is multiplied to find a smaller τ
ROUNDING = 1e-15  # of a number of a matrix, relative to the trace


class Pending(NamedTuple):
    """The observations that wait: views of the end of the block."""

    head: Floats  # (3,)  how many observations wait, F, and τ ≥ 1 with W ≤ τW̃, or 0 if unknown
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
    has_spread = rule.twin and rule.style == WIDTH
    first = PENDING_COUNTERS + d
    size = first + 3 * room + (3 if has_spread else 2) * room * d
    tail = block[block.size - size :]
    numbers = tail[first : first + 3 * room]
    rows = tail[first + 3 * room :]
    count = room if has_spread else 0
    return Pending(
        tail[:PENDING_COUNTERS],
        tail[PENDING_COUNTERS:first],
        numbers[:room],
        numbers[room : 2 * room],
        numbers[2 * room :],
        view_matrix(rows, 0, room, d),
        view_matrix(rows, room * d, room, d),
        view_matrix(rows, 2 * room * d, count, d),
    )


@compiled
def get_fade(pending: Pending) -> float:
    """F, by which older weights have fallen since the matrices were changed."""
    return pending.head[FADE] if pending.head[COUNT] > 0.0 else 1.0


@compiled
def correct_image(pending: Pending, count: int, row: Floats, image: Floats) -> None:
    """Turn P₀·row into F·P·row, both (d,), for the first `count` observations that wait."""
    for m in range(count):
        z = pending.images[m]
        share = dot(z, row) / pending.divisors[m]
        for i in range(image.size):
            image[i] -= share * z[i]


@compiled
def correct_spread_image(pending: Pending, count: int, row: Floats, image: Floats) -> None:
    """Turn Q₀·row into Q·row, both (d,), for the first `count` observations that wait."""
    for m in range(count):
        z, q, e = pending.images[m], pending.spread_images[m], pending.divisors[m]
        along_z, along_q = dot(z, row) / e, dot(q, row) / e
        share = (1.0 + pending.squares[m]) * along_z / e - along_q
        for i in range(image.size):
            image[i] += share * z[i] - along_z * q[i]


@compiled
def multiply_by_inverse(
    state: State, pending: Pending, rows: Floats, places: Places, out: Floats
) -> None:
    """Write P·row of the rows (n, d) at `places` to the same places of `out` (n, d)."""
    multiply_rows_symmetric(state.inverse, rows, places, out)
    count, fade = int(pending.head[COUNT]), get_fade(pending)
    for k in places:
        correct_image(pending, count, rows[k], out[k])
        for i in range(out.shape[1]):
            out[k, i] /= fade


@compiled
def multiply_one(matrix: Floats, row: Floats, out: Floats) -> None:
    """Write matrix·row to `out` (d,); of a sparse row only the non-zeros are used."""
    if is_sparse(row):
        places = np.empty(row.size, np.int64)
        used = find_non_zeros(row, places)
        multiply_symmetric_sparse(matrix, row, places[:used], out)
    else:
        multiply_symmetric(matrix, row, out)


@compiled
def multiply_by_noise(arrays: PolicyArrays, state: State, rows: Floats, out: Floats) -> None:
    """Write W̃·row of every row (n, d) to `out` (n, d)."""
    rule, pending = arrays.rules[0], view_pending(arrays)
    fade, power = get_fade(pending), 2 if rule.twin else 1
    places = np.empty(rows.shape[0], np.int64)
    for k in range(places.size):
        places[k] = k
    multiply_rows_symmetric(state.noise, rows, places, out)
    for k in range(rows.shape[0]):
        image = out[k]
        for m in range(int(pending.head[COUNT])):
            x = pending.rows[m]
            share = pending.weights[m] ** power * dot(x, rows[k])
            for i in range(image.size):
                image[i] += share * x[i]
        for i in range(image.size):
            image[i] = fade**power * image[i] + rule.ridge * rows[k, i]


@compiled
def solve_rows(
    state: State,
    pending: Pending,
    lags: Floats,
    residuals: Floats,
    answers: Floats,
    first_images: Floats,
    limits: Floats,
) -> None:
    """Refine answers (n, d) until the residuals (n, d) have norms up to `limits` (n,).

    Conjugate gradients for (P⁻¹ + lag·I)·answer = right, preconditioned by P. Because of
    (P⁻¹ + lag·I)·P = I + lag·P, a step needs one product with P, and no other. `first_images` is
    P·residuals if it is known, else empty.
    """
    n, d = residuals.shape
    images, steps, changes = np.empty((n, d)), np.zeros((n, d)), np.zeros((n, d))
    energies, places = np.ones(n), np.empty(n, np.int64)
    for count in range(MOST_STEPS):
        unsolved = 0
        for k in range(n):
            if not dot(residuals[k], residuals[k]) <= limits[k] * limits[k]:
                places[unsolved] = k
                unsolved += 1
        if unsolved == 0:
            return
        if count == 0 and first_images.shape[0] > 0:
            copy_matrix(first_images, images)
        else:
            multiply_by_inverse(state, pending, residuals, places[:unsolved], images)
        for m in range(unsolved):
            k = places[m]
            energy = dot(residuals[k], images[k])
            if not energy > 0.0:
                continue
            step, change, residual, answer = steps[k], changes[k], residuals[k], answers[k]
            ratio, lag = energy / energies[k] if count > 0 else 0.0, lags[k]
            for i in range(d):
                step[i] = images[k, i] + ratio * step[i]
                change[i] = residual[i] + lag * images[k, i] + ratio * change[i]
            length = energy / dot(step, change)
            for i in range(d):
                answer[i] += length * step[i]
                residual[i] -= length * change[i]
            energies[k] = energy


@compiled
def add_pending_sums(arrays: PolicyArrays, gram: Floats, noise: Floats) -> None:
    """Add the observations that wait to the lower halves of S₀ and, if it is kept, S̃₀."""
    pending, rule = view_pending(arrays), arrays.rules[0]
    count, d = int(pending.head[COUNT]), rule.dim
    padded = count + (-count) % 4
    rows, weighted, fade = np.zeros((padded, d)), np.zeros((padded, d)), get_fade(pending)
    for power in range(1, 3 if rule.twin else 2):
        for m in range(count):
            weight = pending.weights[m] ** power
            for i in range(d):
                rows[m, i] = pending.rows[m, i]
                weighted[m, i] = weight * rows[m, i]
        add_outer_products(gram if power == 1 else noise, weighted, rows, fade**power)


@compiled
def change_inverse(arrays: PolicyArrays, state: State) -> None:
    """Let the lower halves of P and, if it is kept, Q follow the observations that wait."""
    pending, rule = view_pending(arrays), arrays.rules[0]
    count, d = int(pending.head[COUNT]), rule.dim
    padded = count + (-count) % 4
    left, right = np.zeros((2 * padded, d)), np.zeros((2 * padded, d))
    for m in range(count):
        z, e = pending.images[m], pending.divisors[m]
        for i in range(d):
            left[m, i] = z[i]
            right[m, i] = -z[i] / e
    add_outer_products(state.inverse, left[:padded], right[:padded], 1.0 / get_fade(pending))
    if pending.spread_images.shape[0] > 0:
        for m in range(count):
            z, q, e = pending.images[m], pending.spread_images[m], pending.divisors[m]
            own = 0.5 * (1.0 + pending.squares[m]) / (e * e)
            for i in range(d):
                right[m, i] = own * z[i] - q[i] / e
                left[padded + m, i] = right[m, i]
                right[padded + m, i] = z[i]
        add_outer_products(state.spread, left, right, 1.0)


@compiled
def forget_pending(pending: Pending) -> None:
    """Let no observation wait; the residual and τ stay."""
    pending.head[COUNT], pending.head[FADE] = 0.0, 0.0
    fill(pending.divisors, 0.0)
    fill(pending.weights, 0.0)
    fill(pending.squares, 0.0)
    for m in range(pending.rows.shape[0]):
        fill(pending.rows[m], 0.0)
        fill(pending.images[m], 0.0)
    for m in range(pending.spread_images.shape[0]):
        fill(pending.spread_images[m], 0.0)


@compiled
def refresh_in_blocks(arrays: PolicyArrays, state: State) -> None:
    """Recompute the lower halves of `inverse` and `spread` from the sums, as `refresh` does."""
    rule, counts, d = arrays.rules[0], arrays.tally[0], arrays.rules[0].dim
    counts.ridge = rule.ridge * rule.lead
    counts.noise_ridge = rule.ridge * (rule.lead * rule.lead if rule.twin else rule.lead)
    counts.stale = 0
    ridged = np.empty((d, d))
    copy_matrix(state.gram, ridged)
    for i in range(d):
        ridged[i, i] += counts.ridge
    invert_in_blocks(ridged, state.inverse)
    if rule.twin and rule.style == WIDTH:
        half = np.zeros((d, d))
        copy_matrix(state.noise, ridged)
        for i in range(d):
            ridged[i, i] += counts.noise_ridge
        mirror_lower_half(ridged)
        mirror_lower_half(state.inverse)
        add_row_products(state.inverse, ridged, Span(0, d, 0, d, 0, d), half, 0, 1.0)
        for i in range(d):
            fill(state.spread[i], 0.0)
        for low in range(0, d, 64):
            high = min(low + 64, d)
            span = Span(low, high, 0, high, 0, d)
            add_row_products(half, state.inverse, span, state.spread, 0, 1.0)
        lower_ratio(arrays, state, half)


@compiled
def lower_ratio(arrays: PolicyArrays, state: State, scratch: Floats) -> None:
    """Look for a smaller τ with W ≤ τW̃; no observation waits.

    Every lesson raises τ by the factor by which older weights fall. A smaller τ is taken if
    τW̃ − W has a root, also after more than its rounding error was taken off its diagonal.
    """
    rule, counts, head = arrays.rules[0], arrays.tally[0], view_pending(arrays).head
    d, ratio = (
        rule.dim,
        FIRST_RATIO if head[RATIO] < 1.0 else 1.0 + RATIO_STEP * (head[RATIO] - 1.0),
    )
    slack = d * ROUNDING * ratio * (counts.energy + d * rule.ridge)
    for i in range(d):
        for j in range(i + 1):
            scratch[i, j] = ratio * state.noise[i, j] - state.gram[i, j]
        scratch[i, i] += (ratio - 1.0) * rule.ridge - slack
    if is_positive_definite(scratch):
        head[RATIO] = ratio


@compiled
def change_all_matrices(arrays: PolicyArrays) -> None:
    """Let all matrices follow the observations that wait, in both halves."""
    state, pending = view_belief(arrays), view_pending(arrays)
    if pending.head[COUNT] > 0.0:
        add_pending_sums(arrays, state.gram, state.noise)
        change_inverse(arrays, state)
        forget_pending(pending)
    mirror_lower_half(state.gram)
    mirror_lower_half(state.noise)
    mirror_lower_half(state.inverse)
    mirror_lower_half(state.spread)
