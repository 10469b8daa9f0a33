"""Instructions of LLVM that numba does not offer, as functions that compiled code calls.

- Lanes: eight numbers of eight replications, which compiled code holds in vector registers. It
  adds, multiplies and compares lanes as it does numbers; each lane is computed as if it were alone.
  An array of lanes has the shape (n, 8): `load` reads its row i and `store` writes it. There are
  also lanes of four and of two neighbouring numbers of any array: `load_four`, `load_two`,
  `load_like` and `store_at`. Every step with them is rounded as written.
- Cache lines: `find_in_line` compares the eight keys of one, `load_ahead` loads one ahead of use.
- `view_matrix`: a part of a vector as a matrix, much faster to compile than `reshape`.

Without the compiler, all of them are plain Python, and lanes are arrays (8,).
"""

import math
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import lower_builtin, models, register_model, type_callable

from windvane.types import Floats, UnsignedIntegers

LANES = 8
FLAGS = ("contract", "nsz", "arcp")  # a product and a sum may be one instruction
KEYS_PER_LINE = 8  # of 64 bits, in a cache line of 64 bytes
LINE_BYTES = 64
Number = TypeVar("Number", np.float64, np.uint64)
_INT8, _INT32, _INT64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_LINE = ir.VectorType(_INT64, KEYS_PER_LINE)
_TO_READ, _KEEP_LONG, _DATA = (ir.Constant(_INT32, value) for value in (0, 3, 1))


def load(array: Floats, i: int) -> Floats:
    """Return row i of an array of lanes (n, 8)."""
    lanes: Floats = array[i].copy()
    return lanes


def store(array: Floats, i: int, lanes: Floats) -> None:
    """Write row i of an array of lanes (n, 8)."""
    array[i] = lanes


def load_four(array: Floats, place: int) -> Floats:
    """Return four numbers of an array, from a place of its memory on."""
    return array.reshape(-1)[place : place + 4].copy()


def load_two(array: Floats, place: int) -> Floats:
    """Return two numbers of an array, from a place of its memory on."""
    return array.reshape(-1)[place : place + 2].copy()


def load_like(array: Floats, place: int, lanes: Floats) -> Floats:
    """Return as many numbers of an array as `lanes` has, from a place of its memory on."""
    return array.reshape(-1)[place : place + len(lanes)].copy()


def store_at(array: Floats, place: int, lanes: Floats) -> None:
    """Write lanes to an array, from a place of its memory on."""
    array.reshape(-1)[place : place + len(lanes)] = lanes


def repeat(number: float) -> Floats:
    """Return the same number in every lane."""
    return np.full(LANES, number)


def take_root(lanes: Floats) -> Floats:
    """Return the square root of each lane."""
    return np.sqrt(lanes)


def take_larger(left: Floats, right: Floats) -> Floats:
    """Return the larger number in each lane; the right one if the left one is NaN."""
    return np.where(left > right, left, right)


def take_smaller(left: Floats, right: Floats) -> Floats:
    """Return the smaller number in each lane; the right one if the left one is NaN."""
    return np.where(left < right, left, right)


def select_if_less(left: Floats, right: Floats, chosen: Floats, other: Floats) -> Floats:
    """Return `chosen` in the lanes in which left < right, `other` in the rest."""
    return np.where(left < right, chosen, other)


class LanesType(types.Type):
    """The type of lanes in compiled code."""

    def __init__(self, name: str, count: int, flags: tuple[str, ...]) -> None:
        super().__init__(name=name)
        self.flags = flags  # what LLVM may do to floating point
        self.vector = ir.VectorType(ir.DoubleType(), count)


LANES_TYPE = LanesType("Lanes", LANES, FLAGS)
FOUR_LANES_TYPE = LanesType("FourLanes", 4, ())
TWO_LANES_TYPE = LanesType("TwoLanes", 2, ())
ALL_TYPES = (LANES_TYPE, FOUR_LANES_TYPE, TWO_LANES_TYPE)


@register_model(LanesType)
class LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    """Lanes are one vector of LLVM."""

    def __init__(self, manager: Any, type_: LanesType) -> None:
        super().__init__(manager, type_, type_.vector)


def _repeat_number(builder: Any, number: Any, vector: Any) -> Any:
    undefined = ir.Constant(vector, ir.Undefined)
    single = builder.insert_element(undefined, number, ir.Constant(_INT32, 0))
    places = ir.Constant(ir.VectorType(_INT32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(single, undefined, places)


def _register(
    function: Callable[..., object], find_type: Callable[..., Any], *signatures: tuple[Any, ...]
) -> Callable[[Callable[..., Any]], object]:
    """Let compiled code call `function`; the decorated one makes the LLVM code of a call."""
    type_callable(function)(lambda context: find_type)

    def enter(lower: Callable[..., Any]) -> None:
        for signature in signatures:
            lower_builtin(function, *signature)(lower)

    return enter


def _find_common(*lanes: Any) -> Any:
    """The type of lanes that are all of one type."""
    return lanes[0] if len(set(lanes)) == 1 and lanes[0] in ALL_TYPES else None


_FIND_COMMON: dict[int, Callable[..., Any]] = {  # numba reads the number of arguments
    1: lambda only: _find_common(only),
    2: lambda left, right: _find_common(left, right),
    4: lambda left, right, chosen, other: _find_common(left, right, chosen, other),
}


def _compile_function(
    function: Callable[..., object], count: int, lower: Callable[..., Any]
) -> None:
    """Let compiled code call `function` on lanes; `lower` makes the LLVM code."""
    _register(function, _FIND_COMMON[count], *((each,) * count for each in ALL_TYPES))(
        lambda context, builder, signature, values: lower(builder, *values)
    )


def _compile_operator(name: str, function: Callable[..., object]) -> None:
    """Let compiled code use an operator on two lanes, or on lanes and a number."""

    def find_type(left: Any, right: Any) -> Any:
        return _find_common(*(each for each in (left, right) if each != types.float64))

    number = types.float64
    pairs = (pair for each in ALL_TYPES for pair in ((each, each), (each, number), (number, each)))

    @_register(function, find_type, *pairs)
    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lanes = signature.return_type
        left, right = (
            value if type_ == lanes else _repeat_number(builder, value, lanes.vector)
            for value, type_ in zip(values, signature.args, strict=True)
        )
        return getattr(builder, name)(left, right, flags=lanes.flags)


def _call_vector_function(name: str) -> Callable[..., Any]:
    def lower(builder: Any, value: Any) -> Any:
        kind = ir.FunctionType(value.type, [value.type])
        full_name = f"{name}.v{value.type.count}f64"
        return builder.call(
            cgutils.get_or_insert_function(builder.module, kind, full_name), [value]
        )

    return lower


def _select(builder: Any, sign: str, left: Any, right: Any, chosen: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered(sign, left, right), chosen, other)


_compile_operator("fadd", operator.add)
_compile_operator("fsub", operator.sub)
_compile_operator("fmul", operator.mul)
_compile_operator("fdiv", operator.truediv)
_compile_function(operator.neg, 1, lambda builder, value: builder.fneg(value))
_compile_function(abs, 1, _call_vector_function("llvm.fabs"))
_compile_function(take_root, 1, _call_vector_function("llvm.sqrt"))
_compile_function(take_larger, 2, lambda builder, x, y: _select(builder, ">", x, y, x, y))
_compile_function(take_smaller, 2, lambda builder, x, y: _select(builder, "<", x, y, x, y))
_compile_function(select_if_less, 4, lambda builder, *values: _select(builder, "<", *values))


@_register(repeat, lambda number: LANES_TYPE if number == types.float64 else None, (types.Float,))
def _lower_repeat(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    return _repeat_number(builder, values[0], LANES_TYPE.vector)


def _compile_access(
    read: Callable[..., object] | None,
    write: Callable[..., object] | None,
    known: tuple[LanesType, ...],
    axes: int | None = None,
    step: int = 1,
) -> None:
    """Let compiled code read or write lanes of an array; `step` is the distance of two places.

    If several types are known, `read` has lanes of the type that it returns as an argument.
    """

    def is_place(array: Any, place: Any) -> bool:
        return is_contiguous(array, types.float64, axes) and isinstance(place, types.Integer)

    def find_lanes(context: Any, builder: Any, signature: Any, values: Any, lanes: Any) -> Any:
        place = builder.mul(values[1], ir.Constant(values[1].type, step))
        address = _find_address(context, builder, signature, values[0], place)
        return builder.bitcast(address, lanes.vector.as_pointer())

    def lower_read(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lanes = signature.return_type
        return builder.load(find_lanes(context, builder, signature, values, lanes), align=8)

    def lower_write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = find_lanes(context, builder, signature, values, signature.args[2])
        builder.store(values[2], address, align=8)
        return context.get_dummy_value()

    def find_read(array: Any, place: Any) -> Any:
        return known[0] if is_place(array, place) else None

    def find_like(array: Any, place: Any, lanes: Any) -> Any:
        return lanes if is_place(array, place) and lanes in known else None

    def find_write(array: Any, place: Any, lanes: Any) -> Any:
        return types.none if find_like(array, place, lanes) else None

    places = (types.Array, types.Integer)
    if read and len(known) > 1:
        _register(read, find_like, (*places, LanesType))(lower_read)
    elif read:
        _register(read, find_read, places)(lower_read)
    if write:
        _register(write, find_write, (*places, LanesType))(lower_write)


_compile_access(load, store, (LANES_TYPE,), axes=2, step=LANES)
_compile_access(load_four, None, (FOUR_LANES_TYPE,))
_compile_access(load_two, None, (TWO_LANES_TYPE,))
_compile_access(load_like, store_at, ALL_TYPES)


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


def _find_line_type(keys: Any, first: Any, key: Any) -> Any:
    are_integers = (first, key) == (types.uint64, types.uint64)
    return types.int64 if is_contiguous(keys, types.uint64, 1) and are_integers else None


def _find_load_type(array: Any, place: Any) -> Any:
    is_accepted = isinstance(array, types.Array) and array.layout == "C"
    return types.none if is_accepted and isinstance(place, types.Integer) else None


def _find_address(context: Any, builder: Any, signature: Any, array: Any, place: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, array).data
    return builder.gep(data, [place])


@_register(find_in_line, _find_line_type, (types.Array, types.Integer, types.Integer))
def _lower_find(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    place = _find_address(context, builder, signature, values[0], values[1])
    line = builder.load(builder.bitcast(place, _LINE.as_pointer()), align=8)
    repeated_key = _repeat_number(builder, values[2], _LINE)
    equal = builder.bitcast(builder.icmp_unsigned("==", line, repeated_key), _INT8)
    none_is_equal = ir.Constant(_INT64, 1 << KEYS_PER_LINE)
    bits = builder.or_(builder.zext(equal, _INT64), none_is_equal)
    return builder.cttz(bits, ir.Constant(ir.IntType(1), 1))


@_register(load_ahead, _find_load_type, (types.Array, types.Integer))
def _lower_load_ahead(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    pointer = _INT8.as_pointer()
    address = _find_address(context, builder, signature, values[0], values[1])
    place = builder.bitcast(address, pointer)
    kind = ir.FunctionType(ir.VoidType(), [pointer, _INT32, _INT32, _INT32])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(prefetch, [place, _TO_READ, _KEEP_LONG, _DATA])
    return context.get_dummy_value()


def view_matrix(numbers: Floats, start: int, rows: int, columns: int) -> Floats:
    """Return `rows` times `columns` numbers of a vector, from place `start` on, as a matrix."""
    return numbers[start : start + rows * columns].reshape(rows, columns)


def _find_view_type(numbers: Any, start: Any, rows: Any, columns: Any) -> Any:
    is_vector = isinstance(numbers, types.Array) and numbers.ndim == 1 and numbers.layout == "C"
    return numbers.copy(ndim=2) if is_vector else None


@_register(view_matrix, _find_view_type, (types.Array, *(types.Integer,) * 3))
def _lower_view(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    from numba.np.arrayobj import make_array, populate_array  # only compilation needs it

    vector_type, *_ = signature.args
    vector = make_array(vector_type)(context, builder, values[0])
    start, rows, columns = (
        context.cast(builder, value, type_, types.intp)
        for value, type_ in zip(values[1:], signature.args[1:], strict=True)
    )
    matrix = make_array(signature.return_type)(context, builder)
    populate_array(
        matrix,
        data=builder.gep(vector.data, [start]),
        shape=(rows, columns),
        strides=(builder.mul(columns, vector.itemsize), vector.itemsize),
        itemsize=vector.itemsize,
        meminfo=vector.meminfo,
        parent=vector.parent,
    )
    return impl_ret_borrowed(context, builder, signature.return_type, matrix._getvalue())
