"""The text form: a printed part is read back, and no other text is evaluated."""

import re
from collections.abc import Callable

import pytest

import windvane as wv
from grid import EXPLORATIONS, MEMORIES, read_any
from windvane.errors import SettingError
from windvane.exploration import read_exploration
from windvane.memory import read_memory

LAWS_AND_RADII = [
    wv.confidence(0.05, 0.3, 2.0, 1.5, horizon=100),
    wv.confidence(anytime=True),
    0.4 * wv.confidence(),
    wv.posterior(0.5),
    0.5 * wv.posterior(),
    wv.half_normal(wv.posterior(0.3)),
    wv.half_normal(0.1 * wv.confidence(0.2, anytime=True)),
    wv.grid(2.0, 7, 0.3, 1e-3),
]


@pytest.mark.parametrize("part", [*MEMORIES, *EXPLORATIONS, *LAWS_AND_RADII], ids=repr)
def test_a_printed_part_is_read_back_as_the_same_part(part: object) -> None:
    assert read_any(repr(part)) == part


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
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(SettingError):
        read_any(text)


def test_an_exploration_is_no_memory_and_a_memory_no_exploration() -> None:
    with pytest.raises(SettingError, match=r"^memory: must be one of .*, got 'thompson"):
        read_memory("thompson(1.0)")
    with pytest.raises(SettingError, match=r"^exploration: must be one of .*, got 'keep"):
        read_exploration("keep()")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("discont(0.9)", "memory: 'discont' is unknown; did you mean 'discount'?"),
        ("Half_Life(3)", "memory: 'Half_Life' is unknown; did you mean 'half_life'?"),
        ("discont", "memory: 'discont' is unknown; did you mean 'discount'?"),
        ("discount", "memory: 'discount' must be a call such as discount(gamma), with parentheses"),
        ("keep", "memory: 'keep' must be a call such as keep(), with parentheses"),
        ("qqq(3)", "memory: 'qqq' is unknown; known names are keep, discount, half_life"),
        ("discount(1.5)", "discount: gamma must lie in (0, 1), got 1.5"),
        ("discount(0.9", "memory: 'discount(0.9' cannot be read: "),
        ("tompson(1)", "exploration: 'tompson' is unknown; did you mean 'thompson'?"),
        (
            "randomized(halfnormal(1))",
            "exploration: 'halfnormal' is unknown; did you mean 'half_normal'?",
        ),
        ("thompson(posterio(1))", "exploration: 'posterio' is unknown; did you mean 'posterior'?"),
        (
            "optimism(confidance())",
            "exploration: 'confidance' is unknown; did you mean 'confidence'?",
        ),
    ],
)
def test_a_part_that_cannot_be_read_is_refused_with_a_hint(text: str, complaint: str) -> None:
    read = read_exploration if complaint.startswith("exploration") else read_memory
    with pytest.raises(SettingError, match=re.escape(complaint)):
        read(text)


def test_every_policy_accepts_texts() -> None:
    policy = wv.Policy(2, "discount(0.9)", "thompson(0.5)", seed=1)
    assert (policy.memory, policy.exploration) == (wv.discount(0.9), wv.thompson(0.5))
    assert wv.GeneralizedPolicy(2, "logistic", "window(9)").memory == wv.window(9)
    assert wv.PredictiveMemory(2, "greedy()").exploration == wv.greedy()
    assert wv.BanditsOverBandits(2, 100, "optimism(2.0)").exploration == wv.optimism(2.0)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: wv.Policy(2, "discont(0.9)", "greedy()"), "did you mean 'discount'?"),
        (lambda: wv.Policy(2, "keep()", "gredy()"), "did you mean 'greedy'?"),
        (lambda: wv.Policy(2, "greedy()", "greedy()"), "memory: must be one of keep, "),
        (
            lambda: wv.Policy(2, "keep()", wv.keep()),  # type: ignore[arg-type]
            "Policy: exploration must be an Exploration or a text such as 'thompson(0.5)', "
            "got keep()",
        ),
        (
            lambda: wv.Policy(2, wv.discount),  # type: ignore[arg-type]
            "got the function discount itself; call it: discount(gamma)",
        ),
        (
            lambda: wv.PredictiveMemory(2, 0.5),  # type: ignore[arg-type]
            "PredictiveMemory: exploration must be an Exploration or a text such as",
        ),
        (lambda: wv.GeneralizedPolicy(2, "logistic", "windw(9)"), "did you mean 'window'?"),
        (lambda: wv.GeneralizedPolicy(2, "logistc", "keep()"), "did you mean 'logistic'?"),
        (lambda: wv.PredictiveMemory(2, "greedy()", "windows"), "did you mean 'window'?"),
    ],
)
def test_a_policy_refuses_other_values_with_a_hint(
    make: Callable[[], wv.Chooser], complaint: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(complaint)):
        make()
