"""Policies as text: what is printed is read back, and what cannot be taken over is refused."""

import pytest

from windvane.errors import WindvaneError
from windvane.evaluation.learners import candidates
from windvane.evaluation.learners.candidates import LearnerCandidate
from windvane.service.evaluations.compared_policies import (
    check_policies,
    describe_flags,
    format_policy,
    iterate_grid,
    read_custom_policy,
    read_policy,
    reset_policy,
)
from windvane.service.evaluations.records import EvaluationContract, PolicyRequest
from windvane.service.loops.settings import LoopSettings


@pytest.mark.parametrize(
    "settings",
    [
        LoopSettings(),
        LoopSettings(half_life="500 rounds", crossings="user*article, device*article", seed=3),
        LoopSettings(half_life="2 days", array_size=7),
    ],
)
def test_the_printed_policy_is_read_back(settings: LoopSettings) -> None:
    assert read_policy(format_policy(settings), settings) == settings
    other = settings.merge({"halfLife": "never", "explorationPercentage": 0.25})
    assert read_policy(format_policy(other), settings) == other
    assert read_policy(repr(other.build_learner()), settings) == other
    assert reset_policy(other).half_life == "auto"
    grid = list(iterate_grid(settings, length=240.0))
    assert settings not in grid
    assert [each.half_life for each in grid[:3]] == ["3 seconds", "15 seconds", "1 minute"]
    shares = {each.exploration_percentage for each in grid}
    assert shares == {settings.exploration_percentage}


def test_the_printed_policy_is_the_one_that_is_evaluated() -> None:
    settings = LoopSettings(half_life="2 days", crossings="none", array_size=3)
    custom = PolicyRequest("mine", "--epsilon 0.3")
    policy = read_custom_policy(custom, settings)
    settings = settings.merge({"explorationPercentage": 0.3})
    assert policy.changes == {"halfLife": "2 days", "explorationPercentage": 0.3}
    assert "split live traffic" in policy.problem  # exploration cannot be judged
    assert read_custom_policy(PolicyRequest("mine", "halfLife=1 day"), settings).problem == ""
    candidate = policy.candidate
    assert isinstance(candidate, LearnerCandidate)
    assert repr(candidate.build(0)) == repr(settings.build_learner())


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("--cb_explore_adf --epsilon 0.25 --dsjson", {"explorationPercentage": 0.25}),
        ("--ccb_explore_adf --epsilon=0.25", {"explorationPercentage": 0.25}),
        ("--cb_explore_adf --epsilon 0.2 --power_t 0 -l 0.001 --cb_type mtr -q ::",
         {"explorationPercentage": 0.2}),
        ("--cb_type mtr --power_t -0.5", {}),
        ("--ccb_explore_adf halfLife=3 days explorationPercentage=0.5",
         {"halfLife": "3 days", "explorationPercentage": 0.5}),
        ("--ccb_explore_adf --epsilon 0.5 --noconstant halfLife=3 days",
         {"halfLife": "3 days", "explorationPercentage": 0.5}),
        ("halfLife=3 days, explorationPercentage=0.5",
         {"halfLife": "3 days", "explorationPercentage": 0.5}),
        ('learner(half_life="3 days")', {"halfLife": "3 days"}),
        ("learner", {}),
    ],
)  # fmt: skip
def test_texts_change_what_they_name(text: str, changes: dict[str, object]) -> None:
    assert read_policy(text, LoopSettings(seed=5)) == LoopSettings(seed=5).merge(changes)


@pytest.mark.parametrize(
    ("text", "used", "unused"),
    [
        ("--cb_explore_adf --epsilon 0.2 --power_t 0 -l 0.001 --cb_type mtr -q ::",
         "--epsilon 0.2 is explorationPercentage",
         "--power_t 0, -l 0.001, --cb_type mtr, -q ::"),
        ("--cb_type=mtr --noconstant --power_t -0.5 halfLife=3 days", "none is used",
         "--cb_type mtr, --noconstant, --power_t -0.5"),
    ],
)  # fmt: skip
def test_flags_without_a_counterpart_are_named(text: str, used: str, unused: str) -> None:
    sentence = describe_flags(text)
    assert used in sentence
    assert sentence.endswith(f"change nothing: {unused}")


@pytest.mark.parametrize(
    "text", ["--ccb_explore_adf --epsilon 0.2", "--ccb_explore_adf halfLife=2 days", "learner", ""]
)
def test_a_text_of_which_all_is_used_gives_no_warning(text: str) -> None:
    assert describe_flags(text) == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("--cb_explore_adf --epsilon 0.2 ::", "cannot be read; accepted are settings"),
        ("--epsilon 0.2 first", "cannot be read; accepted are settings"),
        ("--epsilon", "--epsilon must be a number, got ''"),
        ("--epsilon much", "--epsilon must be a number"),
        ("halfLife=1 day halfLife=2 days", "halfLife must be given once"),
        ("halfLife=soon", "'soon' must be a duration"),
        ("width=0.5", "no setting 'width'; settings of a policy are halfLife, explorationPerc"),
        ("arraySize=1.5", "arraySize must be a whole number, got '1.5'"),
        ("learner(half_life=print(1))", "options must be plain values"),
        ("first", "cannot be read; accepted are settings"),
        ("__import__('os')", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(WindvaneError, match=sentence):
        read_policy(text, LoopSettings())


def test_a_fixed_setting_cannot_be_changed_by_a_policy() -> None:
    with pytest.raises(WindvaneError, match="crossings is fixed"):
        read_policy("crossings=none", LoopSettings())


def test_to_check_the_policies_of_a_request_builds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for maker in ("Policy", "PredictiveMemory", "named"):
        monkeypatch.setattr(candidates, maker, None)  # to build would raise a TypeError
    monkeypatch.setattr(LoopSettings, "build_learner", None)
    texts = ["halfLife=2 days", "keep() * greedy()", "predictive(thompson(0.3))", "D-LinTS"]
    policies = [PolicyRequest(text, text) for text in texts]
    contract = EvaluationContract(name="x", since=0, until=1, policies=policies, optimizes=True)
    check_policies(contract, LoopSettings())
    refused = PolicyRequest("large", "predictive(thompson(0.3), dim=8000)")
    contract = EvaluationContract(name="x", since=0, until=1, policies=[refused])
    with pytest.raises(WindvaneError, match="dim must be at most 512, got 8000"):
        check_policies(contract, LoopSettings())
