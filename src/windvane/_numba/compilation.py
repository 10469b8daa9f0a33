"""`@compiled`: numba with a disk cache, without the GIL, and with NaN and infinity respected."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, typeof
from numba.core import types
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types.containers import BaseTuple
from numba.extending import register_jitable
from numba.np import numpy_support

from windvane._numba.disk_cache import (
    has_cache_folder,
    is_on_disk,
    lock_for_compilation,
    open_cache,
)
from windvane._numba.installed_code import InstalledCode, find_code
from windvane._numba.linker import EntryCompiler, LinkedFunction, can_link, replacing

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


def allow_in_compiled_code(*functions: Callable[..., object], in_order: bool = False) -> None:
    """Let compiled functions call these plain functions; Python still calls them uncompiled.

    With `in_order`, compiled code has the bits of Python.
    """
    fastmath = set[str]() if in_order else REORDERED_SUMS
    for function in functions:
        register_jitable(error_model="numpy", fastmath=fastmath)(function)


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


def compile_once(dispatcher: Any) -> Callable[..., Any]:
    """Load the code of a function, or compile it in one process at a time while others wait.

    Two processes that compile the same function may order its sums differently, and their beliefs
    would then differ in the last bits.
    """
    compile_, function = dispatcher.compile, dispatcher.py_func
    name = f"windvane.{function.__module__.rpartition('.')[2]}.{function.__qualname__}.lock"

    def compile_alone(signature: Any) -> Any:
        code = find_code(function, signature)
        with ExitStack() as stack:
            if code is not None:
                stack.enter_context(global_compiler_lock)
                stack.enter_context(replacing(dispatcher, "_cache", InstalledCode(code)))
            elif has_cache_folder(dispatcher) and not is_on_disk(dispatcher, signature):
                stack.enter_context(global_compiler_lock)
                folder = Path(open_cache(dispatcher).cache_path)
                stack.enter_context(lock_for_compilation(folder, name))
            entry = compile_(signature)
        is_compiled = dispatcher.stats.cache_misses.get(signature, 0) > 0
        origins["compiled" if is_compiled else "loaded" if code is None else "installed"] += 1
        return entry

    return compile_alone


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


origins: Counter[str] = Counter()  # of the code of this process: installed, loaded or compiled
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
