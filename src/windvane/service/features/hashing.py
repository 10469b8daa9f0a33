"""Named numbers as vectors: each name a place and a sign, each number a weight of at most 1.

An arm is x = ½ (1, a) ⊗ (1, c): a constant, the features a of the action, those of the context c,
and all crossings, which weigh the same together however many there are. Each feature of a side of n
is divided by √n, so that ‖a‖ ≤ 1, ‖c‖ ≤ 1 and, before places are shared, ‖x‖ ≤ 1 and
⟨x, y⟩ = ¼ (1 + ⟨a, a'⟩)(1 + ⟨c, c'⟩). The signs keep that right on average when they are shared.

Every step is rounded as written and uses only what IEEE 754 rounds exactly, so that all machines
agree to the bit.
"""

import hashlib
import math
import sys
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from windvane._jit import compiled_in_order
from windvane._random import GOLDEN, scramble
from windvane.errors import FeatureError
from windvane.types import Floats

Bits = npt.NDArray[np.uint64]
Whole = npt.NDArray[np.int64]

CATEGORY = math.inf  # the number of a category: its weight is 1
LONGEST_NAME = 1024  # characters, namespace and category included


@lru_cache(maxsize=2**14)
def digest(name: str) -> bytes:
    """64 bits of BLAKE2b over UTF-8, as bytes of a uint64; lone surrogates are let through."""
    if len(name) > LONGEST_NAME:
        raise FeatureError(
            f"features: {name[:40]}... must have at most {LONGEST_NAME} characters with its "
            f"category, got {len(name)}"
        )
    text = name.encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return number.to_bytes(8, sys.byteorder)


@compiled_in_order
def weight(number: float) -> float:
    """sign(v)·ℓ/(1 + ℓ), ℓ = log₂(1 + |v|) with straight lines between the powers of two.

    About v near 0, ½ at 1, 0.9 at 1000, and never more than a category. The logarithm of the
    system's library would differ in its last bit from one machine to the next.
    """
    mantissa, exponent = math.frexp(1.0 + abs(number))
    log = exponent + 2.0 * mantissa - 2.0
    return math.copysign(1.0 - 1.0 / (1.0 + log), number)


@compiled_in_order
def weigh(
    digests: Bits, numbers: Floats, sizes: Whole, counts: Whole
) -> tuple[Bits, Floats, Whole]:
    """The parts of every side, a constant first: their bits, their weights, where each side ends.

    The context is side 0, then comes each action, each with its count of features; a feature has
    one number, or an array's size of them, and weighs at most 1 as a whole.
    """
    total = numbers.size + counts.size
    bits, weights = np.empty(total, np.uint64), np.empty(total)
    ends = np.empty(counts.size, np.int64)
    part, number, feature = 0, 0, 0
    for side in range(counts.size):
        bits[part], weights[part] = np.uint64(0), 1.0
        part += 1
        for _ in range(counts[side]):
            size, square = sizes[feature], 0.0
            for i in range(size):
                bits[part + i] = scramble(digests[feature] + GOLDEN * np.uint64(i))
                weights[part + i] = weight(numbers[number + i])
                square += weights[part + i] * weights[part + i]
            shrink = math.sqrt(counts[side]) * max(1.0, math.sqrt(square))
            for i in range(size):
                weights[part + i] /= shrink
            part, number, feature = part + size, number + size, feature + 1
        ends[side] = part
    return bits, weights, ends


@compiled_in_order
def cross(
    bits: Bits, weights: Floats, context: int, first: int, last: int, dim: int
) -> tuple[Whole, Floats]:
    """Where every pair of a part of the action and a part of the context goes, and its number.

    The pair of both constants has place 0 to itself, so that no arm is ever zero.
    """
    places = np.empty((last - first) * context, np.int64)
    amounts = np.empty(places.size)
    pair = 0
    for i in range(first, last):
        for j in range(context):
            mixed = scramble(GOLDEN * bits[i] + bits[j])
            high = mixed >> np.uint64(32)
            places[pair] = 1 + np.int64((high * np.uint64(dim - 1)) >> np.uint64(32))
            amount = 0.5 * weights[i] * weights[j]
            amounts[pair] = amount if mixed & np.uint64(1) else -amount
            pair += 1
    places[0], amounts[0] = 0, 0.5
    return places, amounts


@compiled_in_order
def vectors(digests: Bits, numbers: Floats, sizes: Whole, counts: Whole, dim: int) -> Floats:
    """One row an action; where shared places made it longer than 1, it is cut back to 1."""
    bits, weights, ends = weigh(digests, numbers, sizes, counts)
    rows = np.zeros((counts.size - 1, dim))
    for k in range(counts.size - 1):
        row = rows[k]
        places, amounts = cross(bits, weights, ends[0], ends[k], ends[k + 1], dim)
        for pair in range(places.size):
            row[places[pair]] += amounts[pair]
        square = 0.0  # Σⱼ xⱼ², each xⱼ once for every amount in it
        for pair in range(places.size):
            square += amounts[pair] * row[places[pair]]
        if square > 1.0:
            norm = math.sqrt(square)
            for i in range(dim):
                row[i] /= norm
    return rows
