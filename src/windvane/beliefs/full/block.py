"""The parts of a belief as views of one block: view, reset, refresh and solve W·u = v.

`inverse` is updated by rank-one steps and recomputed every few observations. Between two refreshes
the ridge inside it fades with the rest, by a known small amount. Therefore `inverse` is only an
approximation: solutions are refined against W itself.
"""

import numpy as np

from windvane._numba.compilation import allow_in_compiled_code, compiled
from windvane._numba.instructions import view_matrix
from windvane.beliefs.full.belief import State
from windvane.beliefs.full.layout import WIDTH, PolicyArrays
from windvane.beliefs.full.linalg import (
    copy_matrix,
    fill,
    invert,
    multiply_matrices,
    multiply_vector,
)
from windvane.types import Floats

ESTIMATE_TOLERANCE = 1e-12  # relative error of θ̂
COMPARISON_TOLERANCE = 1e-10  # relative error of solutions that are only compared or sampled
MOST_REFINEMENTS = 60


def view_belief(arrays: PolicyArrays) -> State:
    """Return the parts of a belief as views of its block, for Python and for compiled code.

    A Kalman filter has one matrix, its covariance: all matrices of its state are that one.
    """
    rule, block = arrays.rules[0], arrays.block
    d, square = rule["dim"], rule["dim"] * rule["dim"]
    moment, theta = block[:d], block[d : 2 * d]
    gram = view_matrix(block, 2 * d, d, d)
    if rule["filter"]:
        return State(moment, theta, gram, gram, gram, gram, gram)
    inverse = view_matrix(block, 2 * d + square, d, d)
    noise, spread, root = gram, inverse, inverse
    used = 2 * d + 2 * square
    if rule["twin"]:
        noise = view_matrix(block, used, d, d)
        used += square
        if rule["style"] == WIDTH:
            spread = view_matrix(block, used, d, d)
            used += square
    if rule["root"]:
        root = view_matrix(block, used, d, d)
    return State(moment, theta, gram, inverse, noise, spread, root)


def read_ridge(arrays: PolicyArrays) -> float:
    """λ or, if the prior fades, what is left of it after n observations: λ·max(γⁿ, least)."""
    rule = arrays.rules[0]
    ridge: float = rule["ridge"]
    if rule["least_prior"] < 1.0:
        ridge *= max(rule["gamma"] ** arrays.tally[0]["seen"], rule["least_prior"])
    return ridge


def write_blank_belief(arrays: PolicyArrays) -> None:
    """Write the belief that has learned nothing, W = W̃ = λI and b = 0, into a block of zeros.

    The bits are those of `refresh`, which inverts W: W is diagonal here, so each number of its
    inverse is one division.
    """
    rule, counts, state = arrays.rules[0], arrays.tally[0], view_belief(arrays)
    counts["ridge"] = rule["ridge"] * rule["lead"]
    lead = rule["lead"] * rule["lead"] if rule["twin"] else rule["lead"]
    counts["noise_ridge"] = rule["ridge"] * lead
    counts["stale"] = 0
    inverse = 1.0 / (rule["ridge"] if rule["filter"] else counts["ridge"])
    if not rule["filter"]:
        state.inverse[:] = -0.0  # the sign that `refresh` gives to these zeros
    for i in range(rule["dim"]):
        state.inverse[i, i] = inverse
        if rule["twin"] and rule["style"] == WIDTH:
            state.spread[i, i] = inverse * (counts["noise_ridge"] * inverse)


allow_in_compiled_code(view_belief, read_ridge)
allow_in_compiled_code(write_blank_belief, in_order=True)


@compiled
def reset(arrays: PolicyArrays) -> None:
    """Drop everything that was learned: W = W̃ = λI, b = 0."""
    fill(arrays.block, 0.0)
    reset_counters(arrays)
    write_blank_belief(arrays)


@compiled
def reset_counters(arrays: PolicyArrays) -> None:
    """Set the counters of what was learned to 0; alarms are counted on."""
    counts = arrays.tally[0]
    counts.seen = 0
    counts.energy = 0.0
    counts.peak = 0.0
    counts.surprise = 0.0
    counts.clock = 0.0
    counts.held = 0.0


@compiled
def refresh(arrays: PolicyArrays, state: State) -> None:
    """Recompute `inverse` and `spread` from the sums.

    The ridge starts too large by half of what it will lose until the next refresh, so its error is
    centred between two refreshes.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    ridge = read_ridge(arrays)
    counts.ridge = ridge * rule.lead
    counts.noise_ridge = ridge * (rule.lead * rule.lead if rule.twin else rule.lead)
    counts.stale = 0
    copy_matrix(state.gram, state.inverse)
    for i in range(rule.dim):
        state.inverse[i, i] += counts.ridge
    invert(state.inverse)
    if rule.twin and rule.style == WIDTH:
        compute_spread(arrays, state)


@compiled
def compute_spread(arrays: PolicyArrays, state: State) -> None:
    """Compute `spread` from `inverse` and from the noise matrix: Q = P(S̃ + Λ̃I)P."""
    d = arrays.rules[0].dim
    ridged, half = np.empty((d, d)), np.empty((d, d))
    copy_matrix(state.noise, ridged)
    for i in range(d):
        ridged[i, i] += arrays.tally[0].noise_ridge
    multiply_matrices(ridged, state.inverse, half)
    multiply_matrices(state.inverse, half, state.spread)


@compiled
def solve(
    arrays: PolicyArrays, state: State, right: Floats, answer: Floats, tolerance: float
) -> None:
    """Refine `answer` (d,) until W·answer = right, to a relative error of about `tolerance`.

    `inverse` is P = (W − (λ−Λ)I)⁻¹, so u ← P(right − (λ−Λ)u) converges to the answer: each step
    reduces the error by the factor |λ−Λ|/Λ or more. The last step, against W itself, also removes
    the rounding error of P.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    ridge = read_ridge(arrays)
    lag = ridge - counts.ridge
    shrink = abs(lag) / counts.ridge
    last_change = np.inf
    residual, step = np.empty(answer.size), np.empty(answer.size)
    for _ in range(MOST_REFINEMENTS):
        for i in range(rule.dim):
            residual[i] = right[i] - lag * answer[i]
        multiply_vector(state.inverse, residual, step)
        largest = 0.0
        change = 0.0
        for i in range(rule.dim):
            largest = max(largest, abs(step[i]))
            change = max(change, abs(step[i] - answer[i]))
            answer[i] = step[i]
        if last_change < np.inf:
            shrink = min(shrink, change / last_change)
        if shrink * shrink * change <= tolerance * largest or change >= last_change:
            break
        last_change = change
    multiply_vector(state.gram, answer, residual)
    for i in range(rule.dim):
        residual[i] = right[i] - residual[i] - ridge * answer[i]
    multiply_vector(state.inverse, residual, step)
    for i in range(rule.dim):
        answer[i] += step[i]
