"""Predict the rewards of all actions of a request by one belief of a bank.

Only the column of that belief is read. It is therefore kept in an array of its own, `copy_column`,
which takes a fourteenth of the memory of all columns and mostly stays in the cache of the
processor. Its last row is zero, for weights that were never learned. Parts that several actions
share, such as a topic, are crossed with the context once. What each entry adds is summed in the
order of the entries of an action's row, so the bits of a prediction do not depend on this.
"""

from typing import NamedTuple

import numpy as np

from windvane._cache_lines import load_ahead
from windvane._jit import compiled_in_order
from windvane.kernels.belief_bank import CONSTANT_KEY, Bank, BankRules, compute_fade, cross_keys
from windvane.kernels.diagonal import MOMENT, PRECISION
from windvane.kernels.feature_parts import Parts
from windvane.kernels.prior_precisions import CONSTANT_PRIOR, find_prior
from windvane.kernels.weight_table import (
    ABSENT,
    PLACES_PER_GROUP,
    claim_key,
    find_group,
    find_place,
)
from windvane.types import Floats, Places, UnsignedIntegers

WEIGHED_TOGETHER = 128  # entries: enough to load their keys ahead, few enough for the first cache


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


class Entries(NamedTuple):
    """Room for the entries of several rows; those before some place are filled."""

    keys: UnsignedIntegers  # (n,)
    values: Floats  # (n,)
    priors: Floats  # (n,) prior precisions
    sums: Floats  # (2, n): the precision and the moment of each weight
    means: Floats  # (n,) what each entry adds to the mean of its row
    variances: Floats  # (n,) what each entry adds to the variance of its row


@compiled_in_order
def make_entries(count: int) -> Entries:
    """Make room for entries."""
    keys, values, priors = np.empty(count, np.uint64), np.empty(count), np.empty(count)
    return Entries(keys, values, priors, np.empty((2, count)), np.empty(count), np.empty(count))


@compiled_in_order
def weigh_entries(
    bank: Bank, leading: Floats, fade: float, own: Entries, first: int, last: int
) -> None:
    """Compute what the entries in [first, last) add to the mean and the variance of their rows."""
    precisions, moments = own.sums[PRECISION], own.sums[MOMENT]
    for i in range(first, last):
        place = find_place(bank.keys, own.keys[i])  # that of a row of zeros if it is absent
        precisions[i], moments[i] = leading[place, PRECISION], leading[place, MOMENT]
    for i in range(first, last):
        value = own.values[i]
        precision = fade * precisions[i] + own.priors[i]
        own.means[i] = value * fade * moments[i] / precision
        own.variances[i] = value * value / precision


@compiled_in_order
def add_key(bank: Bank, own: Entries, i: int, key: np.uint64) -> None:
    """Set the key of an entry; its cache line is loaded until the entry is weighed."""
    own.keys[i] = key
    load_ahead(bank.keys, find_group(bank.keys, key))


@compiled_in_order
def list_context(
    bank: Bank, parts: Parts, numbers: Places, priors: Floats, own: Entries
) -> tuple[Places, int]:
    """List the constant and the parts of the context as entries, those of value 0 left out.

    Returns which parts are listed and how many entries there are.
    """
    listed = np.empty(parts.ends[0], np.int64)
    add_key(bank, own, 0, CONSTANT_KEY)
    own.values[0], own.priors[0] = 1.0, CONSTANT_PRIOR
    size = 1
    for j in range(listed.size):
        if parts.values[j] != 0.0:
            add_key(bank, own, size, parts.keys[j])
            own.values[size], own.priors[size] = parts.values[j], priors[0, numbers[j]]
            listed[size - 1] = j
            size += 1
    return listed[: size - 1], size


@compiled_in_order
def list_crossings(
    bank: Bank, parts: Parts, part: int, listed: Places, row: Floats, own: Entries, first: int
) -> int:
    """List a part of an action and its crossings with the listed parts of the context as entries.

    `row` has the prior precision of the part alone and of its crossing with every listed part.
    Returns the place after the last entry.
    """
    key, value, mask = parts.keys[part], parts.values[part], parts.masks[part]
    add_key(bank, own, first, key)
    own.values[first], own.priors[first] = value, row[0]
    end = first + 1
    for i in range(listed.size):
        if mask & parts.masks[listed[i]]:
            add_key(bank, own, end, cross_keys(key, parts.keys[listed[i]]))
            own.values[end] = value * parts.values[listed[i]]
            own.priors[end] = row[1 + i]
            end += 1
    return end


@compiled_in_order
def predict_actions(
    rules: BankRules, bank: Bank, leading: Floats, column: int, at: float, parts: Parts
) -> tuple[Floats, Floats]:
    """Return the mean and the variance of every action by one belief, (K,) each.

    `leading` is `copy_column` of this belief's column. A crossing whose value is 0 adds 0.
    """
    fade = compute_fade(rules, bank, column, at)
    first = parts.ends[0]
    context_numbers, context_fields = index_fields(parts.fields[:first])
    action_numbers, action_fields = index_fields(parts.fields[first:])
    priors = tabulate_priors(rules, bank, column, action_fields, context_fields)
    equal = find_equal_parts(parts)
    distinct = 0
    for i in range(equal.size):
        distinct += equal[i] == i
    own = make_entries((distinct + 1) * (first + 1))
    listed, end = list_context(bank, parts, context_numbers, priors, own)
    rows = np.empty((action_fields.size, 1 + listed.size))
    for a in range(action_fields.size):
        rows[a, 0] = priors[a, 0]
        for i in range(listed.size):
            rows[a, 1 + i] = priors[a, context_numbers[listed[i]]]
    starts, stops = np.empty(equal.size, np.int64), np.empty(equal.size, np.int64)
    context_end, weighed = end, 0
    for i in range(equal.size):
        if equal[i] != i:
            starts[i], stops[i] = starts[equal[i]], stops[equal[i]]
            continue
        starts[i] = end
        if parts.values[first + i] != 0.0:
            row = rows[action_numbers[i]]
            end = list_crossings(bank, parts, first + i, listed, row, own, end)
        stops[i] = end
        if end - weighed >= WEIGHED_TOGETHER:
            weigh_entries(bank, leading, fade, own, weighed, end)
            weighed = end
    weigh_entries(bank, leading, fade, own, weighed, end)
    common_mean, common_variance = 0.0, 0.0
    for i in range(context_end):
        common_mean += own.means[i]
        common_variance += own.variances[i]
    count = parts.ends.size - 1
    means, variances = np.full(count, common_mean), np.full(count, common_variance)
    most = 0
    for k in range(count):
        most = max(most, parts.ends[k + 1] - parts.ends[k])
    for part in range(most):  # of one action after the other, so that no sum waits for itself
        for k in range(count):
            i = parts.ends[k] - first + part
            if i < parts.ends[k + 1] - first:
                mean, variance = means[k], variances[k]
                for entry in range(starts[i], stops[i]):
                    mean += own.means[entry]
                    variance += own.variances[entry]
                means[k], variances[k] = mean, variance
    return means, variances
