"""The dashboard: the page, its files and the JSON that the page reads."""

import asyncio
import hashlib
from collections.abc import Mapping
from importlib.resources import files

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.evaluation.report import CONTENT_SECURITY_POLICY
from windvane.service.api.auth import Keyring
from windvane.service.api.requests import (
    JSON_MEDIA_TYPE,
    ApiError,
    WholeNumbers,
    get_evaluations,
    get_service,
    read_whole_number,
)
from windvane.service.errors import ServiceError
from windvane.service.loops.loop import Loop
from windvane.service.monitoring.evaluation_panel import (
    SHOWN_EVALUATIONS,
    EvaluationPanel,
    EvaluationRecord,
    build_evaluation_panel,
)
from windvane.service.monitoring.evaluation_report import format_loop_report
from windvane.service.monitoring.panels import (
    MAX_FEATURE_CHARACTERS,
    View,
    build_dashboard,
    report_event,
)
from windvane.service.store.evaluations import list_newest

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
REPORT_HEADERS = SECURITY_HEADERS | {
    "content-security-policy": f"{CONTENT_SECURITY_POLICY}; frame-ancestors 'none'"
}
TIMES = WholeNumbers(0, 10**17 - 1)  # microseconds since 1970
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
STATIC_FILES = {  # content and media type, by name
    file.name: (file.read_bytes(), MEDIA_TYPES[file.name.rpartition(".")[2]])
    for file in files("windvane.service.api").joinpath("static").iterdir()
}


async def get_page(request: Request) -> Response:
    if name := request.path_params.get("loop"):
        await get_service(request).get_loop(name)
    return _respond(request, *STATIC_FILES["dashboard.html"], SECURITY_HEADERS)


async def get_static_file(request: Request) -> Response:
    """GET /static/{file}: the style sheet, the scripts and the icon of the page."""
    file = STATIC_FILES.get(request.path_params["file"])
    if file is None:
        raise ApiError(404, "ResourceNotFound", "the dashboard has no such file")
    return _respond(request, *file, SECURITY_HEADERS)


async def list_loops(request: Request) -> Response:
    """GET /board.json: the names of all loops."""
    loops = [{"name": loop.name} for loop in get_service(request).loops.values()]
    return _send_json(request, {"loops": loops})


async def get_dashboard(request: Request) -> Response:
    """GET /board/{name}.json: the panels of one loop."""
    view = View(
        read_whole_number(request, "since", 0, TIMES),
        read_whole_number(request, "until", TIMES.most, TIMES),
        request.query_params.get("by", "")[:MAX_FEATURE_CHARACTERS] or None,
    )
    loop = await get_service(request).get_loop(request.path_params["name"])
    follower = await asyncio.to_thread(request.app.state.metrics.followers.follow, loop)
    dashboard = await asyncio.to_thread(build_dashboard, follower, view)
    return _send_json(request, dashboard)


async def get_event_report(request: Request) -> Response:
    """GET /board/{name}/events/{event}: why one event got its choice."""
    loop = await get_service(request).get_loop(request.path_params["name"])
    event = str(request.path_params["event"])
    report = await asyncio.to_thread(report_event, loop, event)
    if report is None:
        message = f"no decision of this loop that can be read has the event id {event[:80]!r}"
        raise ApiError(404, "ResourceNotFound", message, "eventId")
    return _send_json(request, report)


async def get_evaluation_panel(request: Request) -> Response:
    """GET /board/{name}/evaluation.json: what other policies would have earned; `id` names one."""
    return _send_json(request, await _build_panel(request))


async def get_evaluation_report(request: Request) -> Response:
    """GET /board/{name}/evaluation.html: the same as a file to pass on."""
    panel = await _build_panel(request)
    if panel.shown is None or not panel.shown.policies:
        raise ApiError(404, "EvaluationNotFound", "there is no result yet", "id")
    report = await asyncio.to_thread(
        format_loop_report, request.path_params["name"], panel.settings, panel.shown
    )
    return _respond(request, report.encode(), MEDIA_TYPES["html"], REPORT_HEADERS)


async def _build_panel(request: Request) -> EvaluationPanel:
    loop = await get_service(request).get_loop(request.path_params["name"])
    headings = await asyncio.to_thread(list_newest, loop.store, loop.id, SHOWN_EVALUATIONS)
    key = request.query_params.get("id") or (headings[0].key if headings else None)
    record = None if key is None else await _read_evaluation(request, loop, key)
    changes = await asyncio.to_thread(loop.store.list_settings_changes, loop.id)
    keyring: Keyring = request.app.state.keyring
    can_change = keyring.can_use({**request.scope, "method": "POST"}, "admin")  # not by a password
    return build_evaluation_panel(loop.settings, changes, headings, record, can_change)


async def _read_evaluation(request: Request, loop: Loop, key: str) -> EvaluationRecord:
    evaluations = get_evaluations(request)
    try:
        row = await evaluations.find(loop.name, key)
    except ServiceError as reason:
        raise ApiError(404, "EvaluationNotFound", str(reason), "id") from None
    charts = [each.chart for each in await evaluations.read_series(row)]
    return EvaluationRecord(row, evaluations.find_progress(row), charts)


def _send_json(request: Request, content: object) -> Response:
    return _respond(request, msgspec.json.encode(content), JSON_MEDIA_TYPE, {})


def _respond(
    request: Request, body: bytes, media_type: str, headers: Mapping[str, str]
) -> Response:
    """Send a body, or status 304 if the browser already has it."""
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {**headers, "etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(None, 304, headers)
    return Response(body, 200, headers, media_type)
