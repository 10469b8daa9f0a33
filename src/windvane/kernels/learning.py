"""Learn: fold an observation into the sums, and by rank-one steps into what is derived."""

import math
from typing import NamedTuple

import numpy as np

from windvane._jit import compiled
from windvane._layout import LARGEST, SAMPLE, WIDTH, PolicyArrays
from windvane.belief import State
from windvane.kernels.belief_block import FULL, dot, forget, parts, refresh, solve, times
from windvane.kernels.widths import Watched, look, nobody
from windvane.types import Floats, Records

CONDITION = 1e13  # trace(S)/λ beyond this would leave too few digits in W⁻¹
NOT_FINITE, TOO_LARGE = -1, -2  # what a kernel answers when it refuses
LEAST = 0.5  # a past that fades by more in one step is not followed by a step
TINY = 1e-300  # a weight that is not 0
MOST = 9.0  # one observation counts in a CUSUM as three standard deviations at most


class Step(NamedTuple):
    """A rank-one step: P' = (P − ppᵀ/c)/f and Q' = Q − (pqᵀ+qpᵀ)/c + (1+s)ppᵀ/c²."""

    p: Floats  # (d,)  Px for P = `inverse`
    q: Floats  # (d,)  Qx for Q = `spread`
    c: float  # f/w + xᵀp for an observation of weight w, or σ² + xᵀp in a filter
    s: float  # xᵀq
    f: float  # by what factor the past fades


@compiled
def aged(arrays: PolicyArrays, at: float) -> tuple[float, float]:
    """By what factor the past fades, and how much an observation chosen at that time counts."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    if rule.span == 0.0:
        return rule.gamma, 1.0
    if counts.seen == 0:
        counts.clock = at
    fade, weight = 1.0, 1.0
    if at >= counts.clock:
        fade = 0.5 ** ((at - counts.clock) / rule.span)
        counts.clock = at
    else:
        weight = 0.5 ** ((counts.clock - at) / rule.span)
    counts.held = fade * fade * counts.held + weight * weight
    return fade, weight


@compiled
def absorb(arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float) -> Step:
    """Add one observation to the sums and, by a rank-one step, to what is derived from them.

    W ← fW + w·xxᵀ,  W̃ ← f²W̃ + w²·xxᵀ,  b ← fb + w·xy, each without its ridge
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    d = rule.dim
    gamma, weight = aged(arrays, at)
    if gamma < LEAST:  # too little is left of the past for a step: invert anew
        counts.stale = rule.refresh
    safe = max(gamma, LEAST)
    p = np.empty(d)
    times(state.inverse, x, p)
    q = p
    c = gamma / max(weight, TINY) + dot(x, p)
    if rule.twin:
        fade, own = gamma * gamma, weight * weight
        for i in range(d):
            for j in range(d):
                state.noise[i, j] = fade * state.noise[i, j] + own * (x[i] * x[j])
        if rule.style == WIDTH:
            q = np.empty(d)
            times(state.spread, x, q)
            own = (1.0 + dot(x, q)) / (c * c)
            for i in range(d):
                for j in range(d):
                    state.spread[i, j] += own * (p[i] * p[j]) - (p[i] * q[j] + q[i] * p[j]) / c
    for i in range(d):
        state.moment[i] = gamma * state.moment[i] + weight * (x[i] * reward)
        for j in range(d):
            state.gram[i, j] = gamma * state.gram[i, j] + weight * (x[i] * x[j])
            state.inverse[i, j] = (state.inverse[i, j] - (p[i] * p[j]) / c) / safe
    if rule.style == SAMPLE and rule.window == 0:
        rotate(state.root, gamma if rule.twin else math.sqrt(gamma), x, weight)
    counts.ridge *= gamma
    counts.noise_ridge *= gamma * gamma if rule.twin else gamma
    counts.energy = gamma * counts.energy + weight * dot(x, x)
    counts.stale += 1
    return Step(p, q, c, dot(x, q), gamma)


@compiled
def filtered(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> Step:
    """Let θ wander for one step, then correct what is believed of it by one observation."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    d, fade, mean, covariance = rule.dim, rule.rho * rule.rho, state.theta, state.inverse
    for i in range(d):
        mean[i] *= rule.rho
        for j in range(d):
            covariance[i, j] *= fade
        covariance[i, i] += (1.0 - fade) / rule.ridge
    p = np.empty(d)
    times(covariance, x, p)
    c = rule.variance + dot(x, p)
    miss = (reward - dot(x, mean)) / c
    for i in range(d):
        mean[i] += p[i] * miss
        for j in range(d):
            covariance[i, j] -= (p[i] * p[j]) / c
    counts.energy = fade * counts.energy + dot(x, x) / rule.variance
    return Step(p, p, c, dot(x, p), fade)


@compiled
def alarmed(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> bool:
    """Whether rewards have been too far from what was predicted for too long, by a CUSUM.

    r² = (y − xᵀθ̂)² / (σ² + (σ² + λS²)‖x‖²_{W⁻¹}),  C ← max(0, C + min(r², 9) − slack)
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    p = np.empty(x.size)
    times(state.inverse, x, p)
    miss = reward - dot(x, state.theta)
    expected = rule.variance + (rule.variance + rule.bias) * dot(x, p)
    step = min(miss * miss / expected, MOST) - rule.slack
    counts.surprise = max(0.0, counts.surprise + step)
    return bool(counts.surprise > rule.alarm)


@compiled
def rotate(root: Floats, gamma: float, x: Floats, weight: float) -> None:
    """RᵀR ← γ²RᵀR + w²·xxᵀ by plane rotations, which work from R = 0 on."""
    v = weight * x
    for k in range(v.size):
        own = gamma * root[k, k]
        length = math.sqrt(own * own + v[k] * v[k])
        cosine, sine = (own / length, v[k] / length) if length > 0.0 else (1.0, 0.0)
        root[k, k] = length
        for i in range(k + 1, v.size):
            old = gamma * root[k, i]
            root[k, i] = cosine * old + sine * v[i]
            v[i] = cosine * v[i] - sine * old


@compiled
def release(arrays: PolicyArrays, state: State, x: Floats, reward: float) -> bool:
    """Take one observation of a window out again; False where too few digits would be left."""
    d, counts = x.size, arrays.tally[0]
    p = np.empty(d)
    times(state.inverse, x, p)
    c = 1.0 - dot(x, p)
    counts.peak = max(counts.peak, counts.energy)
    counts.energy -= dot(x, x)
    if c < 1e-2 or counts.energy + arrays.rules[0].ridge < 1e-6 * counts.peak:
        return False
    for i in range(d):
        state.moment[i] -= x[i] * reward
        for j in range(d):
            state.gram[i, j] -= x[i] * x[j]
            state.inverse[i, j] += (p[i] * p[j]) / c
    return True


@compiled
def sum_anew(arrays: PolicyArrays, state: State) -> None:
    """The sums of a window from its observations, so that rounding never piles up."""
    d = state.moment.size
    features, rewards = arrays.past[:, :d].copy(), arrays.past[:, d].copy()
    state.gram[:] = np.dot(features.T, features)
    state.moment[:] = np.dot(features.T, rewards)
    arrays.tally[0].energy = np.trace(state.gram)
    arrays.tally[0].peak = arrays.tally[0].energy


@compiled
def acceptable(arrays: PolicyArrays, xs: Floats) -> int:
    """0, or why these observations, one a row, cannot all be learned from in turn."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    energy, fade, unit = counts.energy, rule.gamma, 1.0
    if rule.rho > 0.0:
        fade, unit = rule.rho * rule.rho, 1.0 / rule.variance
    for i in range(xs.shape[0]):
        size = dot(xs[i], xs[i])
        if not size <= LARGEST:
            return NOT_FINITE
        energy = fade * energy + unit * size
        if energy > CONDITION * rule.ridge:
            return TOO_LARGE
        if 0 < rule.window <= counts.seen + i:
            left = (
                xs[i - rule.window]
                if i >= rule.window
                else arrays.past[(counts.seen + i) % rule.window]
            )
            energy -= dot(left[: rule.dim], left[: rule.dim])
    return 0


@compiled
def follow(rules: Records, state: State, watched: Watched, step: Step) -> None:
    """Let what is known of arms that stay the same take the step too, in O(Kd).

    w² ← w² − 2ab/c + (1+s)a²/c² and, for h = ‖Px‖², h ← (h − 2a·xᵀPp/c + a²‖p‖²/c²)/γ²,
    with a = xᵀp and b = xᵀq; where W̃ is W, w² ← (w² − a²/c)/γ, and h counts only if γ < 1.
    """
    rule, gamma, c = rules[0], step.f, step.c
    if rule.rho > 0.0:
        fade, more = rule.rho * rule.rho, (1.0 - rule.rho * rule.rho) / rule.ridge
        for k in range(watched.squares.size):
            a = dot(watched.arms[k], step.p)
            watched.squares[k] = fade * watched.squares[k] + more * watched.sizes[k] - a * a / c
        return
    if not rule.fades:
        for k in range(watched.squares.size):
            a = dot(watched.arms[k], step.p)
            watched.squares[k] -= a * a / c
        return
    own = dot(step.p, step.p) / c
    image = np.empty_like(step.p)
    times(state.inverse, step.p, image)
    for i in range(image.size):
        image[i] = gamma * image[i] + own * step.p[i]  # Pp for the P before the step
    for k in range(watched.squares.size):
        x = watched.arms[k]
        a, b, r = dot(x, step.p) / c, dot(x, step.q), dot(x, image)
        if rule.twin:
            watched.squares[k] += a * ((1.0 + step.s) * a - 2.0 * b)
        else:
            watched.squares[k] = (watched.squares[k] - a * a * c) / gamma
        watched.lengths[k] = (watched.lengths[k] + a * (a * own * c - 2.0 * r)) / (gamma * gamma)


@compiled
def learn(arrays: PolicyArrays, x: Floats, reward: float, at: float) -> int:
    """Fold one observation in and estimate θ̂ anew; 0, or why not, and then nothing changed."""
    refused = acceptable(arrays, x.reshape(1, -1))
    if refused == 0:
        state = parts(arrays)
        learn_watching(arrays, state, x, reward, at, nobody(state))
    return refused


@compiled
def learn_watching(
    arrays: PolicyArrays,
    state: State,
    x: Floats,
    reward: float,
    at: float,
    watched: Watched,
) -> None:
    """Fold one observation in, keeping what is known of some arms up to date."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    exact = True
    if rule.alarm > 0.0 and alarmed(arrays, state, x, reward):
        forget(arrays, state)
        counts.alarms += 1
        exact = False
    if rule.rho > 0.0:
        step = filtered(arrays, state, x, reward)
    else:
        step = absorb(arrays, state, x, reward, at)
    if arrays.past.shape[0] > 0:
        exact = remember(arrays, state, x, reward, at) and exact
    counts.seen += 1
    behind = counts.ridge < rule.least * rule.ridge
    if counts.stale >= rule.refresh or behind or not exact:
        refresh(arrays, state)
        exact = False
    if watched.squares.size > 0:
        if exact and rule.window == 0:
            follow(arrays.rules, state, watched, step)
        else:
            look(state, watched)
    if rule.rho == 0.0:
        solve(arrays, state, state.moment, state.theta, FULL)


@compiled
def amend(arrays: PolicyArrays, x: Floats, more: float, at: float) -> None:
    """Add to the reward of an observation that was learned before: b ← b + w·x·more."""
    state, weight = parts(arrays), 1.0
    if arrays.rules[0].span > 0.0:
        weight = 0.5 ** (max(arrays.tally[0].clock - at, 0.0) / arrays.rules[0].span)
    for i in range(x.size):
        state.moment[i] += weight * (x[i] * more)
    solve(arrays, state, state.moment, state.theta, FULL)


@compiled
def remember(arrays: PolicyArrays, state: State, x: Floats, reward: float, at: float) -> bool:
    """Keep the observation itself, in place of the oldest; False where W must be inverted anew."""
    d, window, seen = arrays.rules[0].dim, arrays.rules[0].window, arrays.tally[0].seen
    slot = seen % arrays.past.shape[0]
    oldest = arrays.past[slot].copy()
    arrays.past[slot, :d] = x
    arrays.past[slot, d] = reward
    if arrays.rules[0].span > 0.0:
        arrays.past[slot, d + 1] = at
    if window == 0 or seen < window:
        return True
    if release(arrays, state, oldest[:d], oldest[d]) and slot < arrays.past.shape[0] - 1:
        return True
    sum_anew(arrays, state)
    return False


@compiled
def learn_all(
    arrays: PolicyArrays,
    xs: Floats,
    rewards: Floats,
    at: Floats,
) -> None:
    """Fold observations in that are known to be acceptable, one after the other."""
    state = parts(arrays)
    for i in range(rewards.size):
        learn_watching(arrays, state, xs[i], rewards[i], at[i], nobody(state))
