"""A bank of diagonal beliefs over crossed features, one for each half-life.

The row of an action has a constant, the parts of the context, the parts of the action, and their
crossings, whose values are products. All weights stand in one hash table. Every belief learns every
lesson, and is judged by its errors e of prediction, in units of the variance v of the leader's:

    v = faded mean of e² of the leader,   loss ← min(loss + e²/2v − least loss, MAX_LOSS)

The belief with the least loss leads. A loss above MAX_LOSS is forgotten, so that a belief that was
wrong before a change can lead soon after it. The noise σ̂² of a belief is the faded mean of its
e²/S, with the variance S of `kernels.diagonal`. Prior precisions are those of
`kernels.prior_precisions`.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._jit import compiled_in_order
from windvane.kernels.diagonal import MOMENT, PRECISION
from windvane.kernels.feature_parts import PackedSides, Parts, Scales, make_key, weigh_parts
from windvane.kernels.prior_precisions import (
    CONSTANT_PRIOR,
    KNOWN,
    NO_GROUP,
    SQUARES,
    claim_groups,
    fade_evidence,
    find_prior,
    spread_priors,
)
from windvane.kernels.weight_table import ABSENT, claim_key, find_key
from windvane.types import Floats, Places, UnsignedIntegers

CONSTANT_KEY = np.uint64(1)
ERRORS, WEIGHTS, LOSS = 0, 1, 2  # of a row of judgements: faded Σ e²/S, faded Σ 1, loss
PRIOR_ERRORS = 0.5  # Σ e² before any lesson: two errors of a deviation of ½
PRIOR_WEIGHTS = 2.0
LEAST_VARIANCE = 1e-4  # by which losses are divided, where rewards have no noise
MAX_LOSS = 10.0  # nats
MAX_AGE = 200.0  # half-lives; the weight of an older lesson is that of this age
RESCALED_AFTER = 64.0  # half-lives after which the sums of a column are scaled back


class BankRules(NamedTuple):
    """The settings of a bank, which never change."""

    half_lives: Floats  # (H,) in seconds; infinity for never
    first_priors: Floats  # (H,) prior precisions of weights before any lesson
    share: float  # of the noise: the scale of exploration
    floor: float  # the probability that any action is chosen uniformly at random
    noise_memory: float  # lessons over which the noise is estimated
    margin: float  # by how much another belief must be better to take the lead


class Bank(NamedTuple):
    """The beliefs of a bank."""

    keys: UnsignedIntegers  # (places,) of the weights
    sums: Floats  # (places, 2, H): p/f and b/f of each weight in each column
    origins: Floats  # (H,) times at which the fading factor of a column is 1
    judgements: Floats  # (H, 3)
    lead: Floats  # (2,): faded Σ e² of the leader, and faded Σ 1
    group_keys: UnsignedIntegers  # (group places,) of pairs of fields
    evidence: Floats  # (group places, 2, H), from which prior precisions follow


class Row(NamedTuple):
    """The entries of the row of one action."""

    keys: UnsignedIntegers  # (n,)
    values: Floats  # (n,)
    groups: UnsignedIntegers  # (n,) keys of pairs of fields; that of the constant has no meaning


@compiled_in_order
def cross_keys(action_key: np.uint64, context_key: np.uint64) -> np.uint64:
    """Return the key of a crossing."""
    return make_key(_random.GOLDEN * action_key + context_key)


@compiled_in_order
def compute_fade(rules: BankRules, bank: Bank, column: int, at: float) -> float:
    """Return the factor by which sums of a column fade until a time."""
    if rules.half_lives[column] == np.inf:
        return 1.0
    return float(2.0 ** ((bank.origins[column] - at) / rules.half_lives[column]))


@compiled_in_order
def compute_noise(bank: Bank, column: int) -> float:
    """Return the estimated standard deviation of the noise."""
    row = bank.judgements[column]
    return math.sqrt((PRIOR_ERRORS + row[ERRORS]) / (PRIOR_WEIGHTS + row[WEIGHTS]))


@compiled_in_order
def add_entry(
    keys: UnsignedIntegers,
    sums: Floats,
    column: int,
    fade: float,
    key: np.uint64,
    value: float,
    prior: float,
) -> tuple[float, float]:
    """Return what one entry adds to the mean and to the variance of a row."""
    place = find_key(keys, key)
    if place == ABSENT:
        return 0.0, value * value / prior
    precision = fade * sums[place, PRECISION, column] + prior
    return (
        value * fade * sums[place, MOMENT, column] / precision,
        value * value / precision,
    )


@compiled_in_order
def build_row(parts: Parts) -> Row:
    """Build the row of the only action of these parts."""
    first, last = parts.ends[0], parts.ends[1]
    room = 1 + last + first * (last - first)
    keys, values = np.empty(room, np.uint64), np.empty(room)
    groups = np.empty(room, np.uint64)
    keys[0], values[0], groups[0] = CONSTANT_KEY, 1.0, CONSTANT_KEY
    size = 1
    for i in range(last):
        if parts.values[i] != 0.0:
            keys[size], values[size] = parts.keys[i], parts.values[i]
            groups[size] = parts.fields[i]
            size += 1
    for i in range(first, last):
        for j in range(first):
            value = parts.values[i] * parts.values[j]
            if value != 0.0 and parts.masks[i] & parts.masks[j] != 0:
                keys[size] = cross_keys(parts.keys[i], parts.keys[j])
                values[size] = value
                groups[size] = cross_keys(parts.fields[i], parts.fields[j])
                size += 1
    return Row(keys[:size], values[:size], groups[:size])


@compiled_in_order
def build_lesson_row(sides: PackedSides, scales: Scales) -> Row:
    """Build the row of a context and one action."""
    return build_row(weigh_parts(sides, scales))


@compiled_in_order
def compute_contributions(rules: BankRules, bank: Bank, column: int, at: float, row: Row) -> Floats:
    """Return what each entry of a row adds to its mean, (n,)."""
    fade = compute_fade(rules, bank, column, at)
    keys, sums = bank.keys, bank.sums
    amounts = np.empty(row.keys.size)
    for i in range(row.keys.size):
        prior = CONSTANT_PRIOR
        if i > 0:
            first = rules.first_priors[column]
            prior = find_prior(bank.group_keys, bank.evidence, column, first, row.groups[i])
        amounts[i], _ = add_entry(keys, sums, column, fade, row.keys[i], row.values[i], prior)
    return amounts


@compiled_in_order
def claim_row(bank: Bank, row: Row) -> tuple[Places, int]:
    """Return the place of each weight of a row, new ones included, and how many are new."""
    places, added = np.empty(row.keys.size, np.int64), 0
    for i in range(row.keys.size):
        places[i], is_new = claim_key(bank.keys, row.keys[i])
        added += is_new
    return places, added


@compiled_in_order
def weigh_lesson(rules: BankRules, bank: Bank, at: float, newest: float) -> tuple[Floats, Floats]:
    """Return the fading factor at the newest time and the weight of a lesson, (H,) each.

    The sums of a column are scaled back once their factor would become too small.
    """
    columns = rules.half_lives.size
    fades, weights = np.ones(columns), np.ones(columns)
    for j in range(columns):
        half_life = rules.half_lives[j]
        if half_life == np.inf:
            continue
        elapsed = (newest - bank.origins[j]) / half_life
        if elapsed > RESCALED_AFTER:
            scale_column(bank.sums, j, 2.0 ** -min(elapsed, 2000.0))
            bank.origins[j] = newest
        fades[j] = compute_fade(rules, bank, j, newest)
        weights[j] = 2.0 ** -min((newest - at) / half_life, MAX_AGE)
    return fades, weights


@compiled_in_order
def scale_column(sums: Floats, column: int, factor: float) -> None:
    """Multiply the sums of a column, before fading makes their scale too large."""
    for place in range(sums.shape[0]):
        for part in range(2):
            scaled = sums[place, part, column] * factor
            sums[place, part, column] = scaled if abs(scaled) > 1e-200 else 0.0


@compiled_in_order
def gather_sums(bank: Bank, places: Places) -> Floats:
    """Copy the sums of the weights of a row, (n, 2, H).

    While they are copied, the processor waits for the memory of many weights at the same time.
    """
    rows = np.empty((places.size, 2, bank.sums.shape[2]))
    for i in range(places.size):
        rows[i] = bank.sums[places[i]]
    return rows


@compiled_in_order
def recall_row(
    bank: Bank, fades: Floats, places: Places, values: Floats, priors: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the mean m and the variance s of each weight, (n, H), and those of the row, (H,)."""
    shape, sums = (places.size, fades.size), gather_sums(bank, places)
    own_means, own_variances = np.empty(shape), np.empty(shape)
    means, variances = np.zeros(fades.size), np.zeros(fades.size)
    for i in range(places.size):
        own, x = sums[i], values[i]
        for j in range(fades.size):
            variance = 1.0 / (fades[j] * own[PRECISION, j] + priors[i, j])
            mean = fades[j] * own[MOMENT, j] * variance
            own_means[i, j], own_variances[i, j] = mean, variance
            means[j] += x * mean
            variances[j] += x * x * variance
    return own_means, own_variances, means, variances


@compiled_in_order
def update_leading(sums: Floats, places: Places, column: int, leading: Floats) -> None:
    """Copy the new sums of a column at some places to its copy; an empty copy stays empty."""
    if leading.size == 0:
        return
    for i in range(places.size):
        place = places[i]
        leading[place, PRECISION] = sums[place, PRECISION, column]
        leading[place, MOMENT] = sums[place, MOMENT, column]


@compiled_in_order
def gather_evidence(
    bank: Bank, groups: Places, priors: Floats, means: Floats, variances: Floats
) -> None:
    """Add the weights of a row, as they are before the lesson, to the evidence on their priors."""
    columns = priors.shape[1]
    scales = np.empty(columns)
    for j in range(columns):
        scales[j] = 1.0 / compute_noise(bank, j) ** 2
    for i in range(groups.size):
        if groups[i] == NO_GROUP:
            continue
        evidence = bank.evidence[groups[i]]
        for j in range(columns):
            evidence[KNOWN, j] += 1.0 - priors[i, j] * variances[i, j]
            evidence[SQUARES, j] += means[i, j] * means[i, j] * scales[j]


@compiled_in_order
def learn_lesson(
    rules: BankRules,
    bank: Bank,
    leading: Floats,
    leader: int,
    row: Row,
    reward: float,
    at: float,
    newest: float,
    group_room: int,
) -> tuple[int, int]:
    """Learn a lesson in every column; return how many weights and groups are new.

    The formulas are those of `kernels.diagonal.learn_entries`, for all columns at once. `at` is the
    time of the lesson's decision, `newest` that of the newest decision learned, this one included.
    `leading` is a copy of the leader's column, which learns as well, or empty.
    """
    fades, weights = weigh_lesson(rules, bank, at, newest)
    places, added = claim_row(bank, row)
    groups, added_groups = claim_groups(bank.group_keys, row.groups, group_room)
    fade_evidence(bank.evidence, groups)
    priors = spread_priors(bank.evidence, rules.first_priors, groups)
    own_means, own_variances, means, variances = recall_row(bank, fades, places, row.values, priors)
    gather_evidence(bank, groups, priors, own_means, own_variances)
    errors, totals = reward - means, 1.0 / weights + variances
    shifts, steps = errors / totals, 1.0 / fades
    for i in range(places.size):
        own, x = bank.sums[places[i]], row.values[i]
        for j in range(fades.size):
            variance = own_variances[i, j]
            gain = x * x / (totals[j] - x * x * variance)
            moment = (own_means[i, j] + variance * x * shifts[j]) * (1.0 / variance + gain)
            own[PRECISION, j] += gain * steps[j]
            own[MOMENT, j] = moment * steps[j]
    update_leading(bank.sums, places, leader, leading)
    judge_columns(rules, bank, leader, errors, weights * totals)
    return added, added_groups


@compiled_in_order
def judge_columns(
    rules: BankRules, bank: Bank, leader: int, errors: Floats, spreads: Floats
) -> None:
    """Take the errors of a lesson into the noise and the loss of every column."""
    keep = 1.0 - 1.0 / rules.noise_memory
    lead = bank.lead
    variance = (PRIOR_ERRORS + lead[ERRORS]) / (PRIOR_WEIGHTS + lead[WEIGHTS])
    for j in range(errors.size):
        own, square = bank.judgements[j], errors[j] * errors[j]
        own[ERRORS] = keep * own[ERRORS] + square / spreads[j]
        own[WEIGHTS] = keep * own[WEIGHTS] + 1.0
        own[LOSS] += 0.5 * square / max(variance, LEAST_VARIANCE)
    lead[ERRORS] = keep * lead[ERRORS] + errors[leader] * errors[leader]
    lead[WEIGHTS] = keep * lead[WEIGHTS] + 1.0
    least = bank.judgements[:, LOSS].min()
    for j in range(errors.size):
        bank.judgements[j, LOSS] = min(bank.judgements[j, LOSS] - least, MAX_LOSS)


@compiled_in_order
def amend_lesson(
    rules: BankRules,
    bank: Bank,
    leading: Floats,
    leader: int,
    row: Row,
    more: float,
    at: float,
    newest: float,
) -> int:
    """Add to the reward of an earlier lesson in every column; return how many weights are new.

    The formula is that of `kernels.diagonal.amend_entries`, for all columns at once.
    """
    fades, weights = weigh_lesson(rules, bank, at, newest)
    places, added = claim_row(bank, row)
    groups, _ = claim_groups(bank.group_keys, row.groups, 0)
    priors = spread_priors(bank.evidence, rules.first_priors, groups)
    _, own_variances, _, variances = recall_row(bank, fades, places, row.values, priors)
    totals = 1.0 / weights + variances
    for i in range(places.size):
        own, x = bank.sums[places[i]], row.values[i]
        for j in range(fades.size):
            own[MOMENT, j] += x * more / (totals[j] - x * x * own_variances[i, j]) / fades[j]
    update_leading(bank.sums, places, leader, leading)
    return added
