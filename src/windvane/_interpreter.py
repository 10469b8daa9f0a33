"""Work of CPython that compilers and imports do not need, and how to avoid it."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")
ROOM_SLOTS = 1 << 17  # of 8 bytes: CPython then takes 2 MB and leaves half of it to inner calls


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Search for no garbage in the meantime: compilers and imports make objects and keep most."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            _age_all_objects()
            gc.enable()


def _age_all_objects() -> None:
    """Count all objects as old without a look at them, so that the next searches pass over them.

    A program may have frozen objects to keep them out of all searches. They would be thawed, so
    nothing is done then.
    """
    if gc.get_freeze_count() == 0:
        gc.freeze()
        gc.unfreeze()


def call_with_room(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a function with room for a thousand calls inside it.

    CPython keeps the frames of calls in chunks of 16 KB. If a chunk is full, the next call takes
    another chunk from the system and gives it back when it returns. A deep loop whose calls start
    at such a border does that in every turn. The frame of this function is so large that its chunk
    also holds the frames of all inner calls.
    """
    return function(*arguments)


call_with_room.__code__ = call_with_room.__code__.replace(co_stacksize=ROOM_SLOTS)
