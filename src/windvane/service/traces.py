"""OpenTelemetry traces: a span for each request, with child spans for the decision and the write.

Traces are on if the environment has a variable of OpenTelemetry that says where they go. Otherwise
nothing of OpenTelemetry is imported, and a request pays for one comparison. A span has the route,
the loop and the status of a request, never its body, its key or the id of its event.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.types import Scope

from windvane.errors import SettingError
from windvane.service.loops.loop import Loop
from windvane.service.loops.service import Service
from windvane.service.store.rows import DecisionRow
from windvane.service.store.writer.group_commit import Operation

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

EXPORTER = "OTEL_TRACES_EXPORTER"  # otlp, console or none
ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
PROTOCOL = "http/protobuf"
DISABLED = "OTEL_SDK_DISABLED"
INSTALL = "serve: traces need OpenTelemetry: pip install 'windvane[otel]'"
_HEADERS = (b"traceparent", b"tracestate")  # W3C Trace Context

Result = TypeVar("Result")


def is_configured(environment: Mapping[str, str]) -> bool:
    """Whether the environment says where traces go."""
    if environment.get(DISABLED, "").lower() == "true":
        return False
    exporter = environment.get(EXPORTER, "").lower()
    if exporter:
        return exporter != "none"
    return any(environment.get(name) for name in ENDPOINT_VARIABLES)


def open_tracing(environment: Mapping[str, str] | None = None) -> "Tracing | None":
    """Traces as the environment wants them; None if it wants none."""
    environment = os.environ if environment is None else environment
    if not is_configured(environment):
        return None
    try:
        return Tracing(_build_provider(environment))
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("opentelemetry"):
            raise
        raise SettingError(INSTALL) from None


def _build_provider(environment: Mapping[str, str]) -> "TracerProvider":
    """The SDK reads sampling, limits and names from the environment by itself."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):  # no variable has it
        resource = resource.merge(Resource({"service.name": "windvane"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_build_exporter(environment)))
    return provider


def _build_exporter(environment: Mapping[str, str]) -> Any:
    exporter = environment.get(EXPORTER, "").lower() or "otlp"
    if exporter == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    if exporter != "otlp":
        raise SettingError(f"serve: {EXPORTER} must be otlp, console or none, got {exporter}")
    protocol = next((environment[name] for name in reversed(PROTOCOLS) if name in environment), "")
    if protocol not in ("", PROTOCOL):
        raise SettingError(f"serve: {PROTOCOLS[0]} must be {PROTOCOL}, got {protocol}")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


class Tracing:
    """Makes spans with the provider of OpenTelemetry's SDK."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry import context, trace
        from opentelemetry.trace.propagation import tracecontext

        self._provider = provider
        self._tracer = provider.get_tracer("windvane")
        self._context = context
        self._trace = trace
        self._propagator = tracecontext.TraceContextTextMapPropagator()

    def close(self) -> None:
        """Send the spans that are left."""
        self._provider.shutdown()

    def start_request(self, scope: Scope) -> "Span":
        """Start the span of a request; it is a child of the client's span, if the client has one.

        The span is the current one of this task from now on.
        """
        carrier = {
            name.decode(): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in _HEADERS
        }
        parent = self._propagator.extract(carrier, self._context.Context())
        method = scope["method"]
        span = self._tracer.start_span(
            method,
            parent,
            self._trace.SpanKind.SERVER,
            {"http.request.method": method, "url.scheme": scope["scheme"]},
        )
        self._context.attach(self._trace.set_span_in_context(span, parent))
        return span

    def finish_request(
        self, span: "Span", method: str, route: str | None, loop: str, status: int
    ) -> None:
        """End the span of a request with what became of it."""
        if route is not None:
            route = route.replace(":path", "")  # how Starlette writes it
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", route)
        if loop:
            span.set_attribute("windvane.loop", loop)
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end()

    def start_child(self, name: str, **attributes: str) -> "Span":
        """Start a span inside the request that is answered now; outside of any it is not kept."""
        if not self._trace.get_current_span().get_span_context().is_valid:
            return self._trace.INVALID_SPAN
        named = {f"windvane.{key}": value for key, value in attributes.items()}
        return self._tracer.start_span(name, attributes=named)


class TracedService(Service):
    """A service that makes a span for each decision and each write of a request."""

    def __init__(self, tracing: Tracing, *arguments: Any) -> None:
        self._tracing = tracing
        super().__init__(*arguments)

    def _decide(self, loop: Loop, *request: Any) -> DecisionRow:
        span = self._tracing.start_child("decide", loop=loop.name)
        try:
            return super()._decide(loop, *request)
        finally:
            span.end()

    def write(
        self, operation: Operation[Result], loop: Loop | None = None, timeout: float | None = None
    ) -> "asyncio.Future[Result]":
        span = self._tracing.start_child("write", operation=type(operation).__name__)
        try:
            future = super().write(operation, loop, timeout)
        except BaseException:
            span.end()
            raise
        future.add_done_callback(lambda _: span.end())
        return future
