"""`@compiled`: each function is compiled once, and all processes run the same machine code."""

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numba.core.caching import FunctionCache

from processes import join_paths, run_python
from windvane._numba import compilation, compile_notice, disk_cache, linker
from windvane._numba.compilation import call_directly, compiled
from windvane.beliefs.full.block import refresh

LINKED_MODULE = """
import numpy as np
from windvane._numba.compilation import compiled

@compiled
def divide(total, count):
    if count < 0:
        raise ValueError("count", count)
    return total / count

@compiled
def average(x, count):
    return divide(np.sum(x), count)
"""
RUN = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
import linked_code
assert linked_code.average(np.ones(4), 2) == 2.0
print(sum(linked_code.average.stats.cache_misses.values()), flush=True)
"""


def test_processes_that_start_together_compile_a_function_once(tmp_path: Path) -> None:
    (tmp_path / "linked_code.py").write_text(LINKED_MODULE)
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": join_paths()}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        for _ in range(3)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    misses = sorted(int(process.communicate(timeout=120)[0]) for process in started)
    assert misses == [0, 0, 1]
    assert [process.returncode for process in started] == [0, 0, 0]


LINKED_RUN = """
import sys, numpy as np
from windvane._numba import compilation, compile_notice
sys.path.insert(0, sys.argv[1])
compile_notice.NOTICE_AFTER_SECONDS, compile_notice.PAUSE_SECONDS = 0.0, float("inf")
if sys.argv[2] == "plain":
    compilation.can_link = lambda: False
import linked_code as code

print(code.average(np.ones(4), 2), len(code.divide.overloads))
try:
    code.average(np.ones(4), -1)
except ValueError as error:
    print(error.args)
print(code.divide(6.0, 4), sum(code.average.stats.cache_hits.values()))
"""


class Linked(NamedTuple):
    """Functions that were compiled into a folder, by a run that has ended."""

    folder: Path
    first: "subprocess.CompletedProcess[str]"


def run_linked_code(folder: Path, way: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a function that calls another one, in a new process."""
    (folder / "linked_code.py").write_text(LINKED_MODULE)
    variables |= {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": join_paths()}
    return run_python("-c", RUNS.get(way, LINKED_RUN), folder, way, environment=variables)


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Linked:
    """The first run of the functions, which compiles them, and its folder."""
    folder = tmp_path_factory.mktemp("linked")
    return Linked(folder, run_linked_code(folder, "linked", **{compile_notice.SWITCH: "1"}))


def test_a_called_function_is_linked_into_its_caller_and_python_can_still_call_it(
    linked: Linked,
) -> None:
    """An error inside it reaches Python, also if the caller was loaded from disk.

    One line says that something is compiled, and nothing is said if all is loaded from disk.
    """
    assert linked.first.stdout == "2.0 0\n('count', -1)\n1.5 0\n"
    assert linked.first.stderr == f"{compile_notice.NOTICE}\n"
    again = run_linked_code(linked.folder, "linked", **{compile_notice.SWITCH: "1"})
    assert again.stdout == "2.0 0\n('count', -1)\n1.5 1\n"
    assert again.stderr == ""


def test_without_the_private_names_functions_are_compiled_as_numba_does_it(tmp_path: Path) -> None:
    done = run_linked_code(tmp_path, "plain", **{compile_notice.SWITCH: "0"})
    assert done.stdout == "2.0 1\n('count', -1)\n1.5 0\n"
    assert done.stderr == ""


class FakeTimer:
    """A timer that waits on the clock of a test."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self.seconds, self.call, self.is_running, self.daemon = seconds, call, False, False

    def start(self) -> None:
        self.is_running = True

    def cancel(self) -> None:
        self.is_running = False


def test_every_compilation_of_more_than_a_second_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Functions that are compiled one after the other, without a pause, get one line."""
    now, timers = 1000.0, []

    def make_timer(seconds: float, call: Callable[[], None]) -> FakeTimer:
        timers.append(FakeTimer(seconds, call))
        return timers[-1]

    monkeypatch.setenv(compile_notice.SWITCH, "1")
    monkeypatch.setattr("threading.Timer", make_timer)
    monkeypatch.setattr("time.monotonic", lambda: now)
    notice = compile_notice.CompileNotice()
    lines = []
    # the pause before each compilation, and its length in seconds
    for pause, seconds in ((0.0, 0.6), (0.1, 0.3), (0.1, 0.6), (0.1, 5.0), (9.0, 0.9), (9.0, 2.0)):
        now += pause
        with notice.watch():
            if timers[-1].is_running and timers[-1].seconds <= seconds:
                timers[-1].call()
            now += seconds
        lines.append(capsys.readouterr().err.count(compile_notice.NOTICE))
    assert lines == [0, 0, 1, 0, 0, 1]


PRIVATE_NAMES = [
    *((owner, name) for owner, names in linker.NEEDED.items() for name in names),
    *((FunctionCache, name) for name in disk_cache.NEEDED),
    *((refresh, f"_cache.{name}") for name in ("_index_key", "cache_path")),
    *(
        (refresh, f"_cache._cache_file.{name}")
        for name in ("_source_stamp", "_load_index", "_data_path")
    ),
]


@pytest.mark.parametrize(("owner", "name"), PRIVATE_NAMES)
def test_the_private_names_of_numba_that_are_used_still_exist(owner: object, name: str) -> None:
    """Without them code is compiled and loaded in numba's own way, several times as slowly."""
    assert disk_cache.has_cache_folder(refresh)
    try:
        attrgetter(name)(owner)
    except AttributeError:
        pytest.fail(f"numba has no {name} any more: adapt windvane._numba and pyproject.toml")


ABSENT_FILE = """
import os, pathlib
os.environ["NUMBA_CACHE_DIR"] = {folder!r}
import numba, numpy as np
from windvane._numba import disk_cache
from windvane.beliefs.full.linalg import dot
dot(np.ones(2), np.ones(2))
signature = dot.signatures[0]
before = disk_cache.is_on_disk(dot, signature)
for file in pathlib.Path({folder!r}).rglob("*.nbc"):
    file.unlink()
print(before, disk_cache.is_on_disk(dot, signature))
"""


def test_code_whose_file_is_missing_is_not_on_disk(tmp_path: Path) -> None:
    """Another process has written the index and not yet the file; it holds the lock till then."""
    assert run_python("-c", ABSENT_FILE.format(folder=str(tmp_path))).stdout == "True False\n"


MOVED_CLASS = """
import os, pathlib, sys
os.environ["NUMBA_CACHE_DIR"] = {folder!r}
import numpy as np
sys.path.insert(0, {folder!r})
import {module} as code
from windvane._numba.compilation import compiled

@compiled
def add(pair):
    return pair.left + pair.right

print(add(code.Pair(1.0, 2.0)), sum(add.stats.cache_hits.values()))
"""


def test_an_index_that_names_a_moved_class_is_compiled_again_and_replaced(tmp_path: Path) -> None:
    """numba reads the whole index before it compares its stamp."""
    script = tmp_path / "script.py"
    pair = "from typing import NamedTuple\n\n\nclass Pair(NamedTuple):"
    printed = []
    for module in ("before", "after", "after"):
        (tmp_path / "before.py").unlink(missing_ok=True)
        (tmp_path / f"{module}.py").write_text(f"{pair}\n    left: float\n    right: float\n")
        script.write_text(MOVED_CLASS.format(folder=str(tmp_path), module=module))
        printed.append(run_python(script).stdout)
    assert printed == ["3.0 0\n", "3.0 0\n", "3.0 1\n"]


def test_a_compiled_function_carries_the_stamp_of_all_sources() -> None:
    assert disk_cache.has_cache_folder(refresh)
    cache = refresh._cache  # type: ignore[attr-defined]
    assert cache._cache_file._source_stamp == disk_cache.compute_stamp()


def test_every_file_that_compiled_code_imports_is_part_of_the_stamp() -> None:
    """A parser of Python finds the same imports, also those inside functions."""
    sources = disk_cache._read_sources()
    stamped = disk_cache.find_compiled_sources(sources)
    assert {name for name, text in sources.items() if b"\n@compiled" in text} <= stamped
    for name in stamped:
        for node in ast.walk(ast.parse(sources[name])):
            if isinstance(node, ast.Import):
                assert not any(each.name.startswith("windvane") for each in node.names), name
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("windvane"):
                assert node.level == 0
                for alias in node.names:
                    module = f"{node.module}/{alias.name}".replace(".", "/")
                    imported = {*_candidates(module.removeprefix("windvane/"))} & sources.keys()
                    assert imported <= stamped, f"{name} imports {imported - stamped}"


def test_what_compiled_code_does_not_import_is_no_part_of_the_stamp() -> None:
    stamped = disk_cache.find_compiled_sources(disk_cache._read_sources())
    assert not [name for name in stamped if name.startswith(("service/", "client/", "cli.py"))]


def _candidates(module: str) -> tuple[str, ...]:
    """Files from which `package/name` may be imported, the most specific first."""
    parent = module.rpartition("/")[0]
    return f"{module}.py", f"{module}/__init__.py", f"{parent}.py", f"{parent}/__init__.py"


LOADING_RUN = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import linked_code as code
from numba.core.cpu import CPUContext

registrations, register = [], CPUContext.load_additional_registries
CPUContext.load_additional_registries = lambda self: registrations.append(register(self))
assert code.average(np.ones(4), 2) == 2.0
print(len(registrations))
print(code.divide(np.float64(6.0), 4.0), sum(code.average.stats.cache_hits.values()))

from numba import njit  # functions of others use the same parts of numba

@njit
def add(x):
    return np.sum(x) + np.empty(3).size

print(add(np.ones(4)), code.average(np.ones((2, 2)), 2))
"""


def test_loaded_code_needs_nothing_that_compiles_and_others_can_still_compile(
    linked: Linked,
) -> None:
    assert run_linked_code(linked.folder, "loading").stdout == "0\n1.5 1\n7.0 2.0\n"


BLAS_RUN = """
import sys, numpy as np
sys.path.insert(0, sys.argv[1])
import linked_code as code

code.average(np.ones(4), 2)
print("scipy.linalg" in sys.modules)
from numba import njit

@njit
def compute(x):
    return np.dot(x, x), np.cov(x, x)[0, 1]

print(*compute(np.arange(3.0)), "scipy.linalg" in sys.modules)
"""


def test_compiling_imports_no_linear_algebra_and_others_can_still_use_it(tmp_path: Path) -> None:
    assert run_linked_code(tmp_path, "blas").stdout == "False\n5.0 1.0 True\n"


RUNS = {"loading": LOADING_RUN, "blas": BLAS_RUN}
WITHOUT_FOLDER = """
from numba.core import caching

caching.CacheImpl._locator_classes = caching.CompileResultCacheImpl._locator_classes = []
from windvane._numba.compilation import compiled
from windvane._numba.disk_cache import has_cache_folder

@compiled
def double(x):
    return 2.0 * x

assert double(4.0) == 8.0
assert not has_cache_folder(double)
"""


def test_without_a_folder_for_compiled_code_functions_are_compiled_in_memory() -> None:
    run_python("-c", WITHOUT_FOLDER)


@compiled
def double_pair(pair: tuple[float, int]) -> float:
    return 2.0 * pair[0] * pair[1]


def test_a_direct_call_compiles_once_and_never_dispatches_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    double = call_directly(double_pair)
    assert double((1.5, 2)) == 6.0
    monkeypatch.setattr(compilation, "compile_for", None)  # a second call of it would fail
    assert [double((0.5, 3)), double((-2.0, 1))] == [3.0, -4.0]
    assert len(double_pair.overloads) == 1  # type: ignore[attr-defined]


def test_a_direct_call_works_without_the_compiler() -> None:
    code = (
        "from windvane._numba.compilation import call_directly, compiled\n"
        "print(call_directly(compiled(lambda x: x + 1))(2))"
    )
    assert run_python("-c", code, environment={"NUMBA_DISABLE_JIT": "1"}).stdout == "3\n"


def test_types_of_arguments_are_those_of_numba() -> None:
    from numba import typeof

    constant = np.zeros(3)
    constant.flags.writeable = False
    record = np.zeros(1, np.dtype([("a", "f8"), ("b", "i8")]))
    arrays = (np.zeros((2, 3)), np.zeros((2, 3)).T, np.zeros(8)[::2], constant, record)
    for value in (*arrays, arrays, (1, 2.0), 7, 1.5, np.uint64(3), True):
        assert compilation._find_type(value) == typeof(value)
