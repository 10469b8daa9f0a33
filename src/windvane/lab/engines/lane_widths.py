"""Policies that choose by widths, in eight replications at once.

Five numbers of each arm follow every observation: its score and its width to first order in λ−Λ,
the error of the ridge in P. What is left of the error is bounded. If the scores of two arms are
closer than that bound, the replication is computed again exactly, for this round.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled
from windvane._numba.lanes import LANES, load, repeat, store, take_larger, take_root
from windvane.beliefs.full.layout import POINT, PolicyArrays
from windvane.beliefs.full.sampling import compute_scale, draw_level
from windvane.lab.engines.lane_algebra import (
    add_square,
    clear_rows,
    invert_packed,
    multiply_arms,
    multiply_packed,
    multiply_packed_by_two,
    remove_image,
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
from windvane.lab.engines.lane_samples import ROUNDING
from windvane.lab.worlds.draw import Marks
from windvane.types import Floats

LEAST_WIDTH = 1e-8  # for ‖x‖/√λ = 1; a smaller width is all rounding error


class WidthRows(NamedTuple):
    """The first row of each part that only these policies have.

    P = (S + ΛI)⁻¹, Q = P(S̃ + Λ̃I)P and v = Pb. If W̃ is W, Q is P and is not kept.
    """

    inverse: int  # packed: P
    spread: int  # packed: Q
    estimate: int  # d: v
    peak: int  # 1: the largest ‖v‖ since the last refresh
    level: int  # 1: Z of the round
    means: int  # K: xᵀv of each arm
    mean_slopes: int  # K: xᵀPv
    squared_widths: int  # K: xᵀQx
    squared_images: int  # K: ‖Px‖²
    width_slopes: int  # K: xᵀPQx
    image: int  # d: p = Px of the chosen arm
    spread_image: int  # d: q = Qx
    second_image: int  # d: Pp
    cross_image: int  # d: Pq + Qp
    scratch: int  # d
    images: int  # K·d: Px of each arm at the last refresh
    products: int  # K·d: Qx of each arm at the last refresh
    end: int


def lay_out_width_rows(rows: Rows) -> WidthRows:
    """Return the first row of each part, after those that every policy has."""
    d, k, packed = rows.dim, rows.arm_count, rows.dim * (rows.dim + 1) // 2
    sizes = [packed, packed, d, 1, 1, *[k] * 5, *[d] * 5, k * d, k * d]
    return WidthRows(*np.cumsum([rows.own, *sizes]).tolist())


@compiled
def play_widths(
    game: LaneGame,
    arrays: PolicyArrays,
    lanes: Floats,
    rows: Rows,
    own: WidthRows,
    restarts: Marks,
) -> None:
    """Choose and learn in every round of eight replications."""
    counts, restart = arrays.tally[0], 0
    for t in range(game.era.shape[1]):
        if t == 0 or t == restarts[restart]:
            restart += t > 0
            counts.seen = 0
            clear_rows(lanes, rows.moment, rows.highest)
            refresh(arrays, lanes, rows, own)
        open_lane_round(game, t)
        if t < game.any_first:
            choose_lanes_uniformly(game, t)
        else:
            draw_levels(game, arrays, lanes, own, t)
            score_widths(arrays, lanes, rows, own)
            for lane in range(LANES):
                game.chosen[lane] = int(lanes[rows.best, lane])
                if lanes[rows.rivals, lane] != 1.0:
                    settle_widths(game, arrays, lanes, rows, own, lane, t)
            mix_lanes(game, arrays, t)
        earn_rewards(game, lanes, rows, t)
        learn_side_by_side(game, arrays, lanes, rows, own)


@compiled
def refresh(arrays: PolicyArrays, lanes: Floats, rows: Rows, own: WidthRows) -> None:
    """Recompute P, Q and the numbers of every arm from the counts."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    d, count, fade = rows.dim, rows.arm_count, rule.gamma**counts.stale
    scale_rows(lanes, rows.counts, rows.noise_counts, fade)
    scale_rows(lanes, rows.noise_counts, rows.energy, fade * fade)
    counts.stale = 0
    counts.ridge = rule.ridge * rule.lead
    counts.noise_ridge = rule.ridge * (rule.lead * rule.lead if rule.twin else rule.lead)
    sum_squares(lanes, d, count, rows.arms, rows.counts, counts.ridge, own.inverse)
    invert_packed(lanes, d, own.inverse, own.scratch)
    multiply_packed(lanes, d, own.inverse, rows.moment, own.estimate)
    store(lanes, own.peak, take_root(sum_products(lanes, d, own.estimate, own.estimate)))
    multiply_arms(lanes, d, count, own.inverse, rows.arms, own.images)
    products = own.images
    if rule.twin:  # Q = Σ w²·Px(Px)ᵀ + Λ̃P²
        sum_squares(lanes, d, count, own.images, rows.noise_counts, 0.0, own.spread)
        add_square(lanes, d, own.inverse, counts.noise_ridge, own.spread, own.scratch)
        products = own.products
        multiply_arms(lanes, d, count, own.spread, rows.arms, products)
    for k in range(count):
        x, image, product = rows.arms + k * d, own.images + k * d, products + k * d
        store(lanes, own.means + k, sum_products(lanes, d, x, own.estimate))
        store(lanes, own.mean_slopes + k, sum_products(lanes, d, image, own.estimate))
        store(lanes, own.squared_widths + k, sum_products(lanes, d, x, product))
        store(lanes, own.squared_images + k, sum_products(lanes, d, image, image))
        store(lanes, own.width_slopes + k, sum_products(lanes, d, image, product))


@compiled
def draw_levels(
    game: LaneGame, arrays: PolicyArrays, lanes: Floats, own: WidthRows, t: int
) -> None:
    """Draw the confidence level of every lane."""
    scale = compute_scale(arrays)
    for lane in range(LANES):
        lanes[own.level, lane] = scale
        if arrays.rules[0].law != POINT:
            lanes[own.level, lane] = draw_level(arrays.rules, scale, start_lane(game, lane, t))


@compiled
def score_widths(arrays: PolicyArrays, lanes: Floats, rows: Rows, own: WidthRows) -> None:
    """Bound the score of every arm, and count the arms that can be the best.

    With δ = λ−Λ, δ̃ = λ−Λ̃, ρ = |δ|/Λ and h = ‖Px‖²:
    xᵀθ̂ = xᵀv − δ·xᵀPv up to δ²·√h·‖v‖/(Λ(1−ρ)), and
    ‖x‖²_{V⁻¹} = xᵀQx + δ̃h − 2δ·xᵀPQx up to (δ²(1+ρ) + 2|δδ̃|)h/Λ, after a change of the width by at
    most δ²√h/(Λ√λ(1−ρ)).
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    lag, noise_lag = rule.ridge - counts.ridge, rule.ridge - counts.noise_ridge
    ratio = abs(lag) / counts.ridge
    second = lag * lag / (counts.ridge * (1.0 - ratio))
    squared_error = (lag * lag * (1.0 + ratio) + 2.0 * abs(lag * noise_lag)) / counts.ridge
    rounding = (1.0 + load(lanes, rows.energy) * (1.0 / rule.ridge)) * ROUNDING
    level, size = load(lanes, own.level), load(lanes, own.peak)
    bound, least = abs(level), LEAST_WIDTH / math.sqrt(rule.ridge)
    unit_rounding, zero = rounding * (1.0 / rule.ridge), repeat(0.0)
    image_error = second * size + (second / math.sqrt(rule.ridge)) * bound
    bar = repeat(-np.inf)
    for k in range(rows.arm_count):
        norm_square = load(lanes, rows.squared_norms + k)
        norm = take_root(norm_square)
        square, error = load(lanes, own.squared_widths + k), unit_rounding * norm_square
        score, shift = load(lanes, own.means + k), rounding * (size * norm)
        if rule.fades:
            h = take_larger(load(lanes, own.squared_images + k), zero)
            square = square + noise_lag * h - (2.0 * lag) * load(lanes, own.width_slopes + k)
            error = error + squared_error * h
            score = score - lag * load(lanes, own.mean_slopes + k)
            shift = shift + image_error * take_root(h)
        width = take_root(take_larger(square, zero))
        shift = shift + bound * (error / take_larger(width, least * norm))
        score = score + level * width
        store(lanes, rows.highest + k, score + shift)
        bar = take_larger(bar, score - shift)
    find_rivals(lanes, rows, bar)


@compiled
def settle_widths(
    game: LaneGame,
    arrays: PolicyArrays,
    lanes: Floats,
    rows: Rows,
    own: WidthRows,
    lane: int,
    t: int,
) -> None:
    """Choose among the rivals of one lane, by scores without the error of P if they differ."""
    rule, d = arrays.rules[0], rows.dim
    scores, root = np.empty(rows.arm_count), np.empty((d, d))
    theta, pulled = np.empty((d, 1)), np.empty((d, 1))
    is_exact = not has_one_best_arm(lanes, rows, lane)
    fade = rule.gamma ** arrays.tally[0].stale
    if is_exact:
        factor_precision(lanes, rows, lane, fade, rule.ridge, root)
        solve_exactly(lanes, root, lane, rows.moment, theta)
    for k in range(rows.arm_count):
        scores[k] = -np.inf
        if lanes[rows.highest + k, lane] >= lanes[rows.bar, lane]:
            scores[k] = 1.0
            if is_exact:
                solve_exactly(lanes, root, lane, rows.arms + k * d, pulled)
                square = multiply_arm(lanes, rows, lane, k, pulled)
                if rule.twin:
                    square = compute_noise_square(
                        lanes, rows, lane, fade * fade, rule.ridge, pulled
                    )
                mean = multiply_arm(lanes, rows, lane, k, theta)
                scores[k] = mean + lanes[own.level, lane] * math.sqrt(max(square, 0.0))
    game.chosen[lane] = choose_best_in_lane(game, lane, scores, t)


@compiled
def compute_noise_square(
    lanes: Floats, rows: Rows, lane: int, scale: float, ridge: float, vector: Floats
) -> float:
    """uᵀW̃u of one lane for u = `vector` (d, 1): λ‖u‖² + Σ w²·(xᵀu)²."""
    total = 0.0
    for i in range(rows.dim):
        total += ridge * vector[i, 0] * vector[i, 0]
    for k in range(rows.arm_count):
        weight = scale * lanes[rows.noise_counts + k, lane]
        if weight > 0.0:
            product = multiply_arm(lanes, rows, lane, k, vector)
            total += weight * product * product
    return total


@compiled
def learn_side_by_side(
    game: LaneGame, arrays: PolicyArrays, lanes: Floats, rows: Rows, own: WidthRows
) -> None:
    """Add the observation of the round to the sums, to P, to Q and to the numbers of every arm."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    fade = rule.gamma
    add_to_sums(game, lanes, rows, fade, fade ** -(counts.stale + 1))
    counts.seen += 1
    counts.stale += 1
    counts.ridge *= fade
    counts.noise_ridge *= fade * fade if rule.twin else fade
    if counts.stale >= rule.refresh:
        refresh(arrays, lanes, rows, own)
    else:
        follow_observation(arrays, lanes, rows, own, fade)


@compiled
def follow_observation(
    arrays: PolicyArrays, lanes: Floats, rows: Rows, own: WidthRows, fade: float
) -> None:
    """Update P, Q, v and the numbers of every arm by a rank-one step.

    With p = Px, q = Qx, c = f + xᵀp, s = xᵀq and η = (y − xᵀv)/c:
    P' = (P − ppᵀ/c)/f, Q' = Q − (pqᵀ + qpᵀ)/c + (1+s)ppᵀ/c², v' = v + ηp
    """
    rule, d, x, v = arrays.rules[0], rows.dim, rows.features, own.estimate
    p, q = own.image, own.spread_image
    multiply_packed(lanes, d, own.inverse, x, p)
    if rule.twin:
        multiply_packed(lanes, d, own.spread, x, q)
        multiply_packed_by_two(lanes, d, own.inverse, p, q, own.second_image, own.cross_image)
        multiply_packed(lanes, d, own.spread, p, own.scratch)
        for i in range(d):
            cross = load(lanes, own.cross_image + i) + load(lanes, own.scratch + i)
            store(lanes, own.cross_image + i, cross)
    elif rule.fades:
        multiply_packed(lanes, d, own.inverse, p, own.second_image)
    divisor = fade + sum_products(lanes, d, x, p)
    eta = (load(lanes, rows.reward) - sum_products(lanes, d, x, v)) / divisor
    if rule.twin:
        whole = 1.0 + sum_products(lanes, d, x, q)
        follow_arms_with_twin(lanes, rows, own, divisor, whole, eta, fade)
        update_spread(lanes, d, own, divisor, whole)
    else:
        follow_arms(lanes, rows, own, divisor, eta, fade)
    remove_image(lanes, d, own.inverse, p, divisor, fade)
    square = repeat(0.0)
    for i in range(d):
        moved = load(lanes, v + i) + eta * load(lanes, p + i)
        store(lanes, v + i, moved)
        square = square + moved * moved
    store(lanes, own.peak, take_larger(load(lanes, own.peak), take_root(square)))


@compiled
def follow_arms(
    lanes: Floats, rows: Rows, own: WidthRows, divisor: Floats, eta: Floats, fade: float
) -> None:
    """Update the numbers of every arm, if W̃ is W; `follow_arms_with_twin` has the other formulas.

    zᵀPz ← (zᵀPz − a²/c)/f for an arm z with a = zᵀp; zᵀPQz is ‖Pz‖². If f = 1 the slopes are not
    used, because the ridge in P is exact.
    """
    d, p = rows.dim, own.image
    share, growth = 1.0 / divisor, 1.0 / fade
    length, along = sum_products(lanes, d, p, p), sum_products(lanes, d, p, own.estimate)
    pull = (along + eta * length) * share
    for k in range(rows.arm_count):
        x = rows.arms + k * d
        a = sum_products(lanes, d, x, p)
        part = a * share
        store(lanes, own.means + k, load(lanes, own.means + k) + eta * a)
        square = load(lanes, own.squared_widths + k) - part * a
        store(lanes, own.squared_widths + k, square * growth)
        if fade < 1.0:
            r = sum_products(lanes, d, x, own.second_image)
            slope = load(lanes, own.mean_slopes + k) + eta * r - a * pull
            store(lanes, own.mean_slopes + k, slope * growth)
            h = load(lanes, own.squared_images + k) - part * (2.0 * r - part * length)
            store(lanes, own.squared_images + k, h * (growth * growth))
            store(lanes, own.width_slopes + k, h * (growth * growth))


@compiled
def follow_arms_with_twin(
    lanes: Floats,
    rows: Rows,
    own: WidthRows,
    divisor: Floats,
    whole: Floats,
    eta: Floats,
    fade: float,
) -> None:
    """Update the numbers of every arm; `divisor` is c and `whole` is 1 + s.

    For an arm z, with a = zᵀp, b = zᵀq, r = zᵀPp, e = zᵀ(Pq + Qp) and m = (b − (1+s)a/c)/c:
    zᵀv ← zᵀv + ηa                zᵀPv ← (zᵀPv + ηr − a·pᵀ(v + ηp)/c)/f
    zᵀQz ← zᵀQz − (a/c)(b + cm)    ‖Pz‖² ← (‖Pz‖² − 2ar/c + a²pᵀp/c²)/f²
    zᵀPQz ← (zᵀPQz − mr − ae/c + (a/c)m·pᵀp + (a/c)²pᵀq)/f
    """
    d, p, q = rows.dim, own.image, own.spread_image
    share, growth = 1.0 / divisor, 1.0 / fade
    length, overlap = sum_products(lanes, d, p, p), sum_products(lanes, d, p, q)
    pull = (sum_products(lanes, d, p, own.estimate) + eta * length) * share
    for k in range(rows.arm_count):
        x = rows.arms + k * d
        a, b, r, e = repeat(0.0), repeat(0.0), repeat(0.0), repeat(0.0)
        for i in range(d):
            z = load(lanes, x + i)
            a = a + z * load(lanes, p + i)
            b = b + z * load(lanes, q + i)
            r = r + z * load(lanes, own.second_image + i)
            e = e + z * load(lanes, own.cross_image + i)
        part = a * share
        m = (b - whole * part) * share
        store(lanes, own.means + k, load(lanes, own.means + k) + eta * a)
        slope = load(lanes, own.mean_slopes + k) + eta * r - a * pull
        store(lanes, own.mean_slopes + k, slope * growth)
        square = load(lanes, own.squared_widths + k) + part * (whole * part - 2.0 * b)
        store(lanes, own.squared_widths + k, square)
        h = load(lanes, own.squared_images + k) - part * (2.0 * r - part * length)
        store(lanes, own.squared_images + k, h * (growth * growth))
        g = load(lanes, own.width_slopes + k) - m * r - part * (e - m * length - part * overlap)
        store(lanes, own.width_slopes + k, g * growth)


@compiled
def update_spread(lanes: Floats, d: int, own: WidthRows, divisor: Floats, whole: Floats) -> None:
    """Q ← Q + (1+s)·ppᵀ/c² − (pqᵀ + qpᵀ)/c; `divisor` is c and `whole` is 1 + s."""
    p, q, at, share = own.image, own.spread_image, own.spread, 1.0 / divisor
    for i in range(d):
        cross = load(lanes, p + i) * share
        half = (whole * cross - load(lanes, q + i)) * share
        for j in range(i + 1):
            more = half * load(lanes, p + j) - cross * load(lanes, q + j)
            store(lanes, at + j, load(lanes, at + j) + more)
        at += i + 1
