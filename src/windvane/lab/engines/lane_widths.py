"""Policies that choose by widths, in eight replications at once.

Five numbers of each arm follow every observation: its score and its width to first order in λ−Λ,
the error of the ridge in P. What is left of the error is bounded. If the scores of two arms are
closer than that bound, the replication is computed again exactly, for this round.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._jit import compiled
from windvane._lanes import LANES, load, repeat, select_if_less, store, take_larger, take_root
from windvane._layout import POINT, PolicyArrays
from windvane.kernels.linalg import dot
from windvane.kernels.sampling import compute_scale, draw_level
from windvane.lab.engines.lane_algebra import (
    fill_lanes,
    invert_packed,
    multiply_packed,
    multiply_packed_by_two,
    remove_image,
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
from windvane.lab.engines.lane_samples import ROUNDING
from windvane.lab.worlds.draw import Marks
from windvane.types import Floats

LEAST_WIDTH = 1e-8  # for ‖x‖/√λ = 1; a smaller width is all rounding error


class WidthBelief(NamedTuple):
    """What eight replications have learned, as lanes.

    P = (S + ΛI)⁻¹, Q = P(S̃ + Λ̃I)P, v = Pb; Q is P if W̃ is W. Counts are in units of the last
    refresh.
    """

    inverse: Floats  # packed, P
    spread: Floats  # packed, Q
    moment: Floats  # (d,) b
    estimate: Floats  # (d,) v
    counts: Floats  # (K,) Σ of the weights of each arm
    noise_counts: Floats  # (K,) Σ of the squared weights of each arm
    energy: Floats  # (1,) trace(S)
    peak: Floats  # (1,) the largest ‖v‖ since the last refresh
    squared_norms: Floats  # (K,) ‖x‖²
    images: Floats  # (K·d,) Px at the last refresh
    means: Floats  # (K,) xᵀv
    mean_slopes: Floats  # (K,) xᵀPv
    squared_widths: Floats  # (K,) xᵀQx
    squared_images: Floats  # (K,) ‖Px‖²
    width_slopes: Floats  # (K,) xᵀPQx
    vectors: Floats  # (5·d,) p = Px, q = Qx, Pp, Pq + Qp of the chosen arm, and scratch
    levels: Floats  # (1,) Z of the round
    scores: Floats  # (K,)
    highest: Floats  # (K,) upper bounds of the scores
    verdict: Floats  # (3,) the best arm, how many arms can be the best, and the bar


def make_width_belief(game: LaneGame) -> WidthBelief:
    """Make the arrays of a belief before the first round."""
    count, dim = len(game.picks[0]), len(game.features)
    packed = dim * (dim + 1) // 2
    squares = np.einsum("lkd,lkd->kl", game.arms, game.arms)
    sizes = [packed, packed, dim, dim, count, count, 1, 1]
    sizes_after = [count * dim, count, count, count, count, count, 5 * dim, 1, count, count, 3]
    return WidthBelief(
        *(np.zeros((size, LANES)) for size in sizes),
        np.ascontiguousarray(squares),
        *(np.zeros((size, LANES)) for size in sizes_after),
    )


@compiled
def play_widths(game: LaneGame, arrays: PolicyArrays, belief: WidthBelief, restarts: Marks) -> None:
    """Choose and learn in every round of eight replications."""
    counts, restart = arrays.tally[0], 0
    for t in range(game.era.shape[1]):
        if t == 0 or t == restarts[restart]:
            restart += t > 0
            counts.seen = 0
            fill_lanes(belief.moment, 0.0)
            fill_lanes(belief.counts, 0.0)
            fill_lanes(belief.noise_counts, 0.0)
            fill_lanes(belief.energy, 0.0)
            refresh(game, arrays, belief)
        open_lane_round(game, t)
        if t < game.any_first:
            choose_lanes_uniformly(game, t)
        else:
            choose_by_widths(game, arrays, belief, t)
            mix_lanes(game, arrays, t)
        earn_rewards(game, t)
        learn_side_by_side(game, arrays, belief)


@compiled
def refresh(game: LaneGame, arrays: PolicyArrays, belief: WidthBelief) -> None:
    """Recompute P, Q and the numbers of every arm from the counts."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    fade, d = rule.gamma**counts.stale, belief.moment.shape[0]
    scale_lanes(belief.counts, fade)
    scale_lanes(belief.noise_counts, fade * fade)
    counts.stale = 0
    counts.ridge = rule.ridge * rule.lead
    counts.noise_ridge = rule.ridge * (rule.lead * rule.lead if rule.twin else rule.lead)
    sum_squares(game.rows, belief.counts, counts.ridge, belief.inverse)
    invert_packed(belief.inverse, belief.estimate)
    multiply_packed(belief.inverse, belief.moment, belief.estimate)
    store(belief.peak, 0, take_root(sum_products(belief.estimate, belief.estimate)))
    multiply_arms(game.rows, belief.inverse, belief.images)
    if rule.twin:
        sum_squares(belief.images, belief.noise_counts, 0.0, belief.spread)
        add_square(belief.inverse, counts.noise_ridge, belief.vectors[:d], belief.spread)
    measure_lanes(game, arrays, belief)


@compiled
def multiply_arms(rows: Floats, matrix: Floats, out: Floats) -> None:
    """Write matrix·x of every arm to `out` (K·d,), two arms a pass."""
    d = int(math.sqrt(2.0 * matrix.shape[0]))
    count = rows.shape[0] // d
    for one in range(0, (count - 1) * d, 2 * d):
        two, end = one + d, one + 2 * d
        multiply_packed_by_two(matrix, rows[one:two], out[one:two], rows[two:end], out[two:end])
    if count % 2 == 1:
        last = (count - 1) * d
        multiply_packed(matrix, rows[last:], out[last:])


@compiled
def add_square(matrix: Floats, weight: float, row: Floats, out: Floats) -> None:
    """Add weight·matrix² to `out`, both packed; `row` (d,) is scratch."""
    d, first = row.shape[0], 0
    for k in range(d):
        for i in range(k):
            store(row, i, load(matrix, first + i))
        at = first + k
        for i in range(k, d):
            store(row, i, load(matrix, at))
            at += i + 1
        at = 0
        for i in range(d):
            own = weight * load(row, i)
            for j in range(i + 1):
                store(out, at + j, load(out, at + j) + own * load(row, j))
            at += i + 1
        first += k + 1


@compiled
def measure_lanes(game: LaneGame, arrays: PolicyArrays, belief: WidthBelief) -> None:
    """Compute the five numbers of every arm from P, Q and v."""
    d, twin = belief.moment.shape[0], arrays.rules[0].twin
    for k in range(belief.means.shape[0]):
        x, image = game.rows[k * d : k * d + d], belief.images[k * d : k * d + d]
        store(belief.means, k, sum_products(x, belief.estimate))
        store(belief.mean_slopes, k, sum_products(image, belief.estimate))
        square = sum_products(image, image)
        store(belief.squared_images, k, square)
        if twin:
            product = belief.vectors[:d]
            multiply_packed(belief.spread, x, product)
            store(belief.squared_widths, k, sum_products(x, product))
            store(belief.width_slopes, k, sum_products(image, product))
        else:
            store(belief.squared_widths, k, sum_products(x, image))
            store(belief.width_slopes, k, square)


@compiled
def draw_levels(game: LaneGame, arrays: PolicyArrays, belief: WidthBelief, t: int) -> None:
    """Draw the confidence level of every lane."""
    scale = compute_scale(arrays)
    for lane in range(LANES):
        level = scale
        if arrays.rules[0].law != POINT:
            start = _random.start_round(np.uint64(game.keys[lane]), t)
            level = draw_level(arrays.rules, scale, start)
        belief.levels[0, lane] = level


@compiled
def choose_by_widths(game: LaneGame, arrays: PolicyArrays, belief: WidthBelief, t: int) -> None:
    """Choose the arm with the largest xᵀθ̂ + Z‖x‖_{V⁻¹} in every lane."""
    draw_levels(game, arrays, belief, t)
    score_lanes(arrays, belief)
    verdict = belief.verdict
    for lane in range(LANES):
        game.chosen[lane] = int(verdict[0, lane])
        if verdict[1, lane] != 1.0:
            chosen = choose_among_equals(game, lane, belief.highest, verdict[2, lane], t)
            if chosen < 0:
                chosen = choose_exactly(game, arrays, belief, lane, t)
            game.chosen[lane] = chosen


@compiled
def score_lanes(arrays: PolicyArrays, belief: WidthBelief) -> None:
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
    width_error = second / math.sqrt(rule.ridge)
    rounding = ROUNDING * (1.0 + load(belief.energy, 0) * (1.0 / rule.ridge))
    level, size = load(belief.levels, 0), load(belief.peak, 0)
    bound, least = abs(level), LEAST_WIDTH / math.sqrt(rule.ridge)
    unit_rounding, zero = rounding * (1.0 / rule.ridge), repeat(0.0)
    image_error = second * size + width_error * bound
    bar = repeat(-np.inf)
    for k in range(belief.scores.shape[0]):
        norm_square = load(belief.squared_norms, k)
        norm = take_root(norm_square)
        square = load(belief.squared_widths, k)
        error = unit_rounding * norm_square
        score, shift = load(belief.means, k), rounding * (size * norm)
        if rule.fades:
            h = take_larger(load(belief.squared_images, k), zero)
            square = square + noise_lag * h - (2.0 * lag) * load(belief.width_slopes, k)
            error = error + squared_error * h
            score = score - lag * load(belief.mean_slopes, k)
            shift = shift + image_error * take_root(h)
        width = take_root(take_larger(square, zero))
        shift = shift + bound * (error / take_larger(width, least * norm))
        score = score + level * width
        store(belief.scores, k, score)
        store(belief.highest, k, score + shift)
        bar = take_larger(bar, score - shift)
    best, rivals, one = repeat(0.0), repeat(0.0), repeat(1.0)
    for k in range(belief.scores.shape[0]):
        highest = load(belief.highest, k)
        rivals = rivals + select_if_less(highest, bar, zero, one)
        best = select_if_less(highest, bar, best, repeat(float(k)))
    store(belief.verdict, 0, best)
    store(belief.verdict, 1, rivals)
    store(belief.verdict, 2, bar)


@compiled
def choose_exactly(
    game: LaneGame, arrays: PolicyArrays, belief: WidthBelief, lane: int, t: int
) -> int:
    """Choose in one lane by scores without the error of P, among the arms that can be the best."""
    rule, d, count = arrays.rules[0], belief.moment.shape[0], belief.scores.shape[0]
    fade = rule.gamma ** arrays.tally[0].stale
    places = np.empty(count, np.int64)
    rivals = 0
    for k in range(count):
        if belief.highest[k, lane] >= belief.verdict[2, lane]:
            places[rivals] = k
            rivals += 1
    right = np.empty((d, rivals + 1))
    for i in range(d):
        right[i, rivals] = belief.moment[i, lane]
        for n in range(rivals):
            right[i, n] = game.arms[lane, places[n], i]
    precision = weigh_arms(game, lane, belief.counts, fade, rule.ridge)
    solutions = solve_exactly(precision, right)
    scores = np.full(count, -np.inf)
    for n in range(rivals):
        x, mean, square, length = game.arms[lane, places[n]], 0.0, 0.0, 0.0
        for i in range(d):
            mean += x[i] * solutions[i, rivals]
            square += x[i] * solutions[i, n]
            length += solutions[i, n] * solutions[i, n]
        if rule.twin:
            square = rule.ridge * length
            for k in range(count):
                if belief.noise_counts[k, lane] > 0.0:
                    product, other = 0.0, game.arms[lane, k]
                    for i in range(d):
                        product += other[i] * solutions[i, n]
                    square += fade * fade * belief.noise_counts[k, lane] * product * product
        scores[places[n]] = mean + belief.levels[0, lane] * math.sqrt(max(square, 0.0))
    return choose_best_in_lane(game, lane, scores, t)


@compiled
def learn_side_by_side(game: LaneGame, arrays: PolicyArrays, belief: WidthBelief) -> None:
    """Add the observation of the round to the sums, to P, to Q and to the numbers of every arm."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    fade, x, reward = rule.gamma, game.features, load(game.reward, 0)
    unit = fade ** -(counts.stale + 1)
    for lane in range(LANES):
        belief.counts[game.chosen[lane], lane] += unit
        belief.noise_counts[game.chosen[lane], lane] += unit * unit
    for i in range(x.shape[0]):
        store(belief.moment, i, fade * load(belief.moment, i) + load(x, i) * reward)
    store(belief.energy, 0, fade * load(belief.energy, 0) + sum_products(x, x))
    counts.seen += 1
    counts.stale += 1
    counts.ridge *= fade
    counts.noise_ridge *= fade * fade if rule.twin else fade
    if counts.stale >= rule.refresh:
        refresh(game, arrays, belief)
    elif rule.twin:
        follow_with_twin(game, belief, fade)
    else:
        follow_alone(game, arrays, belief, fade)


@compiled
def follow_alone(
    game: LaneGame, arrays: PolicyArrays, belief: WidthBelief, fade: float
) -> None:
    """Update P and the numbers of every arm by a rank-one step, if W̃ is W.

    P' = (P − ppᵀ/c)/f and v' = v + ηp with p = Px, c = f + xᵀp and η = (y − xᵀv)/c; for a = zᵀp and
    r = zᵀPp of an arm z: zᵀPz ← (zᵀPz − a²/c)/f, zᵀv ← zᵀv + ηa, and as in `follow_with_twin`.
    """
    d, x, v = belief.moment.shape[0], game.features, belief.estimate
    p, pp = belief.vectors[:d], belief.vectors[d : 2 * d]
    multiply_packed(belief.inverse, x, p)
    divisor = fade + sum_products(x, p)
    eta = (load(game.reward, 0) - sum_products(x, v)) / divisor
    fades = arrays.rules[0].fades
    share, growth = 1.0 / divisor, 1.0 / fade
    length, along = sum_products(p, p), sum_products(p, v)
    if fades:
        multiply_packed(belief.inverse, p, pp)
    pull = (along + eta * length) * share
    for k in range(belief.means.shape[0]):
        at = k * d
        a, r = repeat(0.0), repeat(0.0)
        if fades:
            for i in range(d):
                a = a + load(game.rows, at + i) * load(p, i)
                r = r + load(game.rows, at + i) * load(pp, i)
            part = a * share
            slope = load(belief.mean_slopes, k) + eta * r - a * pull
            store(belief.mean_slopes, k, slope * growth)
            h = load(belief.squared_images, k) - part * (2.0 * r - part * length)
            store(belief.squared_images, k, h * (growth * growth))
            store(belief.width_slopes, k, h * (growth * growth))
        else:
            for i in range(d):
                a = a + load(game.rows, at + i) * load(p, i)
            part = a * share
        store(belief.means, k, load(belief.means, k) + eta * a)
        store(belief.squared_widths, k, (load(belief.squared_widths, k) - part * a) * growth)
    remove_image(belief.inverse, p, divisor, fade)
    move_estimate(belief, p, eta)


@compiled
def move_estimate(belief: WidthBelief, image: Floats, eta: Floats) -> None:
    """v ← v + η·p."""
    v = belief.estimate
    for i in range(v.shape[0]):
        store(v, i, load(v, i) + eta * load(image, i))
    store(belief.peak, 0, take_larger(load(belief.peak, 0), take_root(sum_products(v, v))))


@compiled
def follow_with_twin(game: LaneGame, belief: WidthBelief, fade: float) -> None:
    """Update P, Q and the numbers of every arm by a rank-one step.

    With p = Px, q = Qx, c = f + xᵀp, s = xᵀq and η = (y − xᵀv)/c:
    P' = (P − ppᵀ/c)/f, Q' = Q − (pqᵀ + qpᵀ)/c + (1+s)ppᵀ/c², v' = v + ηp. For an arm z, with a = zᵀp,
    b = zᵀq, r = zᵀPp, e = zᵀ(Pq + Qp) and m = (b − (1+s)a/c)/c:
    zᵀv ← zᵀv + ηa                zᵀPv ← (zᵀPv + ηr − a·pᵀ(v + ηp)/c)/f
    zᵀQz ← zᵀQz − (a/c)(b + cm)    ‖Pz‖² ← (‖Pz‖² − 2ar/c + a²pᵀp/c²)/f²
    zᵀPQz ← (zᵀPQz − mr − ae/c + (a/c)m·pᵀp + (a/c)²pᵀq)/f
    """
    d, x, v = belief.moment.shape[0], game.features, belief.estimate
    p, q, pp = belief.vectors[:d], belief.vectors[d : 2 * d], belief.vectors[2 * d : 3 * d]
    cross, scratch = belief.vectors[3 * d : 4 * d], belief.vectors[4 * d :]
    multiply_packed(belief.inverse, x, p)
    multiply_packed(belief.spread, x, q)
    multiply_packed_by_two(belief.inverse, p, pp, q, cross)
    multiply_packed(belief.spread, p, scratch)
    for i in range(d):
        store(cross, i, load(cross, i) + load(scratch, i))
    divisor, own = fade + sum_products(x, p), 1.0 + sum_products(x, q)
    eta = (load(game.reward, 0) - sum_products(x, v)) / divisor
    share, growth = 1.0 / divisor, 1.0 / fade
    length, overlap = sum_products(p, p), sum_products(p, q)
    pull = (sum_products(p, v) + eta * length) * share
    for k in range(belief.means.shape[0]):
        at = k * d
        a, b, r, e = repeat(0.0), repeat(0.0), repeat(0.0), repeat(0.0)
        for i in range(d):
            z = load(game.rows, at + i)
            a = a + z * load(p, i)
            b = b + z * load(q, i)
            r = r + z * load(pp, i)
            e = e + z * load(cross, i)
        part = a * share
        m = (b - own * part) * share
        store(belief.means, k, load(belief.means, k) + eta * a)
        slope = load(belief.mean_slopes, k) + eta * r - a * pull
        store(belief.mean_slopes, k, slope * growth)
        store(belief.squared_widths, k, load(belief.squared_widths, k) + part * (own * part - 2.0 * b))
        h = load(belief.squared_images, k) - part * (2.0 * r - part * length)
        store(belief.squared_images, k, h * (growth * growth))
        g = load(belief.width_slopes, k) - m * r - part * (e - m * length - part * overlap)
        store(belief.width_slopes, k, g * growth)
    update_spread(belief.spread, p, q, own * (share * share), share)
    remove_image(belief.inverse, p, divisor, fade)
    move_estimate(belief, p, eta)


@compiled
def update_spread(spread: Floats, p: Floats, q: Floats, own: Floats, share: Floats) -> None:
    """Q ← Q + own·ppᵀ − (pqᵀ + qpᵀ)·share."""
    at = 0
    for i in range(p.shape[0]):
        left, right = load(p, i), load(q, i) * share
        half = own * left - right
        cross = left * share
        for j in range(i + 1):
            old = load(spread, at + j)
            store(spread, at + j, old + half * load(p, j) - cross * load(q, j))
        at += i + 1
