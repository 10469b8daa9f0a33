"""A hash table from 64-bit keys to places in arrays, by open addressing.

`keys` holds the key of each place, or EMPTY. Its size is a power of two. Keys are hashes already,
so their low bits say where the search for a key begins.
"""

import numpy as np

from windvane._jit import compiled_in_order
from windvane.types import Booleans, Floats, UnsignedIntegers

EMPTY = np.uint64(0)
ABSENT = np.int64(-1)


@compiled_in_order
def find_key(keys: UnsignedIntegers, key: np.uint64) -> np.int64:
    """Return the place of a key, or ABSENT."""
    last = np.uint64(keys.size - 1)
    place = key & last
    while keys[place] != EMPTY:
        if keys[place] == key:
            return np.int64(place)
        place = (place + np.uint64(1)) & last
    return ABSENT


@compiled_in_order
def claim_key(keys: UnsignedIntegers, key: np.uint64) -> tuple[np.int64, bool]:
    """Return the place of a key and whether the key is new; some place must be empty."""
    last = np.uint64(keys.size - 1)
    place = key & last
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
