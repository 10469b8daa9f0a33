"""The package as a whole: its public names, and a README that stays true."""

import re
from pathlib import Path

import windvane as wv
from windvane.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_public_names_are_sorted_and_there() -> None:
    assert wv.__all__ == sorted(wv.__all__)
    assert all(hasattr(wv, name) for name in wv.__all__)


def test_every_file_is_on_the_map() -> None:
    drawn = README.split("## The code")[1]
    package = ROOT / "src" / "windvane"
    for file in package.glob("*.py"):
        if not file.name.startswith("__"):
            assert re.search(rf"^  {file.name} ", drawn, re.MULTILINE), file.name
    for folder in ("kernels", "lab", "service"):
        for file in (package / folder).glob("*.py"):
            if not file.name.startswith("__"):
                assert re.search(rf"\b{file.stem}\b", drawn), f"{folder}/{file.name}"


def test_the_map_shows_no_file_that_is_gone() -> None:
    drawn = README.split("## The code")[1]
    for name in re.findall(r"^  (\w+\.py) ", drawn, re.MULTILINE):
        assert (ROOT / "src" / "windvane" / name).exists(), name


def test_every_command_is_in_the_readme() -> None:
    for command in app.registered_commands:
        assert command.callback is not None
        assert f"windvane {command.callback.__name__}" in README
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for command in group.typer_instance.registered_commands:
            assert f"windvane {group.name} {command.name}" in README
