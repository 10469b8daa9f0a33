"""Evaluations and feature importances of a loop, and applying what was found."""

import asyncio
from collections.abc import Callable
from uuid import uuid4

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.service.api.evaluation_rendering import (
    make_contract,
    render_2022,
    render_details,
    render_importances,
    render_v1,
)
from windvane.service.api.evaluation_requests import (
    CONTRACT_CODE,
    filter_rows,
    find_generation,
    read_page,
    read_time,
    read_window,
    render_errors,
)
from windvane.service.api.evaluation_schemas import (
    ApplyRequest,
    EvaluationList,
    EvaluationRequest,
    FeatureImportancesList,
    ImportanceRequest,
)
from windvane.service.api.requests import (
    get_loop_name,
    get_service,
    json_response,
    parse_body,
    read_body,
)
from windvane.service.errors import EvaluationError
from windvane.service.evaluations.evaluations import Evaluations
from windvane.service.evaluations.records import EvaluationContract, decode_contract
from windvane.service.store.queries.evaluation_queries import Kind
from windvane.service.store.rows import EvaluationRow
from windvane.service.store.writer.evaluation_operations import RUNNING

MANUAL = "Manual"
BY_HTTP = "http"
_decode_evaluation = msgspec.json.Decoder(EvaluationRequest).decode
_decode_importance = msgspec.json.Decoder(ImportanceRequest).decode
_decode_apply = msgspec.json.Decoder(ApplyRequest).decode


def _get_evaluations(request: Request) -> Evaluations:
    evaluations: Evaluations = request.app.state.evaluations
    return evaluations


async def _check_loop(request: Request) -> None:
    """Refuse a loop that does not exist, before the body is read."""
    await get_service(request).get_loop(get_loop_name(request.scope))


async def _read_contract(request: Request) -> EvaluationContract:
    code = CONTRACT_CODE[find_generation(request)]
    body = parse_body(_decode_evaluation, await read_body(request.scope, request.receive), code)
    since = read_time(body.start_time, "startTime")
    return make_contract(body, since, read_time(body.end_time, "endTime"))


async def create_evaluation(request: Request) -> Response:
    """POST evaluations: the service gives the id."""
    await _check_loop(request)
    with render_errors(request, "evaluation"):
        contract = await _read_contract(request)
        row = await _create(request, "evaluation", str(uuid4()), contract)
    response = json_response(render_v1(row, []), 201)
    response.headers["location"] = f"{request.url.replace(query='')}/{row.key}"
    return response


async def put_evaluation(request: Request) -> Response:
    """PUT evaluations/ID: the client gives the id."""
    await _check_loop(request)
    with render_errors(request, "evaluation"):
        contract = await _read_contract(request)
        await _create(request, "evaluation", request.path_params["evaluationId"], contract)
    return Response(status_code=200)


async def put_importance(request: Request) -> Response:
    """PUT featureImportances/ID."""
    await _check_loop(request)
    with render_errors(request, "importance"):
        code = CONTRACT_CODE[find_generation(request)]
        body = parse_body(_decode_importance, await read_body(request.scope, request.receive), code)
        contract = EvaluationContract(
            name=body.name,
            since=read_time(body.start_time, "startTime"),
            until=read_time(body.end_time, "endTime"),
            description=body.description,
        )
        await _create(request, "importance", request.path_params["featureImportanceId"], contract)
    return Response(status_code=200)


async def _create(
    request: Request, kind: Kind, key: str, contract: EvaluationContract
) -> EvaluationRow:
    evaluations = _get_evaluations(request)
    return await evaluations.create(get_loop_name(request.scope), kind, key, contract, MANUAL)


async def list_evaluations(request: Request) -> Response:
    """GET evaluations: an array in v1, pages in 2022."""
    rows = await _get_evaluations(request).list_rows(get_loop_name(request.scope), "evaluation")
    page = read_page(request, filter_rows(request, rows))
    if find_generation(request) == "v1":
        return json_response([render_v1(row, []) for row in rows])
    return json_response(
        EvaluationList(value=[*map(render_details, page.rows)], next_link=page.next_link)
    )


async def list_importances(request: Request) -> Response:
    """GET featureImportances."""
    rows = await _get_evaluations(request).list_rows(get_loop_name(request.scope), "importance")
    page = read_page(request, rows)
    return json_response(
        FeatureImportancesList(
            value=[*map(render_importances, page.rows)], next_link=page.next_link
        )
    )


async def get_evaluation(request: Request) -> Response:
    """GET evaluations/ID."""
    evaluations = _get_evaluations(request)
    with render_errors(request, "evaluation"):
        row = await _find(request, "evaluation")
        contract = decode_contract(row.contract)
        window = read_window(request, contract.since, contract.until)
        is_v1 = find_generation(request) == "v1"
        is_timed = "startTime" in request.query_params and "endTime" in request.query_params
        if not (is_v1 or is_timed):
            raise EvaluationError("contract", "startTime and endTime must be given", "startTime")
        series = await evaluations.read_series(row)
    # In a thread, because there may be many points.
    if is_v1:
        return await asyncio.to_thread(_respond, render_v1, row, series)
    return await asyncio.to_thread(_respond, render_2022, row, series, window)


def _respond(render: Callable[..., object], *arguments: object) -> Response:
    return json_response(render(*arguments))


async def get_importance(request: Request) -> Response:
    """GET featureImportances/ID."""
    with render_errors(request, "importance"):
        row = await _find(request, "importance")
    return json_response(render_importances(row))


async def delete_evaluation(request: Request) -> Response:
    """DELETE evaluations/ID: in 2022, one that runs is cancelled and stays."""
    return await _delete(request, "evaluation")


async def delete_importance(request: Request) -> Response:
    """DELETE featureImportances/ID: one that runs is cancelled and stays."""
    return await _delete(request, "importance")


async def _delete(request: Request, kind: Kind) -> Response:
    evaluations = _get_evaluations(request)
    with render_errors(request, kind):
        row = await _find(request, kind)
        if row.status == RUNNING and find_generation(request) == "2022":
            await evaluations.cancel(row)
        else:
            await evaluations.delete(row)
    return Response(status_code=204)


async def _find(request: Request, kind: Kind) -> EvaluationRow:
    name = "evaluationId" if kind == "evaluation" else "featureImportanceId"
    key = request.path_params[name]
    return await _get_evaluations(request).find(get_loop_name(request.scope), kind, key)


async def apply_evaluation(request: Request) -> Response:
    """POST configurations/applyFromEvaluation: take over the settings of a policy."""
    await _check_loop(request)
    code = CONTRACT_CODE[find_generation(request)]
    body = parse_body(_decode_apply, await read_body(request.scope, request.receive), code)
    with render_errors(request, "evaluation"):
        await _get_evaluations(request).apply(
            get_loop_name(request.scope), body.evaluation_id, body.policy_name, BY_HTTP
        )
    return Response(status_code=204)
