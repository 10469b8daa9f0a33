"""Command and environment of a child Python that imports this same package.

The child ignores the working directory.
"""

import os
import sys
from pathlib import Path

import windvane


def build_command(code: str, *arguments: str) -> list[str]:
    """The command line that runs a piece of Python code."""
    return [sys.executable, "-P", "-c", code, *arguments]


def build_environment() -> dict[str, str]:
    """This process's environment, with this package first on PYTHONPATH."""
    root = str(Path(windvane.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": paths}
