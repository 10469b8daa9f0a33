"""Evaluations on the wire, as v1.0 and v1.1-preview.* of Personalizer's API have them."""

from typing import Annotated

import msgspec

from windvane.service.evaluations.records import MAX_CUSTOM_POLICIES
from windvane.service.schemas import MAX_ARGUMENTS_LENGTH, Name

Arguments = Annotated[str, msgspec.Meta(max_length=MAX_ARGUMENTS_LENGTH)]


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body with names in camel case."""


class PolicyRequest(WireStruct, frozen=True, kw_only=True):
    """A policy to evaluate."""

    name: Name
    arguments: Arguments


Policies = Annotated[list[PolicyRequest], msgspec.Meta(max_length=MAX_CUSTOM_POLICIES)]


class EvaluationRequest(WireStruct, frozen=True, kw_only=True):
    """What to evaluate."""

    name: Name
    start_time: str
    end_time: str
    policies: Policies
    enable_offline_experimentation: bool = False


class ApplyRequest(WireStruct, frozen=True, kw_only=True):
    """A policy of an evaluation whose settings the loop is to take over."""

    evaluation_id: Name
    policy_name: Name


class Evidence(WireStruct, frozen=True, kw_only=True):
    """What Windvane adds: intervals that hold at every moment, and the verdict of the gate."""

    rows: int
    estimator: str
    value: float
    interval: tuple[float, float] | None
    sequence: tuple[float, float]
    gain: float
    gain_interval: tuple[float, float]
    verdict: str
    decisions_needed: int | None
    warnings: list[str]


class Summary(WireStruct, frozen=True, kw_only=True):
    """IPS over a window, with the sums from which it follows."""

    time_stamp: str
    ips_estimator_numerator: float
    ips_estimator_denominator: float
    snips_estimator_denominator: float
    aggregate_time_window: str = "PT0S"
    non_zero_probability: float
    sum_of_squares: float
    confidence_interval: float
    average_reward: float


class PolicyResult(WireStruct, frozen=True, kw_only=True):
    """What a policy would have earned."""

    name: str
    arguments: str
    policy_source: str
    summary: list[Summary]
    total_summary: Summary
    evidence: Evidence


class Evaluation(WireStruct, frozen=True, kw_only=True):
    """What was asked, and what was found."""

    id: str
    name: str
    start_time: str
    end_time: str
    job_id: str
    status: str
    policy_results: list[PolicyResult]
    feature_importance: list[list[str]]
    evaluation_type: str
    optimal_policy: str
    creation_time: str
    error: str | None = None
