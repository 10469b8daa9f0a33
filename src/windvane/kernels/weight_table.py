"""A hash table from 64-bit keys to places in arrays, by open addressing.

`keys` holds the key of each place, or EMPTY. Its size is a power of two, at least PLACES_PER_GROUP.
Keys are hashes already, so some of their bits say at which group of places the search for a key
begins; the lowest bit is left out, because many keys have it set. The places of a group are claimed
in order, and the next group follows when all are taken. Therefore a key that is not in a group
whose last place is empty is in no later group.
"""

import numpy as np

from windvane._jit import compiled_in_order
from windvane.types import Booleans, Floats, UnsignedIntegers

EMPTY = np.uint64(0)
ABSENT = np.int64(-1)
PLACES_PER_GROUP = 8  # whose keys fill a cache line of 64 bytes


@compiled_in_order
def find_group(keys: UnsignedIntegers, key: np.uint64) -> np.uint64:
    """Return the first place of the group at which the search for a key begins."""
    return (key >> np.uint64(1)) & np.uint64(keys.size - PLACES_PER_GROUP)


@compiled_in_order
def find_key(keys: UnsignedIntegers, key: np.uint64) -> np.int64:
    """Return the place of a key, or ABSENT.

    All places of a group are compared, because that is faster than to leave a loop of unknown
    length.
    """
    last = np.uint64(keys.size - 1)
    group = find_group(keys, key)
    while True:
        found = ABSENT
        for i in range(PLACES_PER_GROUP):
            if keys[group + np.uint64(i)] == key:
                found = np.int64(group) + i
        if found != ABSENT or keys[group + np.uint64(PLACES_PER_GROUP - 1)] == EMPTY:
            return found
        group = (group + np.uint64(PLACES_PER_GROUP)) & last


@compiled_in_order
def claim_key(keys: UnsignedIntegers, key: np.uint64) -> tuple[np.int64, bool]:
    """Return the place of a key and whether the key is new; some place must be empty."""
    last = np.uint64(keys.size - 1)
    place = find_group(keys, key)
    while keys[place] != EMPTY and keys[place] != key:
        place = (place + np.uint64(1)) & last
    is_new = keys[place] == EMPTY
    keys[place] = key
    return np.int64(place), bool(is_new)


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
