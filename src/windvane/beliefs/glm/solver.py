"""Generalized linear estimates: the root θ of the score equation Σ w·x·μ(xᵀθ) + λθ = c.

The root is the minimum of a strictly convex objective. Three methods are tried in turn:

1. `take_quasi_newton_steps` starts at the last estimate. It keeps the inverse Hessian from one
   observation to the next and corrects it after each step (BFGS), so a step costs O(nd).
2. `take_newton_steps` computes the Hessian at each step, in O(nd²), and halves a step until the
   objective falls.
3. `lower_ridge` first solves the equation for a large ridge, then halves the ridge again and again.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane.beliefs.full.layout import LARGEST
from windvane.beliefs.full.linalg import dot, invert, multiply_vector
from windvane.beliefs.glm import links
from windvane.beliefs.glm.links import IDENTITY, LARGEST_SCORE, LOGISTIC
from windvane.types import Floats

# Tolerances are the last step as a share of the root.
ESTIMATE_TOLERANCE = 1e-10
SAMPLE_TOLERANCE = 1e-8
START_TOLERANCE = 1e-2  # if the root is only the start of the next search
MOST_QUASI_NEWTON_STEPS = 12
MOST_NEWTON_STEPS = 50
MOST_HALVINGS = 100
LEAST_DECREASE = 0.2  # of the decrease that the gradient predicts for a step (Armijo's rule)
SUM_ROUNDING = 1e-13  # relative rounding error of a sum

# exp(r) = 1 + r + r²·(1/2! + r/3! + …), the coefficients from the last to the first
EXP_COEFFICIENTS = np.array([1.0 / math.factorial(m) for m in range(13, 1, -1)])
LN2_HIGH = 0.693147180369123816490
LN2_LOW = 1.90821492927058770002e-10  # ln 2 = LN2_HIGH + LN2_LOW

derivative = compiled(links.derivative)
potential = compiled(links.potential)


class Model(NamedTuple):
    """The settings of a generalized policy, as compiled code reads them."""

    link: int
    gamma: float  # 1 if weights do not fall
    ridge: float  # λ
    scale: float  # a, of the pseudo-rewards
    mix: float  # the probability that any arm is chosen uniformly at random
    refresh: int  # observations between two computations of the inverse Hessian


class Equation(NamedTuple):
    """Σ w·x·μ(xᵀθ) + λθ = c over n past observations."""

    past: Floats  # (d + 1, room) the features of an observation in a column, then its reward
    weights: Floats  # (n,) w
    right: Floats  # (d,) c


@compiled
def sum_features(past: Floats, factors: Floats) -> Floats:
    """Σ factor·x over the past observations, (d,)."""
    totals = np.empty(past.shape[0] - 1)
    for j in range(totals.size):
        row, total = past[j], 0.0
        for i in range(factors.size):
            total += row[i] * factors[i]
        totals[j] = total
    return totals


@compiled
def exponentiate(values: Floats) -> None:
    """Replace each value u by exp(u) = 2^k·exp(r) with |r| ≤ ½·ln 2 and a series for exp(r).

    Unlike calls of math.exp, this loop uses vector registers: it is 4 times as fast. Values must
    lie within ±LARGEST_SCORE.
    """
    powers = np.empty(values.size)
    bits = powers.view(np.int64)
    for i in range(values.size):
        k = np.floor(values[i] / math.log(2.0) + 0.5)
        r = (values[i] - k * LN2_HIGH) - k * LN2_LOW
        rest = 0.0
        for m in range(EXP_COEFFICIENTS.size):
            rest = rest * r + EXP_COEFFICIENTS[m]
        values[i] = 1.0 + (r + r * r * rest)
        bits[i] = (np.int64(k) + 1023) << 52  # the double 2^k
    for i in range(values.size):
        values[i] *= powers[i]


@compiled
def compute_scores(equation: Equation, theta: Floats) -> Floats:
    """xᵀθ of every past observation, (n,)."""
    scores = np.zeros(equation.weights.size)
    for j in range(theta.size):
        row, own = equation.past[j], theta[j]
        for i in range(scores.size):
            scores[i] += own * row[i]
    return scores


@compiled
def compute_means(model: Model, equation: Equation, theta: Floats) -> Floats:
    """μ(xᵀθ) of every past observation, (n,)."""
    values = compute_scores(equation, theta)
    if model.link == IDENTITY:
        return values
    sign = -1.0 if model.link == LOGISTIC else 1.0
    for i in range(values.size):
        values[i] = min(max(sign * values[i], -LARGEST_SCORE), LARGEST_SCORE)
    exponentiate(values)
    if model.link == LOGISTIC:
        for i in range(values.size):
            values[i] = 1.0 / (1.0 + values[i])
    return values


@compiled
def compute_gradient(model: Model, equation: Equation, theta: Floats) -> Floats:
    """g = Σ w·x·μ(xᵀθ) + λθ − c, (d,)."""
    factors = equation.weights * compute_means(model, equation, theta)
    return sum_features(equation.past, factors) + model.ridge * theta - equation.right


@compiled
def compute_inverse_hessian(model: Model, equation: Equation, theta: Floats) -> Floats:
    """P = (λI + Σ w·μ'(xᵀθ)·xxᵀ)⁻¹, (d, d)."""
    factors = compute_means(model, equation, theta)
    for i in range(factors.size):
        factors[i] = equation.weights[i] * derivative(model.link, factors[i])
    matrix = np.empty((theta.size, theta.size))
    for j in range(theta.size):
        matrix[j] = sum_features(equation.past, factors * equation.past[j, : factors.size])
        matrix[j, j] += model.ridge
    invert(matrix)
    return matrix


@compiled
def compute_objective(model: Model, equation: Equation, theta: Floats) -> tuple[float, float]:
    """Σ w·A(xᵀθ) + ½λ‖θ‖² − cᵀθ with A' = μ, whose gradient is g; and its rounding error."""
    scores = compute_scores(equation, theta)
    convex = 0.5 * model.ridge * dot(theta, theta)
    linear = dot(equation.right, theta)
    for i in range(scores.size):
        convex += equation.weights[i] * potential(model.link, scores[i])
    return convex - linear, SUM_ROUNDING * (convex + abs(linear))  # A is never negative


@compiled
def is_rounding(model: Model, equation: Equation, theta: Floats, gradient: Floats) -> bool:
    """Whether the gradient is no larger than the rounding error of the sums it consists of."""
    means = compute_means(model, equation, theta)
    for j in range(theta.size):
        size = model.ridge * abs(theta[j]) + abs(equation.right[j])
        for i in range(means.size):
            size += equation.weights[i] * abs(equation.past[j, i] * means[i])
        if not abs(gradient[j]) <= SUM_ROUNDING * size:
            return False
    return True


@compiled
def correct_inverse(inverse: Floats, step: Floats, change: Floats) -> None:
    """Correct P (d, d) so that P maps the change y of the gradient to the step s (BFGS).

    P ← (I − s·yᵀ/yᵀs) P (I − y·sᵀ/yᵀs) + s·sᵀ/yᵀs
    """
    curvature = dot(step, change)
    if not curvature > 0.0:
        return
    image = np.empty_like(step)
    multiply_vector(inverse, change, image)
    own = (1.0 + dot(change, image) / curvature) / curvature
    for i in range(step.size):
        for j in range(step.size):
            cross = image[i] * step[j] + step[i] * image[j]
            inverse[i, j] += own * (step[i] * step[j]) - cross / curvature


@compiled
def compute_step(inverse: Floats, gradient: Floats) -> Floats:
    """s = −Pg, (d,)."""
    step = np.empty_like(gradient)
    multiply_vector(inverse, gradient, step)
    return -step


@compiled
def is_small(step: Floats, theta: Floats, tolerance: float) -> bool:
    """Whether no entry of the step exceeds `tolerance` times the largest of θ + step."""
    return bool(np.abs(step).max() <= tolerance * np.abs(theta + step).max() + 1.0 / LARGEST)


@compiled
def take_quasi_newton_steps(
    model: Model, equation: Equation, theta: Floats, inverse: Floats, tolerance: float
) -> bool:
    """Move θ by a few full steps, each of which corrects P; return False if they do not suffice.

    Along a step s the directional derivative sᵀg only rises. If it ends at half of its first
    absolute value or more, the step was too long.
    """
    gradient = compute_gradient(model, equation, theta)
    for _ in range(MOST_QUASI_NEWTON_STEPS):
        step = compute_step(inverse, gradient)
        if is_small(step, theta, tolerance):
            theta += step
            return True
        ahead = compute_gradient(model, equation, theta + step)
        if not dot(step, ahead) <= -0.5 * dot(step, gradient):
            return False
        theta += step
        correct_inverse(inverse, step, ahead - gradient)
        gradient = ahead
    return False


@compiled
def take_newton_steps(
    model: Model, equation: Equation, theta: Floats, inverse: Floats, tolerance: float
) -> bool:
    """Move θ by Newton's steps, halved until the objective falls; return False if it does not."""
    objective, blur = compute_objective(model, equation, theta)
    for _ in range(MOST_NEWTON_STEPS):
        gradient = compute_gradient(model, equation, theta)
        inverse[:] = compute_inverse_hessian(model, equation, theta)
        step = compute_step(inverse, gradient)
        if is_small(step, theta, tolerance) or is_rounding(model, equation, theta, gradient):
            theta += step
            return bool(np.isfinite(theta).all())
        has_fallen = False
        for _ in range(MOST_HALVINGS):
            lower, own = compute_objective(model, equation, theta + step)
            has_fallen = lower - objective <= blur + own + LEAST_DECREASE * dot(step, gradient)
            if has_fallen:
                break
            step *= 0.5
        if not has_fallen:
            return False
        theta += step
        objective, blur = lower, own
    return False


@compiled
def lower_ridge(
    model: Model, equation: Equation, theta: Floats, inverse: Floats, tolerance: float
) -> bool:
    """Solve for a ridge so large that θ is near 0, then halve the ridge down to λ.

    Means near the ends of their range have almost no curvature, but λθ changes little with λ. So
    twice the last root is often a better start.
    """
    energy = 0.0
    halvings = 0
    for j in range(theta.size):
        energy += dot(equation.weights, equation.past[j, : equation.weights.size] ** 2)
    while model.ridge * 2.0**halvings < energy:
        halvings += 1
    theta[:] = 0.0
    for k in range(halvings, -1, -1):
        ridge, last = model.ridge * 2.0**k, tolerance if k == 0 else START_TOLERANCE
        eased = Model(model.link, model.gamma, ridge, model.scale, model.mix, model.refresh)
        doubled = compute_objective(eased, equation, 2.0 * theta)[0]
        if doubled < compute_objective(eased, equation, theta)[0]:
            theta *= 2.0
        if not take_newton_steps(eased, equation, theta, inverse, last):
            return False
    return True


@compiled
def find_root(
    model: Model, equation: Equation, theta: Floats, inverse: Floats, tolerance: float
) -> bool:
    """Move θ (d,) to the root, with P (d, d) as a start; return False if it was not reached."""
    return (
        take_quasi_newton_steps(model, equation, theta, inverse, tolerance)
        or take_newton_steps(model, equation, theta, inverse, tolerance)
        or lower_ridge(model, equation, theta, inverse, tolerance)
    )
