"""The OpenAPI 3.1 description of the service, its schemas drawn from the types that parse."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.service.api.events import VERSIONS
from windvane.service.api.health import Health, LoopInfo, NewLoop, Ready
from windvane.service.loops.settings import NAME, Settings
from windvane.service.schemas import (
    NOT_BUILT,
    LogsProperties,
    ModelProperties,
    PolicyConfiguration,
    RankRequest,
    RankResponse,
    RewardRequest,
)

Json = dict[str, Any]
TYPES = (
    *(RankRequest, RankResponse, RewardRequest, Settings),
    *(PolicyConfiguration, ModelProperties, LogsProperties),
    *(Health, Ready, NewLoop, LoopInfo),
)
ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "additionalProperties": False,
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "additionalProperties": False,
            "properties": {name: {"type": "string"} for name in ("code", "message", "target")},
        }
    },
}
FAULTS = {
    400: "The request cannot be understood or followed.",
    401: "A key is needed, or this one is not valid.",
    403: "The key is not for this, or it is not offered.",
    404: "There is no such loop or path.",
    500: "The service failed; its log says why.",
    503: "The log cannot be read or written now.",
}
CODE: Json = {"x-ms-error-code": {"schema": {"type": "string"}, "required": True}}
VERSION: Json = {
    "name": "version",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "enum": list(VERSIONS)},
}
API_VERSION: Json = {
    "name": "api-version",
    "in": "query",
    "schema": {"type": "string"},
    "description": "Any: all versions are answered alike.",
}
LOOP: Json = {
    "name": "loop",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{NAME.pattern}$"},
}
EVENT: Json = {
    "name": "eventId",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1, "maxLength": 256},
}
BASES: dict[str, list[Json]] = {
    "/personalizer/{version}": [VERSION],
    "/personalizer": [API_VERSION],
    "/loops/{loop}/personalizer/{version}": [LOOP, VERSION],
    "/loops/{loop}/personalizer": [LOOP, API_VERSION],
}


def _content(schema: Json, kind: str = "application/json") -> Json:
    return {"content": {kind: {"schema": schema}}}


def _ref(kind: type) -> Json:
    return _content({"$ref": f"#/components/schemas/{kind.__name__}"})


def _faults(statuses: Iterable[int]) -> Json:
    """What can go wrong; all of it has the same shape."""
    shape = _content({"$ref": "#/components/schemas/Error"}) | {"headers": CODE}
    return {str(status): {"description": FAULTS[status]} | shape for status in sorted(statuses)}


def _operation(
    summary: str, status: int, answer: Json | None = None, body: Json | None = None
) -> Json:
    """One thing to ask."""
    done: Json = {str(status): {"description": "Done."} | (answer or {})}
    told: Json = {"summary": summary, "responses": done | _faults(FAULTS)}
    return told if body is None else told | {"requestBody": {"required": True} | body}


def _refusal(reason: str) -> Json:
    """What clients of the retired service may ask for, and do not get."""
    responses = _faults((401, 403, 404, 500, 503))
    return {"summary": "Not offered", "description": reason, "responses": responses}


def _some_settings() -> Json:
    """Settings to change: each may be left out or null, and unknown ones are passed over."""
    _, schemas = msgspec.json.schema_components([Settings])
    known = schemas["Settings"]["properties"]
    nullable = {
        name: {"anyOf": [{k: v for k, v in schema.items() if k != "default"}, {"type": "null"}]}
        for name, schema in known.items()
    }
    return _content({"type": "object", "properties": nullable, "additionalProperties": True})


def _wire() -> dict[str, Json]:
    """What a loop answers."""
    octets = _content({"type": "string", "format": "binary"}, "application/octet-stream")
    policy = _refusal("The policy follows from the service configuration.")
    slots, evaluations = _refusal(NOT_BUILT["multislot"]), _refusal(NOT_BUILT["evaluations"])
    event = {"parameters": [EVENT]}
    evaluation = {"parameters": [EVENT | {"name": "evaluationId"}]}
    return {
        "/rank": {"post": _operation("Choose", 201, _ref(RankResponse), _ref(RankRequest))},
        "/events/{eventId}/reward": event
        | {"post": _operation("Reward a choice", 204, None, _ref(RewardRequest))},
        "/events/{eventId}/activate": event | {"post": _operation("Let a choice count", 204)},
        "/configurations/service": {
            "get": _operation("Read the settings", 200, _ref(Settings)),
            "put": _operation("Change settings", 200, _ref(Settings), _some_settings()),
        },
        "/configurations/policy": {
            "get": _operation("Read the policy", 200, _ref(PolicyConfiguration)),
            "put": policy,
            "delete": policy,
        },
        "/configurations/applyFromEvaluation": {"post": evaluations},
        "/model": {
            "get": _operation("Read what was learned", 200, octets),
            "put": _refusal("Restore a backup instead."),
            "delete": _operation("Forget what was learned", 204),
        },
        "/model/properties": {"get": _operation("Read its dates", 200, _ref(ModelProperties))},
        "/logs": {"delete": _operation("Delete the log; what was learned stays", 204)},
        "/logs/properties": {"get": _operation("Read its dates", 200, _ref(LogsProperties))},
        "/evaluations": {"get": evaluations, "post": evaluations},
        "/evaluations/{evaluationId}": evaluation | {"get": evaluations, "delete": evaluations},
        "/multislot/rank": {"post": slots},
        "/multislot/events/{eventId}/reward": event | {"post": slots},
        "/multislot/events/{eventId}/activate": event | {"post": slots},
    }


def _own() -> dict[str, Json]:
    """What the service answers besides."""
    several = _content({"type": "array", "items": {"$ref": "#/components/schemas/LoopInfo"}})
    text = _content({"type": "string"}, "text/plain")
    return {
        "/loops": {
            "get": _operation("List the loops", 200, several),
            "post": _operation("Make a loop", 201, _ref(LoopInfo), _ref(NewLoop)),
        },
        "/healthz": {"get": _operation("Is it alive, and is it well?", 200, _ref(Health))},
        "/readyz": {"get": _operation("Are the loops loaded?", 200, _ref(Ready))},
        "/metrics": {"get": _operation("Numbers for Prometheus", 200, text)},
    }


@cache
def document() -> Json:
    """The whole description."""
    _, schemas = msgspec.json.schema_components(TYPES, ref_template="#/components/schemas/{name}")
    paths = {
        base + path: item | {"parameters": [*given, *item.get("parameters", [])]}
        for base, given in BASES.items()
        for path, item in _wire().items()
    }
    header = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Windvane", "version": "1.0"},
        "security": [{"key": []}, {"bearer": []}, {}],
        "paths": paths | _own(),
        "components": {
            "schemas": {**schemas, "Error": ERROR},
            "securitySchemes": {"key": header, "bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


async def openapi(request: Request) -> Response:
    """GET openapi.json."""
    return Response(msgspec.json.encode(document()), media_type="application/json")
