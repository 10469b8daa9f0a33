"""Memories: their settings and their restarts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windvane as wv


@given(every=st.integers(1, 40), after=st.integers(0, 400))
def test_restart_drops_before_every_multiple(every: int, after: int) -> None:
    later = [t for t in range(after + 1, after + every + 1) if t % every == 0]
    assert wv.restart(every).next_restart(after) == later[0]


@given(at=st.lists(st.integers(0, 30), max_size=6), after=st.integers(-1, 35))
def test_restart_at_drops_before_each_given_round(at: list[int], after: int) -> None:
    later = [t for t in at if t > after]
    assert wv.restart_at(at).next_restart(after) == min(later, default=-1)


@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.5), wv.window(3)], ids=repr)
def test_a_memory_without_restarts_never_restarts(memory: wv.Memory) -> None:
    assert memory.next_restart(0) == memory.next_restart(10**6) == -1


def test_restart_rounds_may_come_in_any_order_and_twice() -> None:
    assert wv.restart_at([9, 2, 9]) == wv.restart_at((2, 9)) == wv.restart_at({9, 2})


def test_numpy_numbers_make_the_same_memories() -> None:
    assert wv.window(np.int64(3)) == wv.window(3)  # type: ignore[arg-type]
    assert repr(wv.discount(np.float64(0.5))) == "discount(0.5)"
    assert repr(wv.restart_at(np.arange(2, 4))) == "restart_at([2, 3])"
