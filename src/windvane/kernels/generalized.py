"""Generalised linear estimates: the root θ of Σ w·x·μ(xᵀθ) + λθ = c.

It is the lowest point of a strictly convex function. Newton's method goes there, from the last
estimate, with a curvature that is kept from observation to observation and corrected by every step
it takes (BFGS), so that a step costs O(nd). A step that would go too far is halved.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import links, stream
from windvane.arrays import Floats
from windvane.compiling import compiled
from windvane.kernels.choosing import ANY, MIX, TIE, best, linear_scores
from windvane.kernels.learning import NOT_FINITE
from windvane.kernels.sampling import DRAWS
from windvane.kernels.solving import dot, invert, times
from windvane.kernels.widths import squared_norms
from windvane.links import IDENTITY, LOGISTIC, STEEPEST
from windvane.rules import LARGEST

CLOSE, NEAR = 1e-10, 1e-8  # the last step relative to the root: of the estimate, of a draw
STEPS, HALVINGS = 200, 60  # more are never needed where numbers have digits to spare
PATIENCE = 10  # steps after which it is asked whether rounding allows any more
GRAIN = 1e-13  # a sum of terms of size 1 is not known more closely
UNSOLVED = -3  # what a kernel answers where no root was reached

SERIES = np.array([1.0 / math.factorial(m) for m in range(13, 1, -1)])
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10  # their sum is ln 2

mean = compiled(links.mean)
steepness = compiled(links.steepness)


class Model(NamedTuple):
    """What compiled code must know of a generalised policy."""

    link: int
    gamma: float  # 1 where nothing fades
    ridge: float  # λ
    scale: float  # a, of the pseudo-rewards
    mix: float  # the chance that any arm at all is played
    refresh: int  # observations between two fresh inversions of the curvature


class Held(NamedTuple):
    """What a generalised policy holds; the newest observation is at (seen − 1) mod room."""

    tally: npt.NDArray[np.int64]  # (2,) observations seen, and since the last inversion
    theta: Floats  # (d,) θ̂
    inverse: Floats  # (d, d) close to the inverse of λI + Σ w·μ'·xxᵀ at θ̂
    past: Floats  # (d + 1, room) features, then rewards


@compiled
def weights(model: Model, held: Held) -> Floats:
    """What each held observation still counts: γ^age."""
    seen, room = held.tally[0], held.past.shape[1]
    count = min(seen, room)
    weight = np.ones(count)
    if model.gamma < 1.0 and count > 0:
        slot = (seen - 1) % room
        weight[slot] = 1.0
        for _ in range(count - 1):
            older = slot - 1 if slot > 0 else room - 1
            weight[older] = model.gamma * weight[slot]
            slot = older
    return weight


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
def aim(held: Held, weight: Floats) -> Floats:
    """c = Σ w·xy."""
    return summed(held.past, weight * held.past[-1, : weight.size])


@compiled
def perturbed_aim(model: Model, held: Held, weight: Floats, start: np.uint64) -> Floats:
    """c = Σ w·x(y + a·z) + a√λ·ζ, z and ζ standard normal."""
    d, n = held.theta.size, weight.size
    z = np.empty(n + d)
    stream.normals(start, DRAWS, z)
    z *= model.scale
    rewards = held.past[d, :n] + z[:n]
    return summed(held.past, weight * rewards) + math.sqrt(model.ridge) * z[n:]


@compiled
def exponentials(values: Floats) -> None:
    """exp of each, in place: 2^k·exp(r) with |r| ≤ ½·ln 2, and a series for exp(r).

    Written out because a loop of it fills vector registers, as one of calls does not: 4 times
    as fast. Values must lie within ±STEEPEST.
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
def fill_means(model: Model, past: Floats, theta: Floats, out: Floats) -> None:
    """μ(xᵀθ) of every held observation."""
    out[:] = 0.0
    for j in range(theta.size):
        row, own = past[j], theta[j]
        for i in range(out.size):
            out[i] += own * row[i]
    if model.link == IDENTITY:
        return
    sign = -1.0 if model.link == LOGISTIC else 1.0
    for i in range(out.size):
        out[i] = min(max(sign * out[i], -STEEPEST), STEEPEST)
    exponentials(out)
    if model.link == LOGISTIC:
        for i in range(out.size):
            out[i] = 1.0 / (1.0 + out[i])


@compiled
def fill_slopes(
    model: Model, past: Floats, weight: Floats, right: Floats, theta: Floats, out: Floats
) -> None:
    """Σ w·x·μ(xᵀθ) + λθ − c."""
    means = np.empty(weight.size)
    fill_means(model, past, theta, means)
    out[:] = summed(past, weight * means) + model.ridge * theta - right


@compiled
def curvature(model: Model, past: Floats, weight: Floats, theta: Floats) -> Floats:
    """λI + Σ w·μ'(xᵀθ)·xxᵀ."""
    d = theta.size
    bend = np.empty(weight.size)
    fill_means(model, past, theta, bend)
    for i in range(bend.size):
        bend[i] = weight[i] * steepness(model.link, bend[i])
    matrix = np.empty((d, d))
    for j in range(d):
        matrix[j] = summed(past, bend * past[j, : bend.size])
        matrix[j, j] += model.ridge
    return matrix


@compiled
def at_the_grain(
    model: Model, past: Floats, weight: Floats, right: Floats, theta: Floats, slopes: Floats
) -> bool:
    """Whether the slopes are as near to 0 as the rounding of their own sums lets them come."""
    size = np.empty(weight.size)
    fill_means(model, past, theta, size)
    for j in range(theta.size):
        total = model.ridge * abs(theta[j]) + abs(right[j])
        for i in range(size.size):
            total += weight[i] * abs(past[j, i] * size[i])
        if not abs(slopes[j]) <= GRAIN * total:
            return False
    return True


@compiled
def correct(inverse: Floats, step: Floats, change: Floats) -> None:
    """Let the inverse curvature send a change of slopes to the step that made it (BFGS).

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
def descend(
    model: Model,
    past: Floats,
    weight: Floats,
    right: Floats,
    theta: Floats,
    inverse: Floats,
    digits: float,
) -> bool:
    """Move θ to the root, until a step is no longer than `digits` times θ; False if it is not.

    Along a step s the slope sᵀg only ever rises, from below 0 to above. A step is halved until
    what it climbs again at its end is at most half of what it fell at its start.
    """
    d = theta.size
    slopes, ahead, step, trial = np.empty((4, d))
    fill_slopes(model, past, weight, right, theta, slopes)
    for count in range(STEPS):
        times(inverse, slopes, step)
        for j in range(d):
            step[j] = -step[j]
            trial[j] = theta[j] + step[j]
        if np.abs(step).max() <= digits * np.abs(trial).max():
            theta[:] = trial
            return True
        fall = -dot(step, slopes)
        if count >= PATIENCE and at_the_grain(model, past, weight, right, theta, slopes):
            return True
        for _ in range(HALVINGS):
            fill_slopes(model, past, weight, right, trial, ahead)
            if dot(step, ahead) <= 0.5 * fall:
                break
            fall *= 0.5
            for j in range(d):
                step[j] *= 0.5
                trial[j] = theta[j] + step[j]
        for j in range(d):
            theta[j] = trial[j]
            slopes[j], ahead[j] = ahead[j], ahead[j] - slopes[j]
        correct(inverse, step, ahead)
    return False



@compiled
def sampled(model: Model, held: Held, start: np.uint64, out: Floats) -> bool:
    """θ̃, the estimate from rewards each with its own fresh noise; False where it was not reached.

    The first step from θ̂ is the linear policy's whole way; under the identity link it is all.
    """
    out[:] = held.theta
    if model.scale == 0.0:
        return True
    weight = weights(model, held)
    right = perturbed_aim(model, held, weight, start)
    return descend(model, held.past, weight, right, out, held.inverse.copy(), NEAR)


@compiled
def sample_aside(model: Model, held: Held, key: int, round_: int, out: Floats) -> bool:
    """Draws of θ̃, one a row, each from a stream of its own."""
    start = stream.opening(np.uint64(key), round_)
    for i in range(out.shape[0]):
        if not sampled(model, held, stream.word(start, i), out[i]):
            return False
    return True


@compiled
def choose(model: Model, held: Held, arms: Floats, key: int, round_: int) -> int:
    """The arm to play in a round, or NOT_FINITE, or UNSOLVED."""
    if not squared_norms(arms).max() <= LARGEST:
        return NOT_FINITE
    start = stream.opening(np.uint64(key), round_)
    theta = np.empty(held.theta.size)
    if not sampled(model, held, start, theta):
        return UNSOLVED
    chosen = best(linear_scores(arms, theta), stream.uniform(start, TIE))
    if chosen >= 0 and stream.uniform(start, MIX) < model.mix:
        chosen = int(stream.uniform(start, ANY) * arms.shape[0])
    return chosen


@compiled
def absorb(model: Model, held: Held, x: Floats, reward: float) -> None:
    """Put one observation in place of the oldest, and its bend into the curvature.

    P ← (P − h·ppᵀ/(γ + h·xᵀp))/γ with p = Px and h = μ'(xᵀθ̂)
    """
    d, slot = x.size, held.tally[0] % held.past.shape[1]
    held.past[:d, slot] = x
    held.past[d, slot] = reward
    held.tally[0] += 1
    held.tally[1] += 1
    image = np.empty(d)
    times(held.inverse, x, image)
    bend = steepness(model.link, mean(model.link, dot(x, held.theta)))
    factor = bend / (model.gamma + bend * dot(x, image))
    for i in range(d):
        for j in range(d):
            less = factor * (image[i] * image[j])
            held.inverse[i, j] = (held.inverse[i, j] - less) / model.gamma


@compiled
def learn(model: Model, held: Held, xs: Floats, rewards: Floats) -> bool:
    """Take in observations and estimate θ̂ anew; False if it was not reached: nothing changed."""
    room, first = held.past.shape[1], held.tally[0]
    before = Held(held.tally.copy(), held.theta.copy(), held.inverse.copy(), np.empty((0, 0)))
    replaced = np.empty((rewards.size, held.past.shape[0]))
    for i in range(rewards.size):
        replaced[i] = held.past[:, held.tally[0] % room]
        absorb(model, held, xs[i], rewards[i])
    weight = weights(model, held)
    if held.tally[1] >= model.refresh:
        held.inverse[:] = curvature(model, held.past, weight, held.theta)
        invert(held.inverse)
        held.tally[1] = 0
    right = aim(held, weight)
    if descend(model, held.past, weight, right, held.theta, held.inverse, CLOSE):
        return True
    for i in range(rewards.size - 1, -1, -1):
        held.past[:, (first + i) % room] = replaced[i]
    held.tally[:], held.theta[:], held.inverse[:] = before.tally, before.theta, before.inverse
    return False
