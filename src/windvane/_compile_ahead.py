"""Compile a function in another process, while this process compiles another one.

The other process stores the machine code on disk. This process waits for it and loads it, because
only one process at a time compiles a function. If the other process fails, this one compiles.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from windvane._numba import compile_notice
from windvane._numba.disk_cache import has_cache_folder, is_compiled

LEAST_PROCESSORS = 2
# The process ends soon: it searches for no garbage, and does not free its memory piece by piece.
RUN_AND_EXIT = "import gc, os; gc.disable(); {}; os._exit(0)"


@contextmanager
def compiling_ahead(function: Callable[..., object], code: str, *arguments: str) -> Iterator[None]:
    """Let another Python run `code`, which compiles a function, if that has not been compiled.

    The code finds the arguments in `sys.argv`. The other process has ended when the context has.
    """
    if is_compiled(function) or not has_cache_folder(function) or not can_start_python():
        yield
        return
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": paths, compile_notice.SWITCH: "0"}
    command = [sys.executable, "-P", "-c", RUN_AND_EXIT.format(code), *arguments]
    nothing = subprocess.DEVNULL
    try:
        child = subprocess.Popen(
            command, env=environment, stdin=nothing, stdout=nothing, stderr=nothing
        )
    except OSError:  # no other process can be started
        yield
        return
    try:
        yield
    except BaseException:
        child.kill()
        raise
    finally:
        child.wait()


def can_start_python() -> bool:
    """Whether another Python can be started, and a second processor is there to run it."""
    if sys.platform == "linux":
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    is_python = Path(sys.executable or "").name.startswith("python")
    return processors >= LEAST_PROCESSORS and is_python and not getattr(sys, "frozen", False)
