"""Project long arrays of numbers to a given size by fixed random signs.

An array x with more than m numbers becomes the m numbers

    y_r = Σ_i s_ri x_i / √m,   s_ri = ±1

Inner products of arrays stay the same on average, with errors of about 1/√m of their lengths. The
signs are bits of a hash of r and i, the same for all arrays and on every machine.
"""

import math

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane._random import GOLDEN, scramble
from windvane.beliefs.bank.feature_parts import PackedSides, cut
from windvane.types import Floats

SIGNS_PER_HASH = 64
BLOCK_SALT = np.uint64(0xD1B54A32D192ED03)


@compiled_in_order
def project_arrays(sides: PackedSides, size: int) -> PackedSides:
    """Replace every array of more than `size` numbers by `size` numbers."""
    sizes = np.minimum(sides.sizes, size)
    numbers = np.empty(sizes.sum())
    start, end = 0, 0
    for feature in range(sizes.size):
        array = sides.numbers[start : start + sides.sizes[feature]]
        projected = numbers[end : end + sizes[feature]]
        if array.size > size:
            project(array, projected)
        else:
            projected[:] = array
        start += array.size
        end += projected.size
    return PackedSides(sides.hashes, numbers, sizes, sides.feature_counts, sides.masks)


@compiled_in_order
def project(array: Floats, projected: Floats) -> None:
    """Write the projection of one array."""
    projected[:] = 0.0
    for i in range(array.size):
        number = cut(array[i])
        for first in range(0, projected.size, SIGNS_PER_HASH):
            bits = scramble(GOLDEN * np.uint64(i + 1) + BLOCK_SALT * np.uint64(first))
            for r in range(first, min(first + SIGNS_PER_HASH, projected.size)):
                projected[r] += number if bits & np.uint64(1) else -number
                bits >>= np.uint64(1)
    for r in range(projected.size):
        projected[r] /= math.sqrt(projected.size)
