"""The form of a row of the route table."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from windvane.service.api.events import EventEndpoint

Handler = Callable[[Request], Awaitable[Response]]
Role = Literal["rank", "read", "admin"]


class Media(NamedTuple):
    """A body that is described by hand: its media type and its JSON schema."""

    type: str
    schema: dict[str, Any]


class Query(NamedTuple):
    """A parameter in the query of a request: its name and its JSON schema."""

    name: str
    schema: dict[str, Any]


class Documentation(NamedTuple):
    """How the OpenAPI document describes an endpoint; bodies are types that msgspec knows.

    A response that may have one of several types is a tuple of them.
    """

    summary: str
    status: int = 200
    response: Any = None
    request: Any = None
    queries: tuple[Query, ...] = ()


class Refusal(NamedTuple):
    """The OpenAPI description of an endpoint that always answers 403."""

    reason: str


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
    per_loop: bool = True
    metric: str = "other"  # the label `operation` of the metrics
    document: Documentation | Refusal | None = None  # None: not in the OpenAPI document
    is_costly: bool = False  # whether only a few of these requests run at once

    @cached_property
    def event(self) -> EventEndpoint | None:
        """The handler, if it is one of those of events."""
        return self.handler if isinstance(self.handler, EventEndpoint) else None

    def handle(self, request: Request) -> Awaitable[Response]:
        """Call the handler, which is none of those of events."""
        assert not isinstance(self.handler, EventEndpoint)
        return self.handler(request)
