"""What handlers need: parts of a request, JSON responses, and errors in their one envelope."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import parse_qs

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from windvane.errors import StoreError, WindvaneError
from windvane.service.errors import ServiceError, describe_invalid_value
from windvane.service.evaluations.evaluations import Evaluations
from windvane.service.loops.loop import Loop
from windvane.service.loops.service import Service
from windvane.service.store.database import SENTENCES

RENDERINGS = {  # status and code of a ServiceError, by reason
    "unknown loop": (404, "ResourceNotFound"),
    "loop exists": (400, "BadRequest"),
    "loop name": (400, "BadRequest"),
    "settings": (400, "InvalidServiceConfiguration"),
    "rank": (400, "InvalidRankRequest"),
    "reward": (400, "InvalidRewardRequest"),
    "event id": (400, "BadRequest"),
    "unknown event": (400, "InvalidEventIdToActivate"),
    "too many": (429, "TooManyRequests"),
    "contract": (400, "InvalidEvaluationContract"),
    "policy": (400, "InvalidPolicyContract"),
    "duplicate": (400, "DuplicateCustomPolicyNames"),
    "no logs": (400, "NoLogsExistInDateRange"),
    "too many logs": (400, "LogsSizeExceedAllowedLimit"),
    "full": (429, "TooManyRequests"),
    "unknown": (404, "EvaluationNotFound"),
    "no settings": (404, "LearningSettingsNotFound"),
    "not ended": (404, "EvaluationModelNotFound"),
    "not better": (409, "PolicyNotBetter"),
}
RETRY_AFTER_SECONDS = 1  # until a client may repeat a request that got 503
JSON_MEDIA_TYPE = "application/json; charset=utf-8"
MAX_BODY_BYTES = 1 << 20  # of many rewards and of an import
MAX_RANK_BYTES = 1 << 18  # nothing interrupts a decoder: it holds up the others for 6 ms per MB
MIN_BYTES_PER_VALUE = 8  # of the largest body with the most values, by its commas and brackets
MAX_OTHER_BODY_BYTES = 1 << 16
MAX_MESSAGE_LENGTH = 1000  # of an error, in characters
BODY_TIMEOUT_SECONDS = 30.0  # until all of a body must have arrived
BODY_IS_READ = "windvane.body_is_read"  # in the scope of a request
DEFAULT_LOOP = "default"
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
Result = TypeVar("Result")


class ApiError(Exception):
    """An error response."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        target: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        message = message[:MAX_MESSAGE_LENGTH]  # some repeat what came
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.target = target
        self.headers = {"x-ms-error-code": code, **(headers or {})}

    def encode(self) -> bytes:
        """The JSON envelope that every error response has as its body."""
        error = {"code": self.code, "message": self.message}
        if self.target:
            error["target"] = self.target
        return msgspec.json.encode({"error": error})


def bad_request(code: str, message: str, target: str | None = None) -> ApiError:
    """An error of the client, status 400."""
    return ApiError(400, code, message, target)


def unavailable(message: str) -> ApiError:
    """An error that will pass, status 503; Retry-After says when to try again."""
    return ApiError(
        503, "OperationNotAllowed", message, headers={"retry-after": str(RETRY_AFTER_SECONDS)}
    )


def _describe_log_failure(error: Exception) -> str:
    """Describe a failure of the log without the words of the database, which name its address."""
    if not isinstance(error, StoreError):
        return "the log takes too long; try again"
    if error.kind == "refused":
        return "the log refused the operation; the messages of the service on stderr say why"
    sentence = SENTENCES.get(error.kind)
    return f"the log fails: {sentence}; /healthz says more" if sentence else str(error)


def to_api_error(error: Exception) -> ApiError:
    """The response to any exception; an unexpected one gives status 500 without its text."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, StoreError) and error.kind == "gone":
        error = ServiceError("unknown loop", "the loop was deleted", "loop")
    if isinstance(error, ServiceError):
        status, code = RENDERINGS[error.reason]
        headers = {"retry-after": str(error.retry_after_seconds)} if status == 429 else None
        return ApiError(status, code, str(error), error.target, headers)
    if isinstance(error, StoreError | TimeoutError):
        return unavailable(_describe_log_failure(error))
    if isinstance(error, WindvaneError):
        return bad_request("BadRequest", str(error))
    message = "the service failed; its messages on stderr say why"
    return ApiError(500, "InternalServerError", message)


def refuse_path(methods: Sequence[str]) -> ApiError:
    """The answer to a request whose path has none or only these methods."""
    if not methods:
        message = "there is no such path; /openapi.json lists the paths of the service"
        return ApiError(404, "ResourceNotFound", message)
    message = f"the method of a request to this path must be {' or '.join(methods)}"
    return ApiError(405, "BadRequest", message, headers={"Allow": ", ".join(methods)})


class WholeNumbers(NamedTuple):
    """The least and the most of the whole numbers that a parameter takes."""

    least: int
    most: int


def get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def get_evaluations(request: Request) -> Evaluations:
    evaluations: Evaluations = request.app.state.evaluations
    return evaluations


def get_loop_name(scope: Scope) -> str:
    """The loop that a request addresses.

    Its name is part of the path, or, for clients that cannot keep the path, the query `?loop=`. A
    request that names different loops is refused.
    """
    query: bytes = scope["query_string"]
    in_path: str | None = scope["path_params"].get("loop")
    if not query or (b"loop" not in query and b"%" not in query):
        return in_path or DEFAULT_LOOP
    names = {*parse_qs(query.decode("latin-1")).get("loop", [])} | ({in_path} if in_path else set())
    if len(names) > 1:
        message = "the path and the query must name one loop, got several different names"
        raise bad_request("BadRequest", message, "loop")
    return names.pop() if names else DEFAULT_LOOP


async def get_loop(request: Request) -> Loop:
    return await get_service(request).get_loop(get_loop_name(request.scope))


def get_header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of a name in lower case, or None."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def read_whole_number(request: Request, name: str, default: int, bounds: WholeNumbers) -> int:
    """A parameter of the query; a text that is no whole number within the bounds is refused."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not _DIGITS.fullmatch(text) or not bounds.least <= int(text) <= bounds.most:
        message = f"{name} must be a whole number in [{bounds.least}, {bounds.most}]"
        raise bad_request("BadRequest", f"{message}, got {text[:40]!r}", name)
    return int(text)


def json_response(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type=JSON_MEDIA_TYPE)


async def read_body(
    scope: Scope,
    receive: Receive,
    max_bytes: int = MAX_OTHER_BODY_BYTES,
    take: Callable[[int], None] | None = None,
) -> bytes:
    """The body of a request, which must arrive in time; `take` counts its bytes as they come."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            body = await _join_body(receive, max_bytes, take)
    except TimeoutError:
        message = f"the body did not arrive within {BODY_TIMEOUT_SECONDS:g} seconds"
        raise ApiError(408, "BadRequest", message, headers={"connection": "close"}) from None
    scope[BODY_IS_READ] = True
    return body


async def _join_body(receive: Receive, max_bytes: int, take: Callable[[int], None] | None) -> bytes:
    """Join the parts of a body; reading stops as soon as the body is too large."""
    parts = []
    size = 0
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad_request("BadRequest", "the body is shorter than its content-length")
        part = message.get("body", b"")
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            sentence = f"the body must have at most {max_bytes} bytes"
            raise bad_request("PayloadSizeExceeded", sentence)
        if take is not None:
            take(len(part))
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def parse_request(request: Request, decode: Callable[[bytes], Result], code: str) -> Result:
    return parse_body(decode, await read_body(request.scope, request.receive), code)


def check_values(body: bytes, max_bytes: int) -> None:
    """Refuse JSON of so many values that they would take many times the memory of the body."""
    count = body.count(b",") + body.count(b"[") + body.count(b"{")
    most = max_bytes // MIN_BYTES_PER_VALUE
    if count > most:
        message = f"the body must have at most {most} commas and opening brackets"
        raise bad_request("PayloadSizeExceeded", f"{message}, got {count}")


def parse_body(decode: Callable[[bytes], Result], body: bytes, code: str) -> Result:
    """The value of a body; a body that cannot be decoded is refused with `code`."""
    try:
        return decode(body)
    except msgspec.ValidationError as reason:
        raise bad_request(code, describe_invalid_value(reason)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as reason:
        raise bad_request(code, f"the body is not JSON: {reason}") from None
