"""Cache lines: compiled code finds keys where Python does, and arrays begin with a line."""

import numpy as np
import pytest

from windvane._numba.compilation import compiled
from windvane._numba.instructions import KEYS_PER_LINE, find_in_line, load_ahead, make_aligned_zeros
from windvane.types import Floats, Places, UnsignedIntegers


@compiled
def find_all(keys: UnsignedIntegers, firsts: UnsignedIntegers, key: np.uint64) -> Places:
    """Find a key in the lines that begin at `firsts`."""
    found = np.empty(firsts.size, np.int64)
    for i in range(firsts.size):
        load_ahead(keys, firsts[i])
        found[i] = find_in_line(keys, firsts[i], key)
    return found


def test_compiled_code_finds_keys_where_python_does() -> None:
    random = np.random.default_rng(1)
    keys = random.integers(0, 12, 200, dtype=np.uint64)
    keys[::3] += np.uint64(2**63)  # a comparison of the low halves alone would be wrong
    firsts = np.arange(len(keys) - KEYS_PER_LINE, dtype=np.uint64)
    seen = set[int]()
    for key in [*np.arange(12, dtype=np.uint64), *(np.arange(12, dtype=np.uint64) + 2**63)]:
        expected = [find_in_line(keys, first, key) for first in firsts]
        assert find_all(keys, firsts, np.uint64(key)).tolist() == expected
        seen.update(expected)
    assert seen == set(range(KEYS_PER_LINE + 1))


@compiled
def load_all_ahead(array: Floats, count: int) -> float:
    """Load places ahead, also beyond the end of an array; nothing changes."""
    for place in range(count):
        load_ahead(array, place)
    return float(array.sum())


def test_loading_ahead_changes_nothing_and_may_go_beyond_the_end() -> None:
    assert load_all_ahead(np.ones((2, 3)), 10_000) == 6.0


@pytest.mark.parametrize("count", [1, 8, 13, 2**17])
@pytest.mark.parametrize("kind", [np.uint64, np.float64])
def test_aligned_arrays_begin_with_a_cache_line(count: int, kind: type) -> None:
    for _ in range(5):
        array = make_aligned_zeros((count, 3), kind)
        assert array.ctypes.data % 64 == 0
        assert array.shape == (count, 3)
        assert array.dtype == kind
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert not array.any()
