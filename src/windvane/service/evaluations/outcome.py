"""What an evaluation found, as the log keeps it: an outcome, and time series that may be large."""

from typing import Any

import msgspec

OPTIMAL_IF_NONE_IS_SURE = "online"


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
    result: dict[str, Any]  # `PolicyResult.to_json()` without the time series
    changes: dict[str, Any] | None = None  # settings that make it; None: a loop cannot run it
    problems: list[str] = []  # why even the intervals that hold at every moment cannot be trusted


class FeatureImportance(msgspec.Struct, frozen=True, rename="camel"):
    """How important a feature is: 1 is the most important one."""

    namespace: str
    feature_name: str
    score: float


class EvaluationOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an evaluation, or a measurement of feature importances, ended."""

    error: str | None = None
    optimal_policy: str = ""
    policies: list[PolicyOutcome] = []
    rows: int = 0
    since: float | None = None  # the time of the first decision, in seconds since 1970
    until: float | None = None  # the time of the last one
    doubt: str = ""  # why no number of any policy can be trusted
    warnings: list[str] = []
    evidence: str = ""  # why a policy was applied or retained by auto-optimisation
    scores: list[FeatureImportance] = []


class ChartSeries(msgspec.Struct, frozen=True):
    """The value of one policy in each step of a chart."""

    minutes: int  # length of a step
    starts: list[int]  # start / length of each step with decisions, increasing
    value: list[float | None]
    error: list[float | None]  # standard error
    size: list[float]  # (Σw)²/Σw²


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
