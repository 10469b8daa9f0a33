"""Hash the features of a request to sparse rows, for beliefs with very many weights."""

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane.features.hashing import cross_parts, weigh_parts
from windvane.types import Floats, Places, UnsignedIntegers


@compiled_in_order
def hash_sparsely(
    hashes: UnsignedIntegers, numbers: Floats, sizes: Places, feature_counts: Places, dim: int
) -> tuple[Places, Floats, Places]:
    """Compute the entries of each action's row, and where they end, as `hash_rows` does densely."""
    part_hashes, weights, ends = weigh_parts(hashes, numbers, sizes, feature_counts)
    count = feature_counts.size - 1
    row_ends = np.empty(count, np.int64)
    total = 0
    for k in range(count):
        total += ends[0] * (ends[k + 1] - ends[k])
        row_ends[k] = total
    indices, values = np.empty(total, np.int64), np.empty(total)
    place = 0
    for k in range(count):
        row_indices, row_values = cross_parts(
            part_hashes, weights, ends[0], ends[k], ends[k + 1], dim
        )
        for i in range(row_indices.size):
            indices[place] = row_indices[i]
            values[place] = row_values[i]
            place += 1
    return indices, values, row_ends
