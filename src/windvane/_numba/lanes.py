"""Lanes: eight numbers of eight replications, which compiled code holds in vector registers.

Compiled code adds, multiplies and compares lanes as it does numbers; each lane is computed as if it
were alone. An array of lanes has the shape (n, 8): `load` reads its row i and `store` writes it.
Without the compiler, lanes are arrays (8,).

There are also lanes of four and of two neighbouring numbers of any array: `load_four`, `load_two`,
`load_like` and `store_at`. Every step with them is rounded as written.
"""

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import lower_builtin, models, register_model, type_callable

from windvane._numba.cache_lines import is_contiguous
from windvane.types import Floats

LANES = 8
_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
FLAGS = ("contract", "nsz", "arcp")  # a product and a sum may be one instruction


def load(array: Floats, i: int) -> Floats:
    """Return row i of an array of lanes (n, 8)."""
    lanes: Floats = array[i].copy()
    return lanes


def store(array: Floats, i: int, lanes: Floats) -> None:
    """Write row i of an array of lanes (n, 8)."""
    array[i] = lanes


def load_four(array: Floats, place: int) -> Floats:
    """Return four numbers of an array, from a place of its memory on."""
    lanes: Floats = array.reshape(-1)[place : place + 4].copy()
    return lanes


def load_two(array: Floats, place: int) -> Floats:
    """Return two numbers of an array, from a place of its memory on."""
    lanes: Floats = array.reshape(-1)[place : place + 2].copy()
    return lanes


def load_like(array: Floats, place: int, lanes: Floats) -> Floats:
    """Return as many numbers of an array as `lanes` has, from a place of its memory on."""
    loaded: Floats = array.reshape(-1)[place : place + len(lanes)].copy()
    return loaded


def store_at(array: Floats, place: int, lanes: Floats) -> None:
    """Write lanes to an array, from a place of its memory on."""
    array.reshape(-1)[place : place + len(lanes)] = lanes


def repeat(number: float) -> Floats:
    """Return the same number in every lane."""
    return np.full(LANES, number)


def take_root(lanes: Floats) -> Floats:
    """Return the square root of each lane."""
    roots: Floats = np.sqrt(lanes)
    return roots


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
    zero = ir.Constant(ir.IntType(32), 0)
    single = builder.insert_element(ir.Constant(vector, ir.Undefined), number, zero)
    places = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(single, ir.Constant(vector, ir.Undefined), places)


def _compile_function(function: Callable[..., object], lower: Callable[..., Any]) -> None:
    """Let compiled code call `function` on lanes; `lower` makes the LLVM code."""
    count = len(inspect.signature(lower).parameters) - 1

    def type_function(context: Any) -> Callable[..., Any]:
        def find_type(*arguments: Any) -> Any:
            first = arguments[0] if len(set(arguments)) == 1 else None
            return first if len(arguments) == count and first in ALL_TYPES else None

        names = [f"argument{i}" for i in range(count)]  # numba reads the number of arguments
        parameters = [inspect.Parameter(name, _POSITIONAL) for name in names]
        find_type.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return find_type

    type_callable(function)(type_function)
    for each in ALL_TYPES:
        lower_builtin(function, *(each,) * count)(
            lambda context, builder, signature, values: lower(builder, *values)
        )


def _compile_operator(name: str, function: Callable[..., object]) -> None:
    """Let compiled code use an operator on two lanes, or on lanes and a number."""

    def type_operator(context: Any) -> Callable[..., Any]:
        def find_type(left: Any, right: Any) -> Any:
            lanes = {each for each in (left, right) if each != types.float64}
            is_known = len(lanes) == 1 and lanes.issubset(ALL_TYPES)
            return lanes.pop() if is_known else None

        return find_type

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lanes = signature.return_type
        left, right = (
            value if type_ == lanes else _repeat_number(builder, value, lanes.vector)
            for value, type_ in zip(values, signature.args, strict=True)
        )
        return getattr(builder, name)(left, right, flags=lanes.flags)

    type_callable(function)(type_operator)
    for each in ALL_TYPES:
        for pair in ((each, each), (each, types.float64), (types.float64, each)):
            lower_builtin(function, *pair)(lower)


def _call_vector_function(name: str) -> Callable[..., Any]:
    def lower(builder: Any, value: Any) -> Any:
        kind = ir.FunctionType(value.type, [value.type])
        full_name = f"{name}.v{value.type.count}f64"
        return builder.call(
            cgutils.get_or_insert_function(builder.module, kind, full_name), [value]
        )

    return lower


def _lower_larger(builder: Any, left: Any, right: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


def _lower_smaller(builder: Any, left: Any, right: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", left, right), left, right)


def _lower_selection(builder: Any, left: Any, right: Any, chosen: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", left, right), chosen, other)


for _name, _operator in (
    ("fadd", operator.add),
    ("fsub", operator.sub),
    ("fmul", operator.mul),
    ("fdiv", operator.truediv),
):
    _compile_operator(_name, _operator)
_compile_function(operator.neg, lambda builder, value: builder.fneg(value))
_compile_function(abs, _call_vector_function("llvm.fabs"))
_compile_function(take_root, _call_vector_function("llvm.sqrt"))
_compile_function(take_larger, _lower_larger)
_compile_function(take_smaller, _lower_smaller)
_compile_function(select_if_less, _lower_selection)


@type_callable(repeat)
def _type_repeat(context: Any) -> Callable[..., Any]:
    def find_type(number: Any) -> Any:
        return LANES_TYPE if number == types.float64 else None

    return find_type


@lower_builtin(repeat, types.Float)
def _lower_repeat(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    return _repeat_number(builder, values[0], LANES_TYPE.vector)


def _compile_load(
    function: Callable[..., object], lanes: LanesType, axes: int | None = None, step: int = 1
) -> None:
    """Let compiled code load lanes from an array; `step` is the distance of two places."""

    def type_load(context: Any) -> Callable[..., Any]:
        def find_type(array: Any, place: Any) -> Any:
            return lanes if _is_place(array, place, axes) else None

        return find_type

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _find_place(context, builder, signature, values, lanes, step)
        return builder.load(place, align=8)

    type_callable(function)(type_load)
    lower_builtin(function, types.Array, types.Integer)(lower)


def _compile_store(
    function: Callable[..., object],
    known: tuple[LanesType, ...],
    axes: int | None = None,
    step: int = 1,
) -> None:
    """Let compiled code write lanes of the known types to an array."""

    def type_store(context: Any) -> Callable[..., Any]:
        def find_type(array: Any, place: Any, lanes: Any) -> Any:
            return types.none if _is_place(array, place, axes) and lanes in known else None

        return find_type

    def lower(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _find_place(context, builder, signature, values, signature.args[2], step)
        builder.store(values[2], place, align=8)
        return context.get_dummy_value()

    type_callable(function)(type_store)
    lower_builtin(function, types.Array, types.Integer, LanesType)(lower)


def _is_place(array: Any, place: Any, axes: int | None) -> bool:
    return is_contiguous(array, types.float64, axes) and isinstance(place, types.Integer)


def _find_place(
    context: Any, builder: Any, signature: Any, values: Any, lanes: LanesType, step: int
) -> Any:
    data = context.make_array(signature.args[0])(context, builder, values[0]).data
    place = builder.mul(values[1], ir.Constant(values[1].type, step))
    return builder.bitcast(builder.gep(data, [place]), lanes.vector.as_pointer())


_compile_load(load, LANES_TYPE, axes=2, step=LANES)
_compile_load(load_four, FOUR_LANES_TYPE)
_compile_load(load_two, TWO_LANES_TYPE)
_compile_store(store, (LANES_TYPE,), axes=2, step=LANES)
_compile_store(store_at, ALL_TYPES)


@type_callable(load_like)
def _type_load_like(context: Any) -> Callable[..., Any]:
    def find_type(array: Any, place: Any, lanes: Any) -> Any:
        return lanes if _is_place(array, place, None) and lanes in ALL_TYPES else None

    return find_type


@lower_builtin(load_like, types.Array, types.Integer, LanesType)
def _lower_load_like(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    place = _find_place(context, builder, signature, values, signature.args[2], 1)
    return builder.load(place, align=8)
