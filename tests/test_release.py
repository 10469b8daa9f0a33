"""What a release is made of: one version everywhere, workflows that name what exists, the build."""

import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import build_backend
import windvane
from processes import run_python
from windvane.cli import app

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read_yaml(path: Path) -> dict[Any, Any]:
    yaml = pytest.importorskip("yaml", reason="pip install pyyaml to test the workflows")
    content: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return content


def read_jobs(name: str) -> dict[str, Any]:
    jobs: dict[str, Any] = read_yaml(ROOT / ".github" / "workflows" / name)["jobs"]
    return jobs


def list_steps(job: dict[str, Any], key: str) -> list[str]:
    return [step[key] for step in job["steps"] if key in step]


def test_the_version_is_one_everywhere() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == windvane.__version__
    assert read_yaml(ROOT / "CITATION.cff")["version"] == windvane.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", windvane.__version__)


def test_the_citation_has_what_the_format_requires() -> None:
    citation = read_yaml(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["license"] == PROJECT["license"]


def test_the_changelog_stays_short() -> None:
    assert (ROOT / "CHANGELOG.md").read_text("utf-8").count("\n") <= 80


def test_every_python_that_is_promised_is_tested_and_has_wheels() -> None:
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert promised[0] == PROJECT["requires-python"].removeprefix(">=")
    tested = read_jobs("ci.yml")["test"]["strategy"]["matrix"]["python"]
    released = read_jobs("release.yml")["wheels"]["strategy"]["matrix"]["python"]
    assert promised == tested == released


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_job_ends_and_every_step_does_one_thing_with_a_fixed_action(path: Path) -> None:
    jobs = read_yaml(path)["jobs"]
    for name, job in jobs.items():
        assert job["timeout-minutes"] <= 60, name
        assert {*job.get("needs", [])} <= jobs.keys(), name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            assert re.fullmatch(r"[\w-]+/[\w-]+@[\w./]+", step.get("uses", "a/b@v1"))


def test_a_tag_alone_publishes_by_trusted_publishing_what_was_checked() -> None:
    workflow = read_yaml(ROOT / ".github" / "workflows" / "release.yml")
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {"contents": "read"}
    publish = jobs["publish"]
    assert {*publish["needs"]} == {"wheels", "sources"}
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert "pypa/gh-action-pypi-publish@release/v1" in list_steps(publish, "uses")
    for name in ("publish", "image-for-all"):
        assert jobs[name]["if"] == "startsWith(github.ref, 'refs/tags/')"
    assert "secrets." not in str([jobs[name] for name in ("wheels", "sources", "publish")])


def test_wheels_are_built_for_machines_that_have_a_target() -> None:
    wheels = read_jobs("release.yml")["wheels"]
    for machine in wheels["strategy"]["matrix"]["machine"]:
        assert re.search(r"(x86_64|aarch64|arm64)$", machine["platform"])
        [name] = re.findall(r"(x86_64|aarch64|arm64)$", machine["platform"])
        assert name in build_backend.TARGETS


def test_the_image_is_for_two_processors_with_its_origin_and_parts() -> None:
    image = read_jobs("release.yml")["image"]
    platforms = {each["platform"] for each in image["strategy"]["matrix"]["machine"]}
    assert platforms == {"linux/amd64", "linux/arm64"}
    [build] = [step for step in image["steps"] if "build-push" in step.get("uses", "")]
    assert build["with"]["sbom"] is True
    assert build["with"]["provenance"] == "mode=max"
    assert (ROOT / build["with"]["file"]).exists()
    assert re.search(r"^USER (?!root)", (ROOT / build["with"]["file"]).read_text(), re.MULTILINE)


def test_the_commands_of_windvane_in_the_workflow_exist() -> None:
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    text = "\n".join(list_steps(read_jobs("release.yml")["wheels"], "run"))
    called = re.findall(r"^windvane (\w+)(.*)$", text, re.MULTILINE)
    assert called
    for command, words in called:
        flags = {flag for each in commands[command].params for flag in each.opts}
        assert {*words.split()} <= flags


def test_a_build_with_machine_code_needs_what_the_package_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert build_backend.get_requires_for_build_wheel() == PROJECT["dependencies"]
    assert build_backend.get_requires_for_build_wheel({"machine-code": "no"}) == []
    assert vars(build_backend)["get_requires_for_build_editable"]() == []  # of setuptools
    with pytest.raises(SystemExit, match="machine-code must be yes or no, got 'maybe'"):
        build_backend.get_requires_for_build_wheel({"machine-code": "maybe"})


EDITABLE = """
import sys
sys.modules["llvmlite"] = sys.modules["numba"] = None
sys.path.insert(0, ".")
import build_backend
print(build_backend.build_editable(sys.argv[1]))
"""


def test_an_editable_installation_compiles_nothing_and_needs_no_compiler(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "build_backend.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    package = tmp_path / "src" / "windvane"
    package.mkdir(parents=True)
    shutil.copy(ROOT / "src" / "windvane" / "__init__.py", package)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    done = run_python("-c", EDITABLE, wheels, folder=tmp_path)
    assert done.stdout.splitlines()[-1].endswith("-py3-none-any.whl")
    assert not list(tmp_path.rglob("_machine_code"))


def test_a_machine_without_the_instructions_builds_a_wheel_for_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.modules["platform"], "machine", lambda: "riscv64")
    assert build_backend.find_target() is None
    monkeypatch.setattr(build_backend, "TARGETS", {"riscv64": ("any", "of-the-future")})
    assert build_backend.find_target() is None
    assert capsys.readouterr().out == (
        "windvane: no machine code: this processor has no of-the-future\n"
    )
