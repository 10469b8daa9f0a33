"""Python in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_SECONDS = 600.0


def run_python(
    *words: str | Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    must_succeed: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run Python until it ends; `environment` is added to that of this process."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=os.environ | {**(environment or {})},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert not must_succeed or done.returncode == 0, done.stdout + done.stderr
    return done


def join_paths() -> str:
    """The folders from which this process imports, for PYTHONPATH."""
    return os.pathsep.join(filter(None, sys.path))
