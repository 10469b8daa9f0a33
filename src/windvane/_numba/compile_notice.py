"""One line on stderr whenever functions are compiled for longer than a second."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

NOTICE_AFTER_SECONDS = 1.0
PAUSE_SECONDS = 1.0  # functions that are compiled with a shorter pause between them get one line
NOTICE = (
    "windvane: compiling code for this processor, which takes about 5 to 15 seconds; "
    "later runs load this code from disk"
)
SWITCH = "WINDVANE_COMPILE_NOTICE"  # the environment variable that turns the line off if it is 0


def is_wanted() -> bool:
    """Whether the user wants a notice of compilation."""
    return os.environ.get(SWITCH) != "0"


class CompileNotice:
    """Counts the seconds for which a process compiles, and says so when they exceed the limit.

    After a pause the count starts at zero.
    """

    def __init__(self) -> None:
        self.reason = ""  # why code that is installed cannot be used
        self._seconds = 0.0
        self._end = 0.0  # of the last compilation
        self._is_said = False

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Count the time that passes inside; one thread compiles at a time."""
        begin = time.monotonic()
        if begin - self._end > PAUSE_SECONDS:
            self._seconds, self._is_said = 0.0, False
        left = max(NOTICE_AFTER_SECONDS - self._seconds, 0.0)
        timer = threading.Timer(left, self._say)
        timer.daemon = True
        if not self._is_said:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._end = time.monotonic()
            self._seconds += self._end - begin

    def _say(self) -> None:
        if not self._is_said and is_wanted() and sys.stderr is not None:
            because = f" ({self.reason})" if self.reason else ""
            print(f"{NOTICE}{because}", file=sys.stderr, flush=True)
        self._is_said = True


compile_notice = CompileNotice()
