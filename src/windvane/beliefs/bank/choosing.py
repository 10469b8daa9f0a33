"""Choose among the actions of a request: predict each by one belief of a bank, and explore.

Only the columns of that belief are read. They are therefore kept in an array of their own,
`copy_columns`, which takes a part of the memory of all columns and mostly stays in the cache of the
processor. Its last row is zero, for weights that were never learned. Parts that several actions
share, such as a topic, are crossed with the context once. What each entry adds is summed in the
order of the entries of an action's row, so the bits of a prediction do not depend on this.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane import _random
from windvane._numba.compilation import compiled, compiled_in_order
from windvane._numba.instructions import load_ahead, load_four, store_at
from windvane._random import ANY_ARM_PLACE, FIRST_FREE_PLACE, MIX_PLACE, TIE_PLACE
from windvane.beliefs.bank.dense import DenseBeliefs, predict_actions_densely
from windvane.beliefs.bank.feature_parts import COUNT, PackedSides, Parts, Scales, make_parts
from windvane.beliefs.bank.feature_parts import SQUARES as SCALE_SQUARES
from windvane.beliefs.bank.layout import (
    CONSTANT_KEY,
    CONSTANT_PRIOR,
    DETERMINED,
    MEAN_REWARD,
    REWARDS,
    SQUARES,
    WEIGHTS,
    Bank,
    BankRules,
    compute_fade,
    compute_noise,
    compute_prior,
    cross_keys,
)
from windvane.beliefs.diagonal.kernels import MOMENT, PRECISION
from windvane.beliefs.diagonal.weight_table import (
    ABSENT,
    EMPTY,
    PLACES_PER_GROUP,
    claim_key,
    find_group,
    find_key,
    find_place,
)
from windvane.beliefs.full.choosing import choose_best
from windvane.beliefs.full.layout import HALF_NORMAL
from windvane.beliefs.full.propensities import compute_envelope_shares, mix_evenly, score_at_level
from windvane.types import Floats, Places, UnsignedIntegers

IMAGINED_ERRORS = 10.0  # of the pooled noise, in the noise of one action
LEAST_NOISE_SHARE = 0.5  # of the deviation of rewards: the least noise by which to explore
AT_ONCE = 4  # parts of actions for which there is room while they are worked on; three are needed


def copy_columns(sums: Floats, first: int, end: int) -> Floats:
    """Copy some columns of the sums of all weights, (places + 1, 2, n); the last row is zero.

    NumPy does this as fast as compiled code, and needs no compilation.
    """
    copied = np.empty((len(sums) + 1, 2, end - first))
    copied[:-1] = sums[:, :, first:end]
    copied[-1] = 0.0
    return copied


@compiled_in_order
def index_keys(given: UnsignedIntegers) -> tuple[Places, UnsignedIntegers]:
    """Number distinct keys from 1; return the number of each, and the distinct keys from 1 on."""
    size = PLACES_PER_GROUP
    while size < 2 * given.size + 2:
        size *= 2
    keys, numbers = np.empty(size, np.uint64), np.empty(size, np.int64)
    for i in range(size):
        keys[i] = EMPTY
    places, distinct = np.empty(given.size, np.int64), np.empty(given.size + 1, np.uint64)
    count = 1
    for i in range(given.size):
        place, is_new = claim_key(keys, given[i])
        if is_new:
            numbers[place] = count
            distinct[count] = given[i]
            count += 1
        places[i] = numbers[place]
    return places, distinct[:count]


@compiled_in_order
def tabulate_priors(
    rules: BankRules,
    bank: Bank,
    belief: int,
    action_fields: UnsignedIntegers,
    context_fields: UnsignedIntegers,
) -> Floats:
    """Return the prior precisions of all pairs of fields, (components, actions', context's).

    Row 0 is for fields of the context alone, column 0 for those of an action alone.
    """
    first, count = rules.starts[belief], rules.starts[belief + 1] - rules.starts[belief]
    priors = np.empty((count, action_fields.size, context_fields.size))
    for a in range(action_fields.size):
        for c in range(context_fields.size):
            if a == 0:
                key = context_fields[c]
            elif c == 0:
                key = action_fields[a]
            else:
                key = cross_keys(action_fields[a], context_fields[c])
            place = np.uint64(find_place(bank.group_keys, key))
            for s in range(count):
                own = rules.first_priors[first + s]
                if place < np.uint64(bank.group_keys.size):
                    evidence = bank.evidence[place]
                    determined, squares = (
                        evidence[DETERMINED, first + s],
                        evidence[SQUARES, first + s],
                    )
                    own = compute_prior(determined, squares, own)
                priors[s, a, c] = own if a + c > 0 else CONSTANT_PRIOR
    return priors


@compiled_in_order
def find_equal_parts(parts: Parts) -> Places:
    """Return for each part of an action the first part that is equal to it, counted from 0."""
    first = parts.ends[0]
    count = parts.keys.size - first
    size = PLACES_PER_GROUP
    while size < 2 * count:
        size *= 2
    slots, equal = np.empty(size, np.int64), np.empty(count, np.int64)
    for slot in range(size):
        slots[slot] = ABSENT
    for i in range(count):
        own = first + i
        place = (parts.keys[own] >> np.uint64(1)) & np.uint64(size - 1)
        while slots[place] != ABSENT:
            other = first + slots[place]
            if (
                parts.keys[own] == parts.keys[other]
                and parts.values[own] == parts.values[other]
                and parts.masks[own] == parts.masks[other]
                and parts.fields[own] == parts.fields[other]
            ):
                break
            place = (place + np.uint64(1)) & np.uint64(size - 1)
        if slots[place] == ABSENT:
            slots[place] = i
        equal[i] = slots[place]
    return equal


class Crossed(NamedTuple):
    """What parts of actions are crossed with: the constant and parts of the context.

    There is a list for the context alone, and one for each mask of the actions' parts. A list is
    filled up with values of 0 to a multiple of four.
    """

    counts: Places  # (lists,) without what fills them up
    keys: UnsignedIntegers  # (lists, n)
    values: Floats  # (lists, n)
    priors: Floats  # (lists, components, actions' fields, n) prior precisions


class Entries(NamedTuple):
    """The entries of rows, part by part, each with room for as many entries as the others."""

    keys: UnsignedIntegers  # (AT_ONCE, n) of the parts that are worked on
    places: UnsignedIntegers  # (AT_ONCE, n) of the weights of these parts
    sums: Floats  # (2, n): precisions and moments of one part
    means: Floats  # (parts, n) what each entry adds to the mean of its row
    variances: Floats  # (parts, n) what each entry adds to the variance of its row


@compiled_in_order
def list_masks(parts: Parts, chosen: Places) -> tuple[Places, Places]:
    """Number the masks of the chosen parts from 1; return these numbers and all masks."""
    numbers, masks = np.empty(chosen.size, np.int64), np.empty(chosen.size + 1, np.int64)
    masks[0] = 0
    count = 1
    for i in range(chosen.size):
        number = 1
        while number < count and masks[number] != parts.masks[chosen[i]]:
            number += 1
        masks[number] = parts.masks[chosen[i]]
        if number == count:
            count += 1
        numbers[i] = number
    return numbers, masks[:count]


@compiled_in_order
def list_crossed(parts: Parts, numbers: Places, priors: Floats, masks: Places) -> Crossed:
    """List the constant and the parts of the context, those of value 0 left out.

    List 0 has all of them, another one those with a crossing of its mask.
    """
    first = parts.ends[0]
    size = (first + 4) // 4 * 4
    keys, values = np.empty((masks.size, size), np.uint64), np.empty((masks.size, size))
    own_priors = np.empty((masks.size, priors.shape[0], priors.shape[1], size))
    counts, fields = np.empty(masks.size, np.int64), np.empty(size, np.int64)
    fields[0] = 0
    for number in range(masks.size):
        keys[number, 0], values[number, 0] = CONSTANT_KEY, 1.0
        count = 1
        for j in range(first):
            if parts.values[j] != 0.0 and (number == 0 or parts.masks[j] & masks[number] != 0):
                keys[number, count], values[number, count] = parts.keys[j], parts.values[j]
                fields[count] = numbers[j]
                count += 1
        for i in range(count, size):
            keys[number, i], values[number, i] = CONSTANT_KEY, 0.0
        for s in range(priors.shape[0]):
            for a in range(priors.shape[1]):
                for i in range(size):
                    own = priors[s, a, fields[i]] if i < count else 1.0
                    own_priors[number, s, a, i] = own
        counts[number] = count
    return Crossed(counts, keys, values, own_priors)


@compiled_in_order
def cross_part(
    table: UnsignedIntegers, crossed: Crossed, number: int, key: np.uint64, own: Entries, row: int
) -> None:
    """Set the keys of a part alone and of its crossings; load their cache lines ahead."""
    at = row % AT_ONCE
    for i in range(1, crossed.counts[number]):
        crossing = cross_keys(key, crossed.keys[number, i])
        own.keys[at, i] = crossing
        load_ahead(table, find_group(table, crossing))
    own.keys[at, 0] = key
    load_ahead(table, find_group(table, key))


@compiled_in_order
def find_places(
    table: UnsignedIntegers, leader_sums: Floats, count: int, own: Entries, row: int
) -> None:
    """Find the weights of a part; load their sums ahead."""
    at = row % AT_ONCE
    for i in range(count):
        place = np.uint64(find_place(table, own.keys[at, i]))
        own.places[at, i] = place
        load_ahead(leader_sums, np.uint64(2 * leader_sums.shape[2]) * place)


@compiled_in_order
def weigh_part(
    leader_sums: Floats,
    fades: Floats,
    crossed: Crossed,
    number: int,
    field: int,
    value: float,
    own: Entries,
    row: int,
) -> None:
    """Compute what the entries of a part add to the mean and to the variance of their row."""
    room, count = crossed.keys.shape[1], crossed.counts[number]
    at_once, at = row % AT_ONCE, row * room
    for s in range(fades.size):
        for i in range(count):
            own.sums[PRECISION, i] = leader_sums[own.places[at_once, i], PRECISION, s]
            own.sums[MOMENT, i] = leader_sums[own.places[at_once, i], MOMENT, s]
        prior = ((number * fades.size + s) * crossed.priors.shape[2] + field) * room
        for i in range(0, count, 4):
            values = value * load_four(crossed.values, number * room + i)
            precisions = fades[s] * load_four(own.sums, i) + load_four(crossed.priors, prior + i)
            means = values * fades[s] * load_four(own.sums, room + i) / precisions
            variances = values * values / precisions
            if s > 0:
                means = load_four(own.means, at + i) + means
                variances = load_four(own.variances, at + i) + variances
            store_at(own.means, at + i, means)
            store_at(own.variances, at + i, variances)


@compiled_in_order
def weigh_parts_of_actions(
    bank: Bank,
    leader_sums: Floats,
    fades: Floats,
    parts: Parts,
    crossed: Crossed,
    chosen: Places,
    numbers: Places,
    fields: Places,
) -> Entries:
    """Weigh the entries of the context alone, row 0, and of each chosen part of actions.

    While the keys of a part are computed, those of the part before are found, and the sums of the
    one before that are read: the processor has had time to load their memory.
    """
    shape = chosen.size + 1, crossed.keys.shape[1]
    own = Entries(
        np.empty((AT_ONCE, shape[1]), np.uint64),
        np.empty((AT_ONCE, shape[1]), np.uint64),
        np.empty((2, shape[1])),
        np.empty(shape),
        np.empty(shape),
    )
    for i in range(shape[1]):
        own.keys[0, i] = crossed.keys[0, i]
        own.sums[PRECISION, i], own.sums[MOMENT, i] = 0.0, 0.0
    for step in range(chosen.size + 3):
        if 1 <= step <= chosen.size:
            number, key = numbers[step - 1], parts.keys[chosen[step - 1]]
            cross_part(bank.keys, crossed, number, key, own, step)
        if 1 <= step <= chosen.size + 1:
            number = 0 if step == 1 else numbers[step - 2]
            find_places(bank.keys, leader_sums, crossed.counts[number], own, step - 1)
        if step == 2:
            weigh_part(leader_sums, fades, crossed, 0, 0, 1.0, own, 0)
        if step > 2:
            part, number = chosen[step - 3], numbers[step - 3]
            field, value = fields[part - parts.ends[0]], parts.values[part]
            weigh_part(leader_sums, fades, crossed, number, field, value, own, step - 2)
    return own


@compiled_in_order
def predict_means(
    rules: BankRules,
    bank: Bank,
    dense: DenseBeliefs,
    leader_sums: Floats,
    scales: Scales,
    sides: PackedSides,
    belief: int,
    at: float,
) -> Floats:
    """Return the mean of every action of a request by one belief, (K,)."""
    parts = make_parts(sides, scales)
    means, _ = predict_by(rules, bank, dense, leader_sums, belief, at, parts)
    for k in range(means.size):
        means[k] += bank.level[MEAN_REWARD]
    return means


@compiled_in_order
def predict_by(
    rules: BankRules,
    bank: Bank,
    dense: DenseBeliefs,
    leader_sums: Floats,
    belief: int,
    at: float,
    parts: Parts,
) -> tuple[Floats, Floats]:
    """Return the mean and the variance of every action by a belief of any kind, (K,) each."""
    first_dense = rules.starts.size - 1
    if belief == first_dense:
        return predict_actions_densely(dense, dense.still, parts, at)
    if belief > first_dense:
        return predict_actions_densely(dense, dense.moving, parts, at)
    return predict_actions(rules, bank, leader_sums, belief, at, parts)


@compiled_in_order
def predict_actions(
    rules: BankRules, bank: Bank, leader_sums: Floats, belief: int, at: float, parts: Parts
) -> tuple[Floats, Floats]:
    """Return the mean and the variance of every action by one belief, (K,) each.

    `leader_sums` is `copy_columns` of this belief. A crossing whose value is 0 adds 0.
    """
    return sum_entries(parts, *weigh_actions(rules, bank, leader_sums, belief, at, parts))


@compiled_in_order
def weigh_actions(
    rules: BankRules, bank: Bank, leader_sums: Floats, belief: int, at: float, parts: Parts
) -> tuple[Crossed, Places, Places, Entries]:
    """Weigh all entries of the actions of a request; `sum_entries` explains what is returned."""
    fades = np.empty(rules.starts[belief + 1] - rules.starts[belief])
    for s in range(fades.size):
        fades[s] = compute_fade(rules, bank, rules.starts[belief] + s, at)
    first = parts.ends[0]
    context_numbers, context_fields = index_keys(parts.fields[:first])
    action_numbers, action_fields = index_keys(parts.fields[first:])
    priors = tabulate_priors(rules, bank, belief, action_fields, context_fields)
    equal = find_equal_parts(parts)
    chosen, rows = np.empty(equal.size, np.int64), np.empty(equal.size, np.int64)
    count = 0
    for i in range(equal.size):
        rows[i] = rows[equal[i]] if equal[i] != i else 0
        if equal[i] == i and parts.values[first + i] != 0.0:
            chosen[count] = first + i
            count += 1
            rows[i] = count
    chosen = chosen[:count]
    numbers, masks = list_masks(parts, chosen)
    crossed = list_crossed(parts, context_numbers, priors, masks)
    own = weigh_parts_of_actions(
        bank, leader_sums, fades, parts, crossed, chosen, numbers, action_numbers
    )
    return crossed, numbers, rows, own


@compiled_in_order
def sum_entries(
    parts: Parts, crossed: Crossed, numbers: Places, rows: Places, own: Entries
) -> tuple[Floats, Floats]:
    """Sum what entries add to the mean and to the variance of every action, (K,) each.

    `numbers` has the list of `crossed` for each row of entries but the first one, `rows` the row of
    each part of actions, or 0 if its value is 0.
    """
    mean, variance = 0.0, 0.0
    for i in range(crossed.counts[0]):
        mean += own.means[0, i]
        variance += own.variances[0, i]
    first, count = parts.ends[0], parts.ends.size - 1
    means, variances = np.empty(count), np.empty(count)
    most = 0
    for k in range(count):
        means[k], variances[k] = mean, variance
        most = max(most, parts.ends[k + 1] - parts.ends[k])
    for part in range(most):  # of one action after the other, so that no sum waits for itself
        for k in range(count):
            i = parts.ends[k] - first + part
            if i < parts.ends[k + 1] - first and rows[i] > 0:
                row, mean, variance = rows[i], means[k], variances[k]
                for j in range(crossed.counts[numbers[row - 1]]):
                    mean += own.means[row, j]
                    variance += own.variances[row, j]
                means[k], variances[k] = mean, variance
    return means, variances


class Ranking(NamedTuple):
    """The chosen one of some actions, and what is known of each of them."""

    chosen: int  # its place among these actions
    probabilities: Floats  # (K,) with which each is chosen
    means: Floats  # (K,) the predicted rewards
    deviations: Floats  # (K,) the standard deviations of the predictions


@compiled_in_order
def balance_noise(noise: float, bank: Bank, scales: Scales, parts: Parts, places: Places) -> float:
    """Return the noise by which to explore.

    It is the largest of the estimated noise, its root mean square over the offered actions, and a
    share of the deviation of rewards: a belief that predicts well where it has chosen may be wrong
    elsewhere.

    An action whose reward is certain lowers the noise of all; without this, the others would not
    be tried any more. The variance of an action is that of its own errors, with some of all.
    """
    total = 0.0
    for k in range(places.size):
        place = find_key(scales.keys, parts.keys[parts.ends[places[k] + 1] - 1])
        errors, weights = IMAGINED_ERRORS * noise * noise, IMAGINED_ERRORS
        if place != ABSENT:
            errors += scales.rows[place, SCALE_SQUARES]
            weights += scales.rows[place, COUNT]
        total += errors / weights
    rewards = bank.leader_errors[REWARDS] / max(1.0, bank.leader_errors[WEIGHTS])
    return max(noise, math.sqrt(total / places.size), LEAST_NOISE_SHARE * math.sqrt(rewards))


@compiled
def rank_actions(
    rules: BankRules,
    bank: Bank,
    dense: DenseBeliefs,
    leader_sums: Floats,
    scales: Scales,
    sides: PackedSides,
    places: Places,
    leader: int,
    at: float,
    key: int,
    round_: int,
) -> Ranking:
    """Choose among the actions at `places`, by the belief that leads; `leader_sums` is its column.

    The score of an action is its mean plus Z times its deviation, with one level Z for all actions:
    the absolute value of a normal draw, times `share`. With the probability `floor` an action is
    chosen uniformly at random.
    """
    parts = make_parts(sides, scales)
    all_means, all_variances = predict_by(rules, bank, dense, leader_sums, leader, at, parts)
    noise = balance_noise(compute_noise(bank, leader), bank, scales, parts, places)
    start = _random.start_round(np.uint64(key), round_)
    ranking = choose_among(rules, all_means, all_variances, noise, places, start, 0)
    for k in range(places.size):
        ranking.means[k] += bank.level[MEAN_REWARD]
    return ranking


@compiled
def choose_among(
    rules: BankRules,
    all_means: Floats,
    all_variances: Floats,
    noise: float,
    places: Places,
    start: np.uint64,
    offset: int,
) -> Ranking:
    """Choose among the actions at `places`, by draws of a stream; its places start at `offset`."""
    means, deviations = np.empty(places.size), np.empty(places.size)
    for k in range(places.size):
        means[k] = all_means[places[k]]
        deviations[k] = noise * math.sqrt(max(all_variances[places[k]], 0.0))
    shares = compute_envelope_shares(means, deviations, rules.share, HALF_NORMAL)
    probabilities = mix_evenly(shares, rules.floor)
    draw = np.empty(1)
    _random.fill_normals(start, offset + FIRST_FREE_PLACE, draw)
    scores = score_at_level(means, rules.share * abs(draw[0]), deviations)
    chosen = choose_best(scores, _random.uniform(start, offset + TIE_PLACE))
    if _random.uniform(start, offset + MIX_PLACE) < rules.floor:
        chosen = int(_random.uniform(start, offset + ANY_ARM_PLACE) * scores.size)
    return Ranking(chosen, probabilities, means, deviations)
