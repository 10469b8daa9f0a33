"""The rows of the route table, and the OpenAPI 3.1 document that follows from them."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from windvane.service.api.auth import Role
from windvane.service.api.events import EventEndpoint
from windvane.service.loops.settings import LOOP_NAME

Handler = Callable[[Request], Awaitable[Response]]
Json = dict[str, Any]
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
ERRORS = {
    400: "The request is not valid.",
    401: "A key is needed, or the key is not valid.",
    403: "The key has another role, or the operation is not offered.",
    404: "No loop, path or evaluation has this name.",
    429: "The key, one event or one loop asks for too much; Retry-After says how long to wait.",
    500: "The service failed; its messages on stderr say why.",
    503: "The log fails, the loops are not loaded yet, or too many large requests wait.",
}
ERROR_HEADERS: Json = {"x-ms-error-code": {"schema": {"type": "string"}, "required": True}}
_ID: Json = {"type": "string", "minLength": 1, "maxLength": 256}
PARAMETERS: dict[str, Json] = {  # schemas of the parameters in paths
    "loop": {"type": "string", "pattern": f"^{LOOP_NAME.pattern}$"},
    "eventId": _ID,
    "evaluationId": _ID,
}
API_VERSION: Json = {
    "name": "api-version",
    "in": "query",
    "schema": {"type": "string"},
    "description": "Any version: all are answered alike.",
}


class Media(NamedTuple):
    """A body that is described by hand: its media type and its JSON schema."""

    type: str
    schema: dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """One method of one path: who answers, which key is needed, how it is counted and described.

    `path` is in Starlette's syntax. That of a `per_loop` endpoint comes after the prefixes of
    `routes.py`: for the default loop and for a named one, without a version and with each version.
    """

    method: str
    path: str
    handler: Handler | EventEndpoint
    role: Role | None  # None: no key is needed
    summary: str = ""  # in the OpenAPI document, which leaves out endpoints without one
    status: int = 200
    response: Any = None  # bodies are types that msgspec knows, or `Media`
    request: Any = None
    queries: Mapping[str, Json] = field(default_factory=dict)  # schemas of parameters, by name
    refusal: str = ""  # why the endpoint always answers 403
    per_loop: bool = True
    is_costly: bool = False  # whether only a few of these requests run at once

    @cached_property
    def metric(self) -> str:
        """The label `operation` of the metrics."""
        is_event = isinstance(self.handler, EventEndpoint)
        return self.path.rpartition("/")[2] if is_event else "other"


def build_document(
    endpoints: Iterable[Endpoint], loop_prefix: str, api_prefix: str, versions: Sequence[str]
) -> Json:
    parameters = PARAMETERS | {"version": {"type": "string", "enum": list(versions)}}
    prefixes = [
        loop + api_prefix + version for loop in ("", loop_prefix) for version in ("/{version}", "")
    ]
    types: list[Any] = []
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        if not endpoint.summary:
            continue
        bodies = (endpoint.response, endpoint.request)
        types += [each for each in bodies if each is not None and not isinstance(each, Media)]
        described = _describe(endpoint)
        for prefix in prefixes if endpoint.per_loop else [""]:
            path = (prefix + endpoint.path).replace(":path}", "}")
            item = paths.setdefault(path, {})
            item[endpoint.method.lower()] = described
            listed = _describe_parameters(prefix, parameters)
            if endpoint.per_loop and "{version}" not in prefix:
                listed.append(API_VERSION)
            listed += _describe_parameters(endpoint.path, parameters)
            if listed:
                item["parameters"] = listed
    _, schemas = _build_schemas(types)
    key = {"type": "apiKey", "in": "header", "name": "Ocp-Apim-Subscription-Key"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Windvane", "version": "1.0"},
        "security": [{"key": []}, {"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Error": ERROR},
            "securitySchemes": {"key": key, "bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def describe_changes(settings: type) -> Media:
    """A body with any part of `settings`: each may be missing or null, others are ignored."""
    _, schemas = msgspec.json.schema_components([settings])
    nullable = {
        name: {"anyOf": [{k: v for k, v in schema.items() if k != "default"}, {"type": "null"}]}
        for name, schema in schemas[settings.__name__]["properties"].items()
    }
    schema = {"type": "object", "properties": nullable, "additionalProperties": True}
    return Media("application/json", schema)


def _build_schemas(types: Sequence[Any]) -> tuple[tuple[Json, ...], Json]:
    """A schema for each type, and the schemas that they refer to, by name."""
    return msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")


def _describe(endpoint: Endpoint) -> Json:
    described: Json = {"summary": endpoint.summary}
    if endpoint.refusal:
        errors = _describe_errors((401, 403, 404, 429, 500, 503))
        return described | {"description": endpoint.refusal, "responses": errors}
    success = {"description": "Done."} | _describe_body(endpoint.response)
    described["responses"] = {str(endpoint.status): success} | _describe_errors(ERRORS)
    if endpoint.request is not None:
        described["requestBody"] = {"required": True} | _describe_body(endpoint.request)
    if endpoint.queries:
        described["parameters"] = [
            {"name": name, "in": "query", "schema": schema}
            for name, schema in endpoint.queries.items()
        ]
    return described


def _describe_body(body: Any) -> Json:
    """The content of a request or a response; empty without a body."""
    if body is None:
        return {}
    if not isinstance(body, Media):
        [schema], _ = _build_schemas([body])
        body = Media("application/json", schema)
    return {"content": {body.type: {"schema": body.schema}}}


def _describe_errors(statuses: Iterable[int]) -> Json:
    """The error responses; all have the same envelope."""
    schema = {"$ref": "#/components/schemas/Error"}
    envelope = {"content": {"application/json": {"schema": schema}}, "headers": ERROR_HEADERS}
    return {str(status): {"description": ERRORS[status]} | envelope for status in statuses}


def _describe_parameters(path: str, schemas: dict[str, Json]) -> list[Json]:
    """The parameters of a path, in the order in which they stand there."""
    names = re.findall(r"{(\w+)(?::path)?}", path)
    return [
        {"name": name, "in": "path", "required": True, "schema": schemas[name]} for name in names
    ]
