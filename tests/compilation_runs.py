"""Run a script that finds nothing compiled, and may let another process compile ahead."""

import os
import subprocess
import sys
from pathlib import Path

WAIT_FOR_THE_OTHER_PROCESS = """
import subprocess
from windvane import _compile_ahead

def start_and_wait(*arguments, **options):  # for a test that does not depend on speed
    child = start(*arguments, **options)
    child.wait()
    return child

start = subprocess.Popen
_compile_ahead.subprocess.Popen = start_and_wait
_compile_ahead.can_start_python = lambda: True
"""


def run_with_empty_cache(script: str, cache: Path) -> str:
    """Return what a script prints; its process waits for the one that it lets compile ahead."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", WAIT_FOR_THE_OTHER_PROCESS + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout
