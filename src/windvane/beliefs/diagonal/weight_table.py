"""A hash table from 64-bit keys to places in arrays, by open addressing.

`keys` holds the key of each place, or EMPTY. Its size is a power of two, at least PLACES_PER_GROUP.
Keys are hashes already, so some of their bits say at which group of places the search for a key
begins; the lowest bit is left out, because many keys have it set. The places of a group are claimed
in order, and the next group follows when all are taken. Therefore a key that is not in a group
whose last place is empty is in no later group.
"""

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane._numba.instructions import KEYS_PER_LINE, find_in_line
from windvane.types import Booleans, Floats, UnsignedIntegers

EMPTY = np.uint64(0)
ABSENT = np.int64(-1)
PLACES_PER_GROUP = KEYS_PER_LINE


@compiled_in_order
def find_group(keys: UnsignedIntegers, key: np.uint64) -> np.uint64:
    """Return the first place of the group at which the search for a key begins."""
    return (key >> np.uint64(1)) & np.uint64(keys.size - PLACES_PER_GROUP)


@compiled_in_order
def find_key(keys: UnsignedIntegers, key: np.uint64) -> np.int64:
    """Return the place of a key, or ABSENT."""
    last = np.uint64(keys.size - 1)
    group = find_group(keys, key)
    while True:
        offset = find_in_line(keys, group, key)
        if offset < PLACES_PER_GROUP:
            return np.int64(group) + offset
        if keys[group + np.uint64(PLACES_PER_GROUP - 1)] == EMPTY:
            return ABSENT
        group = (group + np.uint64(PLACES_PER_GROUP)) & last


@compiled_in_order
def find_place(keys: UnsignedIntegers, key: np.uint64) -> np.int64:
    """Return the place of a key, or the number of places if the key is absent.

    Whether a key is absent decides no branch, unless its group is full: the processor would guess
    half of these branches wrong.
    """
    group = find_group(keys, key)
    offset = find_in_line(keys, group, key)
    is_absent = offset == PLACES_PER_GROUP
    if is_absent & (keys[group + np.uint64(PLACES_PER_GROUP - 1)] != EMPTY):
        place = find_key(keys, key)
        return np.int64(keys.size) if place == ABSENT else place
    return np.int64(keys.size) if is_absent else np.int64(group) + offset


@compiled_in_order
def claim_key(keys: UnsignedIntegers, key: np.uint64) -> tuple[np.int64, bool]:
    """Return the place of a key and whether the key is new; some place must be empty."""
    last = np.uint64(keys.size - 1)
    group = find_group(keys, key)
    while True:
        offset = find_in_line(keys, group, key)
        if offset < PLACES_PER_GROUP:
            return np.int64(group) + offset, False
        offset = find_in_line(keys, group, EMPTY)
        if offset < PLACES_PER_GROUP:
            place = np.int64(group) + offset
            keys[place] = key
            return place, True
        group = (group + np.uint64(PLACES_PER_GROUP)) & last


@compiled_in_order
def move_keys(
    old_keys: UnsignedIntegers,
    old_rows: Floats,
    is_kept: Booleans,
    keys: UnsignedIntegers,
    rows: Floats,
) -> None:
    """Copy the kept keys and their rows, (places, n), into an empty table."""
    for old in range(old_keys.size):
        if old_keys[old] != EMPTY and is_kept[old]:
            place, _ = claim_key(keys, old_keys[old])
            for i in range(rows.shape[1]):
                rows[place, i] = old_rows[old, i]
