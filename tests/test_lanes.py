"""Lanes: compiled code computes each lane as NumPy computes an array of eight numbers."""

from collections.abc import Callable

import numpy as np
import pytest

from windvane._jit import compiled
from windvane._lanes import (
    LANES,
    load,
    repeat,
    select_if_less,
    store,
    take_larger,
    take_root,
)
from windvane.types import Floats


def combine(left: Floats, right: Floats) -> Floats:
    total = left + right * 2.0 - 3.0 / left
    return take_larger(total, -right) / take_root(abs(left) + repeat(1.0))


def fill_table(table: Floats, out: Floats) -> None:
    """Write every operation on the first two rows of `table` to the rows of `out`."""
    left, right = load(table, 0), load(table, 1)
    store(out, 0, combine_rows(left, right))
    store(out, 1, select_if_less(left, right, repeat(-1.0), left))
    store(out, 2, take_larger(left, right))


combine_rows: Callable[[Floats, Floats], Floats] = combine
fill_table_compiled = compiled(fill_table)


def test_compiled_lanes_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(1).standard_normal((2, LANES))
    expected, got = np.empty((3, LANES)), np.empty((3, LANES))
    fill_table(table, expected)
    monkeypatch.setitem(globals(), "combine_rows", compiled(combine))
    fill_table_compiled(table, got)
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_the_larger_number_is_the_right_one_if_the_left_one_is_nan() -> None:
    table = np.array([[np.nan] * LANES, [2.0] * LANES])

    @compiled
    def keep_larger(rows: Floats) -> None:
        store(rows, 0, take_larger(load(rows, 0), load(rows, 1)))

    keep_larger(table)
    assert (table[0] == 2.0).all()
