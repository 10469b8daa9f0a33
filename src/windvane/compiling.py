"""One way to compile: cached on disk, without the interpreter's lock, blind to no bad number."""

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile on first call and keep the result on disk.

    Sums may be reordered, so that they fill vector registers; NaN and infinity keep their meaning.
    """
    make = njit(
        cache=True,
        nogil=True,
        error_model="numpy",
        fastmath={"reassoc", "contract", "nsz", "arcp"},
    )
    return cast(Function, make(function))
