"""The policies that an evaluation compares: what was logged, baselines, and candidates.

The policy of a loop as text is settings such as "halfLife=2 days explorationPercentage=0.05". Of a
command line of Vowpal Wabbit, `--epsilon` is taken as the exploration percentage. A flag that would
change the learner is refused, because there is nothing here that it could change.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from windvane.errors import SettingError
from windvane.evaluation.learners.candidates import (
    Candidate,
    FixedCandidate,
    format_settings,
    read_candidate,
    read_number,
    read_settings,
    wrap_object,
)
from windvane.service.errors import EvaluationError, LoopSettingsError
from windvane.service.evaluations.records import CustomPolicy, EvaluationContract
from windvane.service.loops.settings import LoopSettings

PROBLEM_FLAGS = ("--cb_explore_adf", "--ccb_explore_adf", "--cb_adf", "--dsjson")
ACCEPTED = (
    'settings such as "halfLife=2 days explorationPercentage=0.05", learner(half_life="2 days"), '
    "or --epsilon with --cb_explore_adf or --ccb_explore_adf"
)
# With optimisation, every pair is tried, except the one that the loop has.
HALF_LIVES = ("auto", "1 day", "7 days", "30 days", "never")
EXPLORATION_PERCENTAGES = (0.02, 0.1)


def format_policy(settings: LoopSettings) -> str:
    """The settings of a loop that make its policy, as `read_policy` reads them."""
    return format_settings(
        {
            "halfLife": settings.half_life,
            "explorationPercentage": settings.exploration_percentage,
            "crossings": settings.crossings,
            "arraySize": settings.array_size,
        }
    )


def read_policy(text: str, settings: LoopSettings) -> LoopSettings:
    """The settings of a loop after a policy has been put; those not named stay as they are."""
    stripped = text.strip()
    changes = _read_flags(stripped) if stripped.startswith("-") else read_settings(stripped)
    if changes is None:
        raise SettingError(f"policy: {text[:80]!r} cannot be read; accepted are {ACCEPTED}")
    return settings.merge(changes)


def reset_policy(settings: LoopSettings) -> LoopSettings:
    """The settings of a loop with the policy of a new loop."""
    new = LoopSettings()
    return settings.merge(
        {"halfLife": new.half_life, "explorationPercentage": new.exploration_percentage}
    )


def _read_flags(text: str) -> dict[str, str | float]:
    """Read the flags of Vowpal Wabbit that mean something here."""
    words = text.replace("=", " ").split()
    changes: dict[str, str | float] = {}
    while words:
        flag = words.pop(0)
        if flag == "--epsilon":
            changes["explorationPercentage"] = read_number(flag, words.pop(0) if words else "")
        elif flag not in PROBLEM_FLAGS:
            raise SettingError(
                f"policy: of Vowpal Wabbit's flags only --epsilon can be taken over, got {flag}; "
                f"accepted are {ACCEPTED}"
            )
    return changes


class ComparedPolicy(NamedTuple):
    """A policy of an evaluation."""

    name: str
    source: str  # Online, Baseline, Random, Custom or OfflineExperimentation
    arguments: str
    candidate: Candidate
    changes: dict[str, Any] | None  # settings that make it; None: a loop cannot run it


def list_policies(contract: EvaluationContract, settings: LoopSettings) -> list[ComparedPolicy]:
    """List the policies that are compared, those of the service first."""
    policies = [
        _make_fixed("online", "Online", "logged", changes={}),
        _make_fixed("baseline1", "Baseline", "first"),
        _make_fixed("baselineRand", "Random", "random"),
        *(read_custom_policy(custom, settings) for custom in contract.policies),
    ]
    if contract.optimizes:
        for number, other in enumerate(iterate_grid(settings), 1):
            name = f"Hyper{number}"
            policies.append(
                ComparedPolicy(
                    name,
                    "OfflineExperimentation",
                    format_policy(other),
                    make_candidate(name, other),
                    _list_changes(other),
                )
            )
    return policies


def read_custom_policy(custom: CustomPolicy, settings: LoopSettings) -> ComparedPolicy:
    """The policy of a client; one that a loop cannot run can still be evaluated."""
    name, arguments = custom.name, custom.arguments
    try:
        changed = read_policy(arguments, settings)
    except (SettingError, LoopSettingsError) as reason:
        if arguments.strip().startswith("-"):
            raise EvaluationError("policy", str(reason), "policies") from None
    else:
        candidate = make_candidate(name, changed)
        return ComparedPolicy(name, "Custom", arguments, candidate, _list_changes(changed))
    try:
        return ComparedPolicy(name, "Custom", arguments, _read(name, arguments), None)
    except SettingError as reason:
        raise EvaluationError("policy", str(reason), "policies") from None


def make_candidate(name: str, settings: LoopSettings) -> Candidate:
    """The candidate of a loop with these settings, which has learned nothing."""
    candidate = wrap_object(settings.build_learner())
    return replace(candidate, name=name, text=format_policy(settings))


def iterate_grid(settings: LoopSettings) -> Iterator[LoopSettings]:
    """Other settings of a loop: half-lives × exploration percentages."""
    for half_life in HALF_LIVES:
        for share in EXPLORATION_PERCENTAGES:
            other = settings.merge({"halfLife": half_life, "explorationPercentage": share})
            if other != settings:
                yield other


def _list_changes(settings: LoopSettings) -> dict[str, Any]:
    """The settings that make a policy, by wire name."""
    return {
        "halfLife": settings.half_life,
        "explorationPercentage": settings.exploration_percentage,
    }


def _make_fixed(
    name: str, source: str, rule: str, changes: dict[str, Any] | None = None
) -> ComparedPolicy:
    return ComparedPolicy(name, source, rule, _read(name, rule), changes)


def _read(name: str, text: str) -> Candidate:
    candidate = replace(read_candidate(text), name=name)
    if not isinstance(candidate, FixedCandidate):
        candidate = replace(candidate, other_clock=None)  # a loop has one clock
    return candidate
