"""A bank of diagonal beliefs over crossed features, one for each half-life.

The row of an action has a constant, the parts of the context, the parts of the action, and their
crossings, whose values are products. All weights stand in one hash table. Every belief learns every
lesson, and is judged by its errors e of prediction, in units of the variance v of the leader's:

    v = faded mean of e² of the leader,   loss ← min(loss + e²/2v − least loss, MAX_LOSS)

The belief with the least loss leads. A loss above MAX_LOSS is forgotten, so that a belief that was
wrong before a change can lead soon after it. The noise σ̂² of a belief is the faded mean of its
e²/S, with the variance S of `kernels.diagonal`.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._jit import compiled_in_order
from windvane.kernels.diagonal import (
    MOMENT,
    PRECISION,
    amend_entries,
    learn_entries,
    scale_sums,
)
from windvane.kernels.feature_parts import Parts, make_key
from windvane.kernels.weight_table import ABSENT, claim_key, find_key
from windvane.types import Floats, Places, UnsignedIntegers

CONSTANT_KEY = np.uint64(1)
MAIN, CROSSING = 0, 1  # kinds of entries, which have prior precisions of their own
ERRORS, WEIGHTS, LOSS = 0, 1, 2  # of a row of judgements: faded Σ e²/S, faded Σ 1, loss
PRIOR_ERRORS = 0.5  # Σ e² before any lesson: two errors of a deviation of ½
PRIOR_WEIGHTS = 2.0
LEAST_VARIANCE = 1e-4  # by which losses are divided, where rewards have no noise
MAX_LOSS = 10.0  # nats
LEAST_WEIGHT = 1e-12  # of a lesson; an older one does not matter
RESCALED_AFTER = 64.0  # half-lives after which the sums of a column are scaled back


class BankRules(NamedTuple):
    """The settings of a bank, which never change."""

    half_lives: Floats  # (H,) in seconds; infinity for never
    priors: Floats  # (H, 2): the prior precision of main entries and of crossings
    share: float  # of the noise: the scale of exploration
    floor: float  # the probability that any action is chosen uniformly at random
    noise_memory: float  # lessons over which the noise is estimated
    margin: float  # by how much another belief must be better to take the lead


class Bank(NamedTuple):
    """The beliefs of a bank."""

    keys: UnsignedIntegers  # (places,) of the weights
    sums: Floats  # (places, H, 2), as `kernels.diagonal` has them
    origins: Floats  # (H,) times at which the fading factor of a column is 1
    judgements: Floats  # (H, 3)
    lead: Floats  # (2,): faded Σ e² of the leader, and faded Σ 1


class Row(NamedTuple):
    """The entries of the row of one action."""

    keys: UnsignedIntegers  # (n,)
    values: Floats  # (n,)
    kinds: Places  # (n,) MAIN or CROSSING


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
    bank: Bank, column: int, fade: float, key: np.uint64, value: float, prior: float
) -> tuple[float, float]:
    """Return what one entry adds to the mean and to the variance of a row."""
    place = find_key(bank.keys, key)
    if place == ABSENT:
        return 0.0, value * value / prior
    precision = fade * bank.sums[place, column, PRECISION] + prior
    return (
        value * fade * bank.sums[place, column, MOMENT] / precision,
        value * value / precision,
    )


@compiled_in_order
def predict_actions(
    rules: BankRules, bank: Bank, column: int, at: float, parts: Parts
) -> tuple[Floats, Floats]:
    """Return the mean and the variance of every action by one belief, (K,) each."""
    fade = compute_fade(rules, bank, column, at)
    main, crossing = rules.priors[column, MAIN], rules.priors[column, CROSSING]
    common_mean, common_variance = add_entry(bank, column, fade, CONSTANT_KEY, 1.0, main)
    for j in range(parts.ends[0]):
        if parts.values[j] != 0.0:
            mean, variance = add_entry(bank, column, fade, parts.keys[j], parts.values[j], main)
            common_mean += mean
            common_variance += variance
    count = parts.ends.size - 1
    means, variances = np.empty(count), np.empty(count)
    for k in range(count):
        total_mean, total_variance = common_mean, common_variance
        for i in range(parts.ends[k], parts.ends[k + 1]):
            if parts.values[i] == 0.0:
                continue
            mean, variance = add_entry(bank, column, fade, parts.keys[i], parts.values[i], main)
            total_mean += mean
            total_variance += variance
            for j in range(parts.ends[0]):
                value = parts.values[i] * parts.values[j]
                if value == 0.0 or parts.masks[i] & parts.masks[j] == 0:
                    continue
                key = cross_keys(parts.keys[i], parts.keys[j])
                mean, variance = add_entry(bank, column, fade, key, value, crossing)
                total_mean += mean
                total_variance += variance
        means[k], variances[k] = total_mean, total_variance
    return means, variances


@compiled_in_order
def build_row(parts: Parts) -> Row:
    """Build the row of the only action of these parts."""
    first, last = parts.ends[0], parts.ends[1]
    room = 1 + last + first * (last - first)
    keys, values = np.empty(room, np.uint64), np.empty(room)
    kinds = np.empty(room, np.int64)
    keys[0], values[0], kinds[0] = CONSTANT_KEY, 1.0, MAIN
    size = 1
    for i in range(last):
        if parts.values[i] != 0.0:
            keys[size], values[size], kinds[size] = parts.keys[i], parts.values[i], MAIN
            size += 1
    for i in range(first, last):
        for j in range(first):
            value = parts.values[i] * parts.values[j]
            if value != 0.0 and parts.masks[i] & parts.masks[j] != 0:
                keys[size] = cross_keys(parts.keys[i], parts.keys[j])
                values[size], kinds[size] = value, CROSSING
                size += 1
    return Row(keys[:size], values[:size], kinds[:size])


@compiled_in_order
def compute_contributions(rules: BankRules, bank: Bank, column: int, at: float, row: Row) -> Floats:
    """Return what each entry of a row adds to its mean, (n,)."""
    fade = compute_fade(rules, bank, column, at)
    amounts = np.empty(row.keys.size)
    for i in range(row.keys.size):
        prior = rules.priors[column, row.kinds[i]]
        amounts[i], _ = add_entry(bank, column, fade, row.keys[i], row.values[i], prior)
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
def spread_priors(rules: BankRules, column: int, kinds: Places) -> Floats:
    """Return the prior precision of every entry in a column, (n,)."""
    priors = np.empty(kinds.size)
    for i in range(kinds.size):
        priors[i] = rules.priors[column, kinds[i]]
    return priors


@compiled_in_order
def weigh_lesson(
    rules: BankRules, bank: Bank, column: int, at: float, newest: float
) -> tuple[float, float]:
    """Return the fading factor at the newest time, and the weight of a lesson of a given time.

    The sums of a column are scaled back once their factor would become too small.
    """
    half_life = rules.half_lives[column]
    if half_life == np.inf:
        return 1.0, 1.0
    elapsed = (newest - bank.origins[column]) / half_life
    if elapsed > RESCALED_AFTER:
        scale_sums(bank.sums, column, 2.0 ** -min(elapsed, 2000.0))
        bank.origins[column] = newest
    fade = compute_fade(rules, bank, column, newest)
    return fade, 2.0 ** -min((newest - at) / half_life, 1000.0)


@compiled_in_order
def learn_lesson(
    rules: BankRules, bank: Bank, leader: int, row: Row, reward: float, at: float, newest: float
) -> int:
    """Learn a lesson in every column; return how many weights are new.

    `at` is the time of the lesson's decision, `newest` that of the newest decision learned, this
    one included.
    """
    places, added = claim_row(bank, row)
    keep = 1.0 - 1.0 / rules.noise_memory
    variance = (PRIOR_ERRORS + bank.lead[ERRORS]) / (PRIOR_WEIGHTS + bank.lead[WEIGHTS])
    for column in range(rules.half_lives.size):
        fade, weight = weigh_lesson(rules, bank, column, at, newest)
        if weight < LEAST_WEIGHT:
            continue
        priors = spread_priors(rules, column, row.kinds)
        error, spread = learn_entries(
            bank.sums, column, fade, places, row.values, priors, reward, weight
        )
        own = bank.judgements[column]
        own[ERRORS] = keep * own[ERRORS] + error * error / spread
        own[WEIGHTS] = keep * own[WEIGHTS] + 1.0
        own[LOSS] += 0.5 * error * error / max(variance, LEAST_VARIANCE)
        if column == leader:
            bank.lead[ERRORS] = keep * bank.lead[ERRORS] + error * error
            bank.lead[WEIGHTS] = keep * bank.lead[WEIGHTS] + 1.0
    least = bank.judgements[:, LOSS].min()
    for column in range(rules.half_lives.size):
        bank.judgements[column, LOSS] = min(bank.judgements[column, LOSS] - least, MAX_LOSS)
    return added


@compiled_in_order
def amend_lesson(
    rules: BankRules, bank: Bank, row: Row, more: float, at: float, newest: float
) -> int:
    """Add to the reward of an earlier lesson in every column; return how many weights are new."""
    places, added = claim_row(bank, row)
    for column in range(rules.half_lives.size):
        fade, weight = weigh_lesson(rules, bank, column, at, newest)
        if weight >= LEAST_WEIGHT:
            priors = spread_priors(rules, column, row.kinds)
            amend_entries(bank.sums, column, fade, places, row.values, priors, more, weight)
    return added
