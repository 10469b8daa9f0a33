"""What is to be evaluated and what was found, as the log keeps it and a process reports it."""

import re
from typing import Annotated, Any

import msgspec

from windvane.service.errors import ServiceError
from windvane.service.schemas import MAX_ARGUMENTS_LENGTH, Name

ALPHA = 0.05  # the chance that any of the compared policies is wrongly called better or worse
CONFIDENCE = f"{100 * (1 - ALPHA):g} % confidence"
CURRENT = "current"  # a learner with the present settings of the loop: the reference
RESERVED_NAME = re.compile(rf"online|baseline1|baselineRand|{CURRENT}|Hyper\d+")
MAX_CUSTOM_POLICIES = 20
MAX_EVALUATED_DECISIONS = 5_000_000
OPTIMAL_IF_NONE_IS_SURE = "online"
# The first byte of a message of the process of an evaluation, which is preceded by its size.
PROGRESS = b"p"  # the share that is done, as text
OUTCOME = b"o"  # an `EvaluationOutcome` as JSON
SERIES = b"s"  # a list of `PolicySeries` as JSON
FAILURE = b"f"  # a sentence


class PolicyRequest(msgspec.Struct, frozen=True):
    """A policy to evaluate."""

    name: Name
    arguments: Annotated[str, msgspec.Meta(max_length=MAX_ARGUMENTS_LENGTH)]


class EvaluationContract(msgspec.Struct, frozen=True, kw_only=True):
    """Which decisions and which policies are to be evaluated."""

    name: str
    since: int  # microseconds since 1970
    until: int
    policies: list[PolicyRequest] = []
    optimizes: bool = False  # whether other settings of the loop are tried, too
    run: int = 0  # of auto-optimisation, from 1; 0: a client asked


decode_contract = msgspec.json.Decoder(EvaluationContract).decode


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """All that the process of an evaluation needs to know."""

    where: str  # the data directory or the URL of the database
    loop: str
    contract: EvaluationContract
    settings: dict[str, Any]  # of the loop, by wire name


decode_job = msgspec.json.Decoder(Job).decode


def check_contract(contract: EvaluationContract) -> None:
    """Refuse a contract that breaks a rule which its types do not state."""
    if "\0" in contract.name:
        raise ServiceError("contract", "name must have no character NUL", "name")
    if contract.since >= contract.until:
        raise ServiceError("contract", "startTime must be before endTime", "startTime")
    names = [policy.name for policy in contract.policies]
    if taken := [name for name in names if RESERVED_NAME.fullmatch(name)]:
        message = f"the name {taken[0]!r} is the service's own"
        raise ServiceError("duplicate", message, "policies")
    if len(set(names)) < len(names):
        raise ServiceError("duplicate", "the names of policies must be distinct", "policies")


class IpsSums(msgspec.Struct, frozen=True):
    """Sums over decisions with reward r and weight w = π(a)/p(a), from which IPS is estimated."""

    mass: float = 0.0  # n, how many decisions
    weight: float = 0.0  # Σ w
    weighted_reward: float = 0.0  # Σ w r
    squared_weighted_reward: float = 0.0  # Σ (w r)²
    positive: int = 0  # decisions with w > 0


class PolicyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy would have earned."""

    name: str
    source: str  # Online, Baseline, Random, Custom or OfflineExperimentation
    arguments: str
    total: IpsSums
    result: dict[str, Any]  # `PolicyResult.to_json()` without the time series; gain: over CURRENT
    changes: dict[str, Any] | None = None  # settings that make it; None: a loop cannot run it
    problems: list[str] = []  # why even the intervals that hold at every moment cannot be trusted


class EvaluationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an evaluation ended."""

    error: str | None = None
    optimal_policy: str = ""
    policies: list[PolicyOutcome] = []
    rows: int = 0
    imported_rows: int = 0  # decisions of the log that another system made
    older_rows: int = 0  # those that the loop made with other settings
    since: float | None = None  # the time of the first decision, in seconds since 1970
    until: float | None = None  # the time of the last one
    doubt: str = ""  # why no number of any policy can be trusted
    warnings: list[str] = []
    evidence: str = ""  # why a policy was applied or retained by auto-optimisation


class ChartSeries(msgspec.Struct, frozen=True):
    """The value of one policy in each step of a chart."""

    minutes: int  # length of a step
    starts: list[int]  # start / length of each step with decisions, increasing
    value: list[float | None]
    error: list[float | None]  # standard error
    size: list[float]  # (Σw)²/Σw²
    difference: "ChartSeries | None" = None  # to CURRENT on the same decisions, if it is known


class PolicySeries(msgspec.Struct, frozen=True):
    """The sums of one policy for each interval, column by column."""

    minutes: int  # length of an interval
    starts: list[int]  # start / length of each interval with decisions, increasing
    mass: list[float]
    weight: list[float]
    weighted_reward: list[float]
    squared_weighted_reward: list[float]
    positive: list[int]
    chart: ChartSeries


encode = msgspec.json.Encoder().encode
decode_outcome = msgspec.json.Decoder(EvaluationOutcome).decode
decode_series = msgspec.json.Decoder(list[PolicySeries]).decode  # in the order of the policies
