"""Evaluations of a loop: ask for one, read, list and delete them, and apply what was found."""

import asyncio
import math
from itertools import accumulate
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.errors import SettingError
from windvane.evaluation.estimates.result import clip_value
from windvane.service.api.requests import (
    get_evaluations,
    get_loop,
    get_loop_name,
    json_response,
    parse_request,
)
from windvane.service.clock import MICROSECONDS_PER_MINUTE, format_date, parse_date
from windvane.service.errors import ServiceError
from windvane.service.evaluations.records import (
    MAX_CUSTOM_POLICIES,
    EvaluationContract,
    EvaluationOutcome,
    IpsSums,
    PolicyOutcome,
    PolicyRequest,
    PolicySeries,
    decode_contract,
    decode_outcome,
)
from windvane.service.schemas import Name
from windvane.service.store.rows import EvaluationRow

QUANTILE = 1.96  # of a 95 % interval
MANUAL = "Manual"
BY_HTTP = "http"
CONTRACT_CODE = "InvalidEvaluationContract"
WIRE_STATUS = {  # by status of the log
    "Running": "pending",
    "Succeeded": "completed",
    "Failed": "failed",
    "Timeout": "timeout",
    "OptimalPolicyApplied": "optimalPolicyApplied",
    "OnlinePolicyRetained": "onlinePolicyRetained",
}


class WireStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body with names in camel case."""


class EvaluationRequest(WireStruct, frozen=True, kw_only=True):
    """What to evaluate."""

    name: Name
    start_time: str
    end_time: str
    policies: Annotated[list[PolicyRequest], msgspec.Meta(max_length=MAX_CUSTOM_POLICIES)]
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
    optimal_policy_arguments: str
    creation_time: str
    error: str | None = None


_decode_evaluation = msgspec.json.Decoder(EvaluationRequest).decode
_decode_apply = msgspec.json.Decoder(ApplyRequest).decode


async def _find(request: Request) -> EvaluationRow:
    key = request.path_params["evaluationId"]
    return await get_evaluations(request).find(get_loop_name(request.scope), key)


def _read_time(text: str, target: str) -> int:
    """The time of a field; a text that is no time is refused."""
    try:
        return parse_date(text)
    except SettingError as reason:
        raise ServiceError("contract", str(reason), target) from None


async def create_evaluation(request: Request) -> Response:
    loop = await get_loop(request)  # before the body is read
    body = await parse_request(request, _decode_evaluation, CONTRACT_CODE)
    contract = EvaluationContract(
        name=body.name,
        since=_read_time(body.start_time, "startTime"),
        until=_read_time(body.end_time, "endTime"),
        policies=body.policies,
        optimizes=body.enable_offline_experimentation,
    )
    row = await get_evaluations(request).create(loop.name, contract, MANUAL)
    response = json_response(render_evaluation(row, []), 201)
    response.headers["location"] = f"{request.url.replace(query='')}/{row.key}"
    return response


async def list_evaluations(request: Request) -> Response:
    rows = await get_evaluations(request).list_rows(get_loop_name(request.scope))
    return json_response([render_evaluation(row, []) for row in rows])


async def get_evaluation(request: Request) -> Response:
    row = await _find(request)
    series = await get_evaluations(request).read_series(row)
    # In a thread, because there may be many points.
    return await asyncio.to_thread(lambda: json_response(render_evaluation(row, series)))


async def delete_evaluation(request: Request) -> Response:
    await get_evaluations(request).delete(await _find(request))
    return Response(status_code=204)


async def apply_evaluation(request: Request) -> Response:
    loop = await get_loop(request)  # before the body is read
    body = await parse_request(request, _decode_apply, CONTRACT_CODE)
    await get_evaluations(request).apply(loop.name, body.evaluation_id, body.policy_name, BY_HTTP)
    return Response(status_code=204)


def render_evaluation(row: EvaluationRow, series: list[PolicySeries]) -> Evaluation:
    """An evaluation on the wire; without series the list of each policy is empty."""
    contract = decode_contract(row.contract)
    outcome = EvaluationOutcome() if row.outcome is None else decode_outcome(row.outcome)
    results = [
        PolicyResult(
            name=policy.name,
            arguments=policy.arguments,
            policy_source=policy.source,
            summary=_list_summaries(series[place]) if series else [],
            total_summary=_render_summary(contract.until, policy.total),
            evidence=_render_evidence(policy),
        )
        for place, policy in enumerate(outcome.policies)
    ]
    return Evaluation(
        id=row.key,
        name=row.name,
        start_time=format_date(contract.since),
        end_time=format_date(contract.until),
        job_id=row.key,
        status=WIRE_STATUS[row.status],
        policy_results=results,
        feature_importance=[],
        evaluation_type=row.type,
        optimal_policy=outcome.optimal_policy,
        optimal_policy_arguments=next(
            (each.arguments for each in results if each.name == outcome.optimal_policy), ""
        ),
        creation_time=format_date(row.created),
        error=outcome.error,
    )


def _list_summaries(series: PolicySeries) -> list[Summary]:
    """The value of all decisions up to the end of each interval."""
    ends = [(start + 1) * series.minutes * MICROSECONDS_PER_MINUTE for start in series.starts]
    columns = [accumulate(getattr(series, name)) for name in IpsSums.__struct_fields__]
    return [_render_summary(end, IpsSums(*sums)) for end, *sums in zip(ends, *columns, strict=True)]


def _render_summary(at: int, sums: IpsSums) -> Summary:
    """IPS, Σ w r / n, of the decisions of a window that ends at a time."""
    return Summary(
        time_stamp=format_date(at),
        ips_estimator_numerator=sums.weighted_reward,
        ips_estimator_denominator=sums.mass,
        snips_estimator_denominator=sums.weight,
        non_zero_probability=sums.positive,
        sum_of_squares=sums.squared_weighted_reward,
        confidence_interval=half_width(sums),
        average_reward=sums.weighted_reward / sums.mass if sums.mass > 0 else 0.0,
    )


def half_width(sums: IpsSums) -> float:
    """Half of the Gaussian 95 % interval of IPS, as the retired service computed it.

    1.96 · √(((Σ(wr)² − (Σwr)²/n) / (n − 1)) / n), with n decisions; 0 with fewer than two.

    >>> sums = IpsSums(196, 193.761, 2.2, 2.424, 68)
    >>> round(half_width(sums), 8)
    0.01552936
    """
    n = sums.mass
    if n <= 1:
        return 0.0
    variance = (sums.squared_weighted_reward - sums.weighted_reward**2 / n) / (n - 1)
    return QUANTILE * math.sqrt(max(variance, 0.0) / n)


def _render_evidence(policy: PolicyOutcome) -> Evidence:
    result = policy.result
    headline = result["estimates"][result["headline"]]
    gain = result["gain"]
    return Evidence(
        rows=result["rows"],
        estimator=result["headline"],
        value=clip_value(headline["value"], result["sequence"]),
        interval=headline["interval"] and tuple(headline["interval"]),
        sequence=tuple(result["sequence"]),
        gain=gain["value"],
        gain_interval=tuple(gain["interval"]),
        verdict=gain["verdict"],
        decisions_needed=gain["rows_needed"],
        warnings=list(result["warnings"]),
    )
