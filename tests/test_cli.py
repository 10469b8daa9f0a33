"""The command line: tables for people, JSON for machines, one line for a mistake."""

import json
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
from typer.main import get_command

from processes import run_python
from windvane import cli, theory
from windvane.names import NAMES


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return run_python("-c", "from windvane.cli import main; main()", *words, must_succeed=False)


def test_policies_lists_the_papers_two_tables() -> None:
    said = run("policies")
    assert said.returncode == 0
    assert said.stderr == ""
    rows = {line.split("  ")[0]: line for line in said.stdout.splitlines() if line}
    assert all(name.name in rows for name in NAMES)
    assert rows["LinUCB"].split() == ["LinUCB", "keep", "optimism", "d√T", "no", "no", "no"]
    assert rows["RandLinUCB"].split()[-3:] == ["yes", "no", "no"]
    assert rows["LinPHE"].split()[-3:] == ["yes", "yes", "no"]
    assert rows["FPL-GLM"].split()[-3:] == ["yes", "yes", "yes"]
    assert "d^7/8 (log K)^3/8 B^1/4 T^3/4  yes         yes" in rows["D-LinTS"]
    assert said.stdout.splitlines()[-1].endswith(
        "drifting worlds is B^1/3 T^2/3 (arXiv:2607.02891)."
    )
    assert "  window, found by EXP3  " in rows["BOB SW-LinUCB"]
    assert rows["BOB SW-LinUCB"].split()[-3:] == ["yes", "no", "no"]  # EXP3 draws


def test_policies_speaks_json() -> None:
    worlds = json.loads(run("policies", "--json").stdout)
    assert sum(len(rows) for rows in worlds.values()) == len(NAMES)
    assert worlds["Drifting"][0]["oracle-efficient"] is False


def test_theory_prints_its_numbers_as_json_and_as_a_table() -> None:
    words = ["theory", "--dim", "10", "--horizon", "10000", "--drift", "4", "--arms", "100"]
    summary = theory.summary(10, 10_000, 4.0, 100)
    assert json.loads(run(*words, "--json").stdout) == summary
    assert f"{summary['Analysis'][0]['regret bound']:,.0f}" in run(*words).stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("theory --dim 10 --horizon 10 --drift 4 --arms 3", "horizon must be at least 19"),
        ("theory --dim 10 --horizon 100", "Missing option"),
        ("theory --dim ten --horizon 100 --drift 1 --arms 2", "Invalid value for '--dim'"),
        ("polices", "No such command 'polices'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: str, sentence: str) -> None:
    said = run(*words.split())
    assert said.returncode == 2
    assert said.stdout == ""
    assert said.stderr.startswith("windvane: ")
    assert sentence in said.stderr
    assert said.stderr.count("\n") == 1


def make_app_fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)


def test_a_file_that_cannot_be_read_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_app_fail(monkeypatch, PermissionError(13, "Permission denied", "log.csv"))
    with pytest.raises(SystemExit) as exited:
        cli.main()
    assert exited.value.code == 1
    assert capsys.readouterr().err == "windvane: [Errno 13] Permission denied: 'log.csv'\n"


def test_the_version_is_that_of_the_distribution() -> None:
    said = run("--version")
    assert (said.returncode, said.stdout) == (0, f"windvane {version('windvane')}\n")


def test_a_defect_is_not_mistaken_for_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    make_app_fail(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_the_list_of_commands_has_groups_and_a_whole_sentence_for_each() -> None:
    shown = run("--help").stdout
    titles = re.findall(r"^(\w+) \(.*\):$", shown, re.MULTILINE)
    assert titles == ["Library", "Lab", "Evaluation", "Service"]
    commands = get_command(cli.app).commands  # type: ignore[attr-defined]
    words = " ".join(shown.split())
    for name, command in commands.items():
        sentence = " ".join(command.help.split()).split(". ")[0].rstrip(".")
        assert f" {name} {sentence}." in words


def list_parameters(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """The help of a command and of its options, with those of its own commands."""
    yield path, command.help
    for parameter in command.params:
        if parameter.param_type_name == "option":
            yield f"{path} {parameter.opts[0]}", parameter.help
    for name, inner in getattr(command, "commands", {}).items():
        yield from list_parameters(inner, f"{path} {name}")


def test_every_command_and_option_has_help_that_is_a_whole_sentence() -> None:
    texts = dict(list_parameters(get_command(cli.app), "windvane"))
    assert len(texts) > 150
    wrong = {path: text for path, text in texts.items() if not re.search(r"\w.*[.]$", text or "")}
    assert wrong == {}


def test_help_loads_no_compiler() -> None:
    watch = (
        "import sys; from windvane.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "assert not {'numba', 'scipy', 'matplotlib', 'polars'} & set(sys.modules), sys.modules"
    )
    run_python("-c", watch)
