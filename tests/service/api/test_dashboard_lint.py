"""The files of the dashboard: linted scripts, short lines, nothing inline."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from npm_packages import install_packages

ROOT = Path(__file__).parents[3]
STATIC = Path(str(files("windvane.service.api"))) / "static"


@pytest.fixture(scope="module")
def eslint(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that lints, in a folder with the configuration and the scripts."""
    folder = tmp_path_factory.mktemp("eslint")
    packages = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    node = install_packages(folder, *(f"{name}@{version}" for name, version in packages.items()))
    shutil.copy(ROOT / "eslint.config.mjs", folder)
    shutil.copytree(STATIC, folder / "static")
    return [node, str(folder / "node_modules" / "eslint" / "bin" / "eslint.js"), str(folder)]


def run_eslint(command: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    *program, folder = command
    return subprocess.run(
        [*program, *options], cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_eslint_finds_nothing_in_the_scripts(eslint: list[str]) -> None:
    result = run_eslint(eslint, "--max-warnings", "0", "static")
    assert result.returncode == 0, result.stdout + result.stderr


def test_eslint_forbids_markup_from_strings(eslint: list[str]) -> None:
    (Path(eslint[-1]) / "bad.js").write_text("document.body.innerHTML = location.hash;\n")
    result = run_eslint(eslint, "bad.js")
    assert result.returncode == 1
    assert "textContent" in result.stdout


@pytest.mark.parametrize("name", sorted(file.name for file in STATIC.iterdir()))
def test_lines_are_short(name: str) -> None:
    lines = (STATIC / name).read_text("utf-8").splitlines()
    assert [line for line in lines if len(line) > 100] == []


def test_the_page_has_no_inline_script_style_or_handler() -> None:
    page = (STATIC / "dashboard.html").read_text("utf-8")
    assert "<style" not in page
    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert re.findall(r"\s(?:style|on\w+)=", page) == []
