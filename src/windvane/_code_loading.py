"""Load the machine code of a function from disk without all that numba needs to compile.

numba first registers all functions that it can compile, and compiles its own runtime, which takes
longer than everything else in a process that only loads. Loaded code calls the runtime by the
addresses of its C functions, which are enough here: all else of the runtime was linked into the
code. Once a function is compiled, numba registers and compiles the rest by itself.
"""

from functools import cache as run_once
from functools import partial
from typing import Any

from llvmlite import binding
from numba.core.runtime import _nrt_python

NEEDED = ("load_overload", "_load_overload", "_guard_against_spurious_io_errors")


def load_quickly(cache: Any) -> None:
    """Let the disk cache of a function load it without registering what numba can compile."""
    if all(hasattr(cache, name) for name in NEEDED):
        cache.load_overload = partial(_load_overload, cache)


def _load_overload(cache: Any, signature: Any, context: Any) -> Any:
    """Return a function that was compiled for a signature, or None if it is not on disk."""
    _register_runtime()
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, context)
    return None


@run_once
def _register_runtime() -> None:
    """Let machine code find the C functions of numba's runtime by their names."""
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
