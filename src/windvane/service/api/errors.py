"""Errors as HTTP responses: status, code and one JSON envelope."""

from collections.abc import Mapping, Sequence

import msgspec

from windvane.errors import StoreError, WindvaneError
from windvane.service import errors
from windvane.service.store.database import SENTENCES

RENDERINGS: dict[type[errors.ServiceError], tuple[int, str]] = {  # status and code
    errors.UnknownLoopError: (404, "ResourceNotFound"),
    errors.LoopExistsError: (400, "BadRequest"),
    errors.LoopNameError: (400, "BadRequest"),
    errors.LoopSettingsError: (400, "InvalidServiceConfiguration"),
    errors.RankRequestError: (400, "InvalidRankRequest"),
    errors.RewardRequestError: (400, "InvalidRewardRequest"),
    errors.EventIdError: (400, "BadRequest"),
    errors.TooManyRequestsError: (429, "TooManyRequests"),
    errors.UnknownEventError: (400, "InvalidEventIdToActivate"),
}
RETRY_AFTER_SECONDS = 1  # until a client may repeat a request that got 503


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
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.target = target
        self.headers = {"x-ms-error-code": code, **(headers or {})}

    def list_header_pairs(self) -> list[tuple[bytes, bytes]]:
        """The headers of the response, as ASGI has them."""
        return [(name.encode(), value.encode()) for name, value in self.headers.items()]

    def encode(self) -> bytes:
        """The JSON envelope that every error response has as its body."""
        error = {"code": self.code, "message": self.message}
        if self.target:
            error["target"] = self.target
        return msgspec.json.encode({"error": error})


def bad_request(code: str, message: str, target: str | None = None) -> ApiError:
    """An error of the client, status 400."""
    return ApiError(400, code, message, target)


def _list_headers(error: errors.ServiceError) -> dict[str, str]:
    if isinstance(error, errors.TooManyRequestsError):
        return {"retry-after": str(error.retry_after_seconds)}
    return {}


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
    if isinstance(error, errors.ServiceError):
        status, code = RENDERINGS[type(error)]
        return ApiError(status, code, str(error), error.target, _list_headers(error))
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
