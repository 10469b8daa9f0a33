"""Texts that name candidates, and the sentences for those that do not."""

import pytest

from windvane.errors import SettingError
from windvane.evaluation.learners import candidates
from windvane.evaluation.learners.candidates import (
    LearnerCandidate,
    PolicyCandidate,
    add_reference,
    list_candidates,
    parse_candidate,
    read_candidate,
)
from windvane.evaluation.log_batch import LogFacts

FACTS = LogFacts(5000, 4, 0.3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("full(keep() * greedy(), dim=16)", "Policy(dim=16, memory=keep(), exploration=greedy()"),
        ("diagonal(keep() * greedy())", "Policy(dim=1048576, memory=keep(), "),
        ("predictive(thompson(0.3), dim=8)", "PredictiveMemory.from_adaptation(dim=8, "),
        ("logistic(discount(0.9) * perturbed_history(0.5))", "GeneralizedPolicy(dim=128, link="),
        ("D-LinUCB(dim=8, drift=2)", "Policy(dim=8, memory=discount("),
        ("FPL-GLM(dim=8, link='logistic')", "GeneralizedPolicy(dim=8, link='logistic', memory=kee"),
    ],
)
def test_a_text_makes_the_policy_that_it_names(text: str, expected: str) -> None:
    candidate = read_candidate(text)
    assert isinstance(candidate, PolicyCandidate)
    assert candidate.text == text
    assert repr(candidate.make(FACTS, 1)).startswith(expected)


def test_settings_of_a_loop_make_its_learner() -> None:
    candidate = read_candidate("halfLife=2 days, explorationPercentage=0.05 crossings=user*action")
    assert isinstance(candidate, LearnerCandidate)
    expected = (
        "Learner(half_life='2 days', exploration=0.05, crossings='user*action', array_size=0)"
    )
    assert repr(candidate.build(1)) == expected
    again = read_candidate(expected)
    assert isinstance(again, LearnerCandidate)
    assert repr(again.build(1)) == expected


@pytest.mark.parametrize(
    ("texts", "reference", "expected"),
    [
        (["logged", "first"], None, (["logged", "first"], "logged")),
        (["first"], None, (["first"], "")),
        (
            ["first", "D-LinUCB"],
            None,
            (["first", "D-LinUCB", "default learner"], "default learner"),
        ),
        (["logged", "learner"], None, (["logged", "learner"], "learner")),
        (
            ["learner(half_life='auto')"],
            None,
            (["learner(half_life='auto')"], "learner(half_life='auto')"),
        ),
        (["first", "learner"], "first", (["first", "learner"], "first")),
        (["learner"], "halfLife=1 day", (["learner", "halfLife=1 day"], "halfLife=1 day")),
    ],
)
def test_learners_are_compared_with_the_default_learner_or_what_is_asked_for(
    texts: list[str], reference: str | None, expected: tuple[list[str], str]
) -> None:
    listed, name = add_reference(list_candidates(texts), reference)
    assert [each.name for each in listed] == expected[0]
    assert name == expected[1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nonsense", "'nonsense' cannot be read; accepted are logged, first, random, action=ID"),
        ("--cb_explore_adf --epsilon 0.2", "cannot be read; accepted are"),
        ("halfLif=2 days", "there is no setting 'halfLif'; did you mean 'halfLife'?"),
        ("halfLife=2 dayz", "half_life must be auto, never, or a duration above 0"),
        ("learner(speed=1)", "there is no option 'speed'"),
        ("full(keep())", "full needs MEMORY * EXPLORATION"),
        ("discout(0.9) * greedy()", "'discout' is unknown; did you mean 'discount'?"),
        ("diagonal(window(9) * greedy())", "memory of a diagonal belief"),
        ("FPL-GLM", "FPL-GLM needs a link"),
        ("arraySize=x", "arraySize must be a whole number, got 'x'"),
    ],
)
def test_a_text_that_cannot_be_read_gets_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(SettingError) as error:
        read_candidate(text)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


TOO_LARGE = [
    ("1*" * 400 + "1", "nested 20 deep"),
    ("-" * 900 + "1", "policy:"),
    ("full(" + "(" * 150 + "1" + ")" * 150 + ")", "policy:"),
    ("f(" * 90 + ")" * 90, "policy:"),
    (f"restart_at([{', '.join(['1'] * 300)}]) * greedy()", "at most 300 parts"),
    ("keep() * greedy()" + " " * 5 + "#" * 1100, "at most 1024 characters, got"),
    ("learner(\0)", "policy:"),
    ("learner(half_life=" + "-" * 900 + "1)", "policy:"),
    (f"half_life(1{'0' * 400}) * greedy()", "numbers must be at most 1e+15"),
    ("half_life(1e400) * greedy()", "numbers must be at most 1e+15"),
    ("predictive(thompson(0.3), dim=8000)", "predictive: dim must be at most 512, got 8000"),
    ("full(keep() * greedy(), dim=8000)", "full: dim must be at most 1024, got 8000"),
    ("diagonal(keep() * greedy(), dim=9999999999)", "diagonal: dim must be at most 1073741824"),
    ("D-LinTS(dim=8000)", "dim must be at most 1024, got 8000"),
    ("keep() * randomized(grid(1.0, 1000000000))", "points must be at most 10000"),
    ("full(keep() * greedy(), floor=7)", "floor must lie in [0, 1], got 7"),
    ("full(keep() * greedy(), ridge='x')", "ridge must be a finite number, got 'x'"),
    ("full(keep() * greedy(), speed=1)", "there is no option 'speed'"),
    ("full(keep() * greedy(), text='x')", "there is no option 'text'"),
    ("full(keep() * greedy(), belief='x')", "there is no option 'belief'"),
    ("D-LinTS(name='x')", "there is no option 'name'"),
    ("D-LinTS(noise='x')", "noise must be a finite number, got 'x'"),
    ("explorationPercentage=nan", "exploration must be a finite number, got nan"),
    ("arraySize=5000", "array_size must be at most 4096, got 5000"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_a_text_beyond_the_bounds_is_refused_before_anything_is_built(
    text: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for maker in ("Policy", "PredictiveMemory", "named"):
        monkeypatch.setattr(candidates, maker, None)  # to build would raise a TypeError
    with pytest.raises(SettingError) as error:
        read_candidate(text)
    assert sentence in str(error.value)


def test_a_parsed_text_is_built_only_by_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["keep() * greedy()", "predictive(thompson(0.3))", "D-LinTS", "learner", "first"]
    with monkeypatch.context() as patch:
        for maker in ("Policy", "PredictiveMemory", "named"):
            patch.setattr(candidates, maker, None)
        builders = [parse_candidate(text) for text in texts]
    assert [build().text for build in builders] == texts
