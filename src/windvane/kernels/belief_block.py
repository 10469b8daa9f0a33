"""Name the parts of a belief, forget it, and solve W·u = v.

`inverse` is kept by rank-one steps and made afresh every few observations. Between two refreshes
the ridge inside it fades with the rest, by a known small amount. So it serves as a guide, never as
the truth: solutions are polished against W itself.
"""

import numpy as np

from windvane._jit import compiled
from windvane._layout import SAMPLE, WIDTH, PolicyArrays
from windvane.belief import State
from windvane.types import Floats

FULL, AMPLE = 1e-12, 1e-10  # relative errors: of the estimate, of what is only compared


@compiled
def parts(arrays: PolicyArrays) -> State:
    """Name the parts of a block of memory."""
    rule = arrays.rules[0]
    d, square = rule.dim, rule.dim * rule.dim
    gram = arrays.block[2 * d : 2 * d + square].reshape(d, d)
    if rule.rho > 0.0:
        return State(arrays.block[:d], arrays.block[d : 2 * d], gram, gram, gram, gram, gram)
    inverse = arrays.block[2 * d + square : 2 * d + 2 * square].reshape(d, d)
    noise, spread, root = gram, inverse, inverse
    used = 2 * d + 2 * square
    if rule.twin:
        noise = arrays.block[used : used + square].reshape(d, d)
        used += square
        if rule.style == WIDTH:
            spread = arrays.block[used : used + square].reshape(d, d)
            used += square
    if rule.style == SAMPLE and rule.window == 0:
        root = arrays.block[used : used + square].reshape(d, d)
    return State(arrays.block[:d], arrays.block[d : 2 * d], gram, inverse, noise, spread, root)


@compiled
def times(matrix: Floats, vector: Floats, out: Floats) -> None:
    """Matrix times vector."""
    for i in range(matrix.shape[0]):
        total = 0.0
        for j in range(matrix.shape[1]):
            total += matrix[i, j] * vector[j]
        out[i] = total


@compiled
def dot(left: Floats, right: Floats) -> float:
    """Σ left·right."""
    total = 0.0
    for i in range(left.size):
        total += left[i] * right[i]
    return total


@compiled
def blank(arrays: PolicyArrays) -> None:
    """Forget everything: W = W̃ = λI, b = 0."""
    forget(arrays, parts(arrays))


@compiled
def forget(arrays: PolicyArrays, state: State) -> None:
    """Forget everything, given its parts."""
    for part in (state.gram, state.noise, state.root):
        part[:] = 0.0
    state.moment[:] = 0.0
    state.theta[:] = 0.0
    arrays.tally[0].seen = 0
    arrays.tally[0].energy = 0.0
    arrays.tally[0].peak = 0.0
    arrays.tally[0].surprise = 0.0
    arrays.tally[0].clock = 0.0
    arrays.tally[0].held = 0.0
    refresh(arrays, state)


@compiled
def multiply(left: Floats, right: Floats, out: Floats) -> None:
    """Matrix times matrix, four rows of `right` to each pass over a row of `out`."""
    inner = left.shape[1]
    for i in range(left.shape[0]):
        out[i] = 0.0
        row = out[i]
        k = 0
        while k + 4 <= inner:
            a, b, c, d = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
            for j in range(row.size):
                row[j] += (
                    a * right[k, j]
                    + b * right[k + 1, j]
                    + c * right[k + 2, j]
                    + d * right[k + 3, j]
                )
            k += 4
        while k < inner:
            for j in range(row.size):
                row[j] += left[i, k] * right[k, j]
            k += 1


@compiled
def invert(matrix: Floats) -> None:
    """Invert a positive definite matrix in place, sweeping one pivot after the other."""
    d = matrix.shape[0]
    row = np.empty(d)
    for k in range(d):
        pivot = 1.0 / matrix[k, k]
        row[:k] = matrix[k, :k]
        row[k] = 0.0
        row[k + 1 :] = matrix[k + 1 :, k]
        for i in range(d):  # only the lower half is kept up to date
            factor = row[i] * pivot
            for j in range(i + 1):
                matrix[i, j] -= factor * row[j]
        for i in range(k):
            matrix[k, i] = row[i] * pivot
        for i in range(k + 1, d):
            matrix[i, k] = row[i] * pivot
        matrix[k, k] = -pivot
    for i in range(d):
        for j in range(i + 1):
            matrix[i, j] = -matrix[i, j]
            matrix[j, i] = matrix[i, j]


@compiled
def refresh(arrays: PolicyArrays, state: State) -> None:
    """Invert anew, with a ridge as much too large now as it will be too small at the next time."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    counts.ridge = rule.ridge * rule.lead
    counts.noise_ridge = rule.ridge * (rule.lead * rule.lead if rule.twin else rule.lead)
    counts.stale = 0
    if rule.rho > 0.0:  # the filter is its own truth, and needs this only at its start
        for i in range(rule.dim):
            state.inverse[i, i] = 1.0 / rule.ridge
        return
    ridged = state.gram.copy()
    for i in range(rule.dim):
        ridged[i, i] += counts.ridge
    invert(ridged)
    state.inverse[:] = ridged
    if rule.twin and rule.style == WIDTH:
        ridged[:] = state.noise
        for i in range(rule.dim):
            ridged[i, i] += counts.noise_ridge
        half = np.empty_like(ridged)
        multiply(ridged, state.inverse, half)
        multiply(state.inverse, half, state.spread)


@compiled
def solve(arrays: PolicyArrays, state: State, right: Floats, answer: Floats, digits: float) -> None:
    """Polish `answer` until W·answer = right, to a relative error of about `digits`.

    `inverse` is P = (W − (λ−Λ)I)⁻¹, so u ← P(right − (λ−Λ)u) closes in on the answer, by the
    factor |λ−Λ|/Λ at least in every step. The last step, against W itself, does so too and
    removes P's rounding.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    lag = rule.ridge - counts.ridge
    shrink, last = abs(lag) / counts.ridge, np.inf
    missing, step = np.empty_like(answer), np.empty_like(answer)
    for _ in range(60):
        for i in range(rule.dim):
            missing[i] = right[i] - lag * answer[i]
        times(state.inverse, missing, step)
        largest, moved = 0.0, 0.0
        for i in range(rule.dim):
            largest = max(largest, abs(step[i]))
            moved = max(moved, abs(step[i] - answer[i]))
            answer[i] = step[i]
        if last < np.inf:
            shrink = min(shrink, moved / last)
        if shrink * shrink * moved <= digits * largest or moved >= last:
            break
        last = moved
    times(state.gram, answer, missing)
    for i in range(rule.dim):
        missing[i] = right[i] - missing[i] - rule.ridge * answer[i]
    times(state.inverse, missing, step)
    for i in range(rule.dim):
        answer[i] += step[i]
