"""Record which functions of Windvane a process calls, if WINDVANE_RECORDING names a folder.

Python imports this module at the start of every process whose PYTHONPATH has its folder. A line of
the recording has the time in nanoseconds, the phase, the process, the file below src/windvane and
the name of a function, for its first calls in each process and phase. The phase is the size of the
file `phase` in the folder.
"""

import os
import sys
import threading
import time
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

FOLDER = os.environ.get("WINDVANE_RECORDING")
MOST_CALLS = 30  # of one function that are recorded: other work may run beside a journey


def record(folder: Path) -> None:
    phase_file = str(folder / "phase")
    lines = open(folder / f"{os.getpid()}.calls", "a", buffering=1, encoding="utf-8")  # noqa: SIM115
    marker = f"{os.sep}src{os.sep}windvane{os.sep}"
    places: dict[CodeType, str] = {}  # of functions of Windvane; "" for all others
    seen: Counter[tuple[CodeType, int]] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        place = places.get(code)
        if place is None:
            _, found, file = code.co_filename.rpartition(marker)
            is_function = code.co_flags & CO_OPTIMIZED  # not the body of a class
            is_named = bool(found and is_function) and not code.co_name.startswith("<")
            place = places[code] = f"{file}\t{code.co_name}" if is_named else ""
        if place:
            key = (code, os.stat(phase_file).st_size)
            if seen[key] < MOST_CALLS:
                seen[key] += 1
                lines.write(f"{time.monotonic_ns()}\t{key[1]}\t{os.getpid()}\t{place}\n")

    threading.setprofile(note)
    sys.setprofile(note)


if FOLDER:
    record(Path(FOLDER))
