"""Feature hashing: named numbers become a vector, each name an index and a sign.

The row of an action is x = ½ (1, a) ⊗ (1, c). It contains a constant, the features a of the action,
the features c of the context, and all crossings of both, which together weigh the same however many
there are. A side is the context or one action. Each feature of a side of n features is divided by
√n, so that ‖a‖ ≤ 1 and ‖c‖ ≤ 1. Without collisions of indices, ‖x‖ ≤ 1 and
⟨x, y⟩ = ¼ (1 + ⟨a, a'⟩)(1 + ⟨c, c'⟩). With collisions, the random signs keep this equation true on
average.

Each operation is rounded in the order as written, and only operations that IEEE 754 rounds exactly
are used. All machines therefore compute the same bits.
"""

import hashlib
import math
import sys
from functools import lru_cache

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane._random import GOLDEN, scramble
from windvane.errors import FeatureError
from windvane.types import Floats, Places, UnsignedIntegers

CATEGORY_VALUE = math.inf  # stands for a category, whose weight is 1
MAX_NAME_CHARACTERS = 1024  # including namespace and category


@lru_cache(maxsize=2**14)
def hash_name(name: str) -> bytes:
    """Hash a name: 64 bits of BLAKE2b over UTF-8, as the bytes of a uint64.

    Lone surrogates are hashed as well.
    """
    if len(name) > MAX_NAME_CHARACTERS:
        raise FeatureError(
            f"features: {name[:40]}... must have at most {MAX_NAME_CHARACTERS} characters with "
            f"its category, got {len(name)}"
        )
    text = name.encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return number.to_bytes(8, sys.byteorder)


@compiled_in_order
def squash(number: float) -> float:
    """sign(v)·ℓ/(1 + ℓ), ℓ = log₂(1 + |v|) with straight lines between the powers of two.

    The result is about v near 0, ½ at 1, 0.9 at 1000, and never more than 1, the weight of a
    category. The logarithm of the C library would differ in its last bit between machines.
    """
    mantissa, exponent = math.frexp(1.0 + abs(number))
    log = exponent + 2.0 * mantissa - 2.0
    return math.copysign(1.0 - 1.0 / (1.0 + log), number)


@compiled_in_order
def weigh_parts(
    hashes: UnsignedIntegers, numbers: Floats, sizes: Places, feature_counts: Places
) -> tuple[UnsignedIntegers, Floats, Places]:
    """Compute the hash and the weight of each part of every side, and the end of each side.

    Side 0 is the context, then follows one side for each action. The first part of a side is its
    constant; each number of each of its features is another part. `hashes` and `sizes` are by
    feature, `feature_counts` by side. The weights of one feature together have length 1 at most.
    """
    total = numbers.size + feature_counts.size
    part_hashes, weights = np.empty(total, np.uint64), np.empty(total)
    ends = np.empty(feature_counts.size, np.int64)
    part = 0
    number = 0
    feature = 0
    for side in range(feature_counts.size):
        part_hashes[part], weights[part] = np.uint64(0), 1.0
        part += 1
        for _ in range(feature_counts[side]):
            size, square = sizes[feature], 0.0
            for i in range(size):
                part_hashes[part + i] = scramble(hashes[feature] + GOLDEN * np.uint64(i))
                weights[part + i] = squash(numbers[number + i])
                square += weights[part + i] * weights[part + i]
            divisor = math.sqrt(feature_counts[side]) * max(1.0, math.sqrt(square))
            for i in range(size):
                weights[part + i] /= divisor
            part += size
            number += size
            feature += 1
        ends[side] = part
    return part_hashes, weights, ends


@compiled_in_order
def cross_parts(
    part_hashes: UnsignedIntegers,
    weights: Floats,
    context_end: int,
    first: int,
    last: int,
    dim: int,
) -> tuple[Places, Floats]:
    """Compute the index in the row and the value of every pair of an action's and a context's part.

    The parts of the context are [0, context_end), those of the action [first, last). The pair of
    both constants has index 0 for itself, so that no row is zero.
    """
    indices = np.empty((last - first) * context_end, np.int64)
    values = np.empty(indices.size)
    pair = 0
    for i in range(first, last):
        for j in range(context_end):
            mixed = scramble(GOLDEN * part_hashes[i] + part_hashes[j])
            high = mixed >> np.uint64(32)
            indices[pair] = 1 + np.int64((high * np.uint64(dim - 1)) >> np.uint64(32))
            value = 0.5 * weights[i] * weights[j]
            values[pair] = value if mixed & np.uint64(1) else -value
            pair += 1
    indices[0], values[0] = 0, 0.5
    return indices, values


@compiled_in_order
def hash_rows(
    hashes: UnsignedIntegers,
    numbers: Floats,
    sizes: Places,
    feature_counts: Places,
    dim: int,
) -> Floats:
    """Compute the row of each action, (K, d); a row that collisions made longer than 1 is scaled.

    The arguments are those of `weigh_parts`.
    """
    part_hashes, weights, ends = weigh_parts(hashes, numbers, sizes, feature_counts)
    rows = np.zeros((feature_counts.size - 1, dim))
    for k in range(feature_counts.size - 1):
        row = rows[k]
        indices, values = cross_parts(part_hashes, weights, ends[0], ends[k], ends[k + 1], dim)
        for pair in range(indices.size):
            row[indices[pair]] += values[pair]
        square = 0.0  # Σⱼ xⱼ²: each value in xⱼ contributes value · xⱼ
        for pair in range(indices.size):
            square += values[pair] * row[indices[pair]]
        if square > 1.0:
            norm = math.sqrt(square)
            for i in range(dim):
                row[i] /= norm
    return rows
