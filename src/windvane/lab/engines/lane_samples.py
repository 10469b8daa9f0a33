"""Policies that choose by a sampled parameter, or by the estimate, in eight replications at once.

A sample is solved for until its error is small. If the scores of two arms are closer than a bound
of that error, the replication is computed again exactly, for this round.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane._numba.lanes import LANES, load, repeat, store, take_larger, take_root
from windvane._random import FIRST_FREE_PLACE
from windvane.beliefs.full.layout import SAMPLE, PolicyArrays
from windvane.beliefs.full.sampling import compute_scale
from windvane.lab.engines.lane_algebra import (
    add_root_product,
    clear_rows,
    invert_packed,
    multiply_packed,
    remove_image,
    rotate_into_root,
    scale_rows,
    sum_products,
    sum_squares,
)
from windvane.lab.engines.lane_game import (
    LaneGame,
    Rows,
    add_to_sums,
    choose_best_in_lane,
    choose_lanes_uniformly,
    earn_rewards,
    factor_precision,
    find_rivals,
    has_one_best_arm,
    mix_lanes,
    multiply_arm,
    open_lane_round,
    solve_exactly,
    start_lane,
)
from windvane.lab.worlds.draw import Marks
from windvane.types import Floats

ROUNDING = 4e-14  # rounding error of P·v, relative to ‖P‖·‖v‖, for trace(W)/λ = 1
REFINEMENTS = 2  # passes after the first one that reduce the error of a solution


class SampleRows(NamedTuple):
    """The first row of each part that only these policies have."""

    inverse: int  # packed: P = (S + ΛI)⁻¹
    root: int  # packed: R with RᵀR = S̃
    draws: int  # 2·d: standard normal draws of the round, later scratch
    right: int  # d: b + a·ξ
    sample: int  # d: θ̃
    image: int  # d: Px of the chosen arm
    end: int


def lay_out_sample_rows(rows: Rows) -> SampleRows:
    """Return the first row of each part, after those that every policy has."""
    d, packed = rows.dim, rows.dim * (rows.dim + 1) // 2
    return SampleRows(*np.cumsum([rows.own, packed, packed, 2 * d, d, d, d]).tolist())


@compiled
def play_samples(
    game: LaneGame,
    arrays: PolicyArrays,
    lanes: Floats,
    rows: Rows,
    own: SampleRows,
    restarts: Marks,
) -> None:
    """Choose and learn in every round of eight replications."""
    counts, restart = arrays.tally[0], 0
    for t in range(game.era.shape[1]):
        if t == 0 or t == restarts[restart]:
            restart += t > 0
            counts.seen = 0
            clear_rows(lanes, rows.moment, rows.highest)
            clear_rows(lanes, own.root, own.draws)
            refresh(arrays, lanes, rows, own)
        open_lane_round(game, t)
        if t < game.any_first:
            choose_lanes_uniformly(game, t)
        else:
            draw_right_sides(game, arrays, lanes, rows, own, t)
            score_samples(arrays, lanes, rows, own)
            for lane in range(LANES):
                game.chosen[lane] = int(lanes[rows.best, lane])
                if lanes[rows.rivals, lane] != 1.0:
                    settle_samples(game, arrays, lanes, rows, own, lane, t)
            mix_lanes(game, arrays, t)
        earn_rewards(game, lanes, rows, t)
        learn_side_by_side(game, arrays, lanes, rows, own)


@compiled
def refresh(arrays: PolicyArrays, lanes: Floats, rows: Rows, own: SampleRows) -> None:
    """Recompute P, with a ridge that is too large by half of what it will lose."""
    rule, counts, d = arrays.rules[0], arrays.tally[0], rows.dim
    scale_rows(lanes, rows.counts, rows.noise_counts, rule.gamma**counts.stale)
    counts.stale = 0
    counts.ridge = rule.ridge * rule.lead
    sum_squares(lanes, d, rows.arm_count, rows.arms, rows.counts, counts.ridge, own.inverse)
    invert_packed(lanes, d, own.inverse, own.image)


@compiled
def draw_right_sides(
    game: LaneGame, arrays: PolicyArrays, lanes: Floats, rows: Rows, own: SampleRows, t: int
) -> None:
    """Write b + a·ξ to `right`: ξ = Rᵀz + √λ·ζ with z and ζ standard normal; else b."""
    rule, d, scale = arrays.rules[0], rows.dim, 0.0
    if rule.style == SAMPLE:
        scale = compute_scale(arrays)
        for lane in range(LANES):
            draws = lanes[own.draws : own.right, lane]
            _random.fill_normals(start_lane(game, lane, t), FIRST_FREE_PLACE, draws)
    factor = math.sqrt(rule.ridge) * scale
    for i in range(d):
        noise = factor * load(lanes, own.draws + d + i)
        store(lanes, own.right + i, load(lanes, rows.moment + i) + noise)
    if rule.style == SAMPLE:
        add_root_product(lanes, d, own.root, own.draws, scale, own.right)


@compiled
def solve_side_by_side(arrays: PolicyArrays, lanes: Floats, d: int, own: SampleRows) -> Floats:
    """Solve W·θ̃ = right for `sample`; return a bound of the error of θ̃ but for rounding, lanes.

    u ← P(right − (λ−Λ)u) reduces the error by ρ = |λ−Λ|/Λ or more, so the error is at most
    ρ/(1−ρ) times the last change of u.
    """
    lag = arrays.rules[0].ridge - arrays.tally[0].ridge
    ratio = abs(lag) / arrays.tally[0].ridge
    multiply_packed(lanes, d, own.inverse, own.right, own.sample)
    changed = repeat(0.0)
    if lag != 0.0:
        for _ in range(REFINEMENTS):
            for i in range(d):
                old = load(lanes, own.sample + i)
                store(lanes, own.draws + d + i, old)
                store(lanes, own.draws + i, load(lanes, own.right + i) - lag * old)
            multiply_packed(lanes, d, own.inverse, own.draws, own.sample)
        for i in range(d):
            change = load(lanes, own.sample + i) - load(lanes, own.draws + d + i)
            changed = changed + change * change
    bound: Floats = (ratio / (1.0 - ratio)) * take_root(changed)
    return bound


@compiled
def score_samples(arrays: PolicyArrays, lanes: Floats, rows: Rows, own: SampleRows) -> None:
    """Compute ⟨x, θ̃⟩ of every arm, and count the arms that can be the best."""
    rule, d = arrays.rules[0], rows.dim
    error = solve_side_by_side(arrays, lanes, d, own)
    size = take_root(sum_products(lanes, d, own.sample, own.sample))
    error = error + (1.0 + load(lanes, rows.energy) * (1.0 / rule.ridge)) * size * ROUNDING
    top, largest = repeat(-np.inf), repeat(0.0)
    for k in range(rows.arm_count):
        total = sum_products(lanes, d, rows.arms + k * d, own.sample)
        store(lanes, rows.highest + k, total)
        top = take_larger(top, total)
        largest = take_larger(largest, load(lanes, rows.squared_norms + k))
    find_rivals(lanes, rows, top - 2.0 * error * take_root(largest))


@compiled
def settle_samples(
    game: LaneGame,
    arrays: PolicyArrays,
    lanes: Floats,
    rows: Rows,
    own: SampleRows,
    lane: int,
    t: int,
) -> None:
    """Choose among the rivals of one lane, by a sample without the error of P if they differ."""
    rule, d = arrays.rules[0], rows.dim
    scores, root, sample = np.empty(rows.arm_count), np.empty((d, d)), np.empty((d, 1))
    is_exact = not has_one_best_arm(lanes, rows, lane)
    if is_exact:
        scale = rule.gamma ** arrays.tally[0].stale
        factor_precision(lanes, rows, lane, scale, rule.ridge, root)
        solve_exactly(lanes, root, lane, own.right, sample)
    for k in range(rows.arm_count):
        if is_exact:
            scores[k] = multiply_arm(lanes, rows, lane, k, sample)
        else:
            is_rival = lanes[rows.highest + k, lane] >= lanes[rows.bar, lane]
            scores[k] = 1.0 if is_rival else -np.inf
    game.chosen[lane] = choose_best_in_lane(game, lane, scores, t)


@compiled
def learn_side_by_side(
    game: LaneGame, arrays: PolicyArrays, lanes: Floats, rows: Rows, own: SampleRows
) -> None:
    """Add the observation of the round to the sums, to P and to the root, in every lane."""
    rule, counts, d = arrays.rules[0], arrays.tally[0], rows.dim
    fade = rule.gamma
    add_to_sums(game, lanes, rows, fade, fade ** -(counts.stale + 1))
    if rule.style == SAMPLE:
        root_fade = fade if rule.twin else math.sqrt(fade)
        rotate_into_root(lanes, d, own.root, root_fade, rows.features, own.image)
    counts.seen += 1
    counts.stale += 1
    counts.ridge *= fade
    if counts.stale >= rule.refresh:
        refresh(arrays, lanes, rows, own)
    else:
        multiply_packed(lanes, d, own.inverse, rows.features, own.image)
        divisor = fade + sum_products(lanes, d, rows.features, own.image)
        remove_image(lanes, d, own.inverse, own.image, divisor, fade)
