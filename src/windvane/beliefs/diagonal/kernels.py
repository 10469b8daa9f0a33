"""Learn and choose: a precision and a mean for each weight, and nothing between two weights.

In units of the noise, weight i has the precision pᵢ that data has given, the prior precision λᵢ,
the variance sᵢ = 1/(pᵢ + λᵢ) and the mean mᵢ = sᵢ·bᵢ. An observation (x, y) of weight w is learned
by

    e = y − Σ xᵢmᵢ,   S = 1/w + Σ xᵢ²sᵢ
    mᵢ ← mᵢ + sᵢxᵢe/S,   sᵢ ← sᵢ − sᵢ²xᵢ²/S,   which is   pᵢ ← pᵢ + xᵢ²/(S − sᵢxᵢ²)

These are the mean and the diagonal of the exact posterior of a prior without correlations. The
correlations that an observation creates are dropped, which is the approximation.

The precisions and moments b of all weights fade by the same factor f, and the prior does not fade.
`sums` holds p/f and b/f, so that fading costs nothing. Column j of `sums` is a belief of its own.

Only weights with data have a slot, which a hash table finds. Slots are numbered in the order in
which their weights were first learned. A belief therefore takes as much memory as the weights that
it has learned, whatever the dimension is.

If the memory fades and is not single, W̃ = λ + q has the squared weights of observations, and the
variance of a weight is W̃/W². Else W̃ is W, and the variance is 1/W.

A choice costs O(entries). Rows are given as `indices` (n,) and `values` (n,), one row after the
other. Row k ends before entry `ends[k]`.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled_in_order
from windvane._random import FIRST_FREE_PLACE, scramble
from windvane.beliefs.diagonal.sparse_rows import CheckedRows
from windvane.beliefs.diagonal.weight_table import ABSENT, EMPTY, claim_key, find_key
from windvane.beliefs.full.block import reset_counters
from windvane.beliefs.full.choosing import choose_by_scores, compute_scale, draw_level
from windvane.beliefs.full.layout import DETECT, HALF_LIFE, NOISE, SAMPLE, WIDTH, PolicyArrays
from windvane.beliefs.full.learning import add_to_cusum, advance_clock, weigh_age
from windvane.beliefs.full.noise import add_error
from windvane.types import Floats, Places, UnsignedIntegers
from windvane.validation import LARGEST

PRECISION, MOMENT = 0, 1  # the last axis of `sums`


@compiled_in_order
def predict_entries(
    sums: Floats, column: int, fade: float, indices: Places, values: Floats, priors: Floats
) -> tuple[float, float]:
    """Return the mean Σ xᵢmᵢ and the variance Σ xᵢ²sᵢ of a row, in units of the noise.

    The row has the entries `values` (n,) at `indices` (n,), whose prior precisions are `priors`
    (n,). `sums` is (weights, columns, 2). An index below 0 stands for a weight without data.
    """
    mean, variance = 0.0, 0.0
    for i in range(indices.size):
        at, x = indices[i], values[i]
        if at < 0:
            variance += x * x / priors[i]
        else:
            precision = fade * sums[at, column, PRECISION] + priors[i]
            mean += x * fade * sums[at, column, MOMENT] / precision
            variance += x * x / precision
    return mean, variance


@compiled_in_order
def compute_gain(x: float, precision: float, variance: float, weight: float) -> float:
    """Return x²/(S − s·x²), what an observation adds to the precision of a weight.

    `variance` is that of the whole row. S − s·x² is 1/w and the variance of the other entries,
    which is exactly 0 for a row of one entry.
    """
    square = x * x
    return square / (1.0 / weight + max(variance - square / precision, 0.0))


@compiled_in_order
def learn_entries(
    sums: Floats,
    column: int,
    fade: float,
    indices: Places,
    values: Floats,
    priors: Floats,
    reward: float,
    weight: float,
) -> tuple[float, float]:
    """Learn an observation of a weight; return the error e and S·w, the variance of e/noise.

    All indices are distinct and at least 0. A weight of 0 changes nothing.
    """
    mean, variance = predict_entries(sums, column, fade, indices, values, priors)
    error = reward - mean
    correct_entries(sums, column, fade, indices, values, priors, error, variance, weight)
    return error, 1.0 + weight * variance


@compiled_in_order
def correct_entries(
    sums: Floats,
    column: int,
    fade: float,
    indices: Places,
    values: Floats,
    priors: Floats,
    error: float,
    variance: float,
    weight: float,
) -> None:
    """Correct a column by the error e of an observation, given the variance of the whole row."""
    total = 1.0 / weight + variance
    for i in range(indices.size):
        at, x = indices[i], values[i]
        precision = fade * sums[at, column, PRECISION] + priors[i]
        gain = compute_gain(x, precision, variance, weight)
        own_mean = (fade * sums[at, column, MOMENT] + x * error / total) / precision
        sums[at, column, PRECISION] += gain / fade
        sums[at, column, MOMENT] = own_mean * (precision + gain) / fade


@compiled_in_order
def amend_entries(
    sums: Floats,
    column: int,
    fade: float,
    indices: Places,
    values: Floats,
    priors: Floats,
    more: float,
    weight: float,
) -> None:
    """Add to the reward of an observation that was learned before.

    Moments grow by x·more/(S − s·x²) with the present S. This is exact for a row of one entry,
    where S − s·x² = 1/w never changes, and an approximation for longer rows.
    """
    variance = predict_entries(sums, column, fade, indices, values, priors)[1]
    for i in range(indices.size):
        at, x = indices[i], values[i]
        precision = fade * sums[at, column, PRECISION] + priors[i]
        others = max(variance - x * x / precision, 0.0)
        sums[at, column, MOMENT] += x * more / (1.0 / weight + others) / fade


@compiled_in_order
def scale_sums(sums: Floats, column: int, factor: float) -> None:
    """Multiply the sums of a column, before fading makes their scale too large."""
    for at in range(sums.shape[0]):
        for part in range(2):
            sums[at, column, part] *= factor
            if not np.abs(sums[at, column, part]) > 1e-200:  # no trace of it is left
                sums[at, column, part] = 0.0


WEIGHTS, LONG_ROWS = 0, 1  # counters: weights with a slot, learned rows with several entries
VARIANCE, DETERMINED, SQUARES = range(3)  # evidence: v, faded Σ (1 − s/v), faded Σ m²/σ̂²
ODDS, FIRST_VARIANCE = range(2)  # in the last row of the evidence
LEAST_FADE = 1e-50  # below this factor the sums are scaled back


class Weights(NamedTuple):
    """The weights that have data, as compiled code sees them."""

    keys: UnsignedIntegers  # (places,) the hash table: the key of a weight, or EMPTY
    slots: Places  # (places,) the slot of each key
    indices: Places  # (room,) by slot: the index of the weight
    sums: Floats  # (room, columns, 2) by slot: p/f and b/f, in one column but under `parts`
    squares: Floats  # (room,) by slot: sums of squared weights over f²; empty if not kept
    fade: Floats  # (columns,) f, the factor by which `sums` have faded
    counters: Places  # (2,)
    evidence: Floats  # (columns + 1, 3) under `parts`: a row for each column, then ODDS; else empty


@compiled_in_order
def make_weight_key(index: int) -> np.uint64:
    """Return the key of a weight, which no other weight has and which is never EMPTY."""
    return scramble(np.uint64(index) + np.uint64(1))  # one-to-one, and only 0 becomes 0


@compiled_in_order
def find_slots(weights: Weights, indices: Places, slots: Places) -> None:
    """Fill `slots` with the slots of some weights; ABSENT stands for a weight without data."""
    for i in range(indices.size):
        place = find_key(weights.keys, make_weight_key(indices[i]))
        slots[i] = weights.slots[place] if place != ABSENT else ABSENT


@compiled_in_order
def claim_slots(weights: Weights, indices: Places) -> Places:
    """Return the slots of some weights, which get one if they have none; there must be room."""
    slots = np.empty(indices.size, np.int64)
    for i in range(indices.size):
        place, is_new = claim_key(weights.keys, make_weight_key(indices[i]))
        if is_new:
            slot = weights.counters[WEIGHTS]
            weights.slots[place] = slot
            weights.indices[slot] = indices[i]
            weights.sums[slot] = 0.0
            if weights.squares.size > 0:
                weights.squares[slot] = 0.0
            weights.counters[WEIGHTS] += 1
        slots[i] = weights.slots[place]
    return slots


@compiled_in_order
def index_slots(weights: Weights) -> None:
    """Fill the hash table, which must be empty, from the indices of the slots."""
    for slot in range(weights.counters[WEIGHTS]):
        place, _ = claim_key(weights.keys, make_weight_key(weights.indices[slot]))
        weights.slots[place] = slot


@compiled_in_order
def fade_weights(weights: Weights, factor: float, column: int = 0) -> None:
    """Let a column of all weights fade by a factor.

    Sums are scaled back before their scale becomes too large, by a power of two, so that no digit
    changes.
    """
    weights.fade[column] *= factor
    if weights.fade[column] < LEAST_FADE:
        rest, exponent = math.frexp(weights.fade[column])
        back = 2.0**exponent if rest > 0.0 else 0.0
        weights.fade[column] = rest if rest > 0.0 else 1.0
        size = weights.counters[WEIGHTS]
        scale_sums(weights.sums[:size], column, back)
        for slot in range(min(size, weights.squares.size)):
            weights.squares[slot] *= back * back


@compiled_in_order
def drop_weights(weights: Weights) -> None:
    """Drop everything that was learned."""
    weights.keys[:] = EMPTY
    weights.fade[:] = 1.0
    weights.counters[:] = 0


@compiled_in_order
def read_slots(
    arrays: PolicyArrays, weights: Weights, slots: Places, means: Floats, variances: Floats
) -> None:
    """Fill in the mean b/W and the variance W̃/W² of the weight in each slot, (n,) each.

    Variances are in units of the noise. One loop reads all slots, because a call for each of them
    would count references to every array.
    """
    rule, sums, squares, fade = arrays.rules[0], weights.sums, weights.squares, weights.fade[0]
    ridge, twin = rule.ridge, rule.twin
    if rule.parts > 0 and arrays.tally[0].seen > 0:
        is_still = rule.finds and weights.evidence[-1, ODDS] > 0.0
        first, last = (rule.parts, rule.parts + 1) if is_still else (0, rule.parts)
        read_columns(weights, first, last, slots, means, variances)
        return
    for i in range(slots.size):
        slot = slots[i]
        if slot == ABSENT:
            means[i], variances[i] = 0.0, 1.0 / ridge
            continue
        variance = 1.0 / (fade * sums[slot, 0, PRECISION] + ridge)
        means[i] = fade * sums[slot, 0, MOMENT] * variance
        if twin:
            variance *= (fade * fade * squares[slot] + ridge) * variance
        variances[i] = variance


@compiled_in_order
def read_columns(
    weights: Weights, first: int, last: int, slots: Places, means: Floats, variances: Floats
) -> None:
    """Fill in the mean and the variance of the sum of some columns, of which each has its prior."""
    sums = weights.sums
    for i in range(slots.size):
        slot, means[i], variances[i] = slots[i], 0.0, 0.0
        for s in range(first, last):
            variance, fade = weights.evidence[s, VARIANCE], weights.fade[s]
            if slot != ABSENT:
                variance = 1.0 / (fade * sums[slot, s, PRECISION] + 1.0 / variance)
                means[i] += fade * sums[slot, s, MOMENT] * variance
            variances[i] += variance


@compiled_in_order
def measure_entries(
    arrays: PolicyArrays, weights: Weights, slots: Places, values: Floats
) -> tuple[float, float]:
    """Return the mean Σ xᵢmᵢ and the variance Σ xᵢ²W̃ᵢ/Wᵢ² of a row."""
    means, variances = np.empty(slots.size), np.empty(slots.size)
    read_slots(arrays, weights, slots, means, variances)
    mean, variance = 0.0, 0.0
    for i in range(slots.size):
        mean += values[i] * means[i]
        variance += values[i] * values[i] * variances[i]
    return mean, variance


@compiled_in_order
def learn(
    arrays: PolicyArrays,
    weights: Weights,
    indices: Places,
    values: Floats,
    reward: float,
    at: float,
) -> None:
    """Learn the entries of one row, whose arm was chosen at time or round `at`.

    All indices are distinct, and there is room for them.
    """
    rule, counts = arrays.rules[0], arrays.tally[0]
    priors = np.full(values.size, rule.ridge)
    slots = claim_slots(weights, indices)
    if rule.memory == DETECT:
        mean, variance = predict_entries(weights.sums, 0, 1.0, slots, values, priors)
        if add_to_cusum(arrays, reward - mean, variance):
            drop_weights(weights)
            reset_counters(arrays)
            counts.alarms += 1
            slots = claim_slots(weights, indices)
    fade, weight = rule.gamma, 1.0
    if rule.memory == HALF_LIFE:
        fade, weight = advance_clock(arrays, at)
    if rule.unit == NOISE:
        mean, variance = measure_entries(arrays, weights, slots, values)
        add_error(arrays, reward - mean, 1.0 + variance, fade, weight)
    fade_weights(weights, fade)
    fade = weights.fade[0]
    if rule.twin:
        add_squares(weights, slots, values, priors, weight)
    learn_entries(weights.sums, 0, fade, slots, values, priors, reward, weight)
    counts.seen += 1
    weights.counters[LONG_ROWS] += values.size > 1


@compiled_in_order
def add_squares(
    weights: Weights, slots: Places, values: Floats, priors: Floats, weight: float
) -> None:
    """Add an observation to the sums of squared weights: q ← q + w·x²/(S − s·x²)."""
    fade = weights.fade[0]
    variance = predict_entries(weights.sums, 0, fade, slots, values, priors)[1]
    for i in range(slots.size):
        precision = fade * weights.sums[slots[i], 0, PRECISION] + priors[i]
        gain = compute_gain(values[i], precision, variance, weight)
        weights.squares[slots[i]] += weight * gain / (fade * fade)


@compiled_in_order
def amend(
    arrays: PolicyArrays, weights: Weights, indices: Places, values: Floats, more: float, at: float
) -> None:
    """Add to the reward of an observation that was learned before; there is room for its row."""
    rule, counts = arrays.rules[0], arrays.tally[0]
    weight = 1.0
    if rule.memory == HALF_LIFE:
        weight = weigh_age(arrays, min(at, counts.clock))
    slots = claim_slots(weights, indices)
    priors = np.full(values.size, rule.ridge)
    amend_entries(weights.sums, 0, weights.fade[0], slots, values, priors, more, weight)


# what `check_rows` finds
SOUND = 0  # every row has rising indices and no entry that is 0
UNSORTED = 1  # rows must be sorted, or entries be summed or dropped
BAD_ENDS, BAD_INDEX, BAD_VALUE = -1, -2, -3


@compiled_in_order
def choose(arrays: PolicyArrays, weights: Weights, rows: CheckedRows, key: int, round_: int) -> int:
    """Choose one of the rows in a round; return its place, or NOT_FINITE if a score overflows."""
    start = _random.start_round(np.uint64(key), round_)
    if arrays.rules[0].style == SAMPLE:
        scores = sample_scores(arrays, weights, rows, start)
    else:
        means, widths = measure_rows(arrays, weights, rows)
        scores = score_with_level(arrays, means, widths, start)
    return choose_by_scores(arrays.rules, scores, start)


@compiled_in_order
def choose_measured(
    arrays: PolicyArrays, means: Floats, widths: Floats, key: int, round_: int
) -> int:
    """Choose as `choose` does, given the means and widths; not for explorations that sample."""
    start = _random.start_round(np.uint64(key), round_)
    return choose_by_scores(arrays.rules, score_with_level(arrays, means, widths, start), start)


@compiled_in_order
def score_with_level(
    arrays: PolicyArrays, means: Floats, widths: Floats, start: np.uint64
) -> Floats:
    """Return mean + Z·width of every row, (K,), or the mean if the exploration needs no widths."""
    if arrays.rules[0].style != WIDTH:
        return means
    z = draw_level(arrays.rules, compute_scale(arrays), start)
    return means + z * widths


@compiled_in_order
def measure_rows(
    arrays: PolicyArrays, weights: Weights, rows: CheckedRows
) -> tuple[Floats, Floats]:
    """Return the mean Σ xᵢmᵢ and the width √(Σ xᵢ²W̃ᵢ/Wᵢ²) of every row, (K,) each."""
    indices, values, ends = rows
    means, widths = np.empty(ends.size), np.empty(ends.size)
    weight_means, variances = read_entries(arrays, weights, indices)
    first = 0
    for k in range(ends.size):
        mean, variance = 0.0, 0.0
        for i in range(first, ends[k]):
            mean += values[i] * weight_means[i]
            variance += values[i] * values[i] * variances[i]
        means[k], widths[k] = mean, math.sqrt(variance)
        first = ends[k]
    return means, widths


@compiled_in_order
def read_entries(arrays: PolicyArrays, weights: Weights, indices: Places) -> tuple[Floats, Floats]:
    """Return the mean and the variance of the weight of each entry, (n,) each."""
    slots, means = np.empty(indices.size, np.int64), np.empty(indices.size)
    variances = np.empty(indices.size)
    find_slots(weights, indices, slots)
    read_slots(arrays, weights, slots, means, variances)
    return means, variances


@compiled_in_order
def sample_scores(
    arrays: PolicyArrays, weights: Weights, rows: CheckedRows, start: np.uint64
) -> Floats:
    """Return Σ xᵢθ̃ᵢ of every row, (K,), with θ̃ᵢ = mᵢ + a·√W̃ᵢ/Wᵢ·zᵢ.

    The draw zᵢ is a hash of the round and the index, so rows that share a weight share its draw.
    """
    return draw_scores(split_entries(arrays, weights, rows), rows, start)


@compiled_in_order
def sample_many_scores(
    arrays: PolicyArrays, weights: Weights, rows: CheckedRows, start: np.uint64, samples: int
) -> Floats:
    """Return the scores of independent draws, (samples, K)."""
    parts = split_entries(arrays, weights, rows)
    scores = np.empty((samples, rows.ends.size))
    for sample in range(samples):
        scores[sample] = draw_scores(parts, rows, _random.draw_word(start, sample))
    return scores


@compiled_in_order
def split_entries(arrays: PolicyArrays, weights: Weights, rows: CheckedRows) -> Floats:
    """Return what each entry adds to a score: xᵢmᵢ, and a·xᵢ√W̃ᵢ/Wᵢ for each unit of zᵢ, (n, 2)."""
    scale, parts = compute_scale(arrays), np.empty((rows.indices.size, 2))
    means, variances = read_entries(arrays, weights, rows.indices)
    for i in range(means.size):
        parts[i, 0] = rows.values[i] * means[i]
        parts[i, 1] = scale * rows.values[i] * math.sqrt(variances[i])
    return parts


@compiled_in_order
def draw_scores(parts: Floats, rows: CheckedRows, start: np.uint64) -> Floats:
    """Draw a normal for each weight, and return the scores of all rows, (K,)."""
    indices, _, ends = rows
    scores, draw, first = np.empty(ends.size), np.empty(1), 0
    for k in range(ends.size):
        total = 0.0
        for i in range(first, ends[k]):
            _random.fill_normals(start, FIRST_FREE_PLACE + indices[i], draw)
            total += parts[i, 0] + parts[i, 1] * draw[0]
        scores[k] = total
        first = ends[k]
    return scores


@compiled_in_order
def check_rows(indices: Places, values: Floats, ends: Places, dim: int) -> tuple[int, int]:
    """Return what holds of sparse rows, as a code, and the row for which a check failed."""
    state, first = SOUND, 0
    for k in range(ends.size):
        last = ends[k]
        if last < first or last > indices.size:
            return BAD_ENDS, k
        square = 0.0
        for i in range(first, last):
            if indices[i] < 0 or indices[i] >= dim:
                return BAD_INDEX, k
            if (i > first and indices[i] <= indices[i - 1]) or values[i] == 0.0:
                state = UNSORTED
            square += values[i] * values[i]
        if not square <= LARGEST:
            return BAD_VALUE, k
        first = last
    if first != indices.size:
        return BAD_ENDS, ends.size - 1
    return state, 0
