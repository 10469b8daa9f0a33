"""A bank of beliefs over crossed features, judged by prediction.

The row of an action has a constant, the parts of the context, the parts of the action, and their
crossings, whose values are products. All weights stand in one hash table. In each belief a weight
is a sum of components that fade at different speeds; a belief may have one component. A component
is a column of the table: in the row of an action, it is one more entry with the same value. The
formulas of a lesson are therefore those of `beliefs.diagonal.kernels`, with the entries of all
components of a belief in one row. Every belief learns every lesson, and is judged by its errors e
of prediction, in units of the variance v of the leader's:

    v = faded mean of e² of the leader,   loss ← min(loss + e²/2v − least loss, MAX_LOSS)

The belief with the least loss leads. A loss above MAX_LOSS is forgotten, so that a belief that was
wrong before a change can lead soon after it. The noise σ̂² of a belief is the faded mean of its
e²/S, with the variance S of `beliefs.diagonal.kernels`. Rewards are learned as differences from
their level, the mean of the first ones, so that an action without lessons is expected to be as good
as the mean of all.

Prior precisions say how tightly weights lie around 0, by empirical Bayes. A field is the name of a
feature without its category. A group has the weights of one pair of fields, one of the context and
one of the action, or of one field alone. Fields that matter have large weights, so their group gets
a low prior precision; the weights of the other groups are shrunk towards 0. With the precision p,
variance s = 1/(p + λ) and mean m of each weight in a lesson, and the noise σ̂² of the belief,

    λ = (n₀ + Σ p·s)/(n₀/λ₀ + Σ m²/σ̂²),   within [λ₀, MAX_PRIOR]

which is MacKay's fixed point with n₀ imagined weights of the first prior precision λ₀. The two sums
fade by EVIDENCE_FADE with every lesson in which the group occurs. Each component has prior
precisions of its own: where a group of weights hardly moves, its fast components are shrunk.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled_in_order
from windvane._numba.instructions import (
    load_four,
    load_like,
    load_two,
    store_at,
    take_larger,
    take_smaller,
)
from windvane.beliefs.bank.feature_parts import Parts, make_key
from windvane.beliefs.diagonal.kernels import MOMENT, PRECISION
from windvane.beliefs.diagonal.weight_table import ABSENT, claim_key, find_key
from windvane.types import Floats, Places, UnsignedIntegers

CONSTANT_PRIOR = 1.0  # of the constant, which is in no group
MAX_PRIOR = 1000.0
IMAGINED_WEIGHTS = 10.0  # n₀
EVIDENCE_FADE = 0.9995
DETERMINED, SQUARES = 0, 1  # of a group in a column: faded Σ p·s and faded Σ m²/σ̂²
NO_GROUP = ABSENT


@compiled_in_order
def compute_prior(determined: float, squares: float, first: float) -> float:
    """Return the prior precision λ of a group from its two sums and λ₀."""
    prior = (IMAGINED_WEIGHTS + determined) / (IMAGINED_WEIGHTS / first + squares)
    return min(MAX_PRIOR, max(first, prior))


@compiled_in_order
def find_prior(
    keys: UnsignedIntegers, evidence: Floats, column: int, first: float, key: np.uint64
) -> float:
    """Return the prior precision of the group with this key in a column."""
    place = find_key(keys, key)
    if place == ABSENT:
        return first
    return compute_prior(
        evidence[place, DETERMINED, column], evidence[place, SQUARES, column], first
    )


@compiled_in_order
def claim_groups(
    keys: UnsignedIntegers, group_keys: UnsignedIntegers, room: int
) -> tuple[Places, int]:
    """Return the place of each group, (n,), and how many groups are new.

    At most `room` new groups get a place; weights of later ones keep the first prior precision.
    The entry 0 is the constant, which is in no group.
    """
    places, added = np.empty(group_keys.size, np.int64), 0
    places[0] = NO_GROUP
    for i in range(1, group_keys.size):
        place = find_key(keys, group_keys[i])
        if place == ABSENT and added < room:
            place, _ = claim_key(keys, group_keys[i])
            added += 1
        places[i] = place
    return places, added


@compiled_in_order
def spread_priors(evidence: Floats, first_priors: Floats, groups: Places) -> Floats:
    """Return the prior precision of every entry of a row in every column, (n, columns).

    The number of columns is even.
    """
    columns = first_priors.size
    fours = columns - columns % 4
    priors = np.empty((groups.size, columns))
    imagined, most = np.empty(columns), np.empty(columns)
    for j in range(columns):
        priors[0, j] = CONSTANT_PRIOR
        imagined[j], most[j] = IMAGINED_WEIGHTS / first_priors[j], MAX_PRIOR
    for i in range(1, groups.size):
        if groups[i] == NO_GROUP:
            for j in range(columns):
                priors[i, j] = first_priors[j]
            continue
        row = priors[i]
        own = evidence[groups[i]]
        for j in range(0, fours, 4):
            fill_priors(own, imagined, most, row, j, load_four(first_priors, j))
        if fours < columns:
            fill_priors(own, imagined, most, row, fours, load_two(first_priors, fours))
    return priors


@compiled_in_order
def fill_priors(
    evidence: Floats, imagined: Floats, most: Floats, priors: Floats, j: int, first: Floats
) -> None:
    """Fill in the prior precisions of one group in some columns, from column j on.

    The formula is that of `compute_prior`. `first` are lanes with the λ₀ of these columns,
    `imagined` is n₀/λ₀ of every column.
    """
    determined = load_like(evidence, j, first)
    squares = load_like(evidence, imagined.size + j, first)
    own = (IMAGINED_WEIGHTS + determined) / (load_like(imagined, j, first) + squares)
    store_at(priors, j, take_smaller(take_larger(own, first), load_like(most, j, first)))


@compiled_in_order
def fade_evidence(evidence: Floats, groups: Places) -> None:
    """Fade the sums of every group that occurs in a row, once, in all columns."""
    is_faded = np.empty(evidence.shape[0], np.bool_)
    for group in range(is_faded.size):
        is_faded[group] = False
    width = 2 * evidence.shape[2]  # a multiple of four, because the number of columns is even
    for i in range(groups.size):
        if groups[i] != NO_GROUP and not is_faded[groups[i]]:
            is_faded[groups[i]] = True
            own = groups[i] * width
            for j in range(own, own + width, 4):
                store_at(evidence, j, load_four(evidence, j) * EVIDENCE_FADE)


CONSTANT_KEY = np.uint64(1)
ERRORS, WEIGHTS, LOSS = 0, 1, 2  # of a row of judgements: faded Σ e²/S, faded Σ 1, loss
MEAN_REWARD, REWARD_COUNT = 0, 1  # of the level
REWARDS = 2  # of the errors of the leader: faded Σ of squared rewards around the level
PRIOR_ERRORS = 0.5  # Σ e² before any lesson: two errors of a deviation of ½
PRIOR_WEIGHTS = 2.0
LEAST_VARIANCE = 1e-4  # the least v, so that rewards without noise give finite losses
MAX_LOSS = 10.0  # nats
MAX_AGE = 200.0  # half-lives; the weight of an older lesson is that of this age
RESCALED_AFTER = 64.0  # half-lives after which the sums of a column are scaled back


class BankRules(NamedTuple):
    """The settings of a bank, which never change."""

    half_lives: Floats  # (C,) of the components, on the clock of the bank; infinity for never
    first_priors: Floats  # (C,) prior precisions of weights before any lesson
    starts: Places  # (H + 1,) the first component of each belief, and the end
    share: float  # of the noise: the scale of exploration
    floor: float  # the probability that any action is chosen uniformly at random
    noise_memory: float  # lessons over which the noise is estimated
    margin: float  # by how much another belief must be better to take the lead


class Bank(NamedTuple):
    """The beliefs of a bank."""

    keys: UnsignedIntegers  # (places,) of the weights
    sums: Floats  # (places, 2, C): p/f and b/f of each weight in each component
    origins: Floats  # (C,) times at which the fading factor of a component is 1
    judgements: Floats  # (H, 3) of each belief
    leader_errors: Floats  # (3,): faded Σ e² of the leader, faded Σ 1, faded Σ (y − level)²
    level: Floats  # (2,): the mean of the first rewards, and how many they are
    group_keys: UnsignedIntegers  # (group places,) of pairs of fields
    evidence: Floats  # (group places, 2, C), from which prior precisions follow


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
def compute_contributions(rules: BankRules, bank: Bank, belief: int, at: float, row: Row) -> Floats:
    """Return what each component of each entry of a row adds to its mean, (n, components)."""
    first, end = rules.starts[belief], rules.starts[belief + 1]
    amounts = np.empty((row.keys.size, end - first))
    for column in range(first, end):
        fade = compute_fade(rules, bank, column, at)
        for i in range(row.keys.size):
            prior = CONSTANT_PRIOR
            if i > 0:
                own = rules.first_priors[column]
                prior = find_prior(bank.group_keys, bank.evidence, column, own, row.groups[i])
            amounts[i, column - first], _ = add_entry(
                bank.keys, bank.sums, column, fade, row.keys[i], row.values[i], prior
            )
    return amounts
