"""The route table: every endpoint of the service, one row for each method of a path.

From the table follow the handler of a request, the role that it needs, the labels of metrics and
the OpenAPI document.
"""

import re
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from windvane.service.api import dashboard, evaluations, events, health, management, openapi
from windvane.service.api.auth import Role
from windvane.service.api.evaluations import ApplyRequest, Evaluation, EvaluationRequest
from windvane.service.api.openapi import Endpoint, Handler, Media
from windvane.service.loops.settings import LoopSettings
from windvane.service.schemas import (
    DecisionPage,
    ExplainedRankResponse,
    ImportRequest,
    ImportResponse,
    LogsProperties,
    ModelProperties,
    PageRequest,
    PageResponse,
    PageRewardRequest,
    PolicyAnswer,
    PolicyConfiguration,
    RankRequest,
    RewardBatchRequest,
    RewardBatchResponse,
    RewardRequest,
)

VERSIONS = ("v1.0", "v1.1-preview.1", "v1.1-preview.2", "v1.1-preview.3")
LOOP_PREFIX = "/loops/{loop}"
API_PREFIX = "/personalizer"
MAX_CACHED_PATH_LENGTH = 256

NO_MODEL_UPLOAD = "a model cannot be uploaded; restore a backup instead"

SNAPSHOT = Media("application/octet-stream", {"type": "string", "format": "binary"})
TEXT = Media("text/plain", {"type": "string"})
PAGE = Media("text/html", {"type": "string"})


async def get_openapi(request: Request) -> Response:
    return Response(msgspec.json.encode(build_document()), media_type="application/json")


def _refusal(
    method: str, path: str, role: Role, reason: str, summary: str = "Not offered"
) -> Endpoint:
    """A row for what Azure AI Personalizer offers and this service does not."""
    return Endpoint(method, path, management.refuse(reason), role, summary, refusal=reason)


def _page(path: str, handler: Handler, is_costly: bool = False) -> Endpoint:
    """A row for a part of the dashboard, which the OpenAPI document leaves out."""
    return Endpoint("GET", path, handler, "read", per_loop=False, is_costly=is_costly)


COSTLY: dict[str, Any] = {"is_costly": True}
OF_SERVICE: dict[str, Any] = {"per_loop": False}
LOOP_ENDPOINTS = (
    Endpoint("POST", "/rank", events.rank, "rank",
             "Choose an action", 201, ExplainedRankResponse, RankRequest),
    Endpoint("POST", "/events/{eventId:path}/reward", events.reward, "rank",
             "Reward a decision", 204, None, RewardRequest),
    Endpoint("POST", "/events/{eventId:path}/activate", events.activate, "rank",
             "Activate a decision", 204),
    Endpoint("POST", "/rewards", events.put_rewards, "rank",
             "Reward many decisions at once", 200, RewardBatchResponse, RewardBatchRequest),
    Endpoint("POST", "/decisions", management.import_decisions, "admin",
             "Import decisions of another system with their rewards", 200, ImportResponse,
             ImportRequest, **COSTLY),
    Endpoint("GET", "/decisions", management.get_decisions, "read",
             "Read decisions and their rewards in the order of the log", 200, DecisionPage,
             queries=management.QUERIES),
    Endpoint("GET", "/configurations/service", management.get_settings, "read",
             "Read the settings", 200, management.ServiceConfiguration),
    Endpoint("PUT", "/configurations/service", management.put_settings, "admin",
             "Change settings", 200, management.ServiceConfiguration,
             openapi.describe_changes(LoopSettings), **COSTLY),
    Endpoint("GET", "/configurations/policy", management.get_policy, "read",
             "Read the policy", 200, PolicyAnswer),
    Endpoint("PUT", "/configurations/policy", management.put_policy, "admin",
             "Change the policy", 200, PolicyAnswer, PolicyConfiguration, **COSTLY),
    Endpoint("DELETE", "/configurations/policy", management.delete_policy, "admin",
             "Take the policy of a new loop", 200, PolicyAnswer, **COSTLY),
    Endpoint("GET", "/model", management.get_model, "read",
             "Download the model", 200, SNAPSHOT, **COSTLY),
    _refusal("PUT", "/model", "admin", NO_MODEL_UPLOAD),
    Endpoint("DELETE", "/model", management.delete_model, "admin",
             "Reset the model", 204, **COSTLY),
    Endpoint("GET", "/model/properties", management.get_model_properties, "read",
             "Read the dates of the model", 200, ModelProperties),
    Endpoint("DELETE", "/logs", management.delete_logs, "admin",
             "Delete the log; the model stays", 204, **COSTLY),
    Endpoint("GET", "/logs/properties", management.get_logs_properties, "read",
             "Read the dates of the log", 200, LogsProperties),
    Endpoint("POST", "/configurations/applyFromEvaluation", evaluations.apply_evaluation, "admin",
             "Apply a policy of an evaluation", 204, None, ApplyRequest, **COSTLY),
    Endpoint("GET", "/evaluations", evaluations.list_evaluations, "read",
             "List the evaluations", 200, list[Evaluation], **COSTLY),
    Endpoint("POST", "/evaluations", evaluations.create_evaluation, "admin",
             "Evaluate policies on the log", 201, Evaluation, EvaluationRequest, **COSTLY),
    Endpoint("GET", "/evaluations/{evaluationId:path}", evaluations.get_evaluation, "read",
             "Read an evaluation", 200, Evaluation, **COSTLY),
    Endpoint("DELETE", "/evaluations/{evaluationId:path}", evaluations.delete_evaluation, "admin",
             "Delete an evaluation; one that runs is ended", 204),
    Endpoint("POST", "/multislot/rank", events.rank_slots, "rank",
             "Choose an action for each slot of a page", 201, PageResponse, PageRequest),
    Endpoint("POST", "/multislot/events/{eventId:path}/reward", events.reward, "rank",
             "Reward slots of a page", 204, None, PageRewardRequest),
    Endpoint("POST", "/multislot/events/{eventId:path}/activate", events.activate, "rank",
             "Activate a page", 204),
)  # fmt: skip

SERVICE_ENDPOINTS = (
    Endpoint("GET", "/healthz", health.get_health, None,
             "Is the service alive, and is it degraded?", 200, health.Health, **OF_SERVICE),
    Endpoint("GET", "/readyz", health.get_readiness, None,
             "Are the loops loaded?", 200, health.Ready, **OF_SERVICE),
    Endpoint("GET", "/metrics", health.get_metrics, "read",
             "Metrics for Prometheus", 200, TEXT, **OF_SERVICE, **COSTLY),
    Endpoint("GET", "/loops", management.list_loops, "read",
             "List the loops", 200, list[management.LoopInfo], **OF_SERVICE, **COSTLY),
    Endpoint("POST", "/loops", management.create_loop, "admin",
             "Create a loop", 201, management.LoopInfo, management.NewLoop, **OF_SERVICE, **COSTLY),
    Endpoint("GET", LOOP_PREFIX, dashboard.get_page, "read",
             "The dashboard of a loop", 200, PAGE, **OF_SERVICE),
    Endpoint("DELETE", LOOP_PREFIX, management.delete_loop, "admin",
             "Delete a loop with its log and its model", 204, **OF_SERVICE, **COSTLY),
    Endpoint("GET", "/openapi.json", get_openapi, None, per_loop=False),
    _page("/", dashboard.get_page),
    _page("/static/{file}", dashboard.get_static_file),
    _page("/board.json", dashboard.list_loops),
    _page("/board/{name}.json", dashboard.get_dashboard, is_costly=True),
    _page("/board/{name}/evaluation.json", dashboard.get_evaluation_panel, is_costly=True),
    _page("/board/{name}/evaluation.html", dashboard.get_evaluation_report, is_costly=True),
    _page("/board/{name}/events/{event:path}", dashboard.get_event_report, is_costly=True),
)  # fmt: skip

ENDPOINTS = (*LOOP_ENDPOINTS, *SERVICE_ENDPOINTS)


class Match(NamedTuple):
    """The endpoint of a request and the parameters of its path, which nobody may change."""

    endpoint: Endpoint
    path_params: dict[str, str | None]


def _strip_anchors(path: str) -> str:
    """The regular expression of a path in Starlette's syntax, without its anchors."""
    return compile_path(path)[0].pattern.removeprefix("^").removesuffix("$")


# Loop and version, either of which may be missing.
PREFIX = (
    rf"(?:{_strip_anchors(LOOP_PREFIX)})?{API_PREFIX}(?:/(?:{'|'.join(map(re.escape, VERSIONS))}))?"
)
_PATTERNS = [
    (
        endpoint.method,
        re.compile(
            (PREFIX if endpoint.per_loop else "") + _strip_anchors(endpoint.path), re.DOTALL
        ),
        endpoint,
    )
    for endpoint in ENDPOINTS
]


def match_endpoint(method: str, path: str) -> Match | None:
    """The endpoint that answers a request, or None if there is none."""
    if len(path) > MAX_CACHED_PATH_LENGTH:
        return _find_endpoint(method, path)
    return _find_cached_endpoint(method, path)


def _find_endpoint(method: str, path: str) -> Match | None:
    """Try the patterns of all endpoints; those of events come first."""
    if method == "HEAD":
        method = "GET"
    for endpoint_method, pattern, endpoint in _PATTERNS:
        if endpoint_method == method and (match := pattern.fullmatch(path)):
            return Match(endpoint, match.groupdict())
    return None


_find_cached_endpoint = lru_cache(maxsize=1024)(_find_endpoint)  # most requests are ranks


def find_needed_role(method: str, match: Match | None) -> Role | None:
    """The role that a request needs; without an endpoint it depends on the method."""
    if match is not None:
        return match.endpoint.role
    return "read" if method in ("GET", "HEAD") else "admin"


def list_methods(path: str) -> list[str]:
    """The methods that a path has, in alphabetical order."""
    methods = {method for method, pattern, _ in _PATTERNS if pattern.fullmatch(path)}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


@cache
def build_document() -> openapi.Json:
    return openapi.build_document(ENDPOINTS, LOOP_PREFIX, API_PREFIX, VERSIONS)
