"""Texts that name candidates, and the sentences for those that do not."""

import pytest

from windvane.errors import SettingError
from windvane.evaluation.learners.candidates import (
    LearnerCandidate,
    PolicyCandidate,
    read_candidate,
)
from windvane.evaluation.log_batch import LogFacts
from windvane.memory import half_life, keep

FACTS = LogFacts(5000, 4, 0.3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("full(keep() * greedy(), dim=16)", "Policy(dim=16, memory=keep(), exploration=greedy()"),
        ("diagonal(keep() * greedy())", "Policy(dim=1048576, memory=keep(), "),
        ("predictive(thompson(0.3), dim=8)", "PredictiveMemory.from_adaptation(dim=8, "),
        (
            "logistic(discount(0.9) * perturbed_history(0.5))",
            "GeneralizedPolicy(dim=128, link=",
        ),
        ("D-LinUCB(dim=8, drift=2)", "Policy(dim=8, memory=discount("),
        ("FPL-GLM(dim=8, link='logistic')", "GeneralizedPolicy(dim=8, link='logistic', memory=kee"),
    ],
)
def test_a_text_makes_the_policy_that_it_names(text: str, expected: str) -> None:
    candidate = read_candidate(text)
    assert isinstance(candidate, PolicyCandidate)
    assert candidate.text == text
    assert repr(candidate.build(FACTS, seed=1)).startswith(expected)


def test_settings_of_a_loop_make_its_learner() -> None:
    candidate = read_candidate("halfLife=2 days, explorationPercentage=0.05 crossings=user*action")
    assert isinstance(candidate, LearnerCandidate)
    expected = (
        "Learner(half_life='2 days', exploration=0.05, crossings='user*action', array_size=0)"
    )
    assert repr(candidate.build(1)) == expected
    assert candidate.clock == "time"
    again = read_candidate(expected)
    assert isinstance(again, LearnerCandidate)
    assert repr(again.build(1)) == expected


def test_a_discount_on_the_clock_of_the_log_halves_after_as_many_rows() -> None:
    candidate = read_candidate("discount(0.99) * greedy()")
    assert isinstance(candidate, PolicyCandidate)
    assert candidate.other_clock is not None
    policy = candidate.other_clock.build(FACTS, seed=1)
    assert 0.5 ** (1 / policy.memory.span) == pytest.approx(0.99)
    assert policy.memory.name == half_life(1.0).name
    kept = read_candidate(f"{keep()!r} * greedy()")
    assert isinstance(kept, PolicyCandidate)
    assert (kept.clock, kept.other_clock) == ("none", None)


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
