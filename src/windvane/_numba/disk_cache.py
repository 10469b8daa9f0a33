"""The machine code of compiled functions on disk: which sources it is made from, who makes it, and
how it is loaded."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache as run_once
from functools import partial
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba.core.runtime import _nrt_python

from windvane._numba.compile_notice import compile_notice

PACKAGE = Path(__file__).parent.parent
IMPORT = re.compile(rb"from windvane\.?([\w.]*) import (\([^)]*\)|.*)")
# Private names of numba's caches; without one of them, code is loaded in numba's way.
NEEDED = ("load_overload", "_load_overload", "_guard_against_spurious_io_errors")


@run_once
def compute_stamp() -> str:
    """Hash all files that compiled code may be made from.

    A compiled function contains the functions that it calls, and the constants that it reads. A
    change in one of these files discards what is cached for all of them.
    """
    sources = _read_sources()
    used = find_compiled_sources(sources)
    return hashlib.sha256(b"".join(sources[name] for name in sorted(used))).hexdigest()


def _read_sources() -> dict[str, bytes]:
    """Return all files of the package by their paths in it, such as `kernels/learning.py`."""
    sources = {}
    for folder, _, names in os.walk(PACKAGE):
        place = os.path.relpath(folder, PACKAGE).replace(os.sep, "/") + "/"
        for name in names:
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as file:
                    sources[(place + name).removeprefix("./")] = file.read()
    return sources


def find_compiled_sources(sources: dict[str, bytes]) -> set[str]:
    """Return the files with compiled functions, and all that they import, directly or not."""
    found = {name for name, text in sources.items() if b"\n@compiled" in text}
    new = list(found)
    while new:
        for module, names in IMPORT.findall(sources[new.pop()]):
            place = module.decode().replace(".", "/")
            words = re.findall(r"\w+", names.decode())
            parts = [place, *(f"{place}/{word}".removeprefix("/") for word in words)]
            files = {file for part in parts for file in (f"{part}.py", f"{part}/__init__.py")}
            imported = files & sources.keys() - found
            found |= imported
            new += imported
    return found


def has_cache_folder(function: Callable[..., object]) -> bool:
    """Whether there is a folder that can hold the machine code of a compiled function."""
    return open_cache(function).cache_path is not None


def is_on_disk(dispatcher: Any, signature: Any) -> bool:
    """Whether the machine code for a signature is on disk: it is then loaded without a lock.

    numba writes the index before the file that the index names.
    """
    cache = dispatcher._cache
    file = cache._cache_file
    name = file._load_index().get(cache._index_key(signature, dispatcher.targetctx.codegen()))
    return name is not None and os.path.exists(file._data_path(name))


def open_cache(dispatcher: Any) -> Any:
    """Return the disk cache of a function, opened at its first use.

    Most functions are only linked into others and need none. Without a folder that can be written,
    the cache is numba's empty one, and every process compiles.
    """
    if dispatcher._cache.cache_path is None:
        with suppress(RuntimeError):
            dispatcher.enable_caching()
            file = dispatcher._cache._cache_file
            file._source_stamp = compute_stamp()
            file._load_index = partial(_load_index, file._load_index)
            _load_quickly(dispatcher._cache)
            _opened.append(dispatcher)
    return dispatcher._cache


_opened: list[Any] = []  # dispatchers with a disk cache


def list_saved() -> Iterator[tuple[Callable[..., object], Any, bytes]]:
    """List all functions that this process has on disk, with a signature and its machine code."""
    for dispatcher in _opened:
        file = dispatcher._cache._cache_file
        for (signature, *_), name in file._load_index().items():
            yield dispatcher.py_func, signature, Path(file._data_path(name)).read_bytes()


def _load_index(load: Callable[[], dict[Any, str]]) -> dict[Any, str]:
    """Return which files hold the code of a function; an index that cannot be read names none.

    numba unpickles the index before it looks at the stamp: after an upgrade, the index may name
    classes that have moved. It is replaced when the function is compiled.
    """
    try:
        return load()
    except Exception:
        return {}


@contextmanager
def lock_for_compilation(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of one function; if the folder allows no writing or no locking, hold none."""
    from filelock import FileLock  # imported late: it is needed only when code is compiled

    with ExitStack() as stack:
        with suppress(OSError, NotImplementedError):
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / name)
            try:
                lock.acquire(blocking=False)
            except TimeoutError:  # another process compiles the function
                with compile_notice.watch():
                    lock.acquire()
            stack.callback(lock.release)
        yield


def _load_quickly(cache: Any) -> None:
    """Let the disk cache of a function load it without registering what numba can compile.

    numba first registers all functions that it can compile, and compiles its own runtime, which
    takes longer than everything else in a process that only loads. Loaded code calls the runtime by
    the addresses of its C functions, which are enough here: all else of the runtime was linked into
    the code. Once a function is compiled, numba registers and compiles the rest by itself.
    """
    if all(hasattr(cache, name) for name in NEEDED):
        cache.load_overload = partial(_load_overload, cache)


def _load_overload(cache: Any, signature: Any, context: Any) -> Any:
    """Return a function that was compiled for a signature, or None if it is not on disk."""
    register_runtime()
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, context)
    return None


@run_once
def register_runtime() -> None:
    """Let machine code find the C functions of numba's runtime by their names."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
