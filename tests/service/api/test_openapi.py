"""The service answers every request that its OpenAPI document allows as the document says."""

import contextlib
import json
import urllib.request
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from server_process import Server
from windvane.service.api.routes import build_document
from windvane.service.loops.decision_pages import MAX_WAIT_SECONDS
from windvane.service.loops.settings import LOOP_NAME

pytest.importorskip("schemathesis", reason="pip install schemathesis to test this")
import schemathesis
from schemathesis import checks
from schemathesis.specs.openapi import checks as conforms

CHECKS = [
    checks.not_a_server_error,
    conforms.status_code_conformance,
    conforms.content_type_conformance,
    conforms.response_headers_conformance,
    conforms.response_schema_conformance,
    conforms.negative_data_rejection,
    conforms.unsupported_method,
]
schema = schemathesis.openapi.from_dict(build_document())
# Every path is there with and without a loop and a version; one of these four has most examples.
SHORT_PATHS = r"^(/loops/\{loop\})?/personalizer/(?!\{version\})|^/personalizer/"
EXAMPLES = settings(
    phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)


def shorten_wait(query: dict[str, Any]) -> None:
    """Shorten a valid wait: a reader would wait for decisions that nobody makes."""
    wait = query.get("wait")
    if isinstance(wait, str | int | float) and not isinstance(wait, bool):
        with contextlib.suppress(ValueError):
            if 0.01 < float(wait) <= MAX_WAIT_SECONDS:
                query["wait"] = 0.01


def check(case: schemathesis.Case[Any], server: Server) -> None:
    """Send a request, to a loop that exists if its name can be one."""
    if case.path_parameters and LOOP_NAME.fullmatch(str(case.path_parameters.get("loop"))):
        is_deleted = (case.method, case.path) == ("DELETE", "/loops/{loop}")
        case.path_parameters["loop"] = name = "brief" if is_deleted else "default"
        with closing(server.client()) as client:
            client.call("POST", "/loops", {"name": name})
    shorten_wait(case.query)
    case.call_and_validate(base_url=server.url, checks=CHECKS)


@schema.exclude(path_regex=SHORT_PATHS).parametrize()
@settings(EXAMPLES, max_examples=8)
def test_answers_are_those_of_the_document(case: schemathesis.Case[Any], server: Server) -> None:
    check(case, server)


@schema.include(path_regex=SHORT_PATHS).parametrize()
@settings(EXAMPLES, max_examples=2)
def test_short_paths_lead_to_the_same_answers(case: schemathesis.Case[Any], server: Server) -> None:
    check(case, server)


def test_the_document_is_served(server: Server) -> None:
    with urllib.request.urlopen(f"{server.url}/openapi.json") as answer:
        assert json.load(answer) == json.loads(json.dumps(build_document()))
