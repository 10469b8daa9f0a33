"""The wheel and the source distribution: complete, and usable in an empty environment."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import typer
from packaging.requirements import Requirement

from deployment_files import DEPLOY, read_container
from windvane import cli

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "windvane"
BUILD_FILES = ("pyproject.toml", "build_backend.py", "MANIFEST.in", "README.md", "LICENSE")


def shipped_files() -> set[str]:
    """All files of the package, as paths inside a wheel."""
    return {
        path.relative_to(ROOT / "src").as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("build")
    for name in BUILD_FILES:
        shutil.copy(ROOT / name, folder)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist"]
    command += ["-C", "machine-code=no", "."]  # tests/test_machine_code.py has the wheel with it
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "dist"


@pytest.fixture(scope="module")
def programs(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(distributions, tmp_path_factory.mktemp("environment"))


def make_environment(distributions: Path, folder: Path) -> Path:
    """The programs of an environment that has the wheel and what it requires, without an extra."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    wheel = str(next(distributions.glob("windvane-*.whl")))
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run([*pip, "install", *options, wheel], check=True, env=environment())
    link_requirements(folder / "bin")
    return folder / "bin"


def link_requirements(programs: Path, *extras: str) -> None:
    """Let an environment import what the wheel requires, as it is installed here, and no more.

    A requirement that is not declared is missing there, and a version that the wheel refuses fails.
    """
    site = next(programs.parent.rglob("site-packages"))
    [package] = Distribution.discover(name="windvane", path=[str(site)])
    new: list[tuple[Distribution, Iterable[str]]] = [(package, extras)]
    linked = set()
    while new:
        package, wanted = new.pop()
        for requirement in map(Requirement, package.requires or ()):
            marker, key = requirement.marker, (requirement.name, *sorted(requirement.extras))
            is_needed = not marker or any(
                marker.evaluate({"extra": each}) for each in ("", *wanted)
            )
            if is_needed and key not in linked:
                linked.add(key)
                found = distribution(requirement.name)
                assert requirement.specifier.contains(found.version, prereleases=True), requirement
                new.append((found, requirement.extras))
                for name in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
                    if not (site / name).exists():
                        (site / name).symlink_to(str(found.locate_file(name)))


def run_installation(command: list[str], variables: Mapping[str, str]) -> None:
    """Run a command that installs packages, or skip the test."""
    everything = environment() | {**variables}
    done = subprocess.run(command, capture_output=True, text=True, env=everything)
    if done.returncode:
        pytest.skip(f"pip must reach a package index to test this: {done.stderr[-300:]}")


def run_there(
    programs: Path, words: Sequence[str], here: Path, there: Path
) -> subprocess.CompletedProcess[str]:
    """Run Python in this checkout, which compiles, and then in the environment, in two folders.

    The sources are equal, so the installed package can load the machine code of this checkout.
    """
    run([sys.executable, *words], here, {"PYTHONPATH": str(ROOT / "src")})
    package = next(programs.parent.rglob("site-packages/windvane"))
    for file in PACKAGE.rglob("*.nb[ci]"):
        copy = package / file.relative_to(PACKAGE)
        if copy.parents[1].is_dir():  # a folder that was removed may have left machine code here
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(file, copy)
    return run([programs / "python", *words], there)


def run(
    words: Sequence[str | Path], folder: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program, without the variables that would let another package be imported."""
    everything = environment() | {**(variables or {})}
    command = list(map(str, words))
    return subprocess.run(command, cwd=folder, env=everything, capture_output=True, text=True)


def environment() -> dict[str, str]:
    """This environment without the variables that would let another package be imported."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def test_the_wheel_holds_every_file_of_the_package(distributions: Path) -> None:
    with zipfile.ZipFile(next(distributions.glob("windvane-*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == shipped_files()


def test_the_source_distribution_holds_the_package_and_its_license(distributions: Path) -> None:
    with tarfile.open(next(distributions.glob("windvane-*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in shipped_files()} | set(BUILD_FILES) <= names


def test_the_first_examples_work_after_a_plain_installation(programs: Path, tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "examples.txt").write_text("\n".join(examples[:2]))
    done = run_there(programs, ["-m", "doctest", "examples.txt"], tmp_path, tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_installed_library_chooses_and_learns(programs: Path, tmp_path: Path) -> None:
    code = (
        "import windvane as wv; policy = wv.Policy(2, seed=1);"
        "choice = policy.choose([[1.0, 0.0], [0.0, 1.0]]); policy.learn(choice, 1.0);"
        "print(policy.round, wv.__file__)"
    )
    done = run_there(programs, ["-c", code], tmp_path, tmp_path)
    assert done.returncode == 0, done.stderr
    played, file = done.stdout.split(maxsplit=1)
    assert played == "1"
    assert Path(file.strip()).is_relative_to(programs.parent)


def test_a_requirement_of_an_extra_is_missing_without_it(programs: Path, tmp_path: Path) -> None:
    done = run([programs / "python", "-c", "import pytest"], tmp_path)
    assert "No module named 'pytest'" in done.stderr


# What each command says without any extra: the words that it gets, and the extra that it names.
COMMANDS = {
    "policies": ("", None),
    "compile": ("--help", None),  # it works for a minute
    "theory": ("--dim 2 --horizon 100 --drift 1 --arms 3", None),
    **dict.fromkeys(["reproduce", "tune", "leaderboard", "coverage"], ("", "lab")),
    "simulate": ("--policy LinTS", "lab"),
    "plot": (".", "lab"),
    "check": ("log.csv", "lab"),
    "evaluate": ("log.csv", "lab"),
    "export": ("log.parquet", "lab"),
    "import": ("log.csv --loop x", "lab"),
    **dict.fromkeys(["serve", "compact", "demo"], ("", "serve")),
    "mcp": ("", "mcp"),
    **dict.fromkeys(["backup", "restore"], ("file", "serve")),
    "migrate": ("--from a --to b", "serve"),
    **dict.fromkeys(["loop create", "loop delete"], ("x", "serve")),
    **dict.fromkeys(["loop list", "key list"], ("", "serve")),
    "key create": ("--role admin", "serve"),
    "key expire": ("1", "serve"),
}


def list_commands(group: Any, prefix: str = "") -> Iterator[str]:
    """List the commands of a command line, those of its groups included."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from list_commands(command, f"{name} ")
        else:
            yield prefix + name


def test_without_extras_every_command_works_or_says_in_one_line_what_to_install(
    distributions: Path, tmp_path: Path
) -> None:
    assert set(list_commands(typer.main.get_command(cli.app))) == set(COMMANDS)
    programs = make_environment(distributions, tmp_path / "environment")
    (tmp_path / "log.csv").write_text("action,reward,probability\nx,1.0,0.5\n")
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install"]

    def try_command(name: str) -> tuple[int, str]:
        done = run([programs / "windvane", *name.split(), *COMMANDS[name][0].split()], tmp_path)
        return done.returncode, done.stderr

    with ThreadPoolExecutor(2) as threads:
        outcomes = dict(zip(COMMANDS, threads.map(try_command, COMMANDS), strict=True))
    for name, (code, said) in outcomes.items():
        extra = COMMANDS[name][1]
        if extra is None:
            assert (code, said) == (0, ""), name
        else:
            pattern = rf"windvane: .*\b\w+ is missing: pip install 'windvane\[{extra}\]'\n"
            assert code == 2, name
            assert re.fullmatch(pattern, said), name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["environment", "log.csv"]
    # The sources are in no index, yet pip finds what the extra of the installed package needs.
    install = [*pip, "--no-index", "--quiet", "windvane[lab]"]
    assert "No matching distribution found for polars" in run(install, tmp_path).stderr
    link_requirements(programs, "lab")
    assert run(install, tmp_path).returncode == 0


def test_the_command_line_knows_what_each_extra_installs() -> None:
    """Apart from traces, docs and tools, whose commands name what is missing themselves."""
    wanted: dict[str, set[str]] = {}
    for requirement in map(Requirement, distribution("windvane").requires or ()):
        for extra in cli.EXTRAS:
            marker = requirement.marker
            if requirement.name != "windvane" and marker and marker.evaluate({"extra": extra}):
                name = requirement.name.lower().replace("-", "_")
                wanted.setdefault(extra, set()).add({"scikit_learn": "sklearn"}.get(name, name))
    assert {extra: set(names) for extra, names in cli.EXTRAS.items()} == wanted


def test_the_installed_lab_draws_one_panel_of_the_figure(programs: Path, tmp_path: Path) -> None:
    link_requirements(programs, "lab")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    words = ("reproduce", "--panels", "10x10", "--replications", "2", "--json", "--out", "figure")
    done = run_there(programs, ["-m", "windvane", *words], here, there)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert (there / "figure" / "figure.png").stat().st_size > 10_000
    version = run([programs / "windvane", "--version"], there)
    assert version.stdout.startswith("windvane "), version.stderr


def test_the_steps_of_the_container_install_and_run_the_service(
    distributions: Path, tmp_path: Path
) -> None:
    """By the script, commands and variables of deploy/Containerfile; only the folders differ."""
    container = read_container()
    variables = container.environment
    folders = {
        "/opt/windvane": tmp_path / "programs",
        "/var/lib/windvane": tmp_path / "state",
        "/var/cache/windvane": tmp_path / "cache",
        "$PATH": os.environ["PATH"],
    }
    for name, value in variables.items():
        for inside, here in folders.items():
            value = value.replace(inside, str(here))
        variables[name] = value
    variables["WINDVANE_PORT"] = "0"  # any that is free; it is known once the service runs
    wheel = next(distributions.glob("windvane-*.whl"))
    script = ["sh", str(DEPLOY / "install.sh"), str(wheel), str(folders["/opt/windvane"])]
    no_bytecode = {"PIP_NO_COMPILE": "1"}  # Python compiles the few modules that are imported
    run_installation(script, variables | no_bytecode | {"PYTHON": sys.executable})
    assert list((tmp_path / "cache").rglob("*.nbi"))  # the machine code is there before the start

    everything = environment() | variables

    def run_inside(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=everything, capture_output=True, text=True, timeout=120
        )

    entry = [shutil.which("windvane", path=variables["PATH"]) or ""]
    refused = run_inside([*entry, *container.command[1:]])
    assert refused.returncode == 2
    assert "there is no valid key" in refused.stderr  # other hosts can connect to a container
    key = run_inside([*entry, "key", "create", "--role", "admin"]).stdout.strip()
    with subprocess.Popen(
        [*entry, *container.command[1:]], cwd=tmp_path, env=everything, stderr=subprocess.PIPE
    ) as server:
        try:
            assert server.stderr is not None
            first = server.stderr.readline()
            serving = re.search(rb"serving on http://0\.0\.0\.0:(\d+)$", first.strip())
            assert serving, first + server.stderr.read()
            everything["WINDVANE_PORT"] = serving[1].decode()
            python = shutil.which("python", path=variables["PATH"]) or ""
            assert run_inside([python, *container.health_check[1:]]).returncode == 0
            address = f"http://127.0.0.1:{everything['WINDVANE_PORT']}"
            headers = {"content-type": "application/json", "Ocp-Apim-Subscription-Key": key}

            def read(path: str) -> str:
                request = Request(f"{address}/{path}", headers=headers)
                return str(urlopen(request, timeout=30).read().decode())

            page = read("")
            assets = re.findall(r'(?:src|href)="/?([\w./-]+\.(?:js|css))"', page)
            assert "<html" in page
            assert assets
            assert all(map(read, assets))
            base = f"{address}/personalizer/v1.0"
            body = {"eventId": "e", "actions": [{"id": name, "features": []} for name in "ab"]}
            rank = Request(f"{base}/rank", json.dumps(body).encode(), headers)
            assert json.load(urlopen(rank, timeout=30))["degraded"] is False
            reward = Request(f"{base}/events/e/reward", b'{"value": 1.0}', headers)
            assert urlopen(reward, timeout=30).status == 204
            server.terminate()
            while run_inside([python, *container.health_check[1:]]).returncode == 0:
                assert server.poll() is None
            assert server.poll() is None  # it is not ready any more, and still answers
            assert json.load(urlopen(rank, timeout=30))["degraded"] is False
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()
