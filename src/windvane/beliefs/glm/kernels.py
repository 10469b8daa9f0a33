"""Generalized linear policies: the arrays that hold them, and how they choose and learn."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import _random
from windvane._numba.compilation import compiled
from windvane._random import ANY_ARM_PLACE, FIRST_FREE_PLACE, MIX_PLACE, TIE_PLACE
from windvane.beliefs.full.choosing import choose_best, score_linearly
from windvane.beliefs.full.layout import LARGEST
from windvane.beliefs.full.learning import NOT_FINITE
from windvane.beliefs.full.linalg import dot, multiply_vector
from windvane.beliefs.full.widths import compute_squared_norms
from windvane.beliefs.glm import links
from windvane.beliefs.glm.solver import (
    ESTIMATE_TOLERANCE,
    SAMPLE_TOLERANCE,
    Equation,
    Model,
    compute_inverse_hessian,
    derivative,
    find_root,
    sum_features,
)
from windvane.types import Floats

UNSOLVED = -3  # the code with which a kernel reports that no root was reached

mean = compiled(links.mean)


class GeneralizedArrays(NamedTuple):
    """The arrays of a generalized policy; compiled code takes them as one argument."""

    tally: npt.NDArray[np.int64]  # (2,) observations seen, and since `inverse` was computed
    theta: Floats  # (d,) θ̂
    inverse: Floats  # (d, d) close to the inverse Hessian at θ̂: (λI + Σ w·μ'·xxᵀ)⁻¹
    past: Floats  # (d + 1, room) features, then rewards; the newest is at (seen − 1) mod room


@compiled
def compute_weights(model: Model, arrays: GeneralizedArrays) -> Floats:
    """The weight γ^age of each past observation, (n,)."""
    seen, room = arrays.tally[0], arrays.past.shape[1]
    count = min(seen, room)
    weights = np.ones(count)
    if model.gamma < 1.0:
        slot = (seen - 1) % room
        for _ in range(count - 1):
            older = slot - 1 if slot > 0 else room - 1
            weights[older] = model.gamma * weights[slot]
            slot = older
    return weights


@compiled
def make_equation(model: Model, arrays: GeneralizedArrays) -> Equation:
    """The equation of θ̂: c = Σ w·xy."""
    weights = compute_weights(model, arrays)
    right = sum_features(arrays.past, weights * arrays.past[-1, : weights.size])
    return Equation(arrays.past, weights, right)


@compiled
def make_perturbed_equation(model: Model, arrays: GeneralizedArrays, start: np.uint64) -> Equation:
    """The equation of θ̃: c = Σ w·x(y + a·z) + a√λ·ζ with z and ζ standard normal."""
    weights = compute_weights(model, arrays)
    n = weights.size
    z = np.empty(n + arrays.theta.size)
    _random.fill_normals(start, FIRST_FREE_PLACE, z)
    z *= model.scale
    right = sum_features(arrays.past, weights * (arrays.past[-1, :n] + z[:n]))
    right += math.sqrt(model.ridge) * z[n:]
    return Equation(arrays.past, weights, right)


@compiled
def sample_parameter(
    model: Model, arrays: GeneralizedArrays, start: np.uint64, out: Floats
) -> bool:
    """Write θ̃ to `out` (d,), the estimate from perturbed rewards; return False if not reached.

    The search starts at θ̂. Under the identity link one step is enough.
    """
    out[:] = arrays.theta
    if model.scale == 0.0:
        return True
    equation = make_perturbed_equation(model, arrays, start)
    return find_root(model, equation, out, arrays.inverse.copy(), SAMPLE_TOLERANCE)


@compiled
def sample_parameters(
    model: Model, arrays: GeneralizedArrays, key: int, round_: int, out: Floats
) -> bool:
    """Write independent samples of θ̃ to the rows of `out` (n, d); return False if not reached."""
    start = _random.start_round(np.uint64(key), round_)
    is_reached = True
    for i in range(out.shape[0]):
        is_reached &= sample_parameter(model, arrays, _random.draw_word(start, i), out[i])
    return is_reached


@compiled
def choose(model: Model, arrays: GeneralizedArrays, arms: Floats, key: int, round_: int) -> int:
    """Choose one of the arms (K, d) in a round; return its place, NOT_FINITE or UNSOLVED."""
    if not compute_squared_norms(arms).max() <= LARGEST:
        return NOT_FINITE
    start = _random.start_round(np.uint64(key), round_)
    theta = np.empty(arrays.theta.size)
    if not sample_parameter(model, arrays, start, theta):
        return UNSOLVED
    chosen = choose_best(score_linearly(arms, theta), _random.uniform(start, TIE_PLACE))
    if chosen >= 0 and _random.uniform(start, MIX_PLACE) < model.mix:
        chosen = int(_random.uniform(start, ANY_ARM_PLACE) * arms.shape[0])
    return chosen


@compiled
def add_observation(model: Model, arrays: GeneralizedArrays, x: Floats, reward: float) -> None:
    """Store one observation in place of the oldest, and add its curvature to the inverse Hessian.

    P ← (P − h·ppᵀ/(γ + h·xᵀp))/γ with p = Px and h = μ'(xᵀθ̂)
    """
    d, slot = x.size, arrays.tally[0] % arrays.past.shape[1]
    arrays.past[:d, slot] = x
    arrays.past[d, slot] = reward
    arrays.tally[0] += 1
    arrays.tally[1] += 1
    p = np.empty(d)
    multiply_vector(arrays.inverse, x, p)
    h = derivative(model.link, mean(model.link, dot(x, arrays.theta)))
    factor = h / (model.gamma + h * dot(x, p))
    for i in range(d):
        for j in range(d):
            less = factor * (p[i] * p[j])
            arrays.inverse[i, j] = (arrays.inverse[i, j] - less) / model.gamma


@compiled
def learn(model: Model, arrays: GeneralizedArrays, rows: Floats, rewards: Floats) -> bool:
    """Learn rows (n, d) and rewards (n,), then estimate θ̂.

    Return False if no estimate was reached; then nothing has changed.
    """
    room, first = arrays.past.shape[1], arrays.tally[0]
    before = GeneralizedArrays(
        arrays.tally.copy(), arrays.theta.copy(), arrays.inverse.copy(), np.empty((0, 0))
    )
    replaced = np.empty((rewards.size, arrays.past.shape[0]))
    for i in range(rewards.size):
        replaced[i] = arrays.past[:, arrays.tally[0] % room]
        add_observation(model, arrays, rows[i], rewards[i])
    equation = make_equation(model, arrays)
    if arrays.tally[1] >= model.refresh:
        arrays.inverse[:] = compute_inverse_hessian(model, equation, arrays.theta)
        arrays.tally[1] = 0
    if find_root(model, equation, arrays.theta, arrays.inverse, ESTIMATE_TOLERANCE):
        return True
    for i in range(rewards.size - 1, -1, -1):
        arrays.past[:, (first + i) % room] = replaced[i]
    arrays.tally[:] = before.tally
    arrays.theta[:] = before.theta
    arrays.inverse[:] = before.inverse
    return False
