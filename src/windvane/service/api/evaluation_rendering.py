"""Evaluations and feature importances of the log as the two generations of the API show them."""

from typing import Any

import msgspec

from windvane.service.api.evaluation_schemas import (
    Content,
    Evaluation,
    EvaluationDetails,
    EvaluationRequest,
    Evidence,
    FeatureImportances,
    PolicyContent,
    Summary,
    TimedSummary,
    TimeSeries,
    V1Evaluation,
    V1PolicyResult,
    V1Summary,
)
from windvane.service.dates import format_date
from windvane.service.evaluations.records import (
    CustomPolicy,
    EvaluationContract,
    EvaluationOutcome,
    IpsSums,
    PolicyOutcome,
    PolicySeries,
    decode_contract,
    decode_outcome,
)
from windvane.service.evaluations.time_series import (
    Point,
    add_all,
    average_reward,
    half_width,
    list_expanding,
    list_rolling,
    select_period,
)
from windvane.service.store.rows import EvaluationRow
from windvane.service.store.writer.evaluation_operations import RUNNING

V1_STATUS = {  # by status of the log, which has the words of 2022
    "Running": "pending",
    "Succeeded": "completed",
    "Failed": "failed",
    "Timeout": "timeout",
    "Canceled": "failed",
    "OptimalPolicyApplied": "optimalPolicyApplied",
    "OnlinePolicyRetained": "onlinePolicyRetained",
}
NEVER = "0001-01-01T00:00:00"  # of an evaluation that runs


class Window(msgspec.Struct, frozen=True):
    """Which part of the time series is asked for."""

    since: int
    until: int
    minutes: int = 5
    is_rolling: bool = False


def make_contract(request: EvaluationRequest, since: int, until: int) -> EvaluationContract:
    """The contract of a request."""
    return EvaluationContract(
        name=request.name,
        since=since,
        until=until,
        policies=[CustomPolicy(policy.name, policy.arguments) for policy in request.policies],
        optimizes=request.enable_offline_experimentation or request.enable_policy_optimization,
        description=request.description,
    )


def _read_outcome(row: EvaluationRow) -> EvaluationOutcome:
    return EvaluationOutcome() if row.outcome is None else decode_outcome(row.outcome)


def render_v1(row: EvaluationRow, series: list[PolicySeries]) -> V1Evaluation:
    """An evaluation as v1 has it; without series the list of each policy is empty."""
    contract, outcome = decode_contract(row.contract), _read_outcome(row)
    results = []
    for place, policy in enumerate(outcome.policies):
        points = list_expanding(series[place]) if series else []
        results.append(
            V1PolicyResult(
                name=policy.name,
                arguments=policy.arguments,
                policy_source=policy.source,
                summary=[_render_v1_summary(point) for point in points],
                total_summary=_render_v1_summary(Point(contract.until, policy.total)),
                evidence=_render_evidence(policy),
            )
        )
    return V1Evaluation(
        id=row.key,
        name=row.name,
        start_time=format_date(contract.since),
        end_time=format_date(contract.until),
        job_id=row.key,
        status=V1_STATUS[row.status],
        policy_results=results,
        feature_importance=[],
        evaluation_type=row.type,
        optimal_policy=outcome.optimal_policy,
        creation_time=format_date(row.created),
        error=outcome.error,
    )


def _render_v1_summary(point: Point) -> V1Summary:
    sums = point.sums
    return V1Summary(
        time_stamp=format_date(point.at),
        ips_estimator_numerator=sums.weighted_reward,
        ips_estimator_denominator=sums.mass,
        snips_estimator_denominator=sums.weight,
        non_zero_probability=sums.positive,
        sum_of_squares=sums.squared_weighted_reward,
        confidence_interval=half_width(sums),
        average_reward=average_reward(sums),
    )


def _list_details(row: EvaluationRow) -> dict[str, Any]:
    contract, outcome = decode_contract(row.contract), _read_outcome(row)
    return {
        "id": row.key,
        "name": row.name,
        "start_time": format_date(contract.since),
        "end_time": format_date(contract.until),
        "creation_time": format_date(row.created),
        "status": row.status,
        "evaluation_type": row.type,
        "optimal_policy": outcome.optimal_policy or None,
        "description": contract.description or None,
        "error": outcome.error,
    }


def render_details(row: EvaluationRow) -> EvaluationDetails:
    """An evaluation as a list of 2022 has it."""
    return EvaluationDetails(**_list_details(row))


def render_2022(row: EvaluationRow, series: list[PolicySeries], window: Window) -> Evaluation:
    """An evaluation as 2022 has it."""
    details = _list_details(row)
    if row.status == RUNNING:
        content = Content(start_time=NEVER, end_time=NEVER, interval_in_minutes=0, value=[])
        return Evaluation(**details, content=content)
    policies = _read_outcome(row).policies
    content = Content(
        start_time=format_date(window.since),
        end_time=format_date(window.until),
        interval_in_minutes=window.minutes,
        value=[
            _render_policy(policy, select_period(each, window.since, window.until), window)
            for policy, each in zip(policies, series, strict=True)
        ],
    )
    return Evaluation(**details, content=content)


def _render_policy(policy: PolicyOutcome, series: PolicySeries, window: Window) -> PolicyContent:
    points = list_rolling(series, window.minutes) if window.is_rolling else list_expanding(series)
    return PolicyContent(
        name=policy.name,
        slot_id="",
        policy_source=policy.source,
        summary=Summary(**_summarize(add_all(series))),
        timeseries=TimeSeries(
            data=[
                TimedSummary(time_stamp=format_date(point.at), **_summarize(point.sums))
                for point in points
            ]
        ),
        evidence=_render_evidence(policy),
        arguments=policy.arguments if policy.source == "Custom" else None,
    )


def _summarize(sums: IpsSums) -> dict[str, Any]:
    value, width = average_reward(sums), half_width(sums)
    return {"expected_reward": value, "confidence_interval": (value - width, value + width)}


def _render_evidence(policy: PolicyOutcome) -> Evidence:
    result = policy.result
    headline = result["estimates"][result["headline"]]
    gain = result["gain"]
    return Evidence(
        rows=result["rows"],
        estimator=result["headline"],
        value=headline["value"],
        interval=headline["interval"] and tuple(headline["interval"]),
        sequence=tuple(result["sequence"]),
        gain=gain["value"],
        gain_interval=tuple(gain["interval"]),
        verdict=gain["verdict"],
        decisions_needed=gain["rows_needed"],
        warnings=list(result["warnings"]),
    )


def render_importances(row: EvaluationRow) -> FeatureImportances:
    """Feature importances on the wire."""
    contract, outcome = decode_contract(row.contract), _read_outcome(row)
    return FeatureImportances(
        id=row.key,
        name=row.name,
        start_time=format_date(contract.since),
        end_time=format_date(contract.until),
        creation_time=format_date(row.created),
        status=row.status,
        feature_scores=outcome.scores,
        description=contract.description or None,
        error=outcome.error,
    )
