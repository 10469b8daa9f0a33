"""A proxy in front of a server that fails as a test wants."""

import contextlib
import random
import socket

from tcp_proxy import TcpProxy

UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n"
    b"connection: close\r\n\r\n"
)
RECEIVE_BYTES = 1 << 16


class FlakyProxy(TcpProxy):
    """Passes one request for each connection on; some fail before and some after the server.

    `failure_share` of the requests gets a 503 or a cut connection before the server sees them. As
    many are passed on, and their answers are lost.
    """

    def __init__(self, port: int, failure_share: float, seed: int) -> None:
        self._server_port = port
        self._share = failure_share
        self._random = random.Random(seed)
        self.counts = {"passed": 0, "unavailable": 0, "cut": 0, "lost": 0}
        super().__init__([("127.0.0.1", port)])
        self.url = f"http://127.0.0.1:{self.port}"

    def _serve(self, client: socket.socket) -> None:
        with client as connection, contextlib.suppress(OSError):
            request = read_message(connection)
            drawn = self._random.random()
            kind = "passed"
            if drawn < self._share:
                kind = self._random.choice(["unavailable", "cut"])
            elif drawn < 2 * self._share:
                kind = "lost"
            self.counts[kind] += 1
            if kind == "unavailable":
                connection.sendall(UNAVAILABLE)
            if kind in ("unavailable", "cut"):
                return
            with socket.create_connection(("127.0.0.1", self._server_port), 30.0) as server:
                server.sendall(request)
                answer = read_message(server)
            if kind == "passed":
                connection.sendall(answer)


def read_message(connection: socket.socket) -> bytes:
    """Read a request or a response with its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        received = connection.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the message has no end")
        data += received
    head, _, body = data.partition(b"\r\n\r\n")
    size = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            size = int(value)
    while len(body) < size:
        received = connection.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the body has no end")
        body += received
    return head + b"\r\n\r\n" + body
