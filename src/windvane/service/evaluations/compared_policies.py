"""The policies that an evaluation compares: what was logged, the loop as it is, and others.

The policy of a loop as text is settings such as "halfLife=2 days explorationPercentage=0.05". Of a
command line of Vowpal Wabbit, such as exported learning settings of Azure AI Personalizer,
`--epsilon` is the exploration percentage. Its other flags change nothing, and `describe_flags` says
so.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from windvane.errors import SettingError
from windvane.evaluation.learners.candidates import (
    SETTING_NAME,
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

# What a loop does anyway: it chooses among actions with features, and logs JSON.
PROBLEM_FLAGS = ("--cb_explore_adf", "--ccb_explore_adf", "--cb_adf", "--dsjson")
FLAG = re.compile(r"--?[A-Za-z]\S*", re.ASCII)  # a negative number is a value
SLOTS_FLAG = "--ccb_explore_adf"  # by it clients find out that pages with slots are served
ACCEPTED = (
    'settings such as "halfLife=2 days explorationPercentage=0.05", learner(half_life="2 days"), '
    'or flags of Vowpal Wabbit such as "--cb_explore_adf --epsilon 0.2"'
)


class _Flags(NamedTuple):
    """The flags of Vowpal Wabbit at the start of a text."""

    epsilon: str | None  # the value of --epsilon; None: it is not there
    unused: list[str]  # flags without a counterpart, with their values
    rest: str  # the text after them


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
    flags = _split_flags(text)
    is_only_flags = bool(text.strip()) and not flags.rest
    changes = {} if is_only_flags else read_settings(flags.rest)
    if changes is None:
        raise SettingError(f"policy: {text[:80]!r} cannot be read; accepted are {ACCEPTED}")
    if flags.epsilon is not None:
        changes["explorationPercentage"] = read_number("--epsilon", flags.epsilon)
    return settings.merge(changes)


def describe_flags(text: str) -> str:
    """Say which flags of Vowpal Wabbit change nothing; "" if a text has none of them."""
    epsilon, unused, _ = _split_flags(text)
    if not unused:
        return ""
    used = f"--epsilon {epsilon} is explorationPercentage" if epsilon else "none is used"
    return (
        f"of the flags of Vowpal Wabbit {used}, and these have no counterpart here and change "
        f"nothing: {', '.join(unused)}"
    )


def reset_policy(settings: LoopSettings) -> LoopSettings:
    return settings.merge(_list_changes(LoopSettings()))


def _split_flags(text: str) -> _Flags:
    """Split off the flags of Vowpal Wabbit, each with at most one value, at the start of a text."""
    if not FLAG.match(text.strip()):
        return _Flags(None, [], text.strip())
    words = re.sub(r"(?<!\S)(--\w+)=", r"\1 ", text).split()
    epsilon, unused = None, []
    while words and FLAG.fullmatch(words[0]):
        flag = words.pop(0)
        if flag in PROBLEM_FLAGS:
            continue
        has_value = words and not (FLAG.fullmatch(words[0]) or SETTING_NAME.match(words[0]))
        value = words.pop(0) if has_value else ""
        if flag == "--epsilon":
            epsilon = value
        else:
            unused.append(f"{flag} {value}".rstrip())
    return _Flags(epsilon, unused, " ".join(words))


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
