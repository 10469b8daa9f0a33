"""Machine code that an installation carries is used if it fits this process, and only then."""

import json
import runpy
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import pytest

from processes import join_paths, run_python
from windvane._numba import compile_notice, installed_code

MODULE = """
import numpy as np
from windvane._numba.compilation import compiled

@compiled
def add(x, y):
    return x + np.sum(y)
"""
PACK = """
import sys, numpy as np
from pathlib import Path
from windvane._numba.installed_code import pack_code
sys.path.insert(0, sys.argv[1])
import kernels
print(kernels.add(0.5, np.arange(3.0)))
pack_code(Path(sys.argv[1], "code"))
"""
LOAD = """
import sys, numpy as np
from pathlib import Path
from windvane._numba import compilation, compile_notice, installed_code
sys.path.insert(0, sys.argv[1])
compile_notice.NOTICE_AFTER_SECONDS = 0.0
installed_code.FOLDER = Path(sys.argv[1], "code")
import kernels
print(kernels.add(0.5, np.arange(3.0)), *compilation.origins.items())
"""


SIGNATURE = (numba.float64, numba.float64[::1])


class Index(NamedTuple):
    """The index of installed code."""

    path: Path
    content: dict[str, Any]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module and its machine code."""
    folder = tmp_path_factory.mktemp("packed")
    (folder / "kernels.py").write_text(MODULE)
    (folder / "code").mkdir()
    assert run_in(folder, PACK).stdout == "3.5\n"
    return folder


def run_in(folder: Path, code: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run code in a new process, with an empty folder for what it compiles."""
    cache = folder / f"cache-{len(list(folder.iterdir()))}"
    cache.mkdir()
    variables |= {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": join_paths()}
    variables |= {compile_notice.SWITCH: "1"}
    return run_python("-c", code, folder, environment=variables)


@pytest.fixture
def index(packed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The index of the code, which is the installed code of this process; it is mended later."""
    path = packed / "code" / installed_code.INDEX
    before = path.read_bytes()
    monkeypatch.setattr(installed_code, "FOLDER", path.parent)
    monkeypatch.setattr(compile_notice.compile_notice, "reason", "")
    installed_code._read_index.cache_clear()
    yield Index(path, json.loads(before))
    path.write_bytes(before)
    installed_code._read_index.cache_clear()


def find_code(folder: Path) -> bytes | None:
    """Return what this process would load for `add(float64, array)`."""
    kernels = runpy.run_path(str(folder / "kernels.py"), run_name="kernels")
    return installed_code.find_code(kernels["add"].py_func, SIGNATURE)


def test_code_that_fits_is_loaded_without_compiling_and_without_a_word(packed: Path) -> None:
    done = run_in(packed, LOAD)
    assert (done.stdout, done.stderr) == ("3.5 ('installed', 1)\n", "")


def test_a_processor_without_the_instructions_compiles_and_one_line_says_why(packed: Path) -> None:
    """numba takes the instructions of this variable for those of the processor."""
    done = run_in(packed, LOAD, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert done.stdout == "3.5 ('compiled', 1)\n"
    notice = f"{compile_notice.NOTICE} (the installed code needs a processor with "
    assert done.stderr.startswith(notice)
    assert done.stderr.count("\n") == 1


def test_without_a_folder_to_write_installed_code_is_still_loaded(packed: Path) -> None:
    forbid = "from numba.core import caching\ncaching.CacheImpl._locator_classes = []\n"
    assert run_in(packed, forbid + LOAD).stdout == "3.5 ('installed', 1)\n"


def test_code_under_the_name_of_another_signature_is_never_used(packed: Path, index: Index) -> None:
    """The code itself knows its types; here its file also has the name of `add(int64, array)`."""
    [file] = packed.glob("code/*.bin")
    kernels = runpy.run_path(str(packed / "kernels.py"), run_name="kernels")
    name = installed_code._name_file(kernels["add"].py_func, (numba.int64, *SIGNATURE[1:]))
    other = file.with_name(name)
    other.write_bytes(file.read_bytes())
    index.content["files"][name] = index.content["files"][file.name]
    index.path.write_text(json.dumps(index.content))
    try:
        done = run_in(packed, LOAD.replace("add(0.5,", "add(1,"))
        assert done.stdout == "4.0 ('compiled', 1)\n"
    finally:
        other.unlink()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sources", "the installed code is for other sources"),
        ("Python", "the installed code is for Python of-old, not cpython-3"),
        ("numba", "the installed code is for numba of-old, not "),
        ("llvmlite", "the installed code is for llvmlite of-old, not "),
        ("NumPy", "the installed code is for NumPy of-old, not 2."),
        ("system", "the installed code is for system of-old, not "),
        ("features", "the installed code needs a processor with of-old"),
    ],
)
def test_code_that_does_not_fit_this_process_is_not_found(
    packed: Path, index: Index, name: str, reason: str
) -> None:
    assert find_code(packed)
    index.content["made_for"][name] = "of-old"
    index.path.write_text(json.dumps(index.content))
    installed_code._read_index.cache_clear()
    assert find_code(packed) is None
    assert compile_notice.compile_notice.reason.startswith(reason)


def test_a_file_that_is_not_as_the_index_says_is_not_loaded(packed: Path, index: Index) -> None:
    [file] = packed.glob("code/*.bin")
    code = file.read_bytes()
    assert find_code(packed) == code
    try:
        for wrong in (code[:-1], b"", code.replace(b"add", b"sub")):
            file.write_bytes(wrong)
            assert find_code(packed) is None
        file.unlink()
        assert find_code(packed) is None
    finally:
        file.write_bytes(code)
