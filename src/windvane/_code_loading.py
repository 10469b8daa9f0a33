"""Load the machine code of a function from disk without all that numba needs to compile.

numba first registers all functions that it can compile, which takes longer than everything else in
a process that only loads. Loaded code calls numba's runtime, whose addresses are enough here. Once
a function is compiled, numba registers the rest by itself.
"""

from functools import partial
from typing import Any

from numba.core.runtime import rtsys

NEEDED = ("load_overload", "_load_overload", "_guard_against_spurious_io_errors")


def load_quickly(cache: Any) -> None:
    """Let the disk cache of a function load it without registering what numba can compile."""
    if all(hasattr(cache, name) for name in NEEDED):
        cache.load_overload = partial(_load_overload, cache)


def _load_overload(cache: Any, signature: Any, context: Any) -> Any:
    """Return a function that was compiled for a signature, or None if it is not on disk."""
    rtsys.initialize(context)
    with cache._guard_against_spurious_io_errors():
        return cache._load_overload(signature, context)
    return None
