"""Evaluations and feature importances on the wire, in both generations of the API.

`v1` is v1.0 and v1.1-preview.*, `2022` is `?api-version=2022-09-01-preview`.
"""

from typing import Annotated, Literal

import msgspec

from windvane.service.evaluations.records import MAX_CUSTOM_POLICIES, FeatureImportance
from windvane.service.schemas import MAX_ARGUMENTS_LENGTH, Name

Generation = Literal["v1", "2022"]
Arguments = Annotated[str, msgspec.Meta(max_length=MAX_ARGUMENTS_LENGTH)]


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body with names in camel case."""


class PolicyRequest(WireStruct, frozen=True, kw_only=True):
    """A policy to evaluate."""

    name: Name
    arguments: Arguments


Policies = Annotated[list[PolicyRequest], msgspec.Meta(max_length=MAX_CUSTOM_POLICIES)]


class EvaluationRequest(WireStruct, frozen=True, kw_only=True):
    """What to evaluate; the two generations have two names for the optimisation."""

    name: Name
    start_time: str
    end_time: str
    policies: Policies
    enable_offline_experimentation: bool = False
    enable_policy_optimization: bool = False
    description: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class ImportanceRequest(WireStruct, frozen=True, kw_only=True):
    """Of which decisions the features are to be measured."""

    name: Name
    start_time: str
    end_time: str
    description: Annotated[str, msgspec.Meta(max_length=1024)] = ""


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


class V1Summary(WireStruct, frozen=True, kw_only=True):
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


class V1PolicyResult(WireStruct, frozen=True, kw_only=True):
    """What a policy would have earned."""

    name: str
    arguments: str
    policy_source: str
    summary: list[V1Summary]
    total_summary: V1Summary
    evidence: Evidence


class V1Evaluation(WireStruct, frozen=True, kw_only=True):
    """An evaluation of v1."""

    id: str
    name: str
    start_time: str
    end_time: str
    job_id: str
    status: str
    policy_results: list[V1PolicyResult]
    feature_importance: list[list[str]]
    evaluation_type: str
    optimal_policy: str
    creation_time: str
    error: str | None = None


class Summary(WireStruct, frozen=True, kw_only=True):
    """The expected reward, and its Gaussian interval."""

    expected_reward: float
    confidence_interval: tuple[float, float]


class TimedSummary(Summary, frozen=True, kw_only=True):
    """The expected reward up to a time."""

    time_stamp: str


class TimeSeries(WireStruct, frozen=True, kw_only=True):
    """Expected rewards over time."""

    data: list[TimedSummary]


class PolicyContent(WireStruct, frozen=True, kw_only=True, omit_defaults=True):
    """What a policy would have earned."""

    name: str
    slot_id: str
    policy_source: str
    summary: Summary
    timeseries: TimeSeries
    evidence: Evidence
    arguments: str | None = None


class Content(WireStruct, frozen=True, kw_only=True):
    """What all policies would have earned."""

    start_time: str
    end_time: str
    interval_in_minutes: int
    value: list[PolicyContent]


class EvaluationDetails(WireStruct, frozen=True, kw_only=True, omit_defaults=True):
    """An evaluation of 2022 in a list."""

    id: str
    name: str
    start_time: str
    end_time: str
    creation_time: str
    status: str
    evaluation_type: str
    optimal_policy: str | None = None
    description: str | None = None
    error: str | None = None


class Evaluation(EvaluationDetails, frozen=True, kw_only=True, omit_defaults=True):
    """An evaluation of 2022."""

    content: Content


class EvaluationList(WireStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of evaluations."""

    value: list[EvaluationDetails]
    next_link: str | None = None


class FeatureImportances(WireStruct, frozen=True, kw_only=True, omit_defaults=True):
    """How important the features are."""

    id: str
    name: str
    start_time: str
    end_time: str
    creation_time: str
    status: str
    feature_scores: list[FeatureImportance]
    description: str | None = None
    error: str | None = None


class FeatureImportancesList(WireStruct, frozen=True, kw_only=True, omit_defaults=True):
    """A page of feature importances."""

    value: list[FeatureImportances]
    next_link: str | None = None
