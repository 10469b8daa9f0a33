"""The package as a whole: its public names, and a map of its files that stays true."""

import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import windvane as wv

ROOT = Path(__file__).parent.parent
MAP = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_public_names_are_sorted_and_there() -> None:
    assert wv.__all__ == sorted(wv.__all__)
    assert all(hasattr(wv, name) for name in wv.__all__)


def files_on_the_map() -> Iterator[str]:
    """The path of every file under src/windvane that the map shows."""
    tree = MAP.split("```text\nsrc/windvane/\n")[1].split("```")[0]
    folders: list[str] = []
    for indent, name in re.findall(r"^( +)(\S+)", tree, re.MULTILINE):
        if len(indent) > 20:  # the description goes on
            continue
        del folders[len(indent) // 2 - 1 :]
        if name.endswith("/"):
            folders.append(name)
        else:
            yield "".join(folders) + name


def test_the_map_shows_every_file_and_no_other() -> None:
    package = ROOT / "src" / "windvane"
    files = {
        str(file.relative_to(package))
        for file in package.rglob("*")
        if file.suffix in (".py", ".html", ".css", ".js") and not file.name.startswith("__")
    }
    assert set(files_on_the_map()) == files


@pytest.mark.parametrize("code", ["import windvane", "import sys, windvane.cli as c; c.app"])
def test_the_package_and_its_command_line_load_no_numpy(code: str) -> None:
    check = f"{code}\nimport sys\nprint(sorted({{'numpy', 'numba', 'scipy'}} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert ended.stdout == "[]\n", ended.stderr


def test_names_are_loaded_when_they_are_used() -> None:
    assert {"Policy", "discount", "thompson", "half_normal", "finite", "Learner"} <= {*wv.__all__}
    assert {*wv.__all__} <= {*dir(wv)}
    name = "discont"
    with pytest.raises(AttributeError, match="no attribute 'discont'"):
        getattr(wv, name)


def test_a_name_is_loaded_without_a_search_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wv, "_load", lambda name: gc.isenabled())
    assert wv.__getattr__("some_name") is False
    monkeypatch.delattr(wv, "some_name")
    assert gc.isenabled()
