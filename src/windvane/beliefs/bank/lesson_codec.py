"""The features of a lesson as bytes: those of the context and of the chosen action, not crossed.

A lesson keeps raw numbers and hashes of names. The scaling of numbers and the crossings are applied
when the lesson is learned.
"""

import math
import struct

import numpy as np

from windvane.beliefs.bank.feature_parts import PackedSides
from windvane.features.hashing import CATEGORY_VALUE
from windvane.features.packed_features import (
    ARRAY,
    BYTES_PER_NUMBER,
    CATEGORY,
    NUMBER,
    PackedFeatures,
)

_HEAD = struct.Struct("<BHH")  # version, features of the context, features of the action
_VERSION, _VERSION_WITH_MASKS = 1, 2


def encode_lesson(sides: PackedSides) -> bytes:
    """Encode the features of a context and one action."""
    is_category = np.zeros(len(sides.sizes), np.bool_)
    starts = np.cumsum(sides.sizes) - sides.sizes
    is_single = sides.sizes == 1
    is_category[is_single] = np.isinf(sides.numbers[starts[is_single]])
    kinds = np.where(is_category, CATEGORY, np.where(is_single, NUMBER, ARRAY)).astype(np.uint8)
    has_masks = bool((sides.masks != 1).any())
    fields = (
        _HEAD.pack(_VERSION_WITH_MASKS if has_masks else _VERSION, *sides.feature_counts),
        kinds.tobytes(),
        sides.masks.astype(np.uint8).tobytes() if has_masks else b"",
        sides.sizes[kinds == ARRAY].astype(np.uint16).tobytes(),
        sides.hashes.tobytes(),
        sides.numbers[~np.isinf(sides.numbers)].tobytes(),
    )
    return b"".join(fields)


def encode_packed_lesson(context: PackedFeatures, action: PackedFeatures) -> bytes:
    """Encode the packed features of a context and one action, all of which are crossed.

    The bytes are those of `encode_lesson` for the joined sides, in a tenth of the time.
    """
    fields = (
        _HEAD.pack(_VERSION, context.feature_count, action.feature_count),
        context.kinds,
        action.kinds,
        _list_array_sizes(context),
        _list_array_sizes(action),
        context.labels,
        action.labels,
        context.plain_numbers,
        action.plain_numbers,
    )
    return b"".join(fields)


def _list_array_sizes(features: PackedFeatures) -> bytes:
    """The sizes of the arrays alone, two bytes each."""
    if ARRAY not in features.kinds:
        return b""
    sizes = np.frombuffer(features.sizes, np.int64)
    array_sizes: bytes = sizes[sizes != 1].astype(np.uint16).tobytes()
    return array_sizes


def decode_lesson(encoded: bytes) -> PackedSides:
    """Decode the features of a context and one action; raises ValueError if they are damaged."""
    if len(encoded) < _HEAD.size:
        raise ValueError("these are no features of a lesson")
    version, *counts = _HEAD.unpack_from(encoded)
    if version not in (_VERSION, _VERSION_WITH_MASKS):
        raise ValueError("these are no features of a lesson")
    total = sum(counts)
    kinds = encoded[_HEAD.size : _HEAD.size + total]
    if version == _VERSION and kinds.count(CATEGORY) + kinds.count(NUMBER) == total:
        return _decode_single_numbers(encoded, kinds, counts)
    return _decode_any(encoded, version == _VERSION_WITH_MASKS, counts)


def _decode_single_numbers(encoded: bytes, kinds: bytes, counts: list[int]) -> PackedSides:
    """Decode features without arrays that are all crossed: most lessons are such."""
    total = len(kinds)
    hashes_at = _HEAD.size + total
    numbers_at = hashes_at + BYTES_PER_NUMBER * total
    number_count = kinds.count(NUMBER)
    end = numbers_at + BYTES_PER_NUMBER * number_count
    if len(encoded) != end:
        raise ValueError("the features of a lesson are damaged")
    plain_numbers = struct.unpack_from(f"{number_count}d", encoded, numbers_at)
    if not all(map(math.isfinite, plain_numbers)):
        raise ValueError("the features of a lesson are damaged")
    following = iter(plain_numbers)
    numbers = [next(following) if kind == NUMBER else CATEGORY_VALUE for kind in kinds]
    return PackedSides(
        np.frombuffer(bytearray(encoded[hashes_at:numbers_at]), np.uint64),
        np.array(numbers, np.float64),
        np.ones(total, np.int64),
        np.array(counts, np.int64),
        np.ones(total, np.int64),
    )


def _decode_any(encoded: bytes, has_masks: bool, counts: list[int]) -> PackedSides:
    """Decode features of any kind."""
    total = sum(counts)
    at = _HEAD.size
    kinds = np.frombuffer(encoded, np.uint8, total, at)
    at += total
    masks = np.ones(total, np.int64)
    if has_masks:
        masks = np.frombuffer(encoded, np.uint8, total, at).astype(np.int64)
        at += total
    is_array = kinds == ARRAY
    array_count = int(is_array.sum())
    sizes = np.ones(total, np.int64)
    sizes[is_array] = np.frombuffer(encoded, np.uint16, array_count, at)
    at += 2 * array_count
    hashes = np.frombuffer(encoded, np.uint64, total, at)
    at += 8 * total
    is_number = np.repeat(kinds != CATEGORY, sizes)
    numbers = np.full(len(is_number), np.inf)
    number_count = int(is_number.sum())
    numbers[is_number] = np.frombuffer(encoded, np.float64, number_count, at)
    at += 8 * number_count
    is_whole = len(encoded) == at
    if not is_whole or (kinds > ARRAY).any() or not np.isfinite(numbers[is_number]).all():
        raise ValueError("the features of a lesson are damaged")
    return PackedSides(hashes.copy(), numbers, sizes, np.array(counts, np.int64), masks)
