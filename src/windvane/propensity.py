"""Who would have been chosen, how often: the probability of each arm under one belief.

Under a randomized width each arm is a line xᵀθ̂ + z‖x‖_{V⁻¹} in z. The arm played is the upper
envelope of the lines at Z, so each arm's probability is that of the stretch of z on which its line
is on top: exact, in O(K log K).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from windvane import _random, kernels
from windvane._jit import compiled
from windvane._layout import GAP, HALF_NORMAL, HISTORY, LARGEST, MEAN, POINT, SAMPLE, PolicyArrays
from windvane.belief import Belief
from windvane.kernels.choosing import ROUNDING
from windvane.types import Floats, Records

CLEAR = 1e-6  # share of the scores by which one must lead
ASIDE = 0x5DEECE66D  # turns a policy's key into that of the draws made only to count


@compiled
def chance_between(low: float, high: float) -> float:
    """P(low < N(0, 1) < high), from whichever tail keeps its digits."""
    root = math.sqrt(0.5)
    if low > 0.0:
        return 0.5 * (math.erfc(low * root) - math.erfc(high * root))
    if high < 0.0:
        return 0.5 * (math.erfc(-high * root) - math.erfc(-low * root))
    return 1.0 - 0.5 * (math.erfc(-low * root) + math.erfc(high * root))


@compiled
def shares_at(means: Floats, widths: Floats, z: float, weight: float, shares: Floats) -> None:
    """Give `weight` to the arm on top at z, in equal parts where several are."""
    scores = means + z * widths
    least = scores.max() - ROUNDING * np.abs(scores).max()
    equals = 0
    for k in range(scores.size):
        equals += scores[k] >= least
    for k in range(scores.size):
        if scores[k] >= least:
            shares[k] += weight / equals


@compiled
def envelope(means: Floats, widths: Floats, scale: float, law: int) -> Floats:
    """The probability of each arm for Z = scale·N(0, 1), or scale·|N(0, 1)|."""
    count = means.size
    shares = np.zeros(count)
    start = 0.0 if law == HALF_NORMAL else -np.inf
    full = 2.0 if law == HALF_NORMAL else 1.0
    if scale == 0.0:
        shares_at(means, widths, 0.0, 1.0, shares)
        return shares
    order = np.argsort(widths)
    hull, begins = np.empty(count, np.int64), np.empty(count)
    size = 0
    for k in order:
        begin = start
        while size > 0:
            top = hull[size - 1]
            rise = widths[k] - widths[top]
            if rise <= ROUNDING * widths[k]:  # parallel: the higher one stays
                if means[k] <= means[top]:
                    begin = np.inf
                    break
                size -= 1
                continue
            begin = max(start, (means[top] - means[k]) / (rise * scale))
            if begin > begins[size - 1]:
                break
            size -= 1
            begin = start
        if begin < np.inf:
            hull[size], begins[size] = k, begin
            size += 1
    for i in range(size):
        end = begins[i + 1] if i + 1 < size else np.inf
        line = hull[i]
        chance = full * chance_between(begins[i], end)
        share_twins(means, widths, line, chance, shares)
    return shares


@compiled
def by_width(arrays: PolicyArrays, arms: Floats) -> Floats:
    """The probability of each arm under a normal or half-normal level, any floor included."""
    rules, state = arrays.rules, kernels.parts(arrays)
    means = kernels.linear_scores(arms, state.theta)
    widths = kernels.all_widths(arrays, state, arms)
    return floored(rules, envelope(means, widths, kernels.scale_of(arrays), rules[0].law))


@compiled
def floored(rules: Records, shares: Floats) -> Floats:
    """With some chance any arm at all is played."""
    mix = rules[0].mix
    mixed: Floats = (1.0 - mix) * shares + mix / shares.size
    return mixed


@compiled
def drawn(arrays: PolicyArrays, arms: Floats, key: int, round_: int) -> tuple[int, Floats]:
    """What `choose` plays, and the probability of each arm, with every width worked out once.

    Widths to a share of 1e-8 tell who is on top, unless two are closer than CLEAR.
    """
    rules, state, nothing = arrays.rules, kernels.parts(arrays), np.empty(0)
    if not (kernels.squared_norms(arms) <= LARGEST).all():
        return kernels.NOT_FINITE, nothing
    means = kernels.linear_scores(arms, state.theta)
    widths = kernels.all_widths(arrays, state, arms)
    scale = kernels.scale_of(arrays)
    shares = floored(rules, envelope(means, widths, scale, rules[0].law))
    start = _random.opening(np.uint64(key), round_)
    z = kernels.level(rules, scale, start)
    scores = means + z * widths
    top = int(np.argmax(scores))
    near = scores[top] - CLEAR * (np.abs(means).max() + abs(z) * widths.max())
    for k in range(scores.size):
        if k != top and scores[k] >= near:
            return kernels.choose(arrays, arms, key, round_), shares
    return kernels.or_any(rules, top, scores.size, start), shares


@compiled
def share_twins(means: Floats, widths: Floats, line: int, chance: float, shares: Floats) -> None:
    """Split the chance of a line among the arms that have the very same line."""
    near_mean, near_width = ROUNDING * abs(means[line]), ROUNDING * widths[line]
    twins = 0
    for k in range(means.size):
        same = abs(means[k] - means[line]) <= near_mean
        twins += same and abs(widths[k] - widths[line]) <= near_width
    for k in range(means.size):
        same = abs(means[k] - means[line]) <= near_mean
        if same and abs(widths[k] - widths[line]) <= near_width:
            shares[k] += chance / twins


@compiled
def atoms(means: Floats, widths: Floats, scale: float, weights: Floats) -> Floats:
    """The probability of each arm when Z lies on an even grid from 0 to `scale`."""
    shares = np.zeros(means.size)
    last = max(weights.size - 1, 1)
    for m in range(weights.size):
        shares_at(means, widths, scale * m / last, weights[m], shares)
    return shares


def tallied(scores: Floats) -> Floats:
    """The share of draws, one a row, in which each arm is on top; ties split."""
    largest = np.abs(scores).max(axis=1, keepdims=True)
    winners = scores >= scores.max(axis=1, keepdims=True) - ROUNDING * largest
    shares: Floats = (winners / winners.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares


def by_gap(means: Floats, leading: Floats, eta: float) -> Floats:
    """1/(K + η·gap) for each arm that does not lead, and the rest for the one that does."""
    others: Floats = 1.0 / (means.size + eta * (means.max() - means))
    rest = 1.0 - (others.sum() - others.max())  # those that lead by lot have no gap at all
    shares: Floats = (1.0 - leading) * others + leading * rest
    return shares


def with_one_more(shares: Floats, samples: int, chosen: int | None) -> Floats:
    """Shares of so many draws, the choice that was made counted as one draw more."""
    if chosen is None:
        return shares
    more: Floats = (samples * shares + (np.arange(shares.size) == chosen)) / (samples + 1.0)
    return more


class Moment(NamedTuple):
    """What a policy is about to choose with."""

    arrays: PolicyArrays
    believed: Callable[[], Belief]


def counted(rules: Records) -> bool:
    """Whether the probabilities come from counting draws."""
    return rules["style"][0] in (SAMPLE, HISTORY)


def shares(now: Moment, arms: Floats, samples: int, key: int, round_: int) -> Floats:
    """The probability of each arm, before any floor is mixed in, (K,)."""
    rule = now.arrays.rules[0]
    if counted(now.arrays.rules):
        return tallied(samples_of(now, samples, key, round_) @ arms.T)
    state = kernels.parts(now.arrays)
    means = kernels.linear_scores(arms, state.theta)  # as `choose` has them
    if rule["style"] in (MEAN, GAP):
        leading = atoms(means, np.zeros_like(means), 0.0, np.ones(1))
        return leading if rule["style"] == MEAN else by_gap(means, leading, float(rule["scale"]))
    widths = kernels.all_widths(now.arrays, state, arms)
    scale = kernels.scale_of(now.arrays)
    if rule["law"] == POINT:
        return atoms(means + scale * widths, np.zeros_like(means), 0.0, np.ones(1))
    return atoms(means, widths, scale, kernels.grid_weights(now.arrays.rules))


def samples_of(now: Moment, samples: int, key: int, round_: int) -> Floats:
    """Draws of θ̃, (samples, d), from a stream of their own: no choice is changed by asking."""
    start = np.uint64(_random.opening(np.uint64(key ^ ASIDE), round_))
    rule = now.arrays.rules[0]
    if rule["coins"]:
        state = kernels.parts(now.arrays)
        starts = [np.uint64(_random.word(start, i)) for i in range(samples)]
        return np.array([kernels.sampled(now.arrays, state, s) for s in starts])
    belief = now.believed()
    z = np.empty(samples * belief.dim)
    _random.normals(start, 0, z)
    root: Floats = np.linalg.cholesky(belief.noise).astype(np.float64)
    half = belief.solve(root)  # (d, d), half·halfᵀ = V⁻¹
    return belief.theta + float(rule["scale"]) * z.reshape(samples, -1) @ half.T
