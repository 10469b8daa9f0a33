"""Join the packed features of a context and of actions for the kernels of the bank.

Long arrays of numbers are projected to a given size by fixed random signs. An array x with more
than m numbers becomes the m numbers

    y_r = Σ_i s_ri x_i / √m,   s_ri = ±1

Inner products of arrays stay the same on average, with errors of about 1/√m of their lengths. The
signs are bits of a hash of r and i, the same for all arrays and on every machine.

A lesson as bytes has the features of the context and of the chosen action, not crossed: raw numbers
and hashes of names. Numbers are scaled and crossed when the lesson is learned.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from windvane._numba.compilation import compiled_in_order
from windvane._random import GOLDEN, scramble
from windvane.beliefs.bank.feature_parts import PackedSides, cut
from windvane.errors import FeatureError
from windvane.features import ALL_CROSSINGS
from windvane.features.crossings import Crossing, build_masks, parse_crossings
from windvane.features.hashing import CATEGORY_VALUE
from windvane.features.json_reader import MAX_NUMBERS, FeatureList
from windvane.features.packed_features import (
    ARRAY,
    BYTES_PER_NUMBER,
    CATEGORY,
    NUMBER,
    PackedActions,
    PackedFeatures,
    check_crossings,
    join_feature_counts,
    pack_features,
    pack_field_features,
    pack_texts,
)
from windvane.types import Floats, Places

MAX_ROW_ENTRIES = 2**16  # of the row of one action: the hash table of a learner holds some more
SIGNS_PER_HASH = 64
BLOCK_SALT = np.uint64(0xD1B54A32D192ED03)
_ALL = parse_crossings(ALL_CROSSINGS)
_ONLY_TEXTS = {str}
_ONE_MASKS = np.ones(1024, np.int64)


def join_request(
    context: Sequence[Mapping[str, Any]],
    actions: PackedActions,
    crossings: tuple[Crossing, ...] = _ALL,
    array_size: int = 0,
) -> PackedSides:
    """Join the features of a context with those of all actions.

    Arrays of more than `array_size` numbers are projected to this size, unless it is 0.
    """
    return join_packed(pack_context(context, crossings), actions, crossings, array_size)


def pack_context(
    context: Sequence[Mapping[str, Any]], crossings: tuple[Crossing, ...] = _ALL
) -> PackedFeatures:
    """Pack the features of a context; only some crossings need its namespaces."""
    if crossings != _ALL:
        return pack_features(FeatureList("the context", context))
    if len(context) == 1 and type(context[0]) is dict and len(context[0]) <= MAX_NUMBERS:
        texts = context[0].values()
        if set(map(type, texts)) == _ONLY_TEXTS:
            return pack_texts(context[0], texts)
    return pack_field_features(FeatureList("the context", context))


def is_plain(crossings: tuple[Crossing, ...], array_size: int) -> bool:
    """Whether joined sides hold the packed features as they are: none projected, all crossed."""
    return not array_size and crossings == _ALL


def join_packed(
    packed: PackedFeatures,
    actions: PackedActions,
    crossings: tuple[Crossing, ...] = _ALL,
    array_size: int = 0,
) -> PackedSides:
    """Join the packed features of a context with those of all actions."""
    sides = _join_plainly(packed, actions, join_feature_counts(packed, actions))
    context_numbers = len(packed.numbers) // BYTES_PER_NUMBER
    if array_size and (sides.sizes > array_size).any():
        sides = project_arrays(sides, array_size)
        context_numbers = int(sides.sizes[: packed.feature_count].sum())
    most_numbers = len(sides.numbers) - context_numbers
    check_crossings(context_numbers * most_numbers)
    if (1 + context_numbers) * (1 + most_numbers) > MAX_ROW_ENTRIES:
        _check_rows(sides, context_numbers)
    if crossings == _ALL:
        return sides
    namespaces = np.frombuffer(packed.namespaces + actions.namespaces, np.uint64)
    return sides._replace(masks=build_masks(crossings, namespaces, packed.feature_count))


def join_page(lessons: Sequence[PackedSides]) -> PackedSides:
    """Join the lessons of the slots of a page: the context and the action of each in turn."""
    columns = zip(*lessons, strict=True)
    return PackedSides(*map(np.concatenate, columns))


def _join_plainly(context: PackedFeatures, actions: PackedActions, counts: Places) -> PackedSides:
    """Join packed features as they are; `counts` has the number of features of each side.

    All arrays can be written, as those of a decoded lesson can, so that kernels are compiled once
    for both.
    """
    hashes = np.frombuffer(bytearray(context.labels + actions.labels), np.uint64)
    return PackedSides(
        hashes=hashes,
        numbers=np.frombuffer(bytearray(context.numbers + actions.numbers), np.float64),
        sizes=np.frombuffer(bytearray(context.sizes + actions.sizes), np.int64),
        feature_counts=counts,
        masks=_make_masks(len(hashes)),
    )


def _make_masks(count: int) -> Places:
    """The masks of features that are all crossed; callers must not write to them."""
    return _ONE_MASKS[:count] if count <= len(_ONE_MASKS) else np.ones(count, np.int64)


def _check_rows(sides: PackedSides, context_numbers: int) -> None:
    """Refuse an action whose row has more entries than a learner can hold."""
    ends = np.cumsum(sides.sizes)[np.cumsum(sides.feature_counts) - 1]
    most = int(np.diff(ends).max())
    entries = (1 + context_numbers) * (1 + most)
    if entries > MAX_ROW_ENTRIES:
        raise FeatureError(
            f"features: the context and one action must have at most {MAX_ROW_ENTRIES} crossings, "
            f"got {entries}"
        )


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
