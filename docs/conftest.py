"""Examples in the pages run as doctests, each page in an empty folder of its own."""

from pathlib import Path

import pytest

collect_ignore = ["conf.py", "_ext", "_build"]


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files that an example writes go into a temporary folder."""
    monkeypatch.chdir(tmp_path)
