"""The wheel with machine code: its first choice compiles nothing, wherever it is moved."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import build_backend
from processes import run_python

ROOT = Path(__file__).parent.parent
FIRST_USE = """
import sys, numpy as np, windvane as wv
from windvane._numba import compile_notice
from windvane._numba.compilation import origins
compile_notice.NOTICE_AFTER_SECONDS = 0.0
policy = wv.Policy(3, "keep()", "greedy()", seed=7)
policy.learn(policy.choose(np.eye(3)), 1.0)
print(wv.__file__, *sorted(origins))
"""
ALL_USES = """
import windvane as wv
from windvane._numba.compilation import origins
wv.warm_up()
from windvane.service.loops.learner_model import compile_kernels
compile_kernels()
print(*origins.items())
"""
PLAY = """
import io, json, numpy as np, windvane as wv
from windvane._numba.compilation import origins
arms = np.random.default_rng(1).standard_normal((300, 8, 5))
policies = [wv.Policy(5, seed=7), wv.Policy(5, "window(50)", "thompson(0.5)", seed=7)]
chosen = []
for row in arms:
    for policy in policies:
        choice = policy.choose(row)
        policy.learn(choice, float(row[choice.index, 0]))
        chosen.append(choice.index)
learner = wv.Learner(seed=1)
for i in range(100):
    context = {"device": "phone" if i % 3 else "desk", "age": i % 7}
    decision = learner.rank(context, [{"id": "news", "size": i % 5}, "match"], at=float(i))
    chosen.append(decision.index)
    learner.reward(decision, float(decision.index == i % 2))
learned = [probability.hex() for probability in decision.probabilities.tolist()]
thetas = [policy.theta.tolist() for policy in policies]
print(json.dumps([chosen, learned, thetas, sorted(origins)]))
"""


class Played(NamedTuple):
    """What a process has chosen and learned, and where its code is from."""

    chosen: list[int]
    learned: list[str]  # probabilities, in hexadecimal
    thetas: list[list[float]]
    origins: list[str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources."""
    if build_backend.find_target() is None:
        pytest.skip("needs a processor with x86-64-v3 or arm64")
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "build_backend.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", "."]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return next((folder / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel was installed, and which was moved afterwards."""
    folder = tmp_path_factory.mktemp("before") / "packages"
    options = ["--quiet", "--no-index", "--no-deps", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, wheel], check=True)
    return Path(shutil.move(folder, tmp_path_factory.mktemp("moved")))


def run_there(folder: Path, code: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run code with the installed package and an empty folder for what it compiles."""
    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    variables = {"WINDVANE_COMPILE_NOTICE": "1", "NUMBA_CACHE_DIR": str(cache), **variables}
    return run_python("-c", code, environment={"PYTHONPATH": str(folder), **variables})


@pytest.fixture(scope="module")
def changed(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a comment more in one source, so that its machine code is of other sources."""
    folder = Path(shutil.copytree(installed, tmp_path_factory.mktemp("changed") / "packages"))
    with open(folder / "windvane" / "_random.py", "a", encoding="utf-8") as file:
        file.write("# one line more\n")
    return folder


def test_the_wheel_is_for_one_python_and_one_system(wheel: Path) -> None:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.split("-")[2:4] == [python, python]
    assert not wheel.name.endswith("-any.whl")


def test_the_index_names_every_file(installed: Path) -> None:
    folder = installed / "windvane" / "_machine_code"
    index = json.loads((folder / "index.json").read_bytes())
    assert {path.name for path in folder.iterdir()} == {*index["files"], "index.json"}
    assert len(index["files"]) > 40


def test_a_first_choice_compiles_nothing_and_says_nothing(installed: Path) -> None:
    done = run_there(installed, FIRST_USE)
    assert done.stdout.split() == [str(installed / "windvane" / "__init__.py"), "installed"]
    assert done.stderr == ""
    assert not (installed / "cache").exists()


def test_all_that_a_warm_up_and_a_service_need_is_installed(installed: Path) -> None:
    done = run_there(installed, ALL_USES)
    [kinds] = done.stdout.splitlines()
    assert kinds.startswith("('installed', ")
    assert "compiled" not in kinds
    assert "loaded" not in kinds
    done = run_python(
        *("-m", "windvane", "compile", "--only-installed"),
        environment={"PYTHONPATH": str(installed)},
    )
    assert done.stdout.endswith(" installed, 0 loaded, 0 compiled\n")


def test_changed_sources_are_compiled_and_one_line_says_so(changed: Path) -> None:
    done = run_there(changed, FIRST_USE)
    assert done.stdout.split()[1:] == ["compiled"]
    assert done.stderr.endswith("(the installed code is for other sources)\n")
    assert done.stderr.count("\n") == 1


def test_a_processor_without_the_instructions_compiles(installed: Path) -> None:
    done = run_there(installed, FIRST_USE, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")
    assert done.stdout.split()[1:] == ["compiled"]
    assert "(the installed code needs a processor with " in done.stderr


def test_installed_code_learns_what_compiled_code_learns(installed: Path, changed: Path) -> None:
    """A learner has the same bits. The sums of a policy may be ordered differently."""
    here, there = (
        Played(*json.loads(run_there(folder, PLAY).stdout)) for folder in (installed, changed)
    )
    assert (here.origins, there.origins) == (["installed"], ["compiled"])
    assert here.chosen == there.chosen
    assert here.learned == there.learned
    for own, other in zip(here.thetas, there.thetas, strict=True):
        assert own == pytest.approx(other, rel=1e-9, abs=1e-12)
