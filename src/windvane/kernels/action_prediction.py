"""Predict the rewards of all actions of a request by one belief of a bank.

Only the column of that belief is read. It is therefore kept in an array of its own, `copy_column`,
which takes a fourteenth of the memory of all columns and mostly stays in the cache of the
processor. Its last row is zero, for weights that were never learned. Parts that several actions
share, such as a topic, are crossed with the context once. What each entry adds is summed in the
order of the entries of an action's row, so the bits of a prediction do not depend on this.
"""

import numpy as np

from windvane._jit import compiled_in_order
from windvane.kernels.belief_bank import CONSTANT_KEY, Bank, BankRules, compute_fade, cross_keys
from windvane.kernels.diagonal import MOMENT, PRECISION
from windvane.kernels.feature_parts import Parts
from windvane.kernels.prior_precisions import CONSTANT_PRIOR, find_prior
from windvane.kernels.weight_table import ABSENT, PLACES_PER_GROUP, claim_key, find_group, find_key
from windvane.types import Floats, Places, UnsignedIntegers

MEAN, VARIANCE = 0, 1  # what an entry adds to the mean and to the variance of a row


@compiled_in_order
def copy_column(sums: Floats, column: int) -> Floats:
    """Copy one column of the sums of all weights, (places + 1, 2); the last row is zero."""
    copied = np.zeros((sums.shape[0] + 1, 2))
    for place in range(sums.shape[0]):
        copied[place, PRECISION] = sums[place, PRECISION, column]
        copied[place, MOMENT] = sums[place, MOMENT, column]
    return copied


@compiled_in_order
def index_fields(fields: UnsignedIntegers) -> tuple[Places, UnsignedIntegers]:
    """Number the distinct fields from 1; return the number of each part and the fields in order."""
    size = PLACES_PER_GROUP
    while size < 2 * fields.size + 2:
        size *= 2
    keys, numbers = np.zeros(size, np.uint64), np.empty(size, np.int64)
    places, distinct = np.empty(fields.size, np.int64), np.empty(fields.size + 1, np.uint64)
    count = 1
    for i in range(fields.size):
        place, is_new = claim_key(keys, fields[i])
        if is_new:
            numbers[place] = count
            distinct[count] = fields[i]
            count += 1
        places[i] = numbers[place]
    return places, distinct[:count]


@compiled_in_order
def tabulate_priors(
    rules: BankRules,
    bank: Bank,
    column: int,
    action_fields: UnsignedIntegers,
    context_fields: UnsignedIntegers,
) -> Floats:
    """Return the prior precisions of all pairs of fields, (actions' fields, context's fields).

    Row 0 is for fields of the context alone, column 0 for those of an action alone.
    """
    priors = np.empty((action_fields.size, context_fields.size))
    first = rules.first_priors[column]
    for a in range(action_fields.size):
        for c in range(context_fields.size):
            if a == 0 and c == 0:
                priors[a, c] = CONSTANT_PRIOR
                continue
            if a == 0:
                key = context_fields[c]
            elif c == 0:
                key = action_fields[a]
            else:
                key = cross_keys(action_fields[a], context_fields[c])
            priors[a, c] = find_prior(bank.group_keys, bank.evidence, column, first, key)
    return priors


@compiled_in_order
def find_equal_parts(parts: Parts) -> Places:
    """Return for each part of an action the first part that is equal to it, counted from 0."""
    first = parts.ends[0]
    count = parts.keys.size - first
    size = PLACES_PER_GROUP
    while size < 2 * count:
        size *= 2
    slots, equal = np.full(size, ABSENT, np.int64), np.empty(count, np.int64)
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


@compiled_in_order
def find_places(keys: UnsignedIntegers, wanted: UnsignedIntegers, places: Places) -> None:
    """Fill `places` with the places of weights, or with the place of the row that is zero.

    The first loop reads every group once without a branch, so that the processor waits for many
    of them at the same time instead of for one after the other.
    """
    for i in range(wanted.size):
        places[i] = np.int64(keys[find_group(keys, wanted[i])] == wanted[i])
    for i in range(wanted.size):
        place = find_key(keys, wanted[i])
        places[i] = keys.size if place == ABSENT else place


@compiled_in_order
def weigh_entries(
    leading: Floats, fade: float, places: Places, values: Floats, priors: Floats, added: Floats
) -> None:
    """Fill `added`, (n, 2), with what each entry adds to the mean and the variance of its row."""
    for i in range(places.size):
        value, own = values[i], leading[places[i]]
        precision = fade * own[PRECISION] + priors[i]
        added[i, MEAN] = value * fade * own[MOMENT] / precision
        added[i, VARIANCE] = value * value / precision


@compiled_in_order
def weigh_context(
    bank: Bank, leading: Floats, fade: float, parts: Parts, numbers: Places, priors: Floats
) -> Floats:
    """Return what the constant and each part of the context add, those of value 0 left out."""
    first = parts.ends[0]
    keys, values = np.empty(first + 1, np.uint64), np.empty(first + 1)
    own_priors, places = np.empty(first + 1), np.empty(first + 1, np.int64)
    keys[0], values[0], own_priors[0] = CONSTANT_KEY, 1.0, CONSTANT_PRIOR
    size = 1
    for j in range(first):
        if parts.values[j] != 0.0:
            keys[size], values[size] = parts.keys[j], parts.values[j]
            own_priors[size] = priors[0, numbers[j]]
            size += 1
    added = np.empty((size, 2))
    find_places(bank.keys, keys[:size], places[:size])
    weigh_entries(leading, fade, places[:size], values[:size], own_priors[:size], added)
    return added


@compiled_in_order
def predict_actions(
    rules: BankRules, bank: Bank, leading: Floats, column: int, at: float, parts: Parts
) -> tuple[Floats, Floats]:
    """Return the mean and the variance of every action by one belief, (K,) each.

    `leading` is `copy_column` of this belief's column.
    """
    fade = compute_fade(rules, bank, column, at)
    first = parts.ends[0]
    context_numbers, context_fields = index_fields(parts.fields[:first])
    action_numbers, action_fields = index_fields(parts.fields[first:])
    priors = tabulate_priors(rules, bank, column, action_fields, context_fields)
    common = weigh_context(bank, leading, fade, parts, context_numbers, priors)
    common_mean, common_variance = 0.0, 0.0
    for j in range(common.shape[0]):
        common_mean += common[j, MEAN]
        common_variance += common[j, VARIANCE]
    equal = find_equal_parts(parts)
    starts = np.empty(equal.size, np.int64)
    stops = np.empty(equal.size, np.int64)
    distinct = 0
    for i in range(equal.size):
        distinct += equal[i] == i
    added = np.empty((distinct * (first + 1), 2))
    keys, values = np.empty(first + 1, np.uint64), np.empty(first + 1)
    own_priors, places = np.empty(first + 1), np.empty(first + 1, np.int64)
    end = 0
    for i in range(equal.size):
        part = first + i
        if equal[i] != i:
            starts[i], stops[i] = starts[equal[i]], stops[equal[i]]
            continue
        starts[i] = end
        if parts.values[part] != 0.0:
            row = priors[action_numbers[i]]
            keys[0], values[0], own_priors[0] = parts.keys[part], parts.values[part], row[0]
            size = 1
            for j in range(first):
                value = parts.values[part] * parts.values[j]
                if value == 0.0 or parts.masks[part] & parts.masks[j] == 0:
                    continue
                keys[size] = cross_keys(parts.keys[part], parts.keys[j])
                values[size] = value
                own_priors[size] = row[context_numbers[j]]
                size += 1
            find_places(bank.keys, keys[:size], places[:size])
            own = added[end : end + size]
            weigh_entries(leading, fade, places[:size], values[:size], own_priors[:size], own)
            end += size
        stops[i] = end
    count = parts.ends.size - 1
    means, variances = np.empty(count), np.empty(count)
    for k in range(count):
        mean, variance = common_mean, common_variance
        for i in range(parts.ends[k] - first, parts.ends[k + 1] - first):
            for entry in range(starts[i], stops[i]):
                mean += added[entry, MEAN]
                variance += added[entry, VARIANCE]
        means[k], variances[k] = mean, variance
    return means, variances
