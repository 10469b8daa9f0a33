"""The recipe for a memory in CONTRIBUTING.md, followed to the letter on a copy of the package."""

import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import run_python

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"^   ```(?:python|text)\n   # ([^\n]*)\n(.*?)^   ```$", re.MULTILINE | re.DOTALL
)
PLACE = re.compile(r"(\S+), (after|before|instead of the body of|at the end) ?(?:`(.*)`)?")
SHORT = "registry or (epoch and not screening)"  # long games take long without a compiler
GRID = ["tests/test_choosing.py", "tests/test_registry.py"]


def read_recipe() -> Iterator[tuple[str, str]]:
    """Yield the code blocks of the recipe: where each goes, and its lines."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    recipe = text[text.index("## Recipe: a memory") : text.index("## Debug a kernel")]
    for place, code in BLOCK.findall(recipe):
        yield place, textwrap.dedent(code)


def apply_block(folder: Path, place: str, code: str) -> None:
    """Write a code block into a copy of its file, with the indentation of its neighbour."""
    match = PLACE.fullmatch(place)
    assert match, place
    name, side, anchor = match.groups()
    file = folder / name
    text = file.read_text("utf-8")
    start = end = len(text)
    indent = ""
    if side == "instead of the body of":
        start = text.index('"""\n', text.index('"""', text.index(f"def {anchor}(")) + 3) + 4
        end, indent = text.index("\n\n\n", start) + 1, "    "
    elif anchor:
        assert text.count("\n" + anchor) == 1, f"{anchor!r} must start one line of {name}"
        start = text.index("\n" + anchor) + 1
        start = end = start if side == "before" else text.index("\n", start) + 1
        indent = " " * (len(anchor) - len(anchor.lstrip()))
    code = textwrap.indent(code, indent)
    file.write_text(text[:start] + code + text[end:], "utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and of its tests, with the memory `epoch`."""
    folder = tmp_path_factory.mktemp("recipe")
    ignore = shutil.ignore_patterns("__pycache__", "service", "client", "lab")
    shutil.copytree(ROOT / "src/windvane", folder / "src/windvane", ignore=ignore)
    shutil.copytree(ROOT / "tests/support", folder / "tests/support", ignore=ignore)
    for name in GRID:
        shutil.copy(ROOT / name, folder / name)
    blocks = list(read_recipe())
    assert len(blocks) == 11
    for place, code in blocks:
        apply_block(folder, place, code)
    return folder


def run_without_compiler(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the copy, with the compiler off: a cold compilation takes minutes."""
    paths = os.pathsep.join([str(folder / "src"), str(folder / "tests/support")])
    environment = {"PYTHONPATH": paths, "NUMBA_DISABLE_JIT": "1"}
    return run_python(*words, folder=folder, environment=environment)


def test_a_memory_made_by_the_recipe_passes_the_grid(copy: Path) -> None:
    """Its choices and its registry entry are compared with the formulas as written."""
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-k", SHORT]
    assert " passed" in run_without_compiler(copy, "-m", "pytest", *options, *GRID).stdout


COUNT = """
import numpy as np, windvane as wv
for dim in (100, 131):
    policy = wv.Policy(dim, "epoch(4)", wv.optimism(1.0), seed=1)
    policy.learn_many(np.eye(dim)[:10], np.ones(10))
    rows, columns = np.nonzero(np.round(policy.belief.gram, 9))
    print(rows, columns, policy.is_large)
"""


def test_such_a_memory_drops_in_small_and_in_large_dimensions(copy: Path) -> None:
    """Of ten observations, epoch(4) keeps the last two; it never said that matrices may wait."""
    assert run_without_compiler(copy, "-c", COUNT).stdout == "[8 9] [8 9] False\n" * 2
