"""What the protocols and the server override in uvicorn still exists under that name."""

import inspect

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from windvane.service.server import Server


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("connection_made", ["self", "transport"]),
        ("data_received", ["self", "data"]),
        ("on_body", ["self", "body"]),
        ("on_headers_complete", ["self"]),
        ("on_response_complete", ["self"]),
        ("_start_asgi_task", ["self", "cycle", "app"]),
        ("on_message_complete", ["self"]),
        ("send_400_response", ["self", "msg"]),
    ],
)
def test_uvicorns_http_protocol_has_the_method_that_windvane_extends(
    method: str, parameters: list[str]
) -> None:
    assert hasattr(HttpToolsProtocol, method), (
        f"uvicorn's HttpToolsProtocol has no {method} any more: adapt service/http_protocol.py and "
        "the bound of uvicorn in pyproject.toml"
    )
    assert list(inspect.signature(getattr(HttpToolsProtocol, method)).parameters) == parameters


def test_uvicorns_server_has_every_method_that_windvane_overrides() -> None:
    own = {name for name, value in vars(Server).items() if inspect.isfunction(value)}
    missing = [name for name in own if name != "__init__" and not hasattr(uvicorn.Server, name)]
    assert missing == [], f"service/server.py overrides {missing}, which uvicorn.Server has not"
