"""The OpenAPI 3.1 description of the service, its schemas drawn from the types that parse."""

from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.service.health import Health, LoopInfo, NewLoop
from windvane.service.settings import Settings
from windvane.service.wire import RankRequest, RankResponse, RewardRequest

Json = dict[str, Any]
BASES = ("/personalizer/v1.0", "/loops/{loop}/personalizer/v1.0")
TYPES = (RankRequest, RankResponse, RewardRequest, Settings, Health, NewLoop, LoopInfo)
ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {name: {"type": "string"} for name in ("code", "message", "target")},
        }
    },
}
DATES: Json = {"type": "object", "additionalProperties": True}


def _content(schema: Json, kind: str = "application/json") -> Json:
    return {"content": {kind: {"schema": schema}}}


def _operation(
    summary: str, status: int, answer: Json | None = None, body: Json | None = None
) -> Json:
    """One thing to ask; whatever goes wrong has the same shape."""
    done: Json = {"description": "Done."} | (answer or {})
    failed: Json = {"description": "Why not."} | _content({"$ref": "#/components/schemas/Error"})
    told: Json = {"summary": summary, "responses": {str(status): done, "default": failed}}
    return told if body is None else told | {"requestBody": {"required": True} | body}


def _ref(kind: type) -> Json:
    return _content({"$ref": f"#/components/schemas/{kind.__name__}"})


def _parameter(name: str, most: int) -> Json:
    schema = {"type": "string", "minLength": 1, "maxLength": most}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _wire() -> dict[str, Json]:
    """What a loop answers."""
    event = {"parameters": [_parameter("eventId", 256)]}
    octets = _content({"type": "string", "format": "binary"}, "application/octet-stream")
    settings = _ref(Settings)
    some = _content({"type": "object", "additionalProperties": True})
    return {
        "/rank": {"post": _operation("Choose", 201, _ref(RankResponse), _ref(RankRequest))},
        "/events/{eventId}/reward": event
        | {"post": _operation("Reward a choice", 204, None, _ref(RewardRequest))},
        "/events/{eventId}/activate": event | {"post": _operation("Let a choice count", 204)},
        "/configurations/service": {
            "get": _operation("Read the settings", 200, settings),
            "put": _operation("Change the settings that are given", 200, settings, some),
        },
        "/configurations/policy": {
            "get": _operation("Read the policy", 200, _content(DATES)),
        },
        "/model": {
            "get": _operation("Read what was learned", 200, octets),
            "delete": _operation("Forget what was learned", 204),
        },
        "/model/properties": {"get": _operation("Read its dates", 200, _content(DATES))},
        "/logs": {"delete": _operation("Delete the log; what was learned stays", 204)},
        "/logs/properties": {"get": _operation("Read its dates", 200, _content(DATES))},
    }


@cache
def document() -> Json:
    """The whole description."""
    _, schemas = msgspec.json.schema_components(TYPES, ref_template="#/components/schemas/{name}")
    paths: dict[str, Json] = {}
    for base in BASES:
        for path, item in _wire().items():
            named = [_parameter("loop", 64)] if "{loop}" in base else []
            paths[base + path] = item | {"parameters": [*named, *item.get("parameters", [])]}
    several = _content({"type": "array", "items": {"$ref": "#/components/schemas/LoopInfo"}})
    paths["/loops"] = {
        "get": _operation("List the loops", 200, several),
        "post": _operation("Make a loop", 201, _ref(LoopInfo), _ref(NewLoop)),
    }
    paths["/healthz"] = {"get": _operation("Is it alive, and is it well?", 200, _ref(Health))}
    paths["/readyz"] = {"get": _operation("Are the loops loaded?", 200, _content(DATES))}
    text = _content({"type": "string"}, "text/plain")
    paths["/metrics"] = {"get": _operation("Numbers for Prometheus", 200, text)}
    header = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Windvane", "version": "1.0"},
        "security": [{"key": []}, {"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": ERROR},
            "securitySchemes": {"key": header, "bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


async def openapi(request: Request) -> Response:
    """GET openapi.json."""
    return Response(msgspec.json.encode(document()), media_type="application/json")
