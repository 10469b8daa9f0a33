"""Packages from npm in a folder of their own, for tests that run Node.js."""

import shutil
import subprocess
from pathlib import Path

import pytest


def install_packages(folder: Path, *packages: str) -> str:
    """Install packages under a folder; returns the path of the program node."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("node and npm are not installed: apt-get install nodejs npm")
    options = ["--silent", "--no-save", "--no-audit", "--no-fund", "--prefix", str(folder)]
    command = [npm, "install", *options, *packages]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return node
