"""Memories: what each one gives up, when, and what it refuses."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windvane as wv
from grid import every_memory, same_every_time
from windvane import text_form


@every_memory
def test_what_a_memory_prints_reads_back_as_the_same_memory(memory: wv.Memory) -> None:
    """Files and command lines name a memory by its text alone."""
    assert text_form.read_memory(repr(memory)) == memory


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: wv.discount(1.2), "discount: gamma must lie in (0, 1), got 1.2"),
        (lambda: wv.discount(1.0), "discount: gamma must lie in (0, 1), got 1.0"),
        (lambda: wv.discount(0.0), "discount: gamma must lie in (0, 1), got 0.0"),
        (lambda: wv.discount(-0.5), "discount: gamma must lie in (0, 1), got -0.5"),
        (lambda: wv.discount(float("nan")), "discount: gamma must be a finite number, got nan"),
        (lambda: wv.window(0), "window: rounds must be a whole number >= 1, got 0"),
        (lambda: wv.window(-3), "window: rounds must be a whole number >= 1, got -3"),
        (lambda: wv.restart(0), "restart: every must be a whole number >= 1, got 0"),
        (lambda: wv.restart_at([4, -1]), "restart_at: a round must be a whole number >= 0, got -1"),
    ],
)
def test_a_setting_outside_its_range_is_refused(
    make: Callable[[], wv.Memory], complaint: str
) -> None:
    """The message says who, what must hold and what came."""
    with pytest.raises(wv.SettingError, match=re.escape(complaint)):
        make()


@pytest.mark.parametrize("wrong", [2.5, "3", None, True])
def test_a_window_is_counted_in_whole_observations(wrong: object) -> None:
    """Neither a fraction, a text, nothing nor a truth value is a count."""
    with pytest.raises(wv.SettingError, match=re.escape(f"got {wrong!r}")):
        wv.window(wrong)  # type: ignore[arg-type]


@same_every_time
@given(every=st.integers(1, 40), after=st.integers(0, 400))
def test_restart_drops_before_every_multiple(every: int, after: int) -> None:
    """The next restart is the first multiple of H later than the round given."""
    later = [t for t in range(after + 1, after + every + 1) if t % every == 0]
    assert wv.restart(every).next_restart(after) == later[0]


@same_every_time
@given(at=st.lists(st.integers(0, 30), max_size=6), after=st.integers(-1, 35))
def test_restart_at_drops_before_each_given_round(at: list[int], after: int) -> None:
    """The next restart is the least given round later than this one, and -1 stands for none."""
    later = [t for t in at if t > after]
    assert wv.restart_at(at).next_restart(after) == min(later, default=-1)


@pytest.mark.parametrize("memory", [wv.keep(), wv.discount(0.5), wv.window(3)], ids=repr)
def test_a_memory_without_restarts_never_restarts(memory: wv.Memory) -> None:
    """-1 stands for never."""
    assert memory.next_restart(0) == memory.next_restart(10**6) == -1


def test_the_order_and_repetition_of_known_restarts_do_not_matter() -> None:
    """A set of rounds is what is known."""
    assert wv.restart_at([9, 2, 9]) == wv.restart_at((2, 9)) == wv.restart_at({9, 2})


def test_numbers_of_numpy_make_the_same_memories() -> None:
    """A γ or a window read off an array is as good as one written down."""
    assert wv.window(np.int64(3)) == wv.window(3)  # type: ignore[arg-type]
    assert repr(wv.discount(np.float64(0.5))) == "discount(0.5)"
    assert repr(wv.restart_at(np.arange(2, 4))) == "restart_at([2, 3])"
