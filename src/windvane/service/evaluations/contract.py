"""What is to be evaluated, as the log keeps it, and the rules that it has to follow."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from windvane.service.errors import EvaluationError
from windvane.service.schemas import MAX_ARGUMENTS_LENGTH

ALPHA = 0.05  # the chance that any of the compared policies is wrongly called better or worse
CONFIDENCE = f"{100 * (1 - ALPHA):g} % confidence"
RESERVED_NAME = re.compile(r"online|baseline1|baselineRand|Hyper\d+")
MAX_NAME_LENGTH = 256
MAX_CUSTOM_POLICIES = 20
MAX_EVALUATED_DECISIONS = 5_000_000


class CustomPolicy(msgspec.Struct, frozen=True):
    """A policy that a client wants to be evaluated."""

    name: str
    arguments: str


class EvaluationContract(msgspec.Struct, frozen=True, kw_only=True):
    """Which decisions and which policies are to be evaluated, or whose features are measured."""

    name: str
    since: int  # microseconds since 1970
    until: int
    policies: list[CustomPolicy] = []
    optimizes: bool = False  # whether other settings of the loop are tried, too
    description: str = ""
    run: int = 0  # of auto-optimisation, from 1; 0: a client asked


decode_contract = msgspec.json.Decoder(EvaluationContract).decode


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """All that the process of an evaluation needs to know."""

    where: str  # the data directory or the URL of the database
    loop: str
    kind: str
    contract: EvaluationContract
    settings: dict[str, Any]  # of the loop, by wire name


decode_job = msgspec.json.Decoder(Job).decode


def check_contract(contract: EvaluationContract) -> None:
    """Refuse a contract that breaks a rule."""
    if not 0 < len(contract.name) <= MAX_NAME_LENGTH:
        message = f"name must have 1 to {MAX_NAME_LENGTH} characters"
        raise EvaluationError("contract", f"{message}, got {len(contract.name)}", "name")
    if contract.since >= contract.until:
        raise EvaluationError("contract", "startTime must be before endTime", "startTime")
    _check_policies(contract.policies)


def _check_policies(policies: Sequence[CustomPolicy]) -> None:
    if len(policies) > MAX_CUSTOM_POLICIES:
        message = f"policies must be at most {MAX_CUSTOM_POLICIES}, got {len(policies)}"
        raise EvaluationError("contract", message, "policies")
    names = [policy.name for policy in policies]
    if taken := [name for name in names if RESERVED_NAME.fullmatch(name)]:
        message = f"the name {taken[0]!r} is the service's own"
        raise EvaluationError("duplicate", message, "policies")
    if len(set(names)) < len(names):
        raise EvaluationError("duplicate", "the names of policies must be distinct", "policies")
    for policy in policies:
        if not 0 < len(policy.name) <= MAX_NAME_LENGTH:
            message = f"the name of a policy must have 1 to {MAX_NAME_LENGTH} characters"
            raise EvaluationError("policy", message, "policies")
        if len(policy.arguments) > MAX_ARGUMENTS_LENGTH:
            message = f"arguments must have at most {MAX_ARGUMENTS_LENGTH} characters"
            raise EvaluationError("policy", message, "policies")
