"""The package as a whole: its public names and what loading them loads."""

import re
from collections import Counter
from pathlib import Path

import pytest

import windvane as wv
from processes import run_python

PACKAGE = Path(__file__).parents[1] / "src" / "windvane"
SOURCES = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}


def test_public_names_are_sorted_and_there() -> None:
    assert wv.__all__ == sorted(wv.__all__)
    assert all(hasattr(wv, name) for name in wv.__all__)


@pytest.mark.parametrize("code", ["import windvane", "import sys, windvane.cli as c; c.app"])
def test_the_package_and_its_command_line_load_no_numpy(code: str) -> None:
    check = f"{code}\nimport sys\nprint(sorted({{'numpy', 'numba', 'scipy'}} & set(sys.modules)))"
    assert run_python("-c", check).stdout == "[]\n"


def test_names_are_loaded_when_they_are_used() -> None:
    assert {"Policy", "discount", "thompson", "half_normal", "sets", "Learner"} <= {*wv.__all__}
    assert {*wv.__all__} <= {*dir(wv)}
    name = "discont"
    with pytest.raises(AttributeError, match="attribute discont"):
        getattr(wv, name)


FIRST_USE = """
import gc, numpy as np, sys
def read_state():
    return gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(), sys.getrecursionlimit()
before, events = read_state(), []
sys.addaudithook(lambda name, _: events.append(name))
import windvane as wv
policy = wv.Policy(3, "keep()", "greedy()")
policy.learn(policy.choose(np.eye(3)), 1.0)
learner = wv.Learner(seed=1)
learner.reward(learner.rank({}, ["news", "match"]), 1.0)
assert "import" in events
print([name for name in events if name in {"subprocess.Popen", "os.fork", "os.posix_spawn"}])
print(read_state() == before)
"""


def test_a_first_use_starts_no_process_and_leaves_the_interpreter_as_it_is() -> None:
    assert run_python("-c", FIRST_USE).stdout == "[]\nTrue\n"


def test_the_sources_stay_small_enough_for_one_person() -> None:
    assert sum(text.count("\n") for text in SOURCES.values()) <= 52_500
    assert len(SOURCES) <= 230
    folders = Counter(path.parent for path in SOURCES)
    assert folders.pop(PACKAGE) <= 16
    assert max(folders.values()) <= 18


def test_the_insides_of_numba_are_used_in_one_room() -> None:
    insides = re.compile(r"numba\.core|llvmlite|numba\.np\.|numba\.cpython")
    users = [path for path, text in SOURCES.items() if insides.search(text)]
    assert users
    assert {path.parent.name for path in users} == {"_numba"}
