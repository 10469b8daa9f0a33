"""The package as a whole: its public names and what loading them loads."""

import gc
import subprocess
import sys

import pytest

import windvane as wv


def test_public_names_are_sorted_and_there() -> None:
    assert wv.__all__ == sorted(wv.__all__)
    assert all(hasattr(wv, name) for name in wv.__all__)


@pytest.mark.parametrize("code", ["import windvane", "import sys, windvane.cli as c; c.app"])
def test_the_package_and_its_command_line_load_no_numpy(code: str) -> None:
    check = f"{code}\nimport sys\nprint(sorted({{'numpy', 'numba', 'scipy'}} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert ended.stdout == "[]\n", ended.stderr


def test_names_are_loaded_when_they_are_used() -> None:
    assert {"Policy", "discount", "thompson", "half_normal", "finite", "Learner"} <= {*wv.__all__}
    assert {*wv.__all__} <= {*dir(wv)}
    name = "discont"
    with pytest.raises(AttributeError, match="no attribute 'discont'"):
        getattr(wv, name)


def test_a_name_is_loaded_without_a_search_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wv, "_load", lambda name: gc.isenabled())
    assert wv.__getattr__("some_name") is False
    monkeypatch.delattr(wv, "some_name")
    assert gc.isenabled()
