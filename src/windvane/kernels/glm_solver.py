"""Generalised linear estimates: the root θ of Σ w·x·μ(xᵀθ) + λθ = c.

It is the lowest point of a strictly convex function. Newton's method goes there from the last
estimate, with a curvature that is kept from observation to observation and corrected by every step
it takes (BFGS), so that a step costs O(nd). Where that does not get there, which is rare, each
step has the curvature of its own place, in O(nd²), and is halved until it leads down; and where
not even that does, the ridge is first taken large and then lowered step by step.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane._jit import compiled
from windvane._layout import LARGEST
from windvane.glm import links
from windvane.glm.links import IDENTITY, LARGEST_SCORE, LOGISTIC
from windvane.kernels.belief_block import dot, invert, times
from windvane.types import Floats

CLOSE, NEAR = 1e-10, 1e-8  # the last step relative to the root: of the estimate, of a draw
QUICK, STEPS, HALVINGS = 12, 50, 100  # at most so many are tried
FALL = 0.2  # the share of the fall that its first slope promises which a step must keep
ROUGH = 1e-2  # the last step where only the next start is sought
GRAIN = 1e-13  # a sum of terms of size 1 is not known more closely

SERIES = np.array([1.0 / math.factorial(m) for m in range(13, 1, -1)])
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # their sum is ln 2

derivative = compiled(links.derivative)
potential = compiled(links.potential)


class Model(NamedTuple):
    """What compiled code must know of a generalised policy."""

    link: int
    gamma: float  # 1 where nothing fades
    ridge: float  # λ
    scale: float  # a, of the pseudo-rewards
    mix: float  # the chance that any arm at all is played
    refresh: int  # observations between two fresh inversions of the curvature


class Equation(NamedTuple):
    """Σ w·x·μ(xᵀθ) + λθ = c."""

    past: Floats  # (d + 1, room) features, then rewards
    weight: Floats  # (n,) w
    right: Floats  # (d,) c


@compiled
def summed(past: Floats, factors: Floats) -> Floats:
    """Σ factor·x over the held observations."""
    total = np.empty(past.shape[0] - 1)
    for j in range(total.size):
        row, sum_ = past[j], 0.0
        for i in range(factors.size):
            sum_ += row[i] * factors[i]
        total[j] = sum_
    return total


@compiled
def exponentials(values: Floats) -> None:
    """exp of each, in place: 2^k·exp(r) with |r| ≤ ½·ln 2, and a series for exp(r).

    Written out because a loop of it fills vector registers, as one of calls does not: 4 times
    as fast. Values must lie within ±LARGEST_SCORE.
    """
    powers = np.empty(values.size)
    bits = powers.view(np.int64)
    for i in range(values.size):
        k = np.floor(values[i] / math.log(2.0) + 0.5)
        r = (values[i] - k * LN2_HIGH) - k * LN2_LOW
        rest = 0.0
        for m in range(SERIES.size):
            rest = rest * r + SERIES[m]
        values[i] = 1.0 + (r + r * r * rest)
        bits[i] = (np.int64(k) + 1023) << 52  # 2^k
    for i in range(values.size):
        values[i] *= powers[i]


@compiled
def scores_of(equation: Equation, theta: Floats) -> Floats:
    """xᵀθ of every held observation."""
    scores = np.zeros(equation.weight.size)
    for j in range(theta.size):
        row, own = equation.past[j], theta[j]
        for i in range(scores.size):
            scores[i] += own * row[i]
    return scores


@compiled
def means_of(model: Model, equation: Equation, theta: Floats) -> Floats:
    """μ(xᵀθ) of every held observation."""
    values = scores_of(equation, theta)
    if model.link == IDENTITY:
        return values
    sign = -1.0 if model.link == LOGISTIC else 1.0
    for i in range(values.size):
        values[i] = min(max(sign * values[i], -LARGEST_SCORE), LARGEST_SCORE)
    exponentials(values)
    if model.link == LOGISTIC:
        for i in range(values.size):
            values[i] = 1.0 / (1.0 + values[i])
    return values


@compiled
def slopes_at(model: Model, equation: Equation, theta: Floats) -> Floats:
    """g = Σ w·x·μ(xᵀθ) + λθ − c."""
    pulls = equation.weight * means_of(model, equation, theta)
    return summed(equation.past, pulls) + model.ridge * theta - equation.right


@compiled
def inverse_at(model: Model, equation: Equation, theta: Floats) -> Floats:
    """P = (λI + Σ w·μ'(xᵀθ)·xxᵀ)⁻¹."""
    bends = means_of(model, equation, theta)
    for i in range(bends.size):
        bends[i] = equation.weight[i] * derivative(model.link, bends[i])
    matrix = np.empty((theta.size, theta.size))
    for j in range(theta.size):
        matrix[j] = summed(equation.past, bends * equation.past[j, : bends.size])
        matrix[j, j] += model.ridge
    invert(matrix)
    return matrix


@compiled
def height_at(model: Model, equation: Equation, theta: Floats) -> tuple[float, float]:
    """Σ w·A(xᵀθ) + ½λ‖θ‖² − cᵀθ with A' = μ, whose slopes are g; and how far rounding blurs it."""
    scores = scores_of(equation, theta)
    lift, aimed = 0.5 * model.ridge * dot(theta, theta), dot(equation.right, theta)
    for i in range(scores.size):
        lift += equation.weight[i] * potential(model.link, scores[i])
    return lift - aimed, GRAIN * (lift + abs(aimed))  # A is nowhere below 0


@compiled
def at_the_grain(model: Model, equation: Equation, theta: Floats, slopes: Floats) -> bool:
    """Whether the slopes are as near to 0 as the rounding of their own sums lets them come."""
    means = means_of(model, equation, theta)
    for j in range(theta.size):
        size = model.ridge * abs(theta[j]) + abs(equation.right[j])
        for i in range(means.size):
            size += equation.weight[i] * abs(equation.past[j, i] * means[i])
        if not abs(slopes[j]) <= GRAIN * size:
            return False
    return True


@compiled
def correct(inverse: Floats, step: Floats, change: Floats) -> None:
    """Let P send a change of slopes y to the step s that made it (BFGS).

    P ← (I − s·yᵀ/yᵀs) P (I − y·sᵀ/yᵀs) + s·sᵀ/yᵀs
    """
    curve = dot(step, change)
    if not curve > 0.0:
        return
    image = np.empty_like(step)
    times(inverse, change, image)
    own = (1.0 + dot(change, image) / curve) / curve
    for i in range(step.size):
        for j in range(step.size):
            cross = image[i] * step[j] + step[i] * image[j]
            inverse[i, j] += own * (step[i] * step[j]) - cross / curve


@compiled
def newton_step(inverse: Floats, slopes: Floats) -> Floats:
    """s = −Pg."""
    step = np.empty_like(slopes)
    times(inverse, slopes, step)
    return -step


@compiled
def small(step: Floats, theta: Floats, digits: float) -> bool:
    """Whether a step from θ moves nothing by more than this share of the largest, or at all."""
    return bool(np.abs(step).max() <= digits * np.abs(theta + step).max() + 1.0 / LARGEST)


@compiled
def glide(model: Model, equation: Equation, theta: Floats, inverse: Floats, digits: float) -> bool:
    """A few whole steps with a P that each of them corrects; False where they do not suffice.

    Along a step s the slope sᵀg only ever rises. One that ends half as steep as it began, or
    steeper, has gone too far.
    """
    slopes = slopes_at(model, equation, theta)
    for _ in range(QUICK):
        step = newton_step(inverse, slopes)
        if small(step, theta, digits):
            theta += step
            return True
        ahead = slopes_at(model, equation, theta + step)
        if not dot(step, ahead) <= -0.5 * dot(step, slopes):
            return False
        theta += step
        correct(inverse, step, ahead - slopes)
        slopes = ahead
    return False


@compiled
def walk_down(
    model: Model, equation: Equation, theta: Floats, inverse: Floats, digits: float
) -> bool:
    """Newton's steps with the curvature of each place, halved until they lead down far enough."""
    height, blur = height_at(model, equation, theta)
    for _ in range(STEPS):
        slopes = slopes_at(model, equation, theta)
        inverse[:] = inverse_at(model, equation, theta)
        step = newton_step(inverse, slopes)
        if small(step, theta, digits) or at_the_grain(model, equation, theta, slopes):
            theta += step
            return bool(np.isfinite(theta).all())
        down = False
        for _ in range(HALVINGS):
            lower, own = height_at(model, equation, theta + step)
            down = lower - height <= blur + own + FALL * dot(step, slopes)
            if down:
                break
            step *= 0.5
        if not down:
            return False
        theta += step
        height, blur = lower, own
    return False


@compiled
def come_from_far(
    model: Model, equation: Equation, theta: Floats, inverse: Floats, digits: float
) -> bool:
    """Start under a ridge so large that 0 is near, and halve it down to the one that is meant.

    Means near their ends leave no curvature to follow; λθ, though, then moves little with λ.
    """
    energy, far = 0.0, 0
    for j in range(theta.size):
        energy += dot(equation.weight, equation.past[j, : equation.weight.size] ** 2)
    while model.ridge * 2.0**far < energy:
        far += 1
    theta[:] = 0.0
    for k in range(far, -1, -1):
        ridge, last = model.ridge * 2.0**k, digits if k == 0 else ROUGH
        eased = Model(model.link, model.gamma, ridge, model.scale, model.mix, model.refresh)
        if height_at(eased, equation, 2.0 * theta)[0] < height_at(eased, equation, theta)[0]:
            theta *= 2.0
        if not walk_down(eased, equation, theta, inverse, last):
            return False
    return True


@compiled
def descend(
    model: Model, equation: Equation, theta: Floats, inverse: Floats, digits: float
) -> bool:
    """Move θ to the root, to a last step of `digits` times θ; False where it is not reached."""
    return (
        glide(model, equation, theta, inverse, digits)
        or walk_down(model, equation, theta, inverse, digits)
        or come_from_far(model, equation, theta, inverse, digits)
    )
