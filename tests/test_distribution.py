"""The wheel and the source distribution: complete, and usable in an empty environment."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from deployment_files import DEPLOY, read_container

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "windvane"
BUILD_FILES = ("pyproject.toml", "README.md", "LICENSE")


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
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "dist"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an empty environment."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin"


def install(programs: Path, requirement: str) -> None:
    """Install what pip calls by this name, or skip the test.

    Python compiles the few modules that are imported; pip would compile those of all packages.
    """
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    run_installation([*pip, requirement])


def run_installation(command: list[str], variables: Mapping[str, str] | None = None) -> None:
    """Run a command that installs packages, or skip the test."""
    everything = {**environment(), **(variables or {})}
    done = subprocess.run(command, capture_output=True, text=True, env=everything)
    if done.returncode:
        pytest.skip(f"pip must reach a package index to test the wheel: {done.stderr[-300:]}")


@pytest.fixture(scope="module")
def plain_run(
    distributions: Path, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> subprocess.CompletedProcess[str]:
    """What the first examples of the README do after `pip install .`, without any extra."""
    install(programs, str(next(distributions.glob("*.whl"))))
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    folder = tmp_path_factory.mktemp("plain")
    (folder / "examples.txt").write_text("\n".join(examples[:2]))
    return subprocess.run(
        [str(programs / "python"), "-m", "doctest", "examples.txt"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def installed(
    distributions: Path, programs: Path, plain_run: subprocess.CompletedProcess[str]
) -> Path:
    """The folder of programs of an environment in which the wheel was installed with the lab."""
    install(programs, f"{next(distributions.glob('*.whl'))}[lab]")
    return programs


def environment() -> dict[str, str]:
    """This environment without the variables that would let another package be imported."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def test_the_wheel_holds_every_file_of_the_package(distributions: Path) -> None:
    with zipfile.ZipFile(next(distributions.glob("*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == shipped_files()


def test_the_source_distribution_holds_the_package_and_its_license(distributions: Path) -> None:
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{name}" for name in shipped_files()} | set(BUILD_FILES) <= names


def test_the_first_examples_work_after_a_plain_installation(
    plain_run: subprocess.CompletedProcess[str],
) -> None:
    assert (plain_run.returncode, plain_run.stdout) == (0, ""), plain_run.stderr


def test_the_installed_library_chooses_and_learns(installed: Path, tmp_path: Path) -> None:
    code = (
        "import windvane as wv; policy = wv.Policy(2, seed=1);"
        "choice = policy.choose([[1.0, 0.0], [0.0, 1.0]]); policy.learn(choice, 1.0);"
        "print(policy.round, wv.__file__)"
    )
    command = [str(installed / "python"), "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    played, file = done.stdout.split(maxsplit=1)
    assert played == "1"
    assert Path(file.strip()).is_relative_to(installed.parent)


def test_the_installed_lab_draws_one_panel_of_the_figure(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "windvane"), "reproduce", "--panels", "10x10", "--replications", "2"]
    done = subprocess.run(
        [*command, "--json", "--out", "figure"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)
    assert (tmp_path / "figure" / "figure.png").stat().st_size > 10_000


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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        variables["WINDVANE_PORT"] = str(free.getsockname()[1])
    wheel = next(distributions.glob("*.whl"))
    script = ["sh", str(DEPLOY / "install.sh"), str(wheel), str(folders["/opt/windvane"])]
    run_installation(script, variables | {"PYTHON": sys.executable})
    assert list((tmp_path / "cache").rglob("*.nbi"))  # the machine code is there before the start

    everything = environment() | variables

    def run(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=everything, capture_output=True, text=True, timeout=120
        )

    entry = [shutil.which("windvane", path=variables["PATH"]) or ""]
    refused = run([*entry, *container.command[1:]])
    assert refused.returncode == 2
    assert "there is no valid key" in refused.stderr  # other hosts can connect to a container
    key = run([*entry, "key", "create", "--role", "admin"]).stdout.strip()
    with subprocess.Popen(
        [*entry, *container.command[1:]], cwd=tmp_path, env=everything, stderr=subprocess.PIPE
    ) as server:
        try:
            assert server.stderr is not None
            first = server.stderr.readline()
            assert b"serving on http://0.0.0.0:" in first, first + server.stderr.read()
            python = shutil.which("python", path=variables["PATH"]) or ""
            assert run([python, *container.health_check[1:]]).returncode == 0
            address = f"http://127.0.0.1:{variables['WINDVANE_PORT']}"
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
            while run([python, *container.health_check[1:]]).returncode == 0:
                assert server.poll() is None
            assert server.poll() is None  # it is not ready any more, and still answers
            assert json.load(urlopen(rank, timeout=30))["degraded"] is False
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()
