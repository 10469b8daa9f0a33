"""`@compiled`: numba with a disk cache, without the GIL, and with NaN and infinity respected."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, typeof
from numba.core import types
from numba.core.compiler import Compiler
from numba.core.types.containers import BaseTuple
from numba.extending import register_jitable
from numba.np import numpy_support

from windvane._numba.disk_cache import compile_once
from windvane._numba.linker import EntryCompiler, LinkedFunction, can_link

Function = TypeVar("Function", bound=Callable[..., object])
REORDERED_SUMS = {"reassoc", "contract", "nsz", "arcp"}  # what LLVM may do to floating point


def compiled(function: Function) -> Function:
    """Compile a function at its first call and keep the machine code on disk.

    Sums may be reordered, so that they fill vector registers; NaN and infinity keep their meaning.
    """
    return _compile(function, REORDERED_SUMS)


def compiled_in_order(function: Function) -> Function:
    """Compile a function with every step rounded as written: the same bits on every machine."""
    return _compile(function, set())


def allow_in_compiled_code(*functions: Callable[..., object]) -> None:
    """Let compiled functions call these plain functions; Python still calls them uncompiled."""
    for function in functions:
        register_jitable(error_model="numpy", fastmath=REORDERED_SUMS)(function)


def _compile(function: Function, fastmath: set[str]) -> Function:
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    pipeline = EntryCompiler if can_link() else Compiler
    dispatcher = njit(pipeline_class=pipeline, **options)(function)
    if not hasattr(dispatcher, "_cache"):  # NUMBA_DISABLE_JIT is set
        return np.errstate(all="ignore")(function)  # as compiled code, which warns of nothing
    dispatcher.compile = compile_once(dispatcher)
    if can_link():
        LinkedFunction(function, options).serve_calls_of(dispatcher)
    return cast(Function, dispatcher)


def compile_for(function: Function, *arguments: object) -> Function:
    """Return a compiled function without its type dispatch, which costs half a microsecond a call.

    The result accepts only arguments of exactly the types of `arguments`.
    """
    if not hasattr(function, "compile"):  # NUMBA_DISABLE_JIT is set
        return function
    key = (function, *map(_describe_type, arguments))
    if key not in _overloads:
        signature = tuple(map(_find_type, arguments))
        _overloads[key] = function.compile(signature)
    return cast(Function, _overloads[key])


_overloads: dict[tuple[object, ...], Callable[..., object]] = {}


def call_directly(function: Function) -> Function:
    """Return a function that calls a compiled one without its type dispatch.

    The dispatch costs five microseconds if the arguments are tuples of many arrays. All calls must
    have arguments of the types of the first call; wrong ones would be misread.
    """
    direct: Function | None = None

    def call(*arguments: object) -> object:
        nonlocal direct
        if direct is None:
            direct = compile_for(function, *arguments)
        return direct(*arguments)

    return cast(Function, call)


def _find_type(value: object) -> Any:
    """Return numba's type of an argument: `numba.typeof`, which imports more to type an array."""
    if type(value) is np.ndarray:
        dtype, is_constant = numpy_support.from_dtype(value.dtype), not value.flags.writeable
        return types.Array(dtype, value.ndim, numpy_support.map_layout(value), is_constant)
    if isinstance(value, tuple):
        return BaseTuple.from_types(tuple(map(_find_type, value)), type(value))
    return typeof(value)


def _describe_type(value: object) -> object:
    """What numba's type of an argument depends on; much faster to find than that type."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = (flags.c_contiguous, flags.f_contiguous, flags.aligned, flags.writeable)
        return value.dtype, value.ndim, *layout
    if isinstance(value, tuple):
        return type(value), *map(_describe_type, value)
    if type(value) is int:
        return int, value < 2**63
    return type(value)
