"""Generalized linear policies: how they choose and learn, and the solver of their estimates.

An estimate is the root θ of the score equation Σ w·x·μ(xᵀθ) + λθ = c.

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
import numpy.typing as npt

from windvane import _random
from windvane._numba.compilation import compiled
from windvane._random import ANY_ARM_PLACE, FIRST_FREE_PLACE, MIX_PLACE, TIE_PLACE
from windvane.beliefs import links
from windvane.beliefs.full.choosing import choose_best, score_linearly
from windvane.beliefs.full.layout import LARGEST
from windvane.beliefs.full.learning import NOT_FINITE
from windvane.beliefs.full.linalg import dot, invert, multiply_vector
from windvane.beliefs.full.widths import compute_squared_norms
from windvane.beliefs.links import IDENTITY, LARGEST_SCORE, LOGISTIC
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
UNSOLVED = -3  # the code with which a kernel reports that no root was reached

# exp(r) = 1 + r + r²·(1/2! + r/3! + …), the coefficients from the last to the first
EXP_COEFFICIENTS = np.array([1.0 / math.factorial(m) for m in range(13, 1, -1)])
LN2_HIGH = 0.693147180369123816490
LN2_LOW = 1.90821492927058770002e-10  # ln 2 = LN2_HIGH + LN2_LOW

mean = compiled(links.mean)
derivative = compiled(links.derivative)
potential = compiled(links.potential)


class GeneralizedRules(NamedTuple):
    """The settings of a generalized policy, as compiled code reads them."""

    link: int
    gamma: float  # 1 if weights do not fall
    ridge: float  # λ
    scale: float  # a, of the pseudo-rewards
    mix: float  # the probability that any arm is chosen uniformly at random
    refresh: int  # observations between two computations of the inverse Hessian
    by_slope: bool  # whether the noise of a pseudo-reward is √μ' times as large (EVILL)


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
def compute_means(rules: GeneralizedRules, equation: Equation, theta: Floats) -> Floats:
    """μ(xᵀθ) of every past observation, (n,)."""
    values = compute_scores(equation, theta)
    if rules.link == IDENTITY:
        return values
    sign = -1.0 if rules.link == LOGISTIC else 1.0
    for i in range(values.size):
        values[i] = min(max(sign * values[i], -LARGEST_SCORE), LARGEST_SCORE)
    exponentiate(values)
    if rules.link == LOGISTIC:
        for i in range(values.size):
            values[i] = 1.0 / (1.0 + values[i])
    return values


@compiled
def compute_gradient(rules: GeneralizedRules, equation: Equation, theta: Floats) -> Floats:
    """g = Σ w·x·μ(xᵀθ) + λθ − c, (d,)."""
    factors = equation.weights * compute_means(rules, equation, theta)
    return sum_features(equation.past, factors) + rules.ridge * theta - equation.right


@compiled
def compute_inverse_hessian(rules: GeneralizedRules, equation: Equation, theta: Floats) -> Floats:
    """P = (λI + Σ w·μ'(xᵀθ)·xxᵀ)⁻¹, (d, d)."""
    factors = compute_means(rules, equation, theta)
    for i in range(factors.size):
        factors[i] = equation.weights[i] * derivative(rules.link, factors[i])
    matrix = np.empty((theta.size, theta.size))
    for j in range(theta.size):
        matrix[j] = sum_features(equation.past, factors * equation.past[j, : factors.size])
        matrix[j, j] += rules.ridge
    invert(matrix)
    return matrix


@compiled
def compute_objective(
    rules: GeneralizedRules, equation: Equation, theta: Floats
) -> tuple[float, float]:
    """Σ w·A(xᵀθ) + ½λ‖θ‖² − cᵀθ with A' = μ, whose gradient is g; and its rounding error."""
    scores = compute_scores(equation, theta)
    convex = 0.5 * rules.ridge * dot(theta, theta)
    linear = dot(equation.right, theta)
    for i in range(scores.size):
        convex += equation.weights[i] * potential(rules.link, scores[i])
    return convex - linear, SUM_ROUNDING * (convex + abs(linear))  # A is never negative


@compiled
def is_rounding(
    rules: GeneralizedRules, equation: Equation, theta: Floats, gradient: Floats
) -> bool:
    """Whether the gradient is no larger than the rounding error of the sums it consists of."""
    means = compute_means(rules, equation, theta)
    for j in range(theta.size):
        size = rules.ridge * abs(theta[j]) + abs(equation.right[j])
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
    rules: GeneralizedRules, equation: Equation, theta: Floats, inverse: Floats, tolerance: float
) -> bool:
    """Move θ by a few full steps, each of which corrects P; return False if they do not suffice.

    Along a step s the directional derivative sᵀg only rises. If it ends at half of its first
    absolute value or more, the step was too long.
    """
    gradient = compute_gradient(rules, equation, theta)
    for _ in range(MOST_QUASI_NEWTON_STEPS):
        step = compute_step(inverse, gradient)
        if is_small(step, theta, tolerance):
            theta += step
            return True
        ahead = compute_gradient(rules, equation, theta + step)
        if not dot(step, ahead) <= -0.5 * dot(step, gradient):
            return False
        theta += step
        correct_inverse(inverse, step, ahead - gradient)
        gradient = ahead
    return False


@compiled
def take_newton_steps(
    rules: GeneralizedRules, equation: Equation, theta: Floats, inverse: Floats, tolerance: float
) -> bool:
    """Move θ by Newton's steps, halved until the objective falls; return False if it does not."""
    objective, blur = compute_objective(rules, equation, theta)
    for _ in range(MOST_NEWTON_STEPS):
        gradient = compute_gradient(rules, equation, theta)
        inverse[:] = compute_inverse_hessian(rules, equation, theta)
        step = compute_step(inverse, gradient)
        if is_small(step, theta, tolerance) or is_rounding(rules, equation, theta, gradient):
            theta += step
            return bool(np.isfinite(theta).all())
        has_fallen = False
        for _ in range(MOST_HALVINGS):
            lower, own = compute_objective(rules, equation, theta + step)
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
    rules: GeneralizedRules, equation: Equation, theta: Floats, inverse: Floats, tolerance: float
) -> bool:
    """Solve for a ridge so large that θ is near 0, then halve the ridge down to λ.

    Means near the ends of their range have almost no curvature, but λθ changes little with λ. So
    twice the last root is often a better start.
    """
    energy = 0.0
    halvings = 0
    for j in range(theta.size):
        energy += dot(equation.weights, equation.past[j, : equation.weights.size] ** 2)
    while rules.ridge * 2.0**halvings < energy:
        halvings += 1
    theta[:] = 0.0
    for k in range(halvings, -1, -1):
        ridge, last = rules.ridge * 2.0**k, tolerance if k == 0 else START_TOLERANCE
        eased = GeneralizedRules(
            rules.link, rules.gamma, ridge, rules.scale, rules.mix, rules.refresh, rules.by_slope
        )
        doubled = compute_objective(eased, equation, 2.0 * theta)[0]
        if doubled < compute_objective(eased, equation, theta)[0]:
            theta *= 2.0
        if not take_newton_steps(eased, equation, theta, inverse, last):
            return False
    return True


@compiled
def find_root(
    rules: GeneralizedRules, equation: Equation, theta: Floats, inverse: Floats, tolerance: float
) -> bool:
    """Move θ (d,) to the root, with P (d, d) as a start; return False if it was not reached."""
    return (
        take_quasi_newton_steps(rules, equation, theta, inverse, tolerance)
        or take_newton_steps(rules, equation, theta, inverse, tolerance)
        or lower_ridge(rules, equation, theta, inverse, tolerance)
    )


class GeneralizedArrays(NamedTuple):
    """The arrays of a generalized policy; compiled code takes them as one argument."""

    tally: npt.NDArray[np.int64]  # (2,) observations seen, and since `inverse` was computed
    theta: Floats  # (d,) θ̂
    inverse: Floats  # (d, d) close to the inverse Hessian at θ̂: (λI + Σ w·μ'·xxᵀ)⁻¹
    past: Floats  # (d + 1, room) features, then rewards; the newest is at (seen − 1) mod room


@compiled
def compute_weights(rules: GeneralizedRules, arrays: GeneralizedArrays) -> Floats:
    """The weight γ^age of each past observation, (n,)."""
    seen, room = arrays.tally[0], arrays.past.shape[1]
    count = min(seen, room)
    weights = np.ones(count)
    if rules.gamma < 1.0:
        slot = (seen - 1) % room
        for _ in range(count - 1):
            older = slot - 1 if slot > 0 else room - 1
            weights[older] = rules.gamma * weights[slot]
            slot = older
    return weights


@compiled
def make_equation(rules: GeneralizedRules, arrays: GeneralizedArrays) -> Equation:
    """The equation of θ̂: c = Σ w·xy."""
    weights = compute_weights(rules, arrays)
    right = sum_features(arrays.past, weights * arrays.past[-1, : weights.size])
    return Equation(arrays.past, weights, right)


@compiled
def make_perturbed_equation(
    rules: GeneralizedRules, arrays: GeneralizedArrays, start: np.uint64
) -> Equation:
    """The equation of θ̃: c = Σ w·x(y + a·z) + a√λ·ζ with z and ζ standard normal.

    In EVILL the z of an observation is multiplied by √μ'(xᵀθ̂).
    """
    weights = compute_weights(rules, arrays)
    n = weights.size
    z = np.empty(n + arrays.theta.size)
    _random.fill_normals(start, FIRST_FREE_PLACE, z)
    z *= rules.scale
    if rules.by_slope:
        means = compute_means(rules, Equation(arrays.past, weights, arrays.theta), arrays.theta)
        for i in range(n):
            z[i] *= math.sqrt(derivative(rules.link, means[i]))
    right = sum_features(arrays.past, weights * (arrays.past[-1, :n] + z[:n]))
    right += math.sqrt(rules.ridge) * z[n:]
    return Equation(arrays.past, weights, right)


@compiled
def sample_parameter(
    rules: GeneralizedRules, arrays: GeneralizedArrays, start: np.uint64, out: Floats
) -> bool:
    """Write θ̃ to `out` (d,), the estimate from perturbed rewards; return False if not reached.

    The search starts at θ̂. Under the identity link one step is enough.
    """
    out[:] = arrays.theta
    if rules.scale == 0.0:
        return True
    equation = make_perturbed_equation(rules, arrays, start)
    return find_root(rules, equation, out, arrays.inverse.copy(), SAMPLE_TOLERANCE)


@compiled
def sample_parameters(
    rules: GeneralizedRules, arrays: GeneralizedArrays, key: int, round_: int, out: Floats
) -> bool:
    """Write independent samples of θ̃ to the rows of `out` (n, d); return False if not reached."""
    start = _random.start_round(np.uint64(key), round_)
    is_reached = True
    for i in range(out.shape[0]):
        is_reached &= sample_parameter(rules, arrays, _random.draw_word(start, i), out[i])
    return is_reached


@compiled
def choose(
    rules: GeneralizedRules, arrays: GeneralizedArrays, arms: Floats, key: int, round_: int
) -> int:
    """Choose one of the arms (K, d) in a round; return its place, NOT_FINITE or UNSOLVED."""
    if not compute_squared_norms(arms).max() <= LARGEST:
        return NOT_FINITE
    start = _random.start_round(np.uint64(key), round_)
    theta = np.empty(arrays.theta.size)
    if not sample_parameter(rules, arrays, start, theta):
        return UNSOLVED
    chosen = choose_best(score_linearly(arms, theta), _random.uniform(start, TIE_PLACE))
    if chosen >= 0 and _random.uniform(start, MIX_PLACE) < rules.mix:
        chosen = int(_random.uniform(start, ANY_ARM_PLACE) * arms.shape[0])
    return chosen


@compiled
def store_observation(arrays: GeneralizedArrays, x: Floats, reward: float) -> None:
    """Store one observation in place of the oldest."""
    slot = arrays.tally[0] % arrays.past.shape[1]
    arrays.past[: x.size, slot] = x
    arrays.past[x.size, slot] = reward
    arrays.tally[0] += 1


@compiled
def add_observation(
    rules: GeneralizedRules, arrays: GeneralizedArrays, x: Floats, reward: float
) -> None:
    """Store one observation in place of the oldest, and add its curvature to the inverse Hessian.

    P ← (P − h·ppᵀ/(γ + h·xᵀp))/γ with p = Px and h = μ'(xᵀθ̂)
    """
    store_observation(arrays, x, reward)
    arrays.tally[1] += 1
    d = x.size
    p = np.empty(d)
    multiply_vector(arrays.inverse, x, p)
    h = derivative(rules.link, mean(rules.link, dot(x, arrays.theta)))
    factor = h / (rules.gamma + h * dot(x, p))
    for i in range(d):
        for j in range(d):
            less = factor * (p[i] * p[j])
            arrays.inverse[i, j] = (arrays.inverse[i, j] - less) / rules.gamma


@compiled
def learn(
    rules: GeneralizedRules, arrays: GeneralizedArrays, rows: Floats, rewards: Floats
) -> bool:
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
        add_observation(rules, arrays, rows[i], rewards[i])
    equation = make_equation(rules, arrays)
    if arrays.tally[1] >= rules.refresh:
        arrays.inverse[:] = compute_inverse_hessian(rules, equation, arrays.theta)
        arrays.tally[1] = 0
    if find_root(rules, equation, arrays.theta, arrays.inverse, ESTIMATE_TOLERANCE):
        return True
    for i in range(rewards.size - 1, -1, -1):
        arrays.past[:, (first + i) % room] = replaced[i]
    arrays.tally[:] = before.tally
    arrays.theta[:] = before.theta
    arrays.inverse[:] = before.inverse
    return False
