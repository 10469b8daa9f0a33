"""The arrays that low-level compiled code accepts."""

from typing import Any

from numba.core import types


def is_contiguous(array: Any, number: Any, axes: int | None = None) -> bool:
    """Whether a numba type is an array of these numbers in C order, with this number of axes."""
    return (
        isinstance(array, types.Array)
        and (array.dtype, array.layout) == (number, "C")
        and axes in (None, array.ndim)
    )
