"""A bank of diagonal beliefs over crossed features, one for each half-life.

The row of an action has a constant, the parts of the context, the parts of the action, and their
crossings, whose values are products. All weights stand in one hash table. Every belief learns every
lesson, and is judged by its errors e of prediction, in units of the variance v of the leader's:

    v = faded mean of e² of the leader,   loss ← min(loss + e²/2v − least loss, MAX_LOSS)

The belief with the least loss leads. A loss above MAX_LOSS is forgotten, so that a belief that was
wrong before a change can lead soon after it. The noise σ̂² of a belief is the faded mean of its
e²/S, with the variance S of `beliefs.diagonal.formulas`. Prior precisions are those of
`prior_precisions`.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled_in_order
from windvane.beliefs.bank.feature_parts import PackedSides, Parts, Scales, make_key, make_parts
from windvane.beliefs.bank.prior_precisions import CONSTANT_PRIOR, find_prior
from windvane.beliefs.diagonal.formulas import MOMENT, PRECISION
from windvane.beliefs.diagonal.weight_table import ABSENT, find_key
from windvane.types import Floats, UnsignedIntegers

CONSTANT_KEY = np.uint64(1)
ERRORS, WEIGHTS, LOSS = 0, 1, 2  # of a row of judgements: faded Σ e²/S, faded Σ 1, loss
PRIOR_ERRORS = 0.5  # Σ e² before any lesson: two errors of a deviation of ½
PRIOR_WEIGHTS = 2.0
LEAST_VARIANCE = 1e-4  # the least v, so that rewards without noise give finite losses
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
    leader_errors: Floats  # (2,): faded Σ e² of the leader, and faded Σ 1
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
    return build_row(make_parts(sides, scales))


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
def explain_lesson(
    rules: BankRules, bank: Bank, scales: Scales, sides: PackedSides, column: int, at: float
) -> tuple[Parts, Floats]:
    """Return the parts of a context and one action, and what each entry of its row adds, (n,)."""
    parts = make_parts(sides, scales)
    return parts, compute_contributions(rules, bank, column, at, build_row(parts))
