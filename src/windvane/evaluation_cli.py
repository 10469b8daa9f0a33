"""The commands that ask a log: check."""

from collections.abc import Callable

EVALUATION_COMMANDS: tuple[Callable[..., object], ...] = ()
