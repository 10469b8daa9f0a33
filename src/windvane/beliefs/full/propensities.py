"""Propensities: the probability with which a policy chooses each arm, given its belief.

Under a randomized width the score of each arm is a line in z, xᵀθ̂ + z‖x‖_{V⁻¹}. The chosen arm is
the highest line at the random level Z. The propensity of an arm is therefore the probability of the
interval of z in which its line is the highest: exact, in O(K log K).
"""

import math
from collections.abc import Callable

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled
from windvane.beliefs.full.belief import Belief
from windvane.beliefs.full.block import view_belief
from windvane.beliefs.full.choosing import (
    TIE_MARGIN,
    choose_by_widths,
    compute_grid_weights,
    compute_scale,
    draw_level,
    mix_uniformly,
    sample_parameter,
    score_linearly,
)
from windvane.beliefs.full.layout import (
    HALF_NORMAL,
    HISTORY,
    LARGEST,
    MEAN,
    NORMAL,
    POINT,
    SAMPLE,
    WIDTH,
    PolicyArrays,
)
from windvane.beliefs.full.learning import NOT_FINITE
from windvane.beliefs.full.linalg import factor_cholesky, fill, multiply_matrices
from windvane.beliefs.full.widths import compute_squared_norms, compute_widths
from windvane.types import Floats, Places, Records

CLEAR_LEAD = 1e-6  # relative distance of the best score from the next that rounding cannot reverse
COUNTING_KEY = 0x5DEECE66D  # key ^ COUNTING_KEY is the key of the draws that are only counted


@compiled
def chance_between(low: float, high: float) -> float:
    """Return P(low < N(0, 1) < high), computed from the tail that keeps more digits."""
    root = math.sqrt(0.5)
    if low > 0.0:
        return 0.5 * (math.erfc(low * root) - math.erfc(high * root))
    if high < 0.0:
        return 0.5 * (math.erfc(-high * root) - math.erfc(-low * root))
    return 1.0 - 0.5 * (math.erfc(-low * root) + math.erfc(high * root))


@compiled
def score_at_level(means: Floats, z: float, widths: Floats) -> Floats:
    """Return the score of every arm at level z, (K,)."""
    scores = np.empty(means.size)
    for k in range(means.size):
        scores[k] = means[k] + z * widths[k]
    return scores


@compiled
def mix_evenly(shares: Floats, mix: float) -> Floats:
    """Return the shares (K,) with all arms equally likely with the probability `mix`."""
    mixed, each = np.empty(shares.size), mix / shares.size
    for k in range(shares.size):
        mixed[k] = (1.0 - mix) * shares[k] + each
    return mixed


@compiled
def find_largest(numbers: Floats) -> float:
    """Return the largest of some numbers (n,)."""
    largest: float = numbers[0]
    for i in range(1, numbers.size):
        largest = max(largest, numbers[i])
    return largest


@compiled
def find_largest_size(numbers: Floats) -> float:
    """Return the largest absolute value of some numbers (n,)."""
    largest: float = abs(numbers[0])
    for i in range(1, numbers.size):
        largest = max(largest, abs(numbers[i]))
    return largest


@compiled
def add_share_at(means: Floats, widths: Floats, z: float, weight: float, shares: Floats) -> None:
    """Add `weight` to the share of the best arm at level z; equally good arms split it."""
    scores = score_at_level(means, z, widths)
    least = find_largest(scores) - TIE_MARGIN * find_largest_size(scores)
    equals = 0
    for k in range(scores.size):
        equals += scores[k] >= least
    for k in range(scores.size):
        if scores[k] >= least:
            shares[k] += weight / equals


@compiled
def sort_places(numbers: Floats) -> Places:
    """The places of numbers (n,) in rising order, by a heap: it compiles much faster than argsort.

    Equal numbers come in any order.
    """
    places = np.empty(numbers.size, np.int64)
    for k in range(places.size):
        places[k] = k
    start, end = places.size // 2, places.size  # the heap begins at `start` and stops before `end`
    while end > 1:
        if start > 0:
            start -= 1
        else:
            end -= 1
            places[0], places[end] = places[end], places[0]
        node = start
        while 2 * node + 1 < end:
            child = 2 * node + 1
            if child + 1 < end and numbers[places[child]] < numbers[places[child + 1]]:
                child += 1
            if not numbers[places[node]] < numbers[places[child]]:
                break
            places[node], places[child] = places[child], places[node]
            node = child
    return places


@compiled
def compute_envelope_shares(means: Floats, widths: Floats, scale: float, law: int) -> Floats:
    """Return the probability of each arm for Z = scale·N(0, 1), or scale·|N(0, 1)|, (K,)."""
    count = means.size
    shares = np.empty(count)
    fill(shares, 0.0)
    start = 0.0 if law == HALF_NORMAL else -np.inf
    full = 2.0 if law == HALF_NORMAL else 1.0
    if scale == 0.0:
        add_share_at(means, widths, 0.0, 1.0, shares)
        return shares
    order = sort_places(widths)
    hull, begins = np.empty(count, np.int64), np.empty(count)
    size = 0
    for k in order:
        begin = start
        while size > 0:
            top = hull[size - 1]
            rise = widths[k] - widths[top]
            if rise <= TIE_MARGIN * widths[k]:  # parallel lines: the higher line stays
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
        split_among_twins(means, widths, line, chance, shares)
    return shares


def compute_propensities(arrays: PolicyArrays, arms: Floats) -> Floats:
    """Return the exact propensities of a full belief, floor included, (K,)."""
    state, widths = view_belief(arrays), np.empty(0)
    if arrays.rules["room"][0] > 0 and arrays.rules["style"][0] == WIDTH:
        from windvane.beliefs.full.large import measure_large

        widths = measure_large(arrays, arms)
    elif arrays.rules["style"][0] == WIDTH:
        widths = compute_widths(arrays, state, arms)
    return compute_exact_propensities(arrays, score_linearly(arms, state.theta), widths)


@compiled
def choose_with_propensities(
    arrays: PolicyArrays, arms: Floats, key: int, round_: int
) -> tuple[int, Floats]:
    """Return the arm that `choose` chooses and the propensities; every width is computed once.

    Widths are exact to a relative error of 1e-8. They show which arm is the best, unless two scores
    are closer than CLEAR_LEAD; then `choose` decides.
    """
    rules, state, nothing = arrays.rules, view_belief(arrays), np.empty(0)
    norms = compute_squared_norms(arms)
    for k in range(norms.size):
        if not norms[k] <= LARGEST:
            return NOT_FINITE, nothing
    means = score_linearly(arms, state.theta)
    widths = compute_widths(arrays, state, arms)
    scale = compute_scale(arrays)
    shares = compute_envelope_shares(means, widths, scale, rules[0].law)
    shares = mix_evenly(shares, rules[0].mix)
    start = _random.start_round(np.uint64(key), round_)
    z = draw_level(rules, scale, start)
    scores, top = score_at_level(means, z, widths), 0
    for k in range(scores.size):
        if scores[k] > scores[top]:
            top = k
    near = scores[top] - CLEAR_LEAD * (find_largest_size(means) + abs(z) * find_largest(widths))
    for k in range(scores.size):
        if k != top and scores[k] >= near:
            return choose_by_widths(arrays, arms, key, round_), shares
    return mix_uniformly(rules, top, scores.size, start), shares


@compiled
def split_among_twins(
    means: Floats, widths: Floats, line: int, chance: float, shares: Floats
) -> None:
    """Split the probability of a line among the arms that have the same line."""
    near_mean, near_width = TIE_MARGIN * abs(means[line]), TIE_MARGIN * widths[line]
    twins = 0
    for k in range(means.size):
        same = abs(means[k] - means[line]) <= near_mean
        twins += same and abs(widths[k] - widths[line]) <= near_width
    for k in range(means.size):
        same = abs(means[k] - means[line]) <= near_mean
        if same and abs(widths[k] - widths[line]) <= near_width:
            shares[k] += chance / twins


@compiled
def compute_grid_shares(means: Floats, widths: Floats, scale: float, weights: Floats) -> Floats:
    """Return the probability of each arm for Z on an even grid from 0 to `scale`, (K,)."""
    shares = np.zeros(means.size)
    last = max(weights.size - 1, 1)
    for m in range(weights.size):
        add_share_at(means, widths, scale * m / last, weights[m], shares)
    return shares


def count_wins(scores: Floats) -> Floats:
    """Return the share of draws, rows of scores (n, K), in which each arm is the best, (K,).

    Equally good arms split a draw.
    """
    largest = np.abs(scores).max(axis=1, keepdims=True)
    winners = scores >= scores.max(axis=1, keepdims=True) - TIE_MARGIN * largest
    shares: Floats = (winners / winners.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares


@compiled
def compute_gap_shares(means: Floats, leading: Floats, eta: float) -> Floats:
    """Return 1/(K + η·gap) for each arm that is not the best, and the rest for the best arm."""
    others: Floats = 1.0 / (means.size + eta * (means.max() - means))
    rest = 1.0 - (others.sum() - others.max())  # all best arms have a gap of 0
    shares: Floats = (1.0 - leading) * others + leading * rest
    return shares


def add_chosen_draw(shares: Floats, samples: int, chosen: int | None) -> Floats:
    """Return the shares of `samples` draws with the actual choice as one draw more."""
    if chosen is None:
        return shares
    more: Floats = (samples * shares + (np.arange(shares.size) == chosen)) / (samples + 1.0)
    return more


def is_counted(rules: Records) -> bool:
    """Tell if the propensities are counted from draws."""
    return rules["style"][0] in (SAMPLE, HISTORY)


@compiled
def compute_exact_propensities(arrays: PolicyArrays, means: Floats, widths: Floats) -> Floats:
    """Return the propensities of arms with these means and widths, floor included, (K,).

    An exploration that needs the estimate alone reads no widths. One that samples a parameter has
    no exact propensities.
    """
    rule = arrays.rules[0]
    no_widths, one_level = np.zeros(means.size), np.ones(1)
    if rule.style != WIDTH:
        shares = compute_grid_shares(means, no_widths, 0.0, one_level)
        if rule.style != MEAN:
            shares = compute_gap_shares(means, shares, rule.scale)
    elif rule.law == NORMAL or rule.law == HALF_NORMAL:
        shares = compute_envelope_shares(means, widths, compute_scale(arrays), rule.law)
    elif rule.law == POINT:
        scores = means + compute_scale(arrays) * widths
        shares = compute_grid_shares(scores, no_widths, 0.0, one_level)
    else:
        weights = compute_grid_weights(arrays.rules)
        shares = compute_grid_shares(means, widths, compute_scale(arrays), weights)
    return mix_evenly(shares, rule.mix)


def draw_parameters(
    arrays: PolicyArrays, read_belief: Callable[[], Belief], samples: int, key: int, round_: int
) -> Floats:
    """Return draws of θ̃, (samples, d), with a key of their own, so that no choice changes."""
    start = np.uint64(_random.start_round(np.uint64(key ^ COUNTING_KEY), round_))
    if arrays.rules["coins"][0]:
        state = view_belief(arrays)
        starts = [np.uint64(_random.draw_word(start, i)) for i in range(samples)]
        return np.array([sample_parameter(arrays, state, s) for s in starts])
    belief = read_belief()
    z = np.empty(samples * belief.dim)
    _random.fill_normals(start, 0, z)
    root = belief.noise
    factor_cholesky(root)
    half = belief.solve(root)  # (d, d), half·halfᵀ = V⁻¹
    draws = np.empty((samples, belief.dim))
    multiply_matrices(z.reshape(samples, -1), np.ascontiguousarray(half.T), draws)
    return belief.theta + compute_scale(arrays) * draws
