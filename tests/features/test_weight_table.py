"""The hash table of weights against a dict of Python."""

import numpy as np
import pytest

from windvane.beliefs.diagonal.weight_table import (
    ABSENT,
    EMPTY,
    claim_key,
    find_group,
    find_key,
    find_place,
    move_keys,
)
from windvane.types import UnsignedIntegers


def draw_keys(random: np.random.Generator, count: int, first_places: int) -> UnsignedIntegers:
    """Distinct keys whose search begins at few places, so that many of them collide."""
    high = random.choice(2**20, count, replace=False).astype(np.uint64) << np.uint64(32)
    low = random.integers(0, first_places, count).astype(np.uint64)
    return high | low | np.uint64(1)


@pytest.mark.parametrize("first_places", [1, 7, 2**31])
def test_claims_and_finds_as_a_dict_does(first_places: int) -> None:
    random = np.random.default_rng(3)
    table, places = np.zeros(64, np.uint64), dict[int, int]()
    known = draw_keys(random, 60, first_places)
    for key in random.choice(known[:50], 500):
        place, is_new = claim_key(table, key)
        assert is_new == (int(key) not in places)
        assert places.setdefault(int(key), int(place)) == place
    assert len(set(places.values())) == len(places) == np.count_nonzero(table != EMPTY)
    for key in known:
        assert find_key(table, key) == places.get(int(key), ABSENT)
        assert find_place(table, key) == places.get(int(key), len(table))


def test_a_full_group_is_continued_in_the_next_one_and_after_the_last_at_the_front() -> None:
    table = np.zeros(16, np.uint64)
    keys = [np.uint64(64 * i + 17) for i in range(16)]  # the search for each begins at place 8
    wanted = [*range(8, 16), *range(8)]
    assert [int(claim_key(table, key)[0]) for key in keys[:15]] == wanted[:15]
    assert [int(find_key(table, key)) for key in keys] == [*wanted[:15], ABSENT]
    assert [int(find_place(table, key)) for key in keys] == [*wanted[:15], 16]
    place, is_new = claim_key(table, keys[15])
    assert (int(place), is_new) == (7, True)
    assert int(find_key(table, keys[15])) == 7


def test_keys_whose_lowest_bit_is_set_begin_at_every_group() -> None:
    table = np.zeros(64, np.uint64)
    keys = np.arange(1, 512, 2, dtype=np.uint64)
    assert {int(find_group(table, key)) for key in keys} == set(range(0, 64, 8))


def test_a_larger_table_keeps_every_key_with_its_row() -> None:
    random = np.random.default_rng(5)
    keys = draw_keys(random, 40, 64)
    table, rows, wanted = np.zeros(64, np.uint64), np.zeros((64, 3)), {}
    for key in keys:
        place, _ = claim_key(table, key)
        rows[place] = random.standard_normal(3)
        wanted[int(key)] = rows[place].copy()
    larger, larger_rows = np.zeros(128, np.uint64), np.zeros((128, 3))
    is_kept = (table != EMPTY) & (table != keys[0])
    move_keys(table, rows, is_kept, larger, larger_rows)
    assert np.count_nonzero(larger) == 39
    assert find_key(larger, keys[0]) == ABSENT
    for key in keys[1:]:
        assert (larger_rows[find_key(larger, key)] == wanted[int(key)]).all()
