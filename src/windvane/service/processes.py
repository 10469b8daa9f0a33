"""A Python of its own that finds the same package, and nothing of the folder it is started in."""

import os
import sys
from pathlib import Path

import windvane


def command(code: str, *arguments: str) -> list[str]:
    """The words that run a piece of code."""
    return [sys.executable, "-P", "-c", code, *arguments]


def environment() -> dict[str, str]:
    """Where it finds the package."""
    root = str(Path(windvane.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": paths}
