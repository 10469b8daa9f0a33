"""Code is compiled once, whoever asks first: all processes run the very same."""

import os
import subprocess
import sys
from pathlib import Path

MODULE = """
from windvane._jit import compiled

@compiled
def inner(x):
    return x + 0.5

@compiled
def outer(x):
    total = 0.0
    for i in range(x.size):
        total += inner(x[i])
    return total
"""
RUN = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
import some_code
assert some_code.outer(np.ones(3)) == 4.5
print(sum(some_code.outer.stats.cache_misses.values()), flush=True)
"""


def test_processes_that_start_at_once_compile_once(tmp_path: Path) -> None:
    (tmp_path / "some_code.py").write_text(MODULE)
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        for _ in range(3)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    misses = sorted(int(process.communicate(timeout=120)[0]) for process in started)
    assert misses == [0, 0, 1]
    assert [process.returncode for process in started] == [0, 0, 0]
