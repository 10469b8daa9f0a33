"""The code of other libraries on the page for those who come from them runs as it is printed."""

import importlib.util
import re
from pathlib import Path

import pytest

from processes import run_python

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "coming-from.md").read_text("utf-8")
BLOCK = re.compile(r"^```python\n(# (\S+).*?)^```", re.MULTILINE | re.DOTALL)
PEERS = {name: code for code, name in BLOCK.findall(PAGE)}
MODULES = {  # obp is not among them: it needs some gigabytes of torch
    "MABWiser": "mabwiser",
    "Vowpal": "vowpalwabbit",
    "bayesianbandits": "bayesianbandits",
}


@pytest.mark.parametrize("name", MODULES)
def test_the_code_of_another_library_runs(name: str) -> None:
    if importlib.util.find_spec(MODULES[name]) is None:
        pytest.skip(f"pip install {MODULES[name]}")
    run_python("-W", "ignore", "-c", PEERS[name])


def test_each_library_stands_beside_windvane() -> None:
    assert {*PEERS} == {*MODULES, "obp"}
    assert PAGE.count(">>> # Windvane\n") == len(PEERS)
