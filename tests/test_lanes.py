"""Lanes: compiled code computes each lane as NumPy computes an array of numbers."""

from collections.abc import Callable

import numpy as np
import pytest

from windvane._numba.compilation import compiled, compiled_in_order
from windvane._numba.instructions import (
    LANES,
    load,
    load_four,
    load_like,
    load_two,
    repeat,
    select_if_less,
    store,
    store_at,
    take_larger,
    take_root,
    take_smaller,
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


def combine_in_order(left: Floats, right: Floats) -> Floats:
    """A product and a sum, which one instruction would round once instead of twice."""
    total = left * right + left - 3.0 * right / (left + 1.0)
    return take_smaller(take_larger(total, left), right * 2.0)


def fill_in_order(table: Floats, out: Floats) -> None:
    """Combine six neighbouring numbers of two rows: four of them and two at the end."""
    columns = table.shape[1]
    four, two = load_four(table, 0), load_two(table, 4)
    store_at(out, 0, combine_lanes(four, load_like(table, columns, four)))
    store_at(out, 4, combine_lanes(two, load_like(table, columns + 4, two)))


combine_lanes: Callable[[Floats, Floats], Floats] = combine_in_order
fill_in_order_compiled = compiled_in_order(fill_in_order)


def test_lanes_of_four_and_two_have_the_bits_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = np.random.default_rng(2).standard_normal((200, 2, 6))
    expected, got = np.empty((200, 6)), np.empty((200, 6))
    for table, out in zip(tables, expected, strict=True):
        fill_in_order(table, out)
    assert (expected == combine_in_order(tables[:, 0], tables[:, 1])).all()
    monkeypatch.setitem(globals(), "combine_lanes", compiled_in_order(combine_in_order))
    for table, out in zip(tables, got, strict=True):
        fill_in_order_compiled(table, out)
    assert got.tobytes() == expected.tobytes()
