"""Whatever file a command gets, it ends with 0, 1 or 2 and says why in a line: no traceback.

The commands and their parameters come from the command line itself, so that a new one is covered.
"""

import inspect
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from windvane.cli import app

pytest.importorskip("uvicorn", reason="pip install 'windvane[serve]' to test this")
from hostile_files import CSV_HEADER, CSV_ROW, read_contents, write_hostile_files
from windvane.service import server

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 60  # until a command counts as hanging
ROOM_BYTES = 4 << 30  # more memory than this makes a command fail
MAX_LINE = 2100
WHOLE_LOGS = ("data", "database", "source", "target")  # parameters that name a log
FOLDERS = ("out", "directory")
DATABASES = ("empty", "nuls", "csv", "sqlite-magic", "sqlite-zeros", "gzip-csv", "parquet")
REQUIRED = {  # values of parameters that a command needs
    "loop": "home",
    "role": "rank",
    "name": "home",
    "number": "1",
    "parquet": "out.parquet",
    "path": "copy.db",
    "source": "windvane-data",
    "target": "copy",
    "log": "log.csv",
    "logs": "log.csv",
}
LONG = ("reproduce", "leaderboard", "coverage", "simulate", "tune")  # if nothing is wrong
WORDS = {  # that keep a command from taking long
    "export": ["--loop", "home"],
    "evaluate": ["--policy", "first", "--no-reward-model"],
    "reproduce": ["--replications", "1", "--panels", "10x10"],
    "leaderboard": ["--replications", "1"],
    "tune": ["--replications", "1", "--horizon", "20", "--points", "3"],
    "simulate": ["--replications", "1"],
    "coverage": ["--replications", "1", "--horizon", "100", "--drift", "stationary()"],
    "loop delete": ["--confirm", "home"],
}


class Parameter(NamedTuple):
    """A parameter of a command that may name a file."""

    command: str
    name: str
    flags: tuple[tuple[str, str], ...]  # names and flags of what is given; "" for an argument

    def __str__(self) -> str:
        return f"{self.command} {self.name}".replace(" ", "-")


def takes_file(annotation: object) -> bool:
    """Whether a parameter is a path, or an argument that names logs."""
    [info, *_] = getattr(annotation, "__metadata__", [None])
    return "Path" in str(annotation) or str(getattr(info, "metavar", "")).startswith("LOG")


def list_parameters(command: Any, words: tuple[str, ...] = ()) -> Iterator[Parameter]:
    for name, each in getattr(command, "commands", {}).items():
        yield from list_parameters(each, (*words, name))
    if hasattr(command, "commands"):
        return
    flags = {
        each.name: "" if each.param_type_name == "argument" else each.opts[0]
        for each in command.params
    }
    required = {each.name: flags[each.name] for each in command.params if each.required}
    for name, each in inspect.signature(command.callback).parameters.items():
        if name in WHOLE_LOGS or takes_file(each.annotation):
            given = required | {name: flags[name]}
            if name in ("certificate", "key"):
                given |= {"certificate": "--certificate", "key": "--key"}
            yield Parameter(" ".join(words), name, tuple(given.items()))


def build_words(parameter: Parameter, path: Path) -> list[str]:
    """The words of a command in which one parameter names a file."""
    words = [*parameter.command.split(), *WORDS.get(parameter.command, [])]
    if parameter.command == "simulate" and parameter.name != "plan":
        words += ["--policy", "LinUCB", "--horizon", "20"]
    for name, flag in parameter.flags:
        value = str(path)
        if name in REQUIRED and name != parameter.name:
            value = REQUIRED[name]
        elif name == "database":
            value = f"sqlite:///{path}"
        words += [flag, value] if flag else [value]
    return words


@pytest.fixture(scope="module")
def contents() -> dict[str, bytes]:
    return read_contents()


@pytest.fixture
def bounds() -> Iterator[None]:
    """Let a command that takes too long, or too much memory, fail."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"the command takes more than {PATIENCE_SECONDS} seconds")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, give_up)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    signal.signal(signal.SIGALRM, handler)


@pytest.mark.skipif(sys.platform != "linux", reason="the bounds are those of Linux")
@pytest.mark.parametrize("parameter", [*list_parameters(get_command(app))], ids=str)
def test_a_command_says_in_a_line_what_is_wrong_with_a_file(
    parameter: Parameter,
    contents: dict[str, bytes],
    run_here: Callable[..., subprocess.CompletedProcess[str]],
    bounds: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server.Server, "run", lambda *_, **__: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(CSV_HEADER + CSV_ROW)
    for words in (("loop", "create", "home"), ("backup", "copy.db")):
        assert run_here(*words).returncode == 0
    if parameter.name in (*WHOLE_LOGS, *FOLDERS):
        contents = {name: contents[name] for name in DATABASES}
    folder = tmp_path / "files"
    folder.mkdir()
    for name, path in write_hostile_files(folder, contents).items():
        is_usable = path.is_dir() or not os.path.lexists(path)
        if parameter.name == "out" and parameter.command in LONG and is_usable:
            continue
        signal.alarm(PATIENCE_SECONDS)
        result = run_here(*build_words(parameter, path))
        signal.alarm(0)
        lines = result.stderr.splitlines()
        assert result.returncode in (0, 1, 2), (name, lines)
        assert all(line.startswith("windvane: ") for line in lines), (name, lines)
        assert all(len(line) <= MAX_LINE for line in lines), name
        if result.returncode == 2:
            assert (len(lines), result.stdout) == (1, ""), (name, lines)
