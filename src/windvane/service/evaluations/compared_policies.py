"""The policies that an evaluation compares: what was logged, the loop as it is, and others.

The policy of a loop as text is settings such as "halfLife=2 days explorationPercentage=0.05". Of a
command line of Vowpal Wabbit, `--epsilon` is taken as the exploration percentage. A flag that would
change the learner is refused, because there is nothing here that it could change.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from windvane.errors import SettingError
from windvane.evaluation.learners.candidates import (
    Candidate,
    format_settings,
    parse_candidate,
    read_candidate,
    read_number,
    read_settings,
    wrap_object,
)
from windvane.evaluation.tuning import NO_EXPLORATION, list_half_lives
from windvane.service.errors import ServiceError
from windvane.service.evaluations.records import CURRENT, EvaluationContract, PolicyRequest
from windvane.service.loops.settings import LoopSettings

PROBLEM_FLAGS = ("--cb_explore_adf", "--ccb_explore_adf", "--cb_adf", "--dsjson")
ACCEPTED = (
    'settings such as "halfLife=2 days explorationPercentage=0.05", learner(half_life="2 days"), '
    "or --epsilon with --cb_explore_adf or --ccb_explore_adf"
)


def _list_changes(settings: LoopSettings) -> dict[str, Any]:
    """The settings that make a policy and may change, by wire name."""
    return {
        "halfLife": settings.half_life,
        "explorationPercentage": settings.exploration_percentage,
    }


def format_policy(settings: LoopSettings) -> str:
    """The settings of a loop that make its policy, as `read_policy` reads them."""
    fixed = {"crossings": settings.crossings, "arraySize": settings.array_size}
    return format_settings(_list_changes(settings) | fixed)


def read_policy(text: str, settings: LoopSettings) -> LoopSettings:
    """The settings of a loop after a policy has been put; those not named stay as they are."""
    stripped = text.strip()
    changes = _read_flags(stripped) if stripped.startswith("-") else read_settings(stripped)
    if changes is None:
        raise SettingError(f"policy: {text[:80]!r} cannot be read; accepted are {ACCEPTED}")
    return settings.merge(changes)


def reset_policy(settings: LoopSettings) -> LoopSettings:
    return settings.merge(_list_changes(LoopSettings()))


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
    problem: str = ""  # why the log cannot judge it


def list_policies(
    contract: EvaluationContract, settings: LoopSettings, length: float = 0.0
) -> list[ComparedPolicy]:
    """List the policies that are compared, those of the service first; a log has some seconds."""
    policies = [
        _make_fixed("online", "Online", "logged", changes={}),
        _make_fixed("baseline1", "Baseline", "first"),
        _make_fixed("baselineRand", "Random", "random"),
        ComparedPolicy(
            CURRENT, "Custom", format_policy(settings), make_candidate(CURRENT, settings), {}
        ),
        *(read_custom_policy(custom, settings) for custom in contract.policies),
    ]
    others = iterate_grid(settings, length) if contract.optimizes else ()
    for number, other in enumerate(others, 1):
        name, text, source = f"Hyper{number}", format_policy(other), "OfflineExperimentation"
        candidate = make_candidate(name, other)
        policies.append(ComparedPolicy(name, source, text, candidate, _list_changes(other)))
    return policies


def check_policies(contract: EvaluationContract, settings: LoopSettings) -> None:
    """Refuse policies of a client that cannot be read; nothing that they name is built."""
    for custom in contract.policies:
        parse_custom_policy(custom.arguments, settings)


def parse_custom_policy(
    text: str, settings: LoopSettings
) -> LoopSettings | Callable[[], Candidate]:
    """The settings of a loop for which a text stands, or what builds a policy of another kind."""
    try:
        return read_policy(text, settings)
    except (SettingError, ServiceError) as reason:
        if text.strip().startswith("-"):
            raise ServiceError("policy", str(reason), "policies") from None
    try:
        return parse_candidate(text)
    except SettingError as reason:
        raise ServiceError("policy", str(reason), "policies") from None


def read_custom_policy(custom: PolicyRequest, settings: LoopSettings) -> ComparedPolicy:
    """The policy of a client; one that a loop cannot run can still be evaluated."""
    name, arguments = custom.name, custom.arguments
    parsed = parse_custom_policy(arguments, settings)
    if isinstance(parsed, LoopSettings):
        candidate = make_candidate(name, parsed)
        has_same_share = parsed.exploration_percentage == settings.exploration_percentage
        problem = "" if has_same_share else NO_EXPLORATION
        return ComparedPolicy(name, "Custom", arguments, candidate, _list_changes(parsed), problem)
    return ComparedPolicy(name, "Custom", arguments, replace(parsed(), name=name), None)


def make_candidate(name: str, settings: LoopSettings) -> Candidate:
    """The candidate of a loop with these settings, which has learned nothing."""
    candidate = wrap_object(settings.build_learner())
    return replace(candidate, name=name, text=format_policy(settings))


def iterate_grid(settings: LoopSettings, length: float) -> Iterator[LoopSettings]:
    """Other settings of a loop: half-lives that a log of some seconds can tell apart."""
    for half_life in list_half_lives(length):
        other = settings.merge({"halfLife": half_life})
        if other != settings:
            yield other


def _make_fixed(
    name: str, source: str, rule: str, changes: dict[str, Any] | None = None
) -> ComparedPolicy:
    return ComparedPolicy(name, source, rule, replace(read_candidate(rule), name=name), changes)
