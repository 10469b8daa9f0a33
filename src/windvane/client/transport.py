"""What both clients share: one attempt of a call, and how its answer is read."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx2 as httpx
import msgspec

from windvane.client.attempts import RETRIED_STATUSES, Attempt, Attempts, read_retry_after
from windvane.client.errors import DeliveryError, RequestError
from windvane.client.operations import Call
from windvane.errors import SettingError


class Answer(NamedTuple):
    """The decoded answer to a call."""

    value: Any


class _ErrorBody(msgspec.Struct):
    code: str = ""
    message: str = ""
    target: str = ""


class _ErrorEnvelope(msgspec.Struct):
    error: _ErrorBody


_decode_error = msgspec.json.Decoder(_ErrorEnvelope).decode


class TimeLeft(dict[str, float]):
    """The time-outs of the phases of a request: each may take what is left of the whole time.

    httpx asks for the time-out of a phase when the phase begins.
    """

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        super().__init__(dict.fromkeys(("connect", "read", "write", "pool"), seconds))

    def get(self, phase: str, default: Any = None) -> Any:
        """The seconds until the deadline."""
        return max(self._deadline - time.monotonic(), 1e-3)


def build_headers(key: str | None) -> dict[str, str]:
    """The headers of every request."""
    headers = {"content-type": "application/json", "accept": "application/json"}
    if key is not None:
        if not key.isascii() or not key.isprintable():
            raise SettingError("Client: a key must have printable ASCII letters")
        headers["authorization"] = f"Bearer {key}"
    return headers


def build_request(
    url: str, call: Call, headers: Mapping[str, str], extensions: dict[str, Any]
) -> httpx.Request:
    """The request of a call to a server."""
    own = {"x-ms-client-request-id": call.request_id} if call.request_id else {}
    return httpx.Request(
        call.method,
        url + call.path,
        headers={**headers, **own},
        content=call.body,
        extensions=extensions,
    )


def judge_response(
    call: Call, attempts: Attempts, attempt: Attempt, response: httpx.Response
) -> Answer | None:
    """The answer of a response; None if the call has to be repeated."""
    status = response.status_code
    if status in RETRIED_STATUSES:
        retry_after = read_retry_after(response.headers.get("retry-after"))
        reason = f"status {status}: {_describe_error(response).message or response.reason_phrase}"
        attempts.note_failure(attempt, reason, retry_after)
        return None
    if not response.is_success:
        attempts.note_answer(attempt)
        error = _describe_error(response)
        message = error.message or response.reason_phrase or "no reason was given"
        text = f"{call.name}: the service refuses the request with status {status}: {message}"
        raise RequestError(text, status, error.code, error.target)
    try:
        value = call.decode(response.content)
    except msgspec.DecodeError as reason:
        attempts.note_failure(attempt, f"the answer cannot be read ({reason})")
        return None
    attempts.note_answer(attempt)
    return Answer(value)


def describe_failure(error: Exception) -> str:
    """Why no response came, in a few words."""
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name


def make_delivery_error(call: Call, attempts: Attempts) -> DeliveryError:
    """The error of a call that no server took in time."""
    message = f"{call.name}: no server took the request in {call.timeout:g} s"
    return DeliveryError(f"{message} ({attempts.reason})")


def _describe_error(response: httpx.Response) -> _ErrorBody:
    try:
        return _decode_error(response.content).error
    except msgspec.DecodeError:
        return _ErrorBody()
