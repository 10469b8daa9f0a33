"""Cache lines in compiled code: compare the eight keys of one at once, and load one ahead of use.

Numba knows no instruction for either. Without the compiler, the functions are plain Python.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import lower_builtin, type_callable

from windvane.types import Floats, UnsignedIntegers

KEYS_PER_LINE = 8  # of 64 bits, in a cache line of 64 bytes
LINE_BYTES = 64
Number = TypeVar("Number", np.float64, np.uint64)
_INT8, _INT32, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_LINE = ir.VectorType(_INT64, KEYS_PER_LINE)
_TO_READ, _KEEP_LONG, _DATA = (ir.Constant(_INT32, value) for value in (0, 3, 1))


def find_in_line(keys: UnsignedIntegers, first: np.uint64, key: np.uint64) -> int:
    """Return which of the eight keys from place `first` on is `key`, or KEYS_PER_LINE."""
    for i, each in enumerate(keys[int(first) : int(first) + KEYS_PER_LINE].tolist()):
        if each == key:
            return i
    return KEYS_PER_LINE


def load_ahead(array: UnsignedIntegers | Floats, place: int | np.uint64) -> None:
    """Let the processor load a cache line of an array, and do not wait for it.

    `place` counts the numbers of the array in the order of its memory.
    """


def make_aligned_zeros(shape: tuple[int, ...], kind: type[Number]) -> npt.NDArray[Number]:
    """Make an array of numbers of 64 bits that begins with a cache line."""
    count = math.prod(shape)
    room = np.zeros(count + KEYS_PER_LINE, kind)
    first = -room.ctypes.data % LINE_BYTES // room.itemsize
    return room[first : first + count].reshape(shape)


def is_contiguous(array: Any, number: Any, axes: int | None = None) -> bool:
    """Whether a numba type is an array of these numbers in C order, with this number of axes."""
    return (
        isinstance(array, types.Array)
        and (array.dtype, array.layout) == (number, "C")
        and axes in (None, array.ndim)
    )


@type_callable(find_in_line)
def _type_find(context: Any) -> Callable[..., Any]:
    def find_type(keys: Any, first: Any, key: Any) -> Any:
        are_integers = (first, key) == (types.uint64, types.uint64)
        return types.int64 if is_contiguous(keys, types.uint64, 1) and are_integers else None

    return find_type


@type_callable(load_ahead)
def _type_load_ahead(context: Any) -> Callable[..., Any]:
    def find_type(array: Any, place: Any) -> Any:
        is_accepted = isinstance(array, types.Array) and array.layout == "C"
        return types.none if is_accepted and isinstance(place, types.Integer) else None

    return find_type


def _find_place(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, values[0]).data
    return builder.gep(data, [values[1]])


@lower_builtin(find_in_line, types.Array, types.Integer, types.Integer)
def _lower_find(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    place = _find_place(context, builder, signature, values)
    line = builder.load(builder.bitcast(place, _LINE.as_pointer()), align=8)
    undefined = ir.Constant(_LINE, ir.Undefined)
    single = builder.insert_element(undefined, values[2], ir.Constant(_INT32, 0))
    zeros = ir.Constant(ir.VectorType(_INT32, KEYS_PER_LINE), [0] * KEYS_PER_LINE)
    repeated_key = builder.shuffle_vector(single, undefined, zeros)
    equal = builder.bitcast(builder.icmp_unsigned("==", line, repeated_key), _INT8)
    none_is_equal = ir.Constant(_INT64, 1 << KEYS_PER_LINE)
    bits = builder.or_(builder.zext(equal, _INT64), none_is_equal)
    return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))


@lower_builtin(load_ahead, types.Array, types.Integer)
def _lower_load_ahead(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    pointer = _INT8.as_pointer()
    place = builder.bitcast(_find_place(context, builder, signature, values), pointer)
    kind = ir.FunctionType(ir.VoidType(), [pointer, _INT32, _INT32, _INT32])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(prefetch, [place, _TO_READ, _KEEP_LONG, _DATA])
    return context.get_dummy_value()
