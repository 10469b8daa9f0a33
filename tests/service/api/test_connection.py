"""HTTP on the wire: limits on headers, unusual requests, and what one connection may send."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from server_process import BASE, Client, Server, send_raw
from windvane.service.api import request_limits, requests

RANK = f"{BASE}/rank"
BODY = json.dumps({"actions": [{"id": "a", "features": [{"x": 1}]}]}).encode()


def build(path: str = RANK, body: bytes = BODY, *headers: str, version: str = "1.1") -> bytes:
    """A POST request as bytes."""
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


@pytest.fixture
def wire(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), 10.0) as wire:
        yield wire


def read_statuses(wire: socket.socket, count: int) -> list[int]:
    """The statuses of the next answers on a connection."""
    statuses = []
    with wire.makefile("rb", buffering=0) as file:
        for _ in range(count):
            statuses.append(int(file.readline().split()[1]))
            size = 0
            while (line := file.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                size = int(value) if name == b"content-length" else size
            while size:
                size -= len(file.read(size))
    return statuses


def test_headers_that_are_too_large_are_refused_with_the_limit(server: Server) -> None:
    for headers in (["a: " + "x" * 70_000], ["b: c"] * 20_000):
        answer = send_raw(server.port, build(RANK, BODY, *headers))
        assert answer.status == 400
        assert str(request_limits.MAX_HEADER_BYTES) in answer.json["error"]["message"]
    path = f"{BASE}/events/{'e' * 70_000}/activate"
    assert send_raw(server.port, build(path, b"")).status == 400
    assert send_raw(server.port, build(RANK, BODY, "a: " + "x" * 60_000)).status == 201


def test_a_request_may_arrive_byte_by_byte(server: Server, wire: socket.socket) -> None:
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(2):
        for byte in build():
            wire.sendall(bytes([byte]))
        assert read_statuses(wire, 1) == [201]


def test_pipelined_requests_are_answered_in_order(server: Server, wire: socket.socket) -> None:
    wire.sendall(build() + build(f"{BASE}/nothing") + build(body=b"{") + build())
    assert read_statuses(wire, 4) == [201, 404, 400, 201]
    wire.sendall(build())
    assert read_statuses(wire, 1) == [201]


@pytest.mark.parametrize("request_", [build(version="1.0"), build(RANK, BODY, "Connection: close")])
def test_a_connection_is_closed_if_the_client_wants_it(
    wire: socket.socket, request_: bytes
) -> None:
    wire.sendall(request_)
    received = b""
    while data := wire.recv(1 << 16):
        received += data
    assert b" 201 Created\r\n" in received
    assert b"connection: close" in received.lower()


def test_a_client_may_ask_before_it_sends_the_body(wire: socket.socket) -> None:
    request = build(RANK, BODY, "Expect: 100-continue")
    wire.sendall(request.removesuffix(BODY))
    assert wire.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
    wire.sendall(BODY)
    assert read_statuses(wire, 1) == [201]


def test_a_body_that_nobody_reads_does_not_end_its_connection(server: Server) -> None:
    """Its answer goes out first, and the next request follows the rest of the body."""
    size = 3 * requests.MAX_BODY_BYTES
    with closing(Client(server.port)) as client:
        for path, status in ((RANK, 400), (f"{BASE}/nothing", 404)):
            assert client.call("POST", path, b" " * size).status == status
            assert client.rank(BODY).status == 201


def test_no_header_of_an_answer_has_a_control_character(server: Server) -> None:
    answer = send_raw(server.port, build().replace(b"Host: localhost", b"Host: a\x01b"))
    assert answer.status in (400, 403)


def test_an_idle_connection_is_closed(wire: socket.socket) -> None:
    wire.sendall(build())
    assert read_statuses(wire, 1) == [201]
    wire.settimeout(60.0)
    assert wire.recv(1) == b""
