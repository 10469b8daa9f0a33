"""The draws of a round: a confidence level Z, or a parameter θ̃."""

import math

import numpy as np

from windvane import _random, laws
from windvane._jit import compiled
from windvane._layout import GRID, HISTORY, MEAN, NORMAL, POINT, PolicyArrays
from windvane.belief import State
from windvane.kernels.belief_block import AMPLE, forget, parts, solve
from windvane.kernels.learning import filtered
from windvane.types import Floats, Records

DRAWS = 3  # the first place of a round's stream that is free for these draws

mass = compiled(laws.mass)
radius_of = compiled(laws.radius)
anytime = compiled(laws.anytime)


@compiled
def scale_of(arrays: PolicyArrays) -> float:
    """The scale of the law: a number, or so many times the radius for what was seen."""
    rule, seen = arrays.rules[0], arrays.tally[0].seen
    scale: float = rule.scale
    if rule.grows:
        delta = anytime(rule.delta, seen) if rule.anytime else rule.delta
        held = arrays.tally[0].held
        if rule.span == 0.0:
            held = mass(seen, rule.rho if rule.rho > 0.0 else rule.gamma, rule.window)
        scale *= radius_of(
            held, rule.space, rule.ridge, delta, rule.noise, rule.theta_norm, rule.arm_norm
        )
    return scale


@compiled
def level(rules: Records, scale: float, start: np.uint64) -> float:
    """Draw the confidence level Z of a round."""
    rule = rules[0]
    if rule.law == POINT:
        return scale
    if rule.law == GRID:
        return scale * grid_level(rules, _random.uniform(start, DRAWS))
    draw = np.empty(1)
    _random.normals(start, DRAWS, draw)
    z = float(draw[0])
    return scale * (z if rule.law == NORMAL else abs(z))


@compiled
def grid_level(rules: Records, chance: float) -> float:
    """The point of the unit grid at which the law's distribution function reaches `chance`."""
    weights = grid_weights(rules)
    reached = 0.0
    for m in range(weights.size):
        reached += weights[m]
        if chance <= reached:
            return m / (weights.size - 1)
    return 1.0


@compiled
def grid_weights(rules: Records) -> Floats:
    """The probability of each grid point: `top` for the last, a Gaussian shape for the rest."""
    rule = rules[0]
    weights = np.empty(rule.points)
    total = 0.0
    for m in range(rule.points - 1):
        place = m / (rule.points - 1)
        weights[m] = math.exp(-0.5 * (place / rule.sigma) ** 2)
        total += weights[m]
    weights[: rule.points - 1] *= (1.0 - rule.top) / total
    weights[rule.points - 1] = rule.top
    return weights


@compiled
def sampled(arrays: PolicyArrays, state: State, start: np.uint64) -> Floats:
    """θ̃ = W⁻¹(b + a·ξ) with ξ ~ N(0, W̃), or with a freshly perturbed past."""
    rule = arrays.rules[0]
    d = rule.dim
    if rule.rho > 0.0:
        return wandered(arrays, state, start)
    right = state.moment.copy()
    if rule.style == HISTORY:
        perturb(arrays, start, right)
    elif rule.window > 0:
        ridged = state.gram.copy()
        for i in range(d):
            ridged[i, i] += rule.ridge
        z = np.empty(d)
        _random.normals(start, DRAWS, z)
        right += rule.scale * np.dot(np.linalg.cholesky(ridged), z)
    else:
        z = np.empty(2 * d)
        _random.normals(start, DRAWS, z)
        z *= rule.scale
        for k in range(d):
            row, own = state.root[k], z[k]
            for i in range(d):  # left of the diagonal there are zeros
                right[i] += own * row[i]
            right[k] += math.sqrt(rule.ridge) * z[d + k]
    answer = state.theta.copy()
    solve(arrays, state, right, answer, AMPLE)
    return answer


@compiled
def wandered(arrays: PolicyArrays, state: State, start: np.uint64) -> Floats:
    """θ̃ = μ + a·Σ^{½}z under a filter, or the filter run again over a freshly perturbed past.

    Run again, the past has its noise, its start and every step of its wandering drawn anew, so
    that the mean strays by N(0, a²Σ), as it does in one step.
    """
    rule, d = arrays.rules[0], arrays.rules[0].dim
    if rule.style != HISTORY:
        z = np.empty(d)
        _random.normals(start, DRAWS, z)
        answer: Floats = state.theta + rule.scale * np.dot(np.linalg.cholesky(state.inverse), z)
        return answer
    held = min(arrays.tally[0].seen, arrays.past.shape[0])
    z = np.zeros((held + 1) * (d + 1))
    if rule.coins > 0:
        for i in range(held):
            z[i] = heads(_random.word(start, DRAWS + i), rule.coins)
    else:
        _random.normals(start, DRAWS, z)
        z[:held] *= rule.scale * math.sqrt(rule.variance)
        z[held:] *= rule.scale / math.sqrt(rule.ridge)
    steps = z[held : held + held * d + d].reshape(held + 1, d)
    fresh = PolicyArrays(
        arrays.rules, np.zeros_like(arrays.tally), np.zeros(2 * d + d * d), arrays.past
    )
    again = parts(fresh)
    forget(fresh, again)
    again.theta[:] = steps[held]
    for age in range(held - 1, -1, -1):
        slot = (arrays.tally[0].seen - 1 - age) % arrays.past.shape[0]
        for i in range(d):  # the filter itself will take ρ of it
            again.theta[i] += math.sqrt(1.0 - rule.rho * rule.rho) / rule.rho * steps[age, i]
        filtered(fresh, again, arrays.past[slot, :d], arrays.past[slot, d] + z[age])
    if rule.coins > 0:
        again.theta[:] /= rule.coins + 1.0
    return again.theta


@compiled
def direction(arrays: PolicyArrays, key: int, round_: int) -> Floats:
    """The θ by which a round chooses where no widths are asked for: θ̂, or a sample θ̃."""
    state = parts(arrays)
    if arrays.rules[0].style == MEAN:
        return state.theta.copy()
    return sampled(arrays, state, _random.opening(np.uint64(key), round_))


@compiled
def perturb(arrays: PolicyArrays, start: np.uint64, right: Floats) -> None:
    """Add a fresh pseudo-reward to every past reward: b ← b + Σ w·x·Z, and the ridge's share."""
    rule, seen = arrays.rules[0], arrays.tally[0].seen
    d, held = rule.dim, min(arrays.tally[0].seen, arrays.past.shape[0])
    z = np.empty(held + d)
    if rule.coins > 0:
        for i in range(held):
            z[i] = heads(_random.word(start, DRAWS + i), rule.coins)
        z[held:] = 0.0
    else:
        _random.normals(start, DRAWS, z)
        z *= rule.scale
    weight = 1.0
    fade = rule.gamma if rule.twin or rule.coins > 0 else math.sqrt(rule.gamma)
    for age in range(held):
        slot = (seen - 1 - age) % arrays.past.shape[0]
        if rule.span > 0.0:
            weight = 0.5 ** ((arrays.tally[0].clock - arrays.past[slot, d + 1]) / rule.span)
        for i in range(d):
            right[i] += weight * z[age] * arrays.past[slot, i]
        weight *= fade
    for i in range(d):
        right[i] += math.sqrt(rule.ridge) * z[held + i]
    if rule.coins > 0:
        right /= rule.coins + 1.0


@compiled
def heads(bits: np.uint64, coins: int) -> float:
    """How many of the first `coins` bits are set."""
    count = 0.0
    for k in range(coins):
        count += np.float64((bits >> np.uint64(k)) & np.uint64(1))
    return count
