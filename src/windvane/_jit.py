"""One way to compile: cached on disk, without the interpreter's lock, blind to no bad number."""

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit, typeof
from numba.core.compiler_lock import global_compiler_lock

Function = TypeVar("Function", bound=Callable[..., object])
LOCK = "windvane.lock"  # among the compiled code


# Files without compiled functions that compiled functions take something from.
SOURCES = (
    "selection.py",
    "types.py",
    "belief.py",
    "exploration.py",
    "_layout.py",
    "draw.py",
    "links.py",
)


def _stamp() -> str:
    """What every source of compiled code says, in a few letters.

    The cache looks only at the file of the function itself. What it calls is compiled into it, so
    that a change there must make it anew as well.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.rglob("*.py")):
        text = source.read_bytes()
        if b"@compiled" in text or source.name in SOURCES:
            digest.update(text)
    return digest.hexdigest()


STAMP = _stamp()


def compiled(function: Function) -> Function:
    """Compile on first call and keep the result on disk.

    Sums may be reordered, so that they fill vector registers; NaN and infinity keep their meaning.
    """
    return _made(function, {"reassoc", "contract", "nsz", "arcp"})


def compiled_in_order(function: Function) -> Function:
    """Compile so that every step is rounded as it is written: the same bits on every machine."""
    return _made(function, set())


def _made(function: Function, liberties: set[str]) -> Function:
    make = njit(cache=True, nogil=True, error_model="numpy", fastmath=liberties)
    made = make(function)
    if hasattr(made, "_cache"):  # not where the compiler is switched off
        made._cache._cache_file._source_stamp = STAMP
        made.compile = _once(made.compile, Path(made._cache.cache_path))
    return cast(Function, made)


def _once(compile_: Callable[..., Any], place: Path) -> Callable[..., Any]:
    """Compile in one process at a time: the others wait, and load the very same code.

    Code that two compile at once may order its sums differently, and so would what they believe.
    """

    def compile_alone(signature: Any) -> Any:
        with global_compiler_lock, _held(place):
            return compile_(signature)

    return compile_alone


_holding: set[Path] = set()


@contextmanager
def _held(place: Path) -> Iterator[None]:
    """Hold the lock of a place, once for all that is compiled on the way."""
    if place in _holding:
        yield
        return
    try:
        place.mkdir(parents=True, exist_ok=True)
        file = open(place / LOCK, "w")  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:  # nothing can be kept there, or locked: everyone compiles for himself
        yield
        return
    with file:
        _holding.add(place)
        try:
            yield
        finally:
            _holding.discard(place)


def direct(function: Function, *like: object) -> Function:
    """A compiled function without the look-up of types in front of it, which costs half a µs.

    It must only ever be called with arguments of the very types of `like`.
    """
    types = tuple(typeof(value) for value in like)
    function.compile(types)  # type: ignore[attr-defined]
    return cast(Function, function.get_overload(types))  # type: ignore[attr-defined]
