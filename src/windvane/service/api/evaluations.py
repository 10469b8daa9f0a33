"""Evaluations of a loop: ask for one, read, list and delete them, and apply what was found."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.errors import SettingError
from windvane.service.api.errors import ApiError
from windvane.service.api.evaluation_schemas import (
    ApplyRequest,
    Evaluation,
    EvaluationRequest,
    Evidence,
    PolicyResult,
    Summary,
)
from windvane.service.api.requests import (
    get_loop_name,
    get_service,
    json_response,
    parse_body,
    read_body,
)
from windvane.service.dates import format_date, parse_date
from windvane.service.errors import EvaluationError
from windvane.service.evaluations.evaluations import Evaluations
from windvane.service.evaluations.records import (
    CustomPolicy,
    EvaluationContract,
    EvaluationOutcome,
    PolicyOutcome,
    PolicySeries,
    decode_contract,
    decode_outcome,
)
from windvane.service.evaluations.time_series import (
    Point,
    average_reward,
    half_width,
    list_expanding,
)
from windvane.service.store.rows import EvaluationRow

MANUAL = "Manual"
BY_HTTP = "http"
CONTRACT_CODE = "InvalidEvaluationContract"
STATUS_AND_CODE = {  # of an EvaluationError, by reason
    "contract": (400, CONTRACT_CODE),
    "policy": (400, "InvalidPolicyContract"),
    "duplicate": (400, "DuplicateCustomPolicyNames"),
    "no logs": (400, "NoLogsExistInDateRange"),
    "too many logs": (400, "LogsSizeExceedAllowedLimit"),
    "full": (429, "TooManyRequests"),
    "exists": (409, "EvaluationAlreadyExists"),
    "unknown": (404, "EvaluationNotFound"),
    "no settings": (404, "LearningSettingsNotFound"),
    "not ended": (404, "EvaluationModelNotFound"),
}
WIRE_STATUS = {  # by status of the log
    "Running": "pending",
    "Succeeded": "completed",
    "Failed": "failed",
    "Timeout": "timeout",
    "OptimalPolicyApplied": "optimalPolicyApplied",
    "OnlinePolicyRetained": "onlinePolicyRetained",
}
_decode_evaluation = msgspec.json.Decoder(EvaluationRequest).decode
_decode_apply = msgspec.json.Decoder(ApplyRequest).decode


@contextmanager
def _render_errors() -> Iterator[None]:
    """Render what is wrong with an evaluation with its code."""
    try:
        yield
    except EvaluationError as error:
        status, code = STATUS_AND_CODE[error.reason]
        headers = {"retry-after": "60"} if status == 429 else None
        raise ApiError(status, code, str(error), error.target, headers) from None


def _get_evaluations(request: Request) -> Evaluations:
    evaluations: Evaluations = request.app.state.evaluations
    return evaluations


async def _check_loop(request: Request) -> None:
    """Refuse a loop that does not exist, before the body is read."""
    await get_service(request).get_loop(get_loop_name(request.scope))


async def _find(request: Request) -> EvaluationRow:
    key = request.path_params["evaluationId"]
    return await _get_evaluations(request).find(get_loop_name(request.scope), key)


def _read_time(text: str, target: str) -> int:
    """The time of a field; a text that is no time is refused."""
    try:
        return parse_date(text)
    except SettingError as reason:
        raise EvaluationError("contract", str(reason), target) from None


async def _read_contract(request: Request) -> EvaluationContract:
    encoded = await read_body(request.scope, request.receive)
    body = parse_body(_decode_evaluation, encoded, CONTRACT_CODE)
    return EvaluationContract(
        name=body.name,
        since=_read_time(body.start_time, "startTime"),
        until=_read_time(body.end_time, "endTime"),
        policies=[CustomPolicy(policy.name, policy.arguments) for policy in body.policies],
        optimizes=body.enable_offline_experimentation,
    )


async def create_evaluation(request: Request) -> Response:
    """POST evaluations: the service gives the id."""
    await _check_loop(request)
    with _render_errors():
        contract = await _read_contract(request)
        row = await _get_evaluations(request).create(
            get_loop_name(request.scope), str(uuid4()), contract, MANUAL
        )
    response = json_response(render_evaluation(row, []), 201)
    response.headers["location"] = f"{request.url.replace(query='')}/{row.key}"
    return response


async def list_evaluations(request: Request) -> Response:
    """GET evaluations, without their time series."""
    rows = await _get_evaluations(request).list_rows(get_loop_name(request.scope))
    return json_response([render_evaluation(row, []) for row in rows])


async def get_evaluation(request: Request) -> Response:
    """GET evaluations/ID."""
    with _render_errors():
        row = await _find(request)
        series = await _get_evaluations(request).read_series(row)
    # In a thread, because there may be many points.
    return await asyncio.to_thread(lambda: json_response(render_evaluation(row, series)))


async def delete_evaluation(request: Request) -> Response:
    """DELETE evaluations/ID; one that runs is ended."""
    with _render_errors():
        await _get_evaluations(request).delete(await _find(request))
    return Response(status_code=204)


async def apply_evaluation(request: Request) -> Response:
    """POST configurations/applyFromEvaluation: take over the settings of a policy."""
    await _check_loop(request)
    body = parse_body(_decode_apply, await read_body(request.scope, request.receive), CONTRACT_CODE)
    with _render_errors():
        await _get_evaluations(request).apply(
            get_loop_name(request.scope), body.evaluation_id, body.policy_name, BY_HTTP
        )
    return Response(status_code=204)


def render_evaluation(row: EvaluationRow, series: list[PolicySeries]) -> Evaluation:
    """An evaluation on the wire; without series the list of each policy is empty."""
    contract = decode_contract(row.contract)
    outcome = EvaluationOutcome() if row.outcome is None else decode_outcome(row.outcome)
    results = []
    for place, policy in enumerate(outcome.policies):
        points = list_expanding(series[place]) if series else []
        results.append(
            PolicyResult(
                name=policy.name,
                arguments=policy.arguments,
                policy_source=policy.source,
                summary=[_render_summary(point) for point in points],
                total_summary=_render_summary(Point(contract.until, policy.total)),
                evidence=_render_evidence(policy),
            )
        )
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
        creation_time=format_date(row.created),
        error=outcome.error,
    )


def _render_summary(point: Point) -> Summary:
    sums = point.sums
    return Summary(
        time_stamp=format_date(point.at),
        ips_estimator_numerator=sums.weighted_reward,
        ips_estimator_denominator=sums.mass,
        snips_estimator_denominator=sums.weight,
        non_zero_probability=sums.positive,
        sum_of_squares=sums.squared_weighted_reward,
        confidence_interval=half_width(sums),
        average_reward=average_reward(sums),
    )


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
