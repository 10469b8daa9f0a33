"""Traces: a span for each request, its decision and its write; nothing if they are not wanted."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from server_process import run_serve
from windvane.errors import SettingError
from windvane.service import traces
from windvane.service.app import EdgeOptions, create_app
from windvane.service.traces import Tracing, is_configured, open_tracing

INSTALL = "pip install 'windvane[otel]' to test traces"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01", "tracestate": "vendor=1"}
ACTIONS = {"actions": [{"id": "tea", "features": [{"x": 1}]}, {"id": "soup", "features": []}]}


class Recorder:
    """The spans of an application, as dictionaries by name."""

    def __init__(self) -> None:
        sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=INSTALL)
        export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=INSTALL)
        memory = pytest.importorskip(
            "opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=INSTALL
        )
        self._exporter = memory.InMemorySpanExporter()
        provider = sdk.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider)

    def take(self) -> list[Any]:
        """The spans that have ended since the last call."""
        spans = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return spans


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def client(recorder: Recorder, tmp_path: Path) -> Iterator[TestClient]:
    app = create_app(str(tmp_path), edge=EdgeOptions(tracing=recorder.tracing))
    with TestClient(app) as client:
        recorder.take()
        yield client


def test_a_rank_has_a_span_with_its_decision_and_its_write(
    client: TestClient, recorder: Recorder
) -> None:
    body = ACTIONS | {"eventId": "secret-event"}
    assert client.post("/personalizer/v1.0/rank", json=body, headers=PARENT).status_code == 201
    spans = {span.name: span for span in recorder.take()}
    assert set(spans) == {"POST /rank", "decide", "write"}
    request = spans["POST /rank"]
    assert f"{request.context.trace_id:032x}" == TRACE_ID
    assert f"{request.parent.span_id:016x}" == SPAN_ID
    assert request.kind.name == "SERVER"
    assert dict(request.attributes) == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "http.route": "/rank",
        "http.response.status_code": 201,
        "windvane.loop": "default",
    }
    for name in ("decide", "write"):
        assert spans[name].parent.span_id == request.context.span_id
        assert spans[name].context.trace_id == request.context.trace_id
        assert request.start_time <= spans[name].start_time <= spans[name].end_time
        assert spans[name].end_time <= request.end_time
    assert spans["write"].attributes["windvane.operation"] == "PutDecision"
    assert "secret-event" not in "".join(span.to_json() for span in spans.values())


def test_a_reward_and_an_error_have_spans_of_their_own_trace(
    client: TestClient, recorder: Recorder
) -> None:
    client.post("/loops", json={"name": "shop"})
    recorder.take()
    path = "/loops/shop/personalizer/v1.0/events/secret-event/reward"
    assert client.post(path, json={"value": 1.0}).status_code == 204
    write, request = recorder.take()
    assert (write.name, request.name) == ("write", "POST /events/{eventId}/reward")
    assert request.parent is None
    assert request.attributes["windvane.loop"] == "shop"
    assert client.post("/personalizer/v1.0/rank", json={"actions": 1}).status_code == 400
    [refused] = recorder.take()
    assert refused.attributes["http.response.status_code"] == 400
    assert refused.status.status_code.name == "UNSET"
    assert refused.context.trace_id != request.context.trace_id
    assert client.get("/nothing/of/the/kind").status_code == 404
    [unknown] = recorder.take()
    assert unknown.name == "GET"


def test_a_failure_of_the_service_is_marked(
    client: TestClient, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]

    async def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(service, "activate", fail)
    assert client.post("/personalizer/v1.0/events/e/activate").status_code == 500
    [span] = recorder.take()
    assert span.status.status_code.name == "ERROR"
    assert span.attributes["http.response.status_code"] == 500


def test_a_long_decision_in_a_thread_has_its_span(client: TestClient, recorder: Recorder) -> None:
    actions = [{"id": f"a{number}", "features": [{"x": number}]} for number in range(3000)]
    body = {"actions": actions, "eventId": "long"}
    assert client.post("/personalizer/v1.0/rank", json=body).status_code == 201
    spans = {span.name: span for span in recorder.take()}
    assert spans["decide"].parent.span_id == spans["POST /rank"].context.span_id


@pytest.mark.parametrize(
    ("environment", "is_wanted"),
    [
        ({}, False),
        ({ENDPOINT: "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({ENDPOINT: "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({ENDPOINT: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_SERVICE_NAME": "shop"}, False),
    ],
)
def test_the_environment_says_whether_there_are_traces(
    environment: dict[str, str], is_wanted: bool
) -> None:
    assert is_configured(environment) is is_wanted
    if not is_wanted:
        assert open_tracing(environment) is None


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "must be otlp, console or none, got zipkin"),
        ({ENDPOINT: "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "must be http/protobuf"),
    ],
)
def test_an_exporter_that_is_not_supported_is_refused(
    environment: dict[str, str], sentence: str
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason=INSTALL)
    with pytest.raises(SettingError, match=sentence):
        open_tracing(environment)


def test_without_the_packages_the_sentence_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise ModuleNotFoundError("no", name="opentelemetry.sdk")

    monkeypatch.setattr(traces, "_build_provider", fail)
    with pytest.raises(SettingError, match=r"pip install 'windvane\[otel\]'"):
        open_tracing({ENDPOINT: "http://collector:4318"})


def test_nothing_is_imported_if_traces_are_not_wanted() -> None:
    code = (
        "import sys; from windvane.service.app import EdgeOptions, create_app;"
        "from windvane.service.traces import open_tracing;"
        "create_app('unused', edge=EdgeOptions(tracing=open_tracing()));"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    environment = {name: value for name, value in os.environ.items() if "OTEL" not in name}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "[]\n"


def test_a_service_sends_its_traces_to_a_collector(tmp_path: Path) -> None:
    service_pb2 = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason=INSTALL
    )
    received: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            import gzip

            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            received.append((self.path, service_pb2.ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = {ENDPOINT: f"http://127.0.0.1:{collector.server_port}"}
    try:
        with run_serve(tmp_path, environment=endpoint) as server:
            assert server.ask("POST", "/personalizer/v1.0/rank", ACTIONS).status == 201
            assert "error" not in server.stop().lower()
    finally:
        collector.shutdown()
        collector.server_close()
    assert {path for path, _ in received} == {"/v1/traces"}
    resources = [each for _, request in received for each in request.resource_spans]
    names = {span.name for each in resources for part in each.scope_spans for span in part.spans}
    assert {"POST /rank", "decide", "write"} <= names
    attributes = {item.key: item.value.string_value for item in resources[0].resource.attributes}
    assert attributes["service.name"] == "windvane"
