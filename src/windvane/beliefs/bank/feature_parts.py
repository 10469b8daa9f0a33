"""The parts of a request: what compiled code makes of packed features before they are crossed.

A side is the context or one action. Each of its categories and numbers, and each number of an
array, is a part with a key and a value:

    a category   1
    a number     (v − mean)/deviation, cut to [−3, 3]; the mean and deviation are of earlier lessons
    its bin      0.7; a category for each fifth of the numbers of earlier lessons
    an array     the differences from their means, scaled so that the array has length 2

The cut point c between two bins is the quantile τ by stochastic approximation: with each lesson,
c ← c + 2·deviation·(τ − [v ≤ c])/n, with n lessons, at most 1000. A number that has been the same
in all lessons has the value 0. The values of the context are then
divided by the root of the number of its features. Those of an action are divided by their length
√(Σv²), so that a learner without lessons prefers no action. If only some namespaces are crossed,
actions have crossings of different lengths, and the values of an action are multiplied by

    √((1 + Σc²)/(1 + X)),   X = Σ v²c² over its crossings

where the first sum has the parts c of the context that take part in crossings. All actions then
have rows of one length.
"""

import math
from typing import NamedTuple

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane._random import GOLDEN, scramble
from windvane.beliefs.diagonal.weight_table import ABSENT, claim_key, find_key
from windvane.types import Booleans, Floats, Places, UnsignedIntegers

LARGEST_NUMBER = 1e100  # beyond this, squares of numbers would overflow, so numbers are cut
LARGEST_SCORE = 3.0  # standard deviations at which a number is cut
MAX_SCALE_COUNT = 10_000.0  # lessons over which means and deviations are taken, at most
ARRAY_LENGTH = 2.0
ERROR_KEEP = 0.999  # of the squared errors of an action, with every lesson of it
FIELD_SHIFT = np.uint64(32)
COUNT, MEAN, SQUARES = 0, 1, 2  # of a row of scales: lessons, mean, Σ of squared differences
CUT_LEVELS = np.array((0.2, 0.4, 0.6, 0.8))  # quantiles at which bins are cut
CUT_SCORES = np.array((-0.84, -0.25, 0.25, 0.84))  # the first cut points, in deviations
FIRST_CUT = 3  # of a row of scales: where the cut points begin
SCALE_SIZE = FIRST_CUT + 4
FIRST_CUT_COUNT = 10.0  # lessons before a number has bins
CUT_GAIN = 2.0  # deviations by which a cut point moves in the first lesson
MAX_CUT_COUNT = 1000.0  # lessons after which the steps of cut points stay as they are
BIN_VALUE = 0.7
NO_BIN = -1
BIN_SALT = np.uint64(0x5DEECE66D1234567)  # tells the field of bins from that of the number
ACTION_SALT = np.uint64(0xA5A5F00DCAFE1234)  # tells features of actions from those of the context


class PackedSides(NamedTuple):
    """The packed features of several sides, one side after the other."""

    hashes: UnsignedIntegers  # by feature; the high half is the hash of the field
    numbers: Floats  # infinity stands for a category
    sizes: Places  # by feature: how many numbers it has
    feature_counts: Places  # by side
    masks: Places  # by feature: in which crossings it takes part, one bit each


class Scales(NamedTuple):
    """The running mean, deviation and cut points of each number, as a hash table.

    Under the key of an action's id stand its number of lessons and its squared errors.
    """

    keys: UnsignedIntegers  # (places,)
    rows: Floats  # (places, SCALE_SIZE)


class Parts(NamedTuple):
    """The parts of several sides, one side after the other."""

    keys: UnsignedIntegers  # (parts,)
    values: Floats  # (parts,)
    fields: UnsignedIntegers  # (parts,) keys of the names without category
    masks: Places  # (parts,)
    is_bin: Booleans  # (parts,) whether this is the bin of the number before it
    ends: Places  # by side: the place after its last part


@compiled_in_order
def pick_action(sides: PackedSides, index: int) -> PackedSides:
    """Return the features of the context and of one action."""
    counts = sides.feature_counts
    context, first = counts[0], 0
    for side in range(index + 1):
        first += counts[side]
    size = context + counts[index + 1]
    hashes, picked_counts = np.empty(size, np.uint64), np.empty(2, np.int64)
    sizes, masks = np.empty(size, np.int64), np.empty(size, np.int64)
    picked_counts[0], picked_counts[1] = context, counts[index + 1]
    number, number_count = 0, 0
    for feature in range(context, first):  # those of the actions before
        number += sides.sizes[feature]
    for i in range(size):
        feature = i if i < context else first + i - context
        hashes[i], masks[i] = sides.hashes[feature], sides.masks[feature]
        sizes[i] = sides.sizes[feature]
        number_count += sizes[i]
    context_end = 0
    for i in range(context):
        context_end += sizes[i]
    numbers = np.empty(number_count)
    for i in range(number_count):
        numbers[i] = sides.numbers[i if i < context_end else number + i]
    return PackedSides(hashes, numbers, sizes, picked_counts, masks)


@compiled_in_order
def pick_pair(sides: PackedSides, slot: int) -> PackedSides:
    """Return the context and the action of one slot of a lesson."""
    if sides.feature_counts.size == 2:
        return sides
    counts = sides.feature_counts
    first = counts[: 2 * slot].sum()
    last = first + counts[2 * slot] + counts[2 * slot + 1]
    number = sides.sizes[:first].sum()
    return PackedSides(
        sides.hashes[first:last],
        sides.numbers[number : number + sides.sizes[first:last].sum()],
        sides.sizes[first:last],
        counts[2 * slot : 2 * slot + 2],
        sides.masks[first:last],
    )


@compiled_in_order
def make_key(bits: np.uint64) -> np.uint64:
    """Return a key of these bits that is not EMPTY."""
    return scramble(bits) | np.uint64(1)


@compiled_in_order
def make_parts(sides: PackedSides, scales: Scales) -> Parts:
    """Make the parts of all sides; side 0 is the context, then follow the actions."""
    total = sides.numbers.size
    for i in range(sides.sizes.size):  # single numbers have a bin; categories leave room
        total += sides.sizes[i] == 1
    keys, values = np.empty(total, np.uint64), np.empty(total)
    fields, is_bin = np.empty(total, np.uint64), np.zeros(total, np.bool_)
    masks, ends = np.empty(total, np.int64), np.empty(sides.feature_counts.size, np.int64)
    part, number, feature = 0, 0, 0
    for side in range(sides.feature_counts.size):
        salt = np.uint64(0) if side == 0 else ACTION_SALT
        first, square = part, 0.0
        for _ in range(sides.feature_counts[side]):
            size, hash_ = sides.sizes[feature], sides.hashes[feature] ^ salt
            if size == 1:
                keys[part] = make_key(hash_)
                values[part] = weigh_number(sides.numbers[number], keys[part], scales)
            else:
                weigh_array(
                    sides.numbers[number : number + size], hash_, scales, keys, values, part
                )
            field = make_key((sides.hashes[feature] >> FIELD_SHIFT) ^ salt)
            for i in range(part, part + size):
                fields[i] = field
                masks[i] = sides.masks[feature]
                square += values[i] * values[i]
            part += size
            if size == 1 and sides.numbers[number] != np.inf:
                own = keys[part - 1]
                bin_ = find_bin(sides.numbers[number], own, scales)
                keys[part] = make_key(own + GOLDEN * np.uint64(bin_ + 1))
                values[part] = BIN_VALUE if bin_ != NO_BIN else 0.0
                fields[part] = make_key(field + BIN_SALT)
                masks[part], is_bin[part] = sides.masks[feature], True
                square += values[part] * values[part]
                part += 1
            number += size
            feature += 1
        length = math.sqrt(square)
        if side == 0:
            length = math.sqrt(sides.feature_counts[0])
        for i in range(first, part):
            values[i] /= max(length, 1e-300)
        ends[side] = part
    keys, values, fields, masks = keys[:part], values[:part], fields[:part], masks[:part]
    is_bin = is_bin[:part]
    if has_left_out_crossings(sides.masks):
        equalise_lengths(values, masks, ends)
    return Parts(keys, values, fields, masks, is_bin, ends)


@compiled_in_order
def make_page(sides: PackedSides, scales: Scales) -> list[Parts]:
    """Make the parts of a lesson: of the context and the action of each slot of a page."""
    slots = sides.feature_counts.size // 2
    return [make_parts(pick_pair(sides, slot), scales) for slot in range(slots)]


@compiled_in_order
def has_left_out_crossings(masks: Places) -> bool:
    """Whether only some namespaces are crossed."""
    count = 0
    for feature in range(masks.size):
        count += masks[feature] != 1
    return count > 0


@compiled_in_order
def equalise_lengths(values: Floats, masks: Places, ends: Places) -> None:
    """Scale the values of each action so that all actions have rows of one length."""
    first, total = ends[0], 1.0
    for j in range(first):
        if masks[j] != 0:
            total += values[j] * values[j]
    for side in range(1, ends.size):
        square, crossed = 0.0, 0.0
        for i in range(ends[side - 1], ends[side]):
            own = values[i] * values[i]
            square += own
            for j in range(first):
                if masks[i] & masks[j] != 0:
                    crossed += own * values[j] * values[j]
        if square > 0.0:
            factor = math.sqrt(total / (square + crossed))
            for i in range(ends[side - 1], ends[side]):
                values[i] *= factor


@compiled_in_order
def weigh_number(number: float, key: np.uint64, scales: Scales) -> float:
    """Return the value of a category or of a number."""
    if number == np.inf:
        return 1.0
    place = find_key(scales.keys, key)
    if place < 0:
        return 0.0
    row = scales.rows[place]
    if row[SQUARES] <= 0.0:
        return 0.0
    score = (number - row[MEAN]) / math.sqrt(row[SQUARES] / row[COUNT])
    return float(max(-LARGEST_SCORE, min(LARGEST_SCORE, score)))


@compiled_in_order
def find_bin(number: float, key: np.uint64, scales: Scales) -> int:
    """Return the bin of a number among its cut points, or NO_BIN if it has none yet."""
    place = find_key(scales.keys, key)
    if place < 0:
        return NO_BIN
    row = scales.rows[place]
    if row[COUNT] < FIRST_CUT_COUNT or row[SQUARES] <= 0.0:
        return NO_BIN
    bin_ = 0
    for i in range(CUT_LEVELS.size):
        bin_ += number > row[FIRST_CUT + i]
    return bin_


@compiled_in_order
def weigh_array(
    numbers: Floats,
    hash_: np.uint64,
    scales: Scales,
    keys: UnsignedIntegers,
    values: Floats,
    first: int,
) -> None:
    """Write the keys and values of an array's parts, beginning at part `first`."""
    square = 0.0
    for i in range(numbers.size):
        keys[first + i] = make_key(hash_ + GOLDEN * np.uint64(i))
        place = find_key(scales.keys, keys[first + i])
        mean = scales.rows[place, MEAN] if place >= 0 else 0.0
        values[first + i] = cut(numbers[i]) - mean
        square += values[first + i] * values[first + i]
    if square > 0.0:
        factor = ARRAY_LENGTH / math.sqrt(square)
        for i in range(numbers.size):
            values[first + i] *= factor


@compiled_in_order
def cut(number: float) -> float:
    """Cut a number whose square would overflow."""
    return max(-LARGEST_NUMBER, min(LARGEST_NUMBER, number))


@compiled_in_order
def update_scales(sides: PackedSides, scales: Scales, room: int, square: float) -> int:
    """Take in the numbers of a lesson and its squared error; return how many places are new.

    The error is kept under the key of the id of each action. At most `room` new numbers and ids get
    a place; later numbers keep the value 0.
    """
    number, feature, added = 0, 0, 0
    for side in range(sides.feature_counts.size):
        salt = np.uint64(0) if side % 2 == 0 else ACTION_SALT
        for _ in range(sides.feature_counts[side]):
            size, hash_ = sides.sizes[feature], sides.hashes[feature] ^ salt
            for i in range(size):
                if sides.numbers[number + i] == np.inf:
                    continue
                key = make_key(hash_) if size == 1 else make_key(hash_ + GOLDEN * np.uint64(i))
                place = find_key(scales.keys, key)
                if place == ABSENT and added < room:
                    place, _ = claim_key(scales.keys, key)
                    added += 1
                if place != ABSENT:
                    update_scale(scales.rows[place], sides.numbers[number + i])
            number += size
            feature += 1
        if side % 2 == 0:
            continue
        id_key = make_key(sides.hashes[feature - 1] ^ ACTION_SALT)
        place = find_key(scales.keys, id_key)
        if place == ABSENT and added < room:
            place, _ = claim_key(scales.keys, id_key)
            added += 1
        if place != ABSENT:
            own = scales.rows[place]
            own[COUNT] = ERROR_KEEP * own[COUNT] + 1.0
            own[SQUARES] = ERROR_KEEP * own[SQUARES] + square
    return added


@compiled_in_order
def update_scale(row: Floats, number: float) -> None:
    """Take one number into the mean, the deviation and the cut points."""
    if row[COUNT] >= MAX_SCALE_COUNT:
        row[SQUARES] *= (MAX_SCALE_COUNT - 1.0) / row[COUNT]
        row[COUNT] = MAX_SCALE_COUNT - 1.0
    row[COUNT] += 1.0
    difference = cut(number) - row[MEAN]
    row[MEAN] += difference / row[COUNT]
    row[SQUARES] += difference * difference * (1.0 - 1.0 / row[COUNT])
    if row[COUNT] < FIRST_CUT_COUNT:
        return
    deviation = math.sqrt(row[SQUARES] / row[COUNT])
    for i in range(CUT_LEVELS.size):
        if row[COUNT] == FIRST_CUT_COUNT:
            row[FIRST_CUT + i] = row[MEAN] + CUT_SCORES[i] * deviation
        else:
            step = CUT_LEVELS[i] - (1.0 if cut(number) <= row[FIRST_CUT + i] else 0.0)
            row[FIRST_CUT + i] += CUT_GAIN * deviation * step / min(row[COUNT], MAX_CUT_COUNT)
