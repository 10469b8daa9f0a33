"""The text form: what is printed can be read back, and nothing else is run."""

import pytest

import windvane as wv
from grid import EXPLORATIONS, MEMORIES
from windvane import text_form


@pytest.mark.parametrize("part", [*MEMORIES, *EXPLORATIONS], ids=repr)
def test_what_is_printed_is_read_back(part: wv.Memory | wv.Exploration) -> None:
    assert text_form.read(repr(part)) == part


@pytest.mark.parametrize(
    "part",
    [
        wv.confidence(0.05, 0.3, 2.0, 1.5, horizon=100),
        wv.confidence(anytime=True),
        0.4 * wv.confidence(),
        wv.half_normal(0.1 * wv.confidence(0.2, anytime=True)),
        wv.grid(2.0, 7, 0.3, 1e-3),
    ],
    ids=repr,
)
def test_pieces_are_read_back(part: wv.Law | wv.Confidence) -> None:
    assert text_form.read(repr(part)) == part


@pytest.mark.parametrize(
    "text",
    [
        "",
        "discount",
        "0.99",
        "discount(0.99",
        "discount(gamma=0.9, other=1)",
        "discount(1.5)",
        "__import__('os').system('true')",
        "open('x')",
        "discount.__class__",
        "discount(*[0.9])",
        "(lambda: 1)()",
        "3 * thompson(1)",
        "discount('0.9')",
        "[" * 500,
        "9**9**9",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(wv.SettingError):
        text_form.read(text)


def test_kinds_are_not_confused() -> None:
    with pytest.raises(wv.SettingError, match="a memory must be one of"):
        text_form.read_memory("thompson(1.0)")
    with pytest.raises(wv.SettingError, match="an exploration must be one of"):
        text_form.read_exploration("keep()")
