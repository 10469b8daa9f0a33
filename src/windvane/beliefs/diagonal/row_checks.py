"""Checks of sparse rows, in one pass over their entries."""

from windvane._numba.compilation import compiled_in_order
from windvane.types import Floats, Places
from windvane.validation import LARGEST

SOUND = 0  # every row has rising indices and no entry that is 0
UNSORTED = 1  # rows must be sorted, or entries be summed or dropped
BAD_ENDS, BAD_INDEX, BAD_VALUE = -1, -2, -3


@compiled_in_order
def check_rows(indices: Places, values: Floats, ends: Places, dim: int) -> tuple[int, int]:
    """Return what holds of sparse rows, as a code, and the row for which a check failed."""
    state, first = SOUND, 0
    for k in range(ends.size):
        last = ends[k]
        if last < first or last > indices.size:
            return BAD_ENDS, k
        square = 0.0
        for i in range(first, last):
            if indices[i] < 0 or indices[i] >= dim:
                return BAD_INDEX, k
            if (i > first and indices[i] <= indices[i - 1]) or values[i] == 0.0:
                state = UNSORTED
            square += values[i] * values[i]
        if not square <= LARGEST:
            return BAD_VALUE, k
        first = last
    if first != indices.size:
        return BAD_ENDS, ends.size - 1
    return state, 0
