"""Play up to eight replications at once, each with the draws and the choices that it has alone.

This engine plays policies with fixed arms whose memory keeps or fades sums, and that choose by
widths, by a sample or by the estimate. The engines in `replay` play all others.

P = (S + ΛI)⁻¹ follows every observation by a rank-one step, in which the ridge Λ fades with the
rest. A refresh recomputes P with a ridge that is too large by half of what it will lose. δ = λ−Λ is
known, so a sample is refined until W·θ̃ is its right side. For widths, five numbers of each arm
follow every observation; they give its score up to terms of δ². If these terms could change the
choice of a replication, its scores are computed again from S, for this round.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane._numba.instructions import (
    LANES,
    load,
    repeat,
    select_if_less,
    store,
    take_larger,
    take_root,
)
from windvane._random import FIRST_FREE_PLACE, TIE_PLACE
from windvane.beliefs.full import layout
from windvane.beliefs.full.choosing import (
    TIE_MARGIN,
    choose_best,
    compute_scale,
    draw_level,
    mix_uniformly,
)
from windvane.beliefs.full.layout import SAMPLE, TALLY, WIDTH, PolicyArrays, build_rules
from windvane.beliefs.full.linalg import factor_cholesky, solve_with_root
from windvane.lab.engines.game import (
    Player,
    RoundArms,
    accumulate_regret,
    choose_uniformly,
    open_round,
    realize_reward,
    reduce_dimension,
)
from windvane.lab.engines.replay import list_restarts
from windvane.lab.worlds.draw import Draw, Marks
from windvane.types import Floats, Places, Records

LEAST_GAMMA = 0.5  # below this, older weights fall so fast that nothing is gained by updates
MOST_NUMBERS = 16_384  # K·d; larger lists of arms of eight replications leave the caches
LARGEST_RATIO = 1e3  # L²/λ; rounding errors grow with its square
RIDGE_FADE = 0.025  # in log, by which the ridge in P may fade between two refreshes
MOST_APART = 64  # observations between two refreshes, because of rounding errors
TOLERANCE = 1e-9  # relative error of a sample, and of a score by rounding
THIRD_ORDER = 1.1  # a bound of terms of second order times this covers those of higher order
TINY = 1e-150  # avoids 0/0 for an arm whose features are all 0

GRAM, NOISE_GRAM, INVERSE, SPREAD, ROOT = range(5)  # S, S̃, P, Q = P(S̃ + Λ̃I)P, R with RᵀR = S̃
MOMENT, ESTIMATE, CHOSEN, RIGHT, SAMPLED = range(5)  # b, v = Pb, x, a right side, θ̃
IMAGE, SPREAD_IMAGE, SECOND_IMAGE, CROSS_IMAGE, SCRATCH = range(5, 10)  # Px, Qx, PPx, PQx + QPx
MEANS, MEAN_SLOPES, SQUARED_WIDTHS, SQUARED_IMAGES, WIDTH_SLOPES, SCORES = range(6)
REWARD, LEVEL, BAR, BEST, RIVALS = range(5)


# Linear algebra side by side: a vector has the shape (d, 8) and a matrix (d, d, 8). Of a symmetric
# matrix only the lower half is read and written, of a root only the upper half.


@compiled
def sum_products(left: Floats, right: Floats) -> Floats:
    """Σ left·right of two vectors."""
    total = repeat(0.0)
    for i in range(left.shape[0]):
        total = total + load(left, i) * load(right, i)
    return total


@compiled
def multiply(matrix: Floats, vector: Floats, out: Floats) -> None:
    """Write matrix·vector to `out`; each entry of the lower half serves two places."""
    for i in range(vector.shape[0]):
        row, own, total = matrix[i], load(vector, i), repeat(0.0)
        for j in range(i):
            entry = load(row, j)
            total = total + entry * load(vector, j)
            store(out, j, load(out, j) + entry * own)
        store(out, i, total + load(row, i) * own)


@compiled
def add_square(matrix: Floats, fade: float, weight: Floats, vector: Floats) -> None:
    """M ← fade·M + weight·vvᵀ, for a number and lanes."""
    for i in range(vector.shape[0]):
        row, own = matrix[i], weight * load(vector, i)
        for j in range(i + 1):
            store(row, j, fade * load(row, j) + own * load(vector, j))


@compiled
def copy_row(matrix: Floats, k: int, out: Floats) -> None:
    """Write row k of a symmetric matrix to `out` (d, 8)."""
    for i in range(out.shape[0]):
        store(out, i, load(matrix[max(i, k)], min(i, k)))


@compiled
def write_row(matrix: Floats, k: int, vector: Floats, factor: Floats) -> None:
    """Write factor·vector to row and column k of a symmetric matrix."""
    for i in range(vector.shape[0]):
        store(matrix[max(i, k)], min(i, k), factor * load(vector, i))


@compiled
def invert(matrix: Floats, row: Floats) -> None:
    """Invert a positive definite matrix in place by the sweep operator; `row` (d, 8) is scratch."""
    d = matrix.shape[0]
    for k in range(d):
        pivot = 1.0 / load(matrix[k], k)
        copy_row(matrix, k, row)
        store(row, k, repeat(0.0))
        add_square(matrix, 1.0, -pivot, row)
        store(row, k, repeat(-1.0))
        write_row(matrix, k, row, pivot)
    for i in range(d):
        for j in range(i + 1):
            store(matrix[i], j, -load(matrix[i], j))


@compiled
def rotate_into_root(root: Floats, fade: float, x: Floats, rest: Floats) -> None:
    """Update an upper triangular R: RᵀR ← f²RᵀR + xxᵀ; `rest` (d, 8) is scratch.

    The plane rotations are those of `linalg.update_root`.
    """
    d, zero, one = x.shape[0], repeat(0.0), repeat(1.0)
    for i in range(d):
        store(rest, i, load(x, i))
    for k in range(d):
        row = root[k]
        own, other = fade * load(row, k), load(rest, k)
        length = take_root(own * own + other * other)
        cosine = select_if_less(zero, length, own / length, one)
        sine = select_if_less(zero, length, other / length, zero)
        store(row, k, length)
        for i in range(k + 1, d):
            old, value = fade * load(row, i), load(rest, i)
            store(row, i, cosine * old + sine * value)
            store(rest, i, cosine * value - sine * old)


@compiled
def add_root_product(root: Floats, weights: Floats, scale: float, out: Floats) -> None:
    """Add scale·Rᵀw to `out` (d, 8), for an upper triangular R and weights w (d, 8)."""
    for k in range(out.shape[0]):
        row, own = root[k], scale * load(weights, k)
        for i in range(k, out.shape[0]):
            store(out, i, load(out, i) + own * load(row, i))


class Replications(NamedTuple):
    """Replications with fixed arms, as compiled code sees them: an array has a row for each."""

    draws: Draw  # of stacked arrays; centre and slope are in `lines`
    lines: Floats  # (8, 2) centre and slope of each draw
    offers: RoundArms  # of stacked arrays
    best: Floats  # (8,) the largest mean reward of the round
    regret: Floats  # (8, T)
    keys: Places  # (8,) of the random streams
    chosen: Places  # (8,) the arms of the round
    any_first: int  # first rounds, in which any arm is chosen uniformly at random


class LaneBelief(NamedTuple):
    """The beliefs of eight replications about the same number of arms."""

    arms: Floats  # (K, d, 8)
    matrices: Floats  # (5, d, d, 8) from GRAM to ROOT
    vectors: Floats  # (10, d, 8) from MOMENT to SCRATCH
    draws: Floats  # (2, d, 8) standard normal draws of the round
    numbers: Floats  # (6, K, 8) of each arm z: zᵀv, zᵀPv, zᵀQz, ‖Pz‖², zᵀPQz, and its score
    scalars: Floats  # (5, 8) from REWARD to RIVALS


def can_play_side_by_side(player: Player, draw: Draw) -> bool:
    """Whether this engine plays the player in a world with such draws."""
    if player.own or player.adaptation or player.link or len(draw.picks) > 1:
        return False
    count, ratio = draw.picks.shape[1], draw.arm_norm**2 / player.ridge
    if count * min(count, draw.dim) > MOST_NUMBERS or ratio > LARGEST_RATIO:
        return False
    memory = player.memory
    rule = build_rules(1, memory, player.exploration, player.ridge, player.floor)[0]
    is_kept = memory.name in ("keep", "restart", "restart_at")
    is_faded = rule["memory"] == layout.DISCOUNT and memory.gamma >= LEAST_GAMMA
    has_twin = is_kept or rule["twin"]
    has_style = rule["style"] in (layout.MEAN, SAMPLE) or (rule["style"] == WIDTH and has_twin)
    return bool((is_faded or is_kept) and has_style and rule["unit"] != layout.NOISE)


def replay_side_by_side(
    player: Player, draws: Sequence[Draw], keys: Sequence[int], marks: Marks
) -> Floats:
    """Play replications and return their cumulative regret at the marks, (replications, M)."""
    groups = [slice(first, first + LANES) for first in range(0, len(draws), LANES)]
    return np.concatenate([_replay(player, draws[each], keys[each], marks) for each in groups])


def _replay(player: Player, draws: Sequence[Draw], keys: Sequence[int], marks: Marks) -> Floats:
    game = open_replications(player, draws, keys)
    rules = plan_rules(player, game.draws.arms.shape[2], draws[0].dim)
    arrays = PolicyArrays(rules, np.zeros(1, TALLY), np.zeros(0), np.zeros((0, 0)))
    play(game, arrays, make_belief(game), list_restarts(player.memory, draws[0].rounds))
    return np.array([accumulate_regret(game.regret[i], marks) for i in range(len(draws))])


def plan_rules(player: Player, dim: int, space: int) -> Records:
    """The record of a policy, with fewer refreshes than one that is played alone."""
    gamma = player.memory.gamma
    rules = build_rules(dim, player.memory, player.exploration, player.ridge, player.floor, space)
    apart = MOST_APART if gamma == 1.0 else min(MOST_APART, int(RIDGE_FADE / -math.log(gamma)))
    rules["refresh"], rules["lead"] = apart, gamma ** (-0.5 * apart)
    return rules


def make_belief(game: Replications) -> LaneBelief:
    """Make beliefs that have learned nothing."""
    arms = np.ascontiguousarray(game.draws.arms.transpose(1, 2, 0))
    count, d, _ = arms.shape
    shapes = ((5, d, d), (10, d), (2, d), (6, count), (5,))
    return LaneBelief(arms, *(np.zeros((*shape, LANES)) for shape in shapes))


def open_replications(player: Player, draws: Sequence[Draw], keys: Sequence[int]) -> Replications:
    """Prepare up to eight replications; rows that are left over repeat the first replication."""
    spare = LANES - len(draws)
    reduced = [reduce_dimension(draw) for draw in draws]
    reduced += [reduced[0]] * spare
    names = ("theta", "era", "arms", "picks", "noise")
    stacks: dict[str, Any] = {
        name: np.stack([getattr(draw, name) for draw in reduced]) for name in names
    }
    stacked = reduced[0]._replace(**stacks)
    count = stacked.arms.shape[1]
    return Replications(
        stacked,
        np.array([(draw.centre, draw.slope) for draw in reduced]),
        RoundArms(stacked.arms, np.empty((LANES, count)), np.empty((LANES, count))),
        np.empty(LANES),
        np.empty(stacked.noise.shape),
        np.array([*keys, *[keys[0]] * spare], dtype=np.int64),
        np.zeros(LANES, np.int64),
        player.any_first,
    )


@compiled
def view_draw(game: Replications, lane: int) -> Draw:
    """The replication in a lane, as views."""
    every = game.draws  # of which the table and the logged arms are empty
    theta, era, arms = every.theta[lane], every.era[lane], every.arms[lane]
    picks, noise = every.picks[lane], every.noise[lane]
    centre, slope = game.lines[lane, 0], game.lines[lane, 1]
    binary, link, table, logged = every.binary, every.link, every.table, every.logged
    return Draw(theta, era, arms, picks, noise, binary, centre, slope, link, table, logged)


@compiled
def open_rounds(game: Replications, t: int) -> None:
    """Compute the mean rewards of round t in the lanes in which they change."""
    for lane in range(LANES):
        if t == 0 or game.draws.era[lane, t] != game.draws.era[lane, t - 1]:
            every = game.offers
            offer = RoundArms(every.arms[lane], every.squared_norms[lane], every.means[lane])
            game.best[lane] = open_round(view_draw(game, lane), offer, t)


@compiled
def start_lane(game: Replications, lane: int, t: int) -> np.uint64:
    """The start of the random stream of round t in a lane."""
    return _random.start_round(np.uint64(game.keys[lane]), t)


@compiled
def earn_rewards(game: Replications, t: int, rewards: Floats, features: Floats) -> None:
    """Write the rewards (1, 8) and features (d, 8) of the chosen arms; record the regret."""
    for lane in range(LANES):
        chosen = game.chosen[lane]
        mean = game.offers.means[lane, chosen]
        draw = view_draw(game, lane)
        rewards[0, lane] = realize_reward(draw, mean, draw.noise[t])
        game.regret[lane, t] = game.best[lane] - mean
        for i in range(features.shape[0]):
            features[i, lane] = draw.arms[chosen, i]


@compiled
def play(game: Replications, arrays: PolicyArrays, belief: LaneBelief, restarts: Marks) -> None:
    """Choose and learn in every round of eight replications."""
    restart = 0
    for t in range(game.regret.shape[1]):
        if t == 0 or t == restarts[restart]:
            restart += t > 0
            arrays.tally[0].seen = 0
            belief.matrices[:] = 0.0
            belief.vectors[MOMENT] = 0.0
            refresh(arrays, belief)
        open_rounds(game, t)
        if t < game.any_first:
            for lane in range(LANES):
                game.chosen[lane] = choose_uniformly(game.keys[lane], t, belief.arms.shape[0])
        else:
            choose(game, arrays, belief, t)
        earn_rewards(game, t, belief.scalars[REWARD : REWARD + 1], belief.vectors[CHOSEN])
        learn(arrays, belief)


@compiled
def refresh(arrays: PolicyArrays, belief: LaneBelief) -> None:
    """Recompute P from S and, if arms have widths, Q and the numbers of every arm."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    matrices, vectors = belief.matrices, belief.vectors
    counts.stale = 0
    counts.ridge = rule.ridge * rule.lead
    counts.noise_ridge = rule.ridge * rule.lead * rule.lead
    inverse = matrices[INVERSE]
    copy_with_ridge(matrices[GRAM], counts.ridge, inverse)
    invert(inverse, vectors[SCRATCH])
    if rule.style == WIDTH:
        multiply(inverse, vectors[MOMENT], vectors[ESTIMATE])
        compute_spread(belief, counts.noise_ridge)
        measure_arms(belief)


@compiled
def copy_with_ridge(matrix: Floats, ridge: float, out: Floats) -> None:
    """Write M + ridge·I to `out`."""
    for i in range(matrix.shape[0]):
        for j in range(i + 1):
            store(out[i], j, load(matrix[i], j))
        store(out[i], i, load(matrix[i], i) + ridge)


@compiled
def compute_spread(belief: LaneBelief, noise_ridge: float) -> None:
    """Q = P(S̃ + Λ̃I)P, column by column; the root is not used if there are widths."""
    matrices, vectors, one = belief.matrices, belief.vectors, repeat(1.0)
    inverse, spread, ridged = matrices[INVERSE], matrices[SPREAD], matrices[ROOT]
    copy_with_ridge(matrices[NOISE_GRAM], noise_ridge, ridged)
    for k in range(inverse.shape[0]):
        copy_row(inverse, k, vectors[IMAGE])
        multiply(ridged, vectors[IMAGE], vectors[SCRATCH])
        multiply(inverse, vectors[SCRATCH], vectors[SPREAD_IMAGE])
        write_row(spread, k, vectors[SPREAD_IMAGE], one)


@compiled
def measure_arms(belief: LaneBelief) -> None:
    """Compute the numbers of every arm from P, Q and v."""
    matrices, vectors, numbers = belief.matrices, belief.vectors, belief.numbers
    estimate, image, product = vectors[ESTIMATE], vectors[IMAGE], vectors[SPREAD_IMAGE]
    for k in range(belief.arms.shape[0]):
        x = belief.arms[k]
        multiply(matrices[INVERSE], x, image)
        multiply(matrices[SPREAD], x, product)
        store(numbers[MEANS], k, sum_products(x, estimate))
        store(numbers[MEAN_SLOPES], k, sum_products(image, estimate))
        store(numbers[SQUARED_WIDTHS], k, sum_products(x, product))
        store(numbers[SQUARED_IMAGES], k, sum_products(image, image))
        store(numbers[WIDTH_SLOPES], k, sum_products(image, product))


@compiled
def choose(game: Replications, arrays: PolicyArrays, belief: LaneBelief, t: int) -> None:
    """Choose an arm of round t in every lane; ties are broken as `Policy` breaks them."""
    rules, count = arrays.rules, belief.arms.shape[0]
    scores, scalars, has_widths = np.empty(count), belief.scalars, rules[0].style == WIDTH
    if has_widths:
        scale = compute_scale(arrays)
        for lane in range(LANES):
            scalars[LEVEL, lane] = draw_level(rules, scale, start_lane(game, lane, t))
        bound_scores(arrays, belief)
    else:
        draw_right_sides(game, arrays, belief, t)
        solve(arrays, belief.matrices[INVERSE], belief.vectors)
        score_samples(belief)
    find_rivals(belief)
    for lane in range(LANES):
        chosen, start = int(scalars[BEST, lane]), start_lane(game, lane, t)
        if scalars[RIVALS, lane] != 1.0:
            for k in range(count):
                scores[k] = belief.numbers[SCORES, k, lane]
            if has_widths:
                settle_scores(arrays, belief, lane, scores)
            chosen = max(choose_best(scores, _random.uniform(start, TIE_PLACE)), 0)
        if rules[0].mix > 0.0:
            chosen = mix_uniformly(rules, chosen, count, start)
        game.chosen[lane] = chosen


@compiled
def find_rivals(belief: LaneBelief) -> None:
    """Count the arms whose score reaches the bar, and find one of them."""
    scalars, zero, one = belief.scalars, repeat(0.0), repeat(1.0)
    best, rivals, bar = zero, zero, load(scalars, BAR)
    for k in range(belief.arms.shape[0]):
        score = load(belief.numbers[SCORES], k)
        rivals = rivals + select_if_less(score, bar, zero, one)
        best = select_if_less(score, bar, best, repeat(float(k)))
    store(scalars, BEST, best)
    store(scalars, RIVALS, rivals)


@compiled
def draw_right_sides(game: Replications, arrays: PolicyArrays, belief: LaneBelief, t: int) -> None:
    """Write b + a·ξ to the right side: ξ = Rᵀz + √λ·ζ with z and ζ standard normal; else b."""
    rule, d, scale = arrays.rules[0], belief.arms.shape[1], 0.0
    vectors, draws = belief.vectors, belief.draws
    if rule.style == SAMPLE:
        scale = compute_scale(arrays)
        normals = np.empty(2 * d)
        for lane in range(LANES):
            _random.fill_normals(start_lane(game, lane, t), FIRST_FREE_PLACE, normals)
            for i in range(d):
                draws[0, i, lane] = normals[i]
                draws[1, i, lane] = normals[d + i]
    factor = math.sqrt(rule.ridge) * scale
    for i in range(d):
        store(vectors[RIGHT], i, load(vectors[MOMENT], i) + factor * load(draws[1], i))
    if rule.style == SAMPLE:
        add_root_product(belief.matrices[ROOT], draws[0], scale, vectors[RIGHT])


@compiled
def solve(arrays: PolicyArrays, inverse: Floats, vectors: Floats) -> None:
    """Solve W·θ̃ = right: u ← P(right − δu) reduces the error by |δ|/Λ or more."""
    ridge = arrays.tally[0].ridge
    lag = arrays.rules[0].ridge - ridge
    ratio = abs(lag) / ridge
    right, rest, sampled = vectors[RIGHT], vectors[SCRATCH], vectors[SAMPLED]
    multiply(inverse, right, sampled)
    error = ratio
    while error > TOLERANCE:
        for i in range(right.shape[0]):
            store(rest, i, load(right, i) - lag * load(sampled, i))
        multiply(inverse, rest, sampled)
        error *= ratio


@compiled
def score_samples(belief: LaneBelief) -> None:
    """Compute ⟨x, θ̃⟩ of every arm; the bar is where arms count as equal to the best."""
    top, largest = repeat(-np.inf), repeat(0.0)
    for k in range(belief.arms.shape[0]):
        score = sum_products(belief.arms[k], belief.vectors[SAMPLED])
        store(belief.numbers[SCORES], k, score)
        top = take_larger(top, score)
        largest = take_larger(largest, abs(score))
    store(belief.scalars, BAR, top - TIE_MARGIN * largest)


@compiled
def bound_scores(arrays: PolicyArrays, belief: LaneBelief) -> None:
    """Compute an upper bound of the score of every arm; the bar is the largest lower bound.

    With h = ‖Px‖², xᵀθ̂ = xᵀv − δ·xᵀPv and w² = xᵀQx + δ̃h − 2δ·xᵀPQx up to terms of second order.
    The score xᵀθ̂ + Zw is off by at most δ²√h(‖v‖ + |Z|/√λ)/Λ + |Z|(δ² + 2|δδ̃|)h/(wΛ), apart from
    terms of third order.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    numbers, level, zero = belief.numbers, load(belief.scalars, LEVEL), repeat(0.0)
    estimate, root, bar = belief.vectors[ESTIMATE], math.sqrt(rule.ridge), repeat(-np.inf)
    lag, noise_lag = rule.ridge - counts.ridge, rule.ridge - counts.noise_ridge
    second = THIRD_ORDER * lag * lag / counts.ridge
    squared = second + THIRD_ORDER * 2.0 * abs(lag * noise_lag) / counts.ridge
    size = second * (take_root(sum_products(estimate, estimate)) + abs(level) * (1.0 / root))
    for k in range(belief.arms.shape[0]):
        h = take_larger(load(numbers[SQUARED_IMAGES], k), zero)
        slope, mean_slope = load(numbers[WIDTH_SLOPES], k), load(numbers[MEAN_SLOPES], k)
        square = load(numbers[SQUARED_WIDTHS], k) + noise_lag * h - (2.0 * lag) * slope
        mean = load(numbers[MEANS], k) - lag * mean_slope
        length, width = take_root(h), take_root(take_larger(square, zero))
        raised = level * width
        share = squared * h / take_larger(width, root * length + TINY)
        error = size * length + abs(level) * share + TOLERANCE * (abs(mean) + abs(raised))
        store(numbers[SCORES], k, mean + raised + error)
        bar = take_larger(bar, mean + raised - error)
    store(belief.scalars, BAR, bar)


@compiled
def settle_scores(arrays: PolicyArrays, belief: LaneBelief, lane: int, scores: Floats) -> None:
    """Replace the scores (K,) of one lane by exact ones, or by −inf below the bar."""
    ridge, arms, level = arrays.rules[0].ridge, belief.arms, belief.scalars[LEVEL, lane]
    d = arms.shape[1]
    precision, noise = np.empty((d, d)), np.empty((d, d))
    theta, pulled = np.empty((d, 1)), np.empty((d, 1))
    for i in range(d):
        theta[i, 0] = belief.vectors[MOMENT, i, lane]
        for j in range(i + 1):
            precision[i, j] = belief.matrices[GRAM, i, j, lane]
            noise[i, j] = belief.matrices[NOISE_GRAM, i, j, lane]
        precision[i, i] += ridge
        noise[i, i] += ridge
    factor_cholesky(precision)
    solve_with_root(precision, theta)
    for k in range(scores.size):
        if scores[k] < belief.scalars[BAR, lane]:
            scores[k] = -np.inf
            continue
        for i in range(d):
            pulled[i, 0] = arms[k, i, lane]
        solve_with_root(precision, pulled)
        mean, square = 0.0, 0.0
        for i in range(d):
            mean += arms[k, i, lane] * theta[i, 0]
            own = 0.5 * noise[i, i] * pulled[i, 0]
            for j in range(i):
                own += noise[i, j] * pulled[j, 0]
            square += 2.0 * own * pulled[i, 0]
        scores[k] = mean + level * math.sqrt(max(square, 0.0))


@compiled
def learn(arrays: PolicyArrays, belief: LaneBelief) -> None:
    """Add the observation of the round to the sums and to all that follows from them.

    S ← fS + xxᵀ,  S̃ ← f²S̃ + xxᵀ,  b ← fb + xy
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    fade, has_widths, matrices = rule.gamma, rule.style == WIDTH, belief.matrices
    moment, x, one = belief.vectors[MOMENT], belief.vectors[CHOSEN], repeat(1.0)
    reward = load(belief.scalars, REWARD)
    for i in range(x.shape[0]):
        store(moment, i, fade * load(moment, i) + load(x, i) * reward)
    add_square(matrices[GRAM], fade, one, x)
    if has_widths:
        add_square(matrices[NOISE_GRAM], fade * fade, one, x)
    if rule.style == SAMPLE:
        root_fade = fade if rule.twin else math.sqrt(fade)
        rotate_into_root(matrices[ROOT], root_fade, x, belief.vectors[SCRATCH])
    counts.seen += 1
    counts.stale += 1
    counts.ridge *= fade
    counts.noise_ridge *= fade * fade
    if counts.stale >= rule.refresh:
        refresh(arrays, belief)
    else:
        follow(belief, fade, has_widths)


@compiled
def follow(belief: LaneBelief, fade: float, has_widths: bool) -> None:
    """Update P and, if arms have widths, Q, v and the numbers of every arm by a rank-one step.

    With p = Px, q = Qx, c = f + xᵀp, s = xᵀq and η = (y − xᵀv)/c:
    P' = (P − ppᵀ/c)/f, Q' = Q − (pqᵀ + qpᵀ)/c + (1+s)ppᵀ/c², v' = v + ηp
    """
    matrices, vectors = belief.matrices, belief.vectors
    inverse, spread, x, v = matrices[INVERSE], matrices[SPREAD], vectors[CHOSEN], vectors[ESTIMATE]
    p, q, cross = vectors[IMAGE], vectors[SPREAD_IMAGE], vectors[CROSS_IMAGE]
    multiply(inverse, x, p)
    share = 1.0 / (fade + sum_products(x, p))
    if has_widths:
        multiply(spread, x, q)
        multiply(inverse, p, vectors[SECOND_IMAGE])
        multiply(inverse, q, cross)
        multiply(spread, p, vectors[SCRATCH])
        for i in range(x.shape[0]):
            store(cross, i, load(cross, i) + load(vectors[SCRATCH], i))
        eta = share * (load(belief.scalars, REWARD) - sum_products(x, v))
        whole = 1.0 + sum_products(x, q)
        follow_arms(belief, share, whole, eta, fade)
        for i in range(x.shape[0]):
            part = share * load(p, i)
            half = share * (whole * part - load(q, i))
            for j in range(i + 1):
                more = half * load(p, j) - part * load(q, j)
                store(spread[i], j, load(spread[i], j) + more)
            store(v, i, load(v, i) + eta * load(p, i))
    growth = 1.0 / fade
    add_square(inverse, growth, -growth * share, p)


@compiled
def follow_arms(belief: LaneBelief, share: Floats, whole: Floats, eta: Floats, fade: float) -> None:
    """Update the numbers of every arm; `share` is 1/c and `whole` is 1 + s.

    For an arm z, with a = zᵀp, b = zᵀq, r = zᵀPp, e = zᵀ(Pq + Qp) and m = (b − (1+s)a/c)/c:
    zᵀv ← zᵀv + ηa                zᵀPv ← (zᵀPv + ηr − a·pᵀ(v + ηp)/c)/f
    zᵀQz ← zᵀQz − (a/c)(b + cm)    ‖Pz‖² ← (‖Pz‖² − 2ar/c + a²pᵀp/c²)/f²
    zᵀPQz ← (zᵀPQz − mr − ae/c + (a/c)m·pᵀp + (a/c)²pᵀq)/f
    """
    vectors, numbers, growth = belief.vectors, belief.numbers, 1.0 / fade
    p, q = vectors[IMAGE], vectors[SPREAD_IMAGE]
    second, cross = vectors[SECOND_IMAGE], vectors[CROSS_IMAGE]
    length, overlap = sum_products(p, p), sum_products(p, q)
    pull = (sum_products(p, vectors[ESTIMATE]) + eta * length) * share
    means, mean_slopes, squares = numbers[MEANS], numbers[MEAN_SLOPES], numbers[SQUARED_WIDTHS]
    images, slopes = numbers[SQUARED_IMAGES], numbers[WIDTH_SLOPES]
    for k in range(belief.arms.shape[0]):
        x = belief.arms[k]
        a, b, r, e = repeat(0.0), repeat(0.0), repeat(0.0), repeat(0.0)
        for i in range(x.shape[0]):
            z = load(x, i)
            a = a + z * load(p, i)
            b = b + z * load(q, i)
            r = r + z * load(second, i)
            e = e + z * load(cross, i)
        part = a * share
        m = (b - whole * part) * share
        store(means, k, load(means, k) + eta * a)
        store(mean_slopes, k, growth * (load(mean_slopes, k) + eta * r - a * pull))
        store(squares, k, load(squares, k) + part * (whole * part - 2.0 * b))
        h = load(images, k) - part * (2.0 * r - part * length)
        store(images, k, (growth * growth) * h)
        g = load(slopes, k) - m * r - part * (e - m * length - part * overlap)
        store(slopes, k, growth * g)
