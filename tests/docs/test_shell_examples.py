"""Commands in the pages run as they are printed.

A block that opens with ```console is run: a line after `$ ` is a command, `> ` continues it, and
the other lines are its output, with ... for any text. A command that ends with & runs in the
background until the page is done. A block that opens with ```console no-run is only read.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from waiting import wait_until

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "_build" not in page.parts and BLOCK.search(page.read_text("utf-8"))
]
DEFAULT_PORT = "8787"
SERVING = re.compile(r"serving on http://\S+:(\d+)")
PATIENCE_SECONDS = 240.0


class Example(NamedTuple):
    """A command and the output that its page shows."""

    command: str
    output: str


def read_examples(page: Path) -> list[Example]:
    """The commands of a page, in order."""
    examples: list[Example] = []
    for block in BLOCK.findall(page.read_text("utf-8")):
        for line in block.splitlines():
            if line.startswith("$ "):
                examples.append(Example(line[2:], ""))
            elif line.startswith("> "):
                examples[-1] = examples[-1]._replace(command=f"{examples[-1].command}\n{line[2:]}")
            else:
                examples[-1] = examples[-1]._replace(output=f"{examples[-1].output}{line}\n")
    return examples


def shows(output: str, printed: str) -> bool:
    """Whether a page shows what was printed, apart from white space and ..."""
    parts = (re.escape("".join(part.split())) for part in output.split("..."))
    return re.fullmatch(".*".join(parts), "".join(printed.split()), re.DOTALL) is not None


@contextmanager
def background(command: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a service on a free port, which is the value, until the block ends."""
    messages = folder / "service-messages.txt"
    read = partial(messages.read_text, "utf-8")
    with messages.open("wb") as stream:
        service = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=folder, env=environment, stderr=stream
        )
    try:
        wait_until(lambda: service.poll() is not None or SERVING.search(read()), PATIENCE_SECONDS)
        match = SERVING.search(read())
        assert match, read()
        yield match[1]
    finally:
        service.terminate()
        service.wait(PATIENCE_SECONDS)


def run_examples(
    examples: list[Example], folder: Path, environment: dict[str, str], port: str = DEFAULT_PORT
) -> None:
    """Run commands in turn, those after a background command while it runs and with its port."""
    for index, (printed, output) in enumerate(examples):
        command = printed.replace(f":{DEFAULT_PORT}", f":{port}")
        if command.endswith(" &"):
            words = command.removesuffix(" &").replace("windvane serve", "windvane serve --port 0")
            with background(words, folder, environment) as used:
                run_examples(examples[index + 1 :], folder, environment, used)
            return
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert not output or shows(output, done.stdout), f"{command}\n{done.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_run_as_they_are_printed(page: Path, tmp_path: Path) -> None:
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    run_examples(read_examples(page), tmp_path, environment)


def test_output_is_compared() -> None:
    assert shows('{"a":1,\n "b":...}\n', '{"a":1,"b":"anything"}')
    assert not shows("loop  created\n", "loop  made\n")
