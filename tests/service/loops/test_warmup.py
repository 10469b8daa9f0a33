"""What a start compiles and loads: the learner at once, a full belief once a loop has one."""

import subprocess
import sys

import pytest

from windvane.service.loops import warmup
from windvane.service.loops.model_factory import build_model
from windvane.service.loops.settings import Settings

DIAGONAL = Settings()
FULL = Settings.from_names({"belief": "full"})
LARGE = Settings.from_names({"belief": "full", "dim": 129})
LOADED = """
from windvane.beliefs.full import block
from windvane.features import hashing
from windvane.beliefs.bank.choosing import rank_actions
from windvane.service.loops import warmup

warmup.compile_kernels()
warmup.load_kernels()
assert rank_actions.overloads
assert not hashing.hash_rows.overloads and not block.refresh.overloads
warmup.prepare_full_model(128)
assert hashing.hash_rows.overloads and block.refresh.overloads
"""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is compiled and loaded, in a process that has loaded the functions of the learner."""
    calls: list[str] = []
    monkeypatch.setattr(warmup, "_due", [warmup.FULL_MODEL, warmup.LARGE_MODEL])
    monkeypatch.setattr(warmup, "compile_kernels", lambda kernels: calls.append(kernels.name))
    monkeypatch.setattr(warmup, "load_full_model", lambda: calls.append("load"))
    monkeypatch.setattr(warmup, "load_large_model", lambda: calls.append("load large"))
    return calls


def test_a_full_belief_is_compiled_and_loaded_once_when_a_loop_has_one(calls: list[str]) -> None:
    build_model(DIAGONAL)
    assert calls == []
    build_model(FULL)
    assert calls == ["full", "load"]
    build_model(FULL)
    assert calls == ["full", "load"]


def test_a_large_belief_is_loaded_after_the_code_of_every_full_one(calls: list[str]) -> None:
    build_model(LARGE)
    assert calls == ["full", "load", "large", "load large"]
    build_model(FULL)
    build_model(LARGE)
    assert calls == ["full", "load", "large", "load large"]


def test_a_failure_to_compile_is_tried_again(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(kernels: warmup.Kernels) -> None:
        raise OSError(kernels.name)

    with monkeypatch.context() as patch:
        patch.setattr(warmup, "compile_kernels", fail)
        with pytest.raises(OSError, match="full"):
            build_model(FULL)
    build_model(FULL)
    assert calls == ["full", "load"]


def test_a_process_that_has_not_loaded_the_learner_in_order_is_left_alone(
    calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "_due", [])
    build_model(FULL)
    assert calls == []


def test_a_start_loads_the_learner_alone() -> None:
    subprocess.run([sys.executable, "-c", LOADED], check=True, timeout=300)
