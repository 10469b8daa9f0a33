"""`@compiled`: numba with a disk cache, without the GIL, and with NaN and infinity respected.

numba's cache looks only at the file of the function itself, and lets two processes compile the same
function at once. Both are corrected here through private attributes of numba's dispatcher
(`_cache`, `_cache_file`, `_source_stamp`), so pyproject.toml bounds numba's version, and
`tests/test_jit.py` says which attribute is gone if a new version changes them. `_linked_code` has
how a function is compiled together with all that it calls, and `_code_loading` how its machine code
is loaded.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numba import njit, typeof
from numba.core import types
from numba.core.compiler import Compiler
from numba.core.compiler_lock import global_compiler_lock
from numba.core.types.containers import BaseTuple
from numba.extending import register_jitable
from numba.np import numpy_support

from windvane._code_loading import load_quickly
from windvane._compile_notice import compile_notice
from windvane._linked_code import EntryCompiler, LinkedFunction, can_link

if TYPE_CHECKING:
    from filelock import FileLock

Function = TypeVar("Function", bound=Callable[..., object])
PACKAGE = Path(__file__).parent
REORDERED_SUMS = {"reassoc", "contract", "nsz", "arcp"}  # what LLVM may do to floating point

# Files without compiled functions from which compiled functions take constants, types or formulas.
SOURCES = (
    "adaptive/selection.py",
    "belief.py",
    "memory.py",
    "evaluation/replay.py",
    "exploration.py",
    "laws.py",
    "glm/links.py",
    "kernels/matrix_views.py",
    "lab/worlds/draw.py",
    "_cache_lines.py",
    "_lanes.py",
    "_layout.py",
    "_linked_code.py",
    "types.py",
    "validation.py",
)
WITHOUT_COMPILED_CODE = {"client", "service"}  # folders, among them those with most files


def _hash_sources() -> str:
    """Hash all files that compiled code is made from.

    A compiled function contains the functions that it calls, so a change in any of these files
    must discard what is cached for all of them.
    """
    digest = hashlib.sha256()
    sources = {str(PACKAGE / name) for name in SOURCES}
    for folder, folders, names in os.walk(PACKAGE):
        folders[:] = sorted(set(folders) - WITHOUT_COMPILED_CODE)
        for name in sorted(names):
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    text = file.read()
                if b"\n@compiled" in text or path in sources:
                    digest.update(text)
    return digest.hexdigest()


STAMP = _hash_sources()


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
        return function
    dispatcher.compile = _compile_once(dispatcher)
    if can_link():
        LinkedFunction(function, options).serve_calls_of(dispatcher)
    return cast(Function, dispatcher)


def has_cache_folder(function: Callable[..., object]) -> bool:
    """Whether there is a folder that can hold the machine code of a compiled function."""
    return _open_cache(function).cache_path is not None


def cache_folder(function: Callable[..., object]) -> Path:
    """Return the folder that holds the machine code of a compiled function."""
    return Path(_open_cache(function).cache_path)


def is_compiled(function: Callable[..., object]) -> bool:
    """Whether this version of a function is loaded or on disk, for some signature."""
    if getattr(function, "overloads", True):  # without them NUMBA_DISABLE_JIT is set
        return True
    return has_cache_folder(function) and bool(_open_cache(function)._cache_file._load_index())


def _is_on_disk(dispatcher: Any, signature: Any) -> bool:
    """Whether the machine code for a signature is on disk: it is then loaded without a lock.

    numba writes the index before the file that the index names.
    """
    cache = dispatcher._cache
    file = cache._cache_file
    name = file._load_index().get(cache._index_key(signature, dispatcher.targetctx.codegen()))
    return name is not None and os.path.exists(file._data_path(name))


def _open_cache(dispatcher: Any) -> Any:
    """Return the disk cache of a function, opened at its first use.

    Most functions are only linked into others and need none. Without a folder that can be written,
    the cache is numba's empty one, and every process compiles.
    """
    if dispatcher._cache.cache_path is None:
        with suppress(RuntimeError):
            dispatcher.enable_caching()
            dispatcher._cache._cache_file._source_stamp = STAMP
            load_quickly(dispatcher._cache)
    return dispatcher._cache


def _compile_once(dispatcher: Any) -> Callable[..., Any]:
    """Compile in one process at a time; the other processes wait and load the same machine code.

    Two processes that compile the same function may order its sums differently, and their beliefs
    would then differ in the last bits.
    """
    compile_, function = dispatcher.compile, dispatcher.py_func
    name = f"windvane.{function.__module__.rpartition('.')[2]}.{function.__qualname__}.lock"

    def compile_alone(signature: Any) -> Any:
        if not has_cache_folder(dispatcher) or _is_on_disk(dispatcher, signature):
            return compile_(signature)
        with global_compiler_lock, _lock_for_compilation(cache_folder(dispatcher), name):
            return compile_(signature)

    return compile_alone


@contextmanager
def _lock_for_compilation(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of one function; if the folder allows no writing or no locking, hold none."""
    with ExitStack() as stack:
        with suppress(OSError, NotImplementedError):
            folder.mkdir(parents=True, exist_ok=True)
            lock = cache_lock(folder, name)
            try:
                lock.acquire(blocking=False)
            except TimeoutError:  # another process compiles the function
                with compile_notice.watch():
                    lock.acquire()
            stack.callback(lock.release)
        yield


def cache_lock(folder: Path, name: str) -> "FileLock":
    """Return a lock among processes, as a file in a cache folder."""
    from filelock import FileLock  # imported late: it is needed only when code is loaded

    return FileLock(folder / name)


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
