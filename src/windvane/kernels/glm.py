"""Generalised policies: what they hold, and how they choose and learn."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from windvane import _random
from windvane._jit import compiled
from windvane._layout import LARGEST
from windvane.glm import links
from windvane.kernels.belief_block import dot, times
from windvane.kernels.choosing import ANY, MIX, TIE, best, linear_scores
from windvane.kernels.glm_solver import (
    CLOSE,
    NEAR,
    Equation,
    Model,
    derivative,
    descend,
    inverse_at,
    summed,
)
from windvane.kernels.learning import NOT_FINITE
from windvane.kernels.sampling import DRAWS
from windvane.kernels.widths import squared_norms
from windvane.types import Floats

UNSOLVED = -3  # what a kernel answers where no root was reached

mean = compiled(links.mean)


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
    if model.gamma < 1.0:
        slot = (seen - 1) % room
        for _ in range(count - 1):
            older = slot - 1 if slot > 0 else room - 1
            weight[older] = model.gamma * weight[slot]
            slot = older
    return weight


@compiled
def plain(model: Model, held: Held) -> Equation:
    """What θ̂ solves: c = Σ w·xy."""
    weight = weights(model, held)
    right = summed(held.past, weight * held.past[-1, : weight.size])
    return Equation(held.past, weight, right)


@compiled
def perturbed(model: Model, held: Held, start: np.uint64) -> Equation:
    """What θ̃ solves: c = Σ w·x(y + a·z) + a√λ·ζ, z and ζ standard normal."""
    weight = weights(model, held)
    n = weight.size
    z = np.empty(n + held.theta.size)
    _random.normals(start, DRAWS, z)
    z *= model.scale
    right = summed(held.past, weight * (held.past[-1, :n] + z[:n]))
    right += math.sqrt(model.ridge) * z[n:]
    return Equation(held.past, weight, right)


@compiled
def sampled(model: Model, held: Held, start: np.uint64, out: Floats) -> bool:
    """θ̃, the estimate from rewards each with its own fresh noise; False where it was not reached.

    The first step from θ̂ is the linear policy's whole way; under the identity link it is all.
    """
    out[:] = held.theta
    if model.scale == 0.0:
        return True
    return descend(model, perturbed(model, held, start), out, held.inverse.copy(), NEAR)


@compiled
def sample_aside(model: Model, held: Held, key: int, round_: int, out: Floats) -> bool:
    """Draws of θ̃, one a row, each from a stream of its own."""
    start = _random.opening(np.uint64(key), round_)
    reached = True
    for i in range(out.shape[0]):
        reached &= sampled(model, held, _random.word(start, i), out[i])
    return reached


@compiled
def choose(model: Model, held: Held, arms: Floats, key: int, round_: int) -> int:
    """The arm to play in a round, or NOT_FINITE, or UNSOLVED."""
    if not squared_norms(arms).max() <= LARGEST:
        return NOT_FINITE
    start = _random.opening(np.uint64(key), round_)
    theta = np.empty(held.theta.size)
    if not sampled(model, held, start, theta):
        return UNSOLVED
    chosen = best(linear_scores(arms, theta), _random.uniform(start, TIE))
    if chosen >= 0 and _random.uniform(start, MIX) < model.mix:
        chosen = int(_random.uniform(start, ANY) * arms.shape[0])
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
    bend = derivative(model.link, mean(model.link, dot(x, held.theta)))
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
    equation = plain(model, held)
    if held.tally[1] >= model.refresh:
        held.inverse[:] = inverse_at(model, equation, held.theta)
        held.tally[1] = 0
    if descend(model, equation, held.theta, held.inverse, CLOSE):
        return True
    for i in range(rewards.size - 1, -1, -1):
        held.past[:, (first + i) % room] = replaced[i]
    held.tally[:], held.theta[:], held.inverse[:] = before.tally, before.theta, before.inverse
    return False
