"""Policies that choose by a sampled parameter, or by the estimate, in eight replications at once.

A sample is solved for until its error is small. If the scores of two arms are closer than a bound
of that error, the replication is computed again exactly, for this round.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._jit import compiled
from windvane._lanes import LANES, load, repeat, select_if_less, store, take_larger, take_root
from windvane._layout import SAMPLE, PolicyArrays
from windvane.kernels.linalg import dot
from windvane.kernels.round_draws import FIRST_FREE_PLACE
from windvane.kernels.sampling import compute_scale
from windvane.lab.engines.lane_algebra import (
    add_root_product,
    fill_lanes,
    invert_packed,
    multiply_packed,
    remove_image,
    rotate_into_root,
    scale_lanes,
    sum_products,
    sum_squares,
)
from windvane.lab.engines.lane_game import (
    LaneGame,
    choose_among_equals,
    choose_best_in_lane,
    choose_lanes_uniformly,
    earn_rewards,
    mix_lanes,
    open_lane_round,
    solve_exactly,
    weigh_arms,
)
from windvane.lab.worlds.draw import Marks
from windvane.types import Floats

ROUNDING = 4e-14  # rounding error of P·v, relative to ‖P‖·‖v‖, for trace(W)/λ = 1
REFINEMENTS = 2  # passes after the first one that reduce the error of a solution


class SampleBelief(NamedTuple):
    """What eight replications have learned, as lanes; n counts in units of the last refresh."""

    inverse: Floats  # packed, P = (S + ΛI)⁻¹
    root: Floats  # packed, R with RᵀR = S̃
    moment: Floats  # (d,) b
    counts: Floats  # (K,) Σ of the weights of each arm
    energy: Floats  # (1,) trace(S)
    largest_norm: Floats  # (1,) max ‖x‖
    draws: Floats  # (2d,) standard normal draws of the round
    right: Floats  # (d,) b + a·ξ
    sample: Floats  # (d,) θ̃
    scratch: Floats  # (d,)
    scores: Floats  # (K,)
    verdict: Floats  # (3,) the best arm, how many arms can be the best, and the bar


def make_sample_belief(game: LaneGame) -> SampleBelief:
    """Make the arrays of a belief before the first round."""
    count, dim = len(game.picks[0]), len(game.features)
    packed = dim * (dim + 1) // 2
    norms = np.sqrt(np.einsum("lkd,lkd->lk", game.arms, game.arms)).max(axis=1)
    return SampleBelief(
        np.zeros((packed, LANES)),
        np.zeros((packed, LANES)),
        np.zeros((dim, LANES)),
        np.zeros((count, LANES)),
        np.zeros((1, LANES)),
        np.ascontiguousarray(norms[None]),
        np.zeros((2 * dim, LANES)),
        np.zeros((dim, LANES)),
        np.zeros((dim, LANES)),
        np.zeros((dim, LANES)),
        np.zeros((count, LANES)),
        np.zeros((3, LANES)),
    )


@compiled
def play_samples(
    game: LaneGame, arrays: PolicyArrays, belief: SampleBelief, restarts: Marks
) -> None:
    """Choose and learn in every round of eight replications."""
    counts, restart = arrays.tally[0], 0
    for t in range(game.era.shape[1]):
        if t == 0 or t == restarts[restart]:
            restart += t > 0
            counts.seen = 0
            clear(belief)
            refresh(game, arrays, belief)
        open_lane_round(game, t)
        if t < game.any_first:
            choose_lanes_uniformly(game, t)
        else:
            choose_by_samples(game, arrays, belief, t)
            mix_lanes(game, arrays, t)
        earn_rewards(game, t)
        learn_side_by_side(game, arrays, belief)


@compiled
def clear(belief: SampleBelief) -> None:
    """Drop everything that was learned."""
    fill_lanes(belief.root, 0.0)
    fill_lanes(belief.moment, 0.0)
    fill_lanes(belief.counts, 0.0)
    fill_lanes(belief.energy, 0.0)


@compiled
def refresh(game: LaneGame, arrays: PolicyArrays, belief: SampleBelief) -> None:
    """Recompute P, with a ridge that is too large by half of what it will lose."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    scale_lanes(belief.counts, rule.gamma**counts.stale)
    counts.stale = 0
    counts.ridge = rule.ridge * rule.lead
    sum_squares(game.rows, belief.counts, counts.ridge, belief.inverse)
    invert_packed(belief.inverse, belief.scratch)


@compiled
def draw_right_sides(
    game: LaneGame, arrays: PolicyArrays, belief: SampleBelief, t: int
) -> None:
    """Write b + a·ξ to `right`: ξ = Rᵀz + √λ·ζ with z and ζ standard normal."""
    rule, d = arrays.rules[0], belief.moment.shape[0]
    if rule.style != SAMPLE:
        for i in range(d):
            store(belief.right, i, load(belief.moment, i))
        return
    scale = compute_scale(arrays)
    for lane in range(LANES):
        start = _random.start_round(np.uint64(game.keys[lane]), t)
        _random.fill_normals(start, FIRST_FREE_PLACE, belief.draws[:, lane])
    own = math.sqrt(rule.ridge) * scale
    for i in range(d):
        store(belief.right, i, load(belief.moment, i) + own * load(belief.draws, d + i))
    add_root_product(belief.root, belief.draws, scale, belief.right)


@compiled
def solve_side_by_side(arrays: PolicyArrays, belief: SampleBelief) -> Floats:
    """Solve W·θ̃ = right for `sample`; return a bound of the error of ⟨x, θ̃⟩, lanes.

    u ← P(right − (λ−Λ)u) reduces the error by ρ = |λ−Λ|/Λ or more, so the error is at most
    ρ/(1−ρ) times the last change of u.
    """
    rule, d = arrays.rules[0], belief.moment.shape[0]
    lag = rule.ridge - arrays.tally[0].ridge
    ratio = abs(lag) / arrays.tally[0].ridge
    multiply_packed(belief.inverse, belief.right, belief.sample)
    changed = repeat(0.0)
    if lag != 0.0:
        for _ in range(REFINEMENTS):
            for i in range(d):
                store(belief.draws, d + i, load(belief.sample, i))
                store(belief.draws, i, load(belief.right, i) - lag * load(belief.sample, i))
            multiply_packed(belief.inverse, belief.draws[:d], belief.sample)
        for i in range(d):
            change = load(belief.sample, i) - load(belief.draws, d + i)
            changed = changed + change * change
    size = take_root(sum_products(belief.sample, belief.sample))
    rounding = ROUNDING * (1.0 + load(belief.energy, 0) * (1.0 / rule.ridge))
    error = (ratio / (1.0 - ratio)) * take_root(changed) + rounding * size
    return error * load(belief.largest_norm, 0)


@compiled
def choose_by_samples(
    game: LaneGame, arrays: PolicyArrays, belief: SampleBelief, t: int
) -> None:
    """Choose the arm with the largest ⟨x, θ̃⟩ in every lane."""
    draw_right_sides(game, arrays, belief, t)
    error = solve_side_by_side(arrays, belief)
    d, scores, verdict = belief.moment.shape[0], belief.scores, belief.verdict
    top = repeat(-np.inf)
    for k in range(scores.shape[0]):
        total, at = repeat(0.0), k * d
        for i in range(d):
            total = total + load(game.rows, at + i) * load(belief.sample, i)
        store(scores, k, total)
        top = take_larger(top, total)
    bar = top - 2.0 * error
    best, rivals, zero, one = repeat(0.0), repeat(0.0), repeat(0.0), repeat(1.0)
    for k in range(scores.shape[0]):
        score = load(scores, k)
        rivals = rivals + select_if_less(score, bar, zero, one)
        best = select_if_less(score, bar, best, repeat(float(k)))
    store(verdict, 0, best)
    store(verdict, 1, rivals)
    store(verdict, 2, bar)
    for lane in range(LANES):
        game.chosen[lane] = int(verdict[0, lane])
        if verdict[1, lane] != 1.0:
            chosen = choose_among_equals(game, lane, scores, verdict[2, lane], t)
            if chosen < 0:
                chosen = choose_exactly(game, arrays, belief, lane, t)
            game.chosen[lane] = chosen


@compiled
def choose_exactly(
    game: LaneGame, arrays: PolicyArrays, belief: SampleBelief, lane: int, t: int
) -> int:
    """Choose in one lane by a sample without the error of P."""
    rule, d = arrays.rules[0], belief.moment.shape[0]
    scale = rule.gamma ** arrays.tally[0].stale
    right = np.empty((d, 1))
    for i in range(d):
        right[i, 0] = belief.right[i, lane]
    precision = weigh_arms(game, lane, belief.counts, scale, rule.ridge)
    sample = solve_exactly(precision, right).reshape(d)
    scores = np.empty(belief.scores.shape[0])
    for k in range(scores.size):
        scores[k] = dot(game.arms[lane, k], sample)
    return choose_best_in_lane(game, lane, scores, t)


@compiled
def learn_side_by_side(game: LaneGame, arrays: PolicyArrays, belief: SampleBelief) -> None:
    """Add the observation of the round to the sums, to P and to the root, in every lane."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    fade, x, reward = rule.gamma, game.features, load(game.reward, 0)
    unit = fade ** -(counts.stale + 1)
    for lane in range(LANES):
        belief.counts[game.chosen[lane], lane] += unit
    for i in range(x.shape[0]):
        store(belief.moment, i, fade * load(belief.moment, i) + load(x, i) * reward)
    store(belief.energy, 0, fade * load(belief.energy, 0) + sum_products(x, x))
    if rule.style == SAMPLE:
        root_fade = fade if rule.twin else math.sqrt(fade)
        rotate_into_root(belief.root, root_fade, x, belief.scratch)
    counts.seen += 1
    counts.stale += 1
    counts.ridge *= fade
    if counts.stale >= rule.refresh:
        refresh(game, arrays, belief)
    else:
        multiply_packed(belief.inverse, x, belief.scratch)
        divisor = fade + sum_products(x, belief.scratch)
        remove_image(belief.inverse, belief.scratch, divisor, fade)
