"""Requests of events go to the application at once, all others through ASGI; HTTP stays the same.

The protocol talks to a transport that records what is sent, and to an application that records what
it is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.server import ServerState

from windvane.service.api.events import ReadBody
from windvane.service.api.middleware import EventAnswer
from windvane.service.api.routes import Match
from windvane.service.event_protocol import EventProtocol

RANK = "/personalizer/v1.0/rank"
REWARD = "/loops/news/personalizer/v1.0/events/e1/reward"
DATE = (b"date", b"today")


class RecordingTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 80)}.get(name, default)

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class RecordingApp:
    """Answers with what it was asked: `event` or `asgi`, the path, the query and the body."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.headers: list[tuple[bytes, bytes]] = []

    async def answer_event(self, scope: Any, match: Match, read: ReadBody) -> EventAnswer:
        body = await read()
        self.asked.append(f"event {match.endpoint.metric} {scope['path']} {len(body)}")
        await self.gate.wait()
        return EventAnswer(201, body, [(b"x-query", scope["query_string"]), *self.headers])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.asked.append(f"asgi {scope['path']} {len(body)}")
        start = {"type": "http.response.start", "status": 200}
        await send({**start, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"asgi"})


class Connection:
    """A protocol with its transport and its application."""

    def __init__(self) -> None:
        self.app = RecordingApp()
        config = uvicorn.Config(
            self.app, http=EventProtocol, log_config=None, access_log=False, proxy_headers=False
        )
        config.load()
        self.state = ServerState()
        self.state.default_headers = [DATE]
        self.protocol = EventProtocol(config, self.state, {}, asyncio.get_running_loop())
        self.transport = RecordingTransport()
        self.protocol.connection_made(self.transport)

    async def send(self, data: bytes) -> bytes:
        """What is sent back in the next turns of the event loop."""
        self.transport.sent = b""
        self.protocol.data_received(data)
        return await self.wait()

    async def wait(self) -> bytes:
        for _ in range(20):
            await asyncio.sleep(0)
        return self.transport.sent


def build(
    path: str, body: bytes, *headers: str, version: str = "1.1", method: str = "POST"
) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "host: here", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def play(scenario: Callable[[Connection], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(Connection())

    asyncio.run(run())


def test_an_event_is_answered_in_one_piece() -> None:
    async def scenario(connection: Connection) -> None:
        sent = await connection.send(build(f"{RANK}?loop=news", b'{"a":1}'))
        assert connection.app.asked == [f"event rank {RANK} 7"]
        assert sent == (
            b"HTTP/1.1 201 Created\r\ndate: today\r\nx-query: loop=news\r\n"
            b"content-type: application/json; charset=utf-8\r\ncontent-length: 7\r\n\r\n"
            b'{"a":1}'
        )
        assert connection.state.total_requests == 1
        assert not connection.state.tasks
        sent = await connection.send(build(REWARD, b""))
        assert sent == b"HTTP/1.1 201 Created\r\ndate: today\r\nx-query: \r\n\r\n"
        assert connection.app.asked[-1] == f"event reward {REWARD} 0"

    play(scenario)


def test_a_request_may_arrive_byte_by_byte() -> None:
    async def scenario(connection: Connection) -> None:
        for path in (RANK, RANK, f"{RANK}?loop=a", RANK):
            data = build(path, b"[1, 2]")
            for place in range(len(data) - 1):
                assert await connection.send(data[place : place + 1]) == b""
            assert (await connection.send(data[-1:])).endswith(b"\r\n\r\n[1, 2]")
        assert connection.app.asked == [f"event rank {RANK} 6"] * 4

    play(scenario)


def test_a_chunked_body_is_joined() -> None:
    async def scenario(connection: Connection) -> None:
        head = f"POST {RANK} HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n\r\n"
        sent = await connection.send(head.encode() + b"2\r\n[1\r\n4\r\n, 2]\r\n0\r\n\r\n")
        assert sent.endswith(b"\r\n\r\n[1, 2]")

    play(scenario)


@pytest.mark.parametrize(
    ("request_", "path", "size"),
    [
        (build("/healthz", b"", method="GET"), "/healthz", 0),
        (build(RANK, b"", method="PUT"), RANK, 0),
        (build("/personalizer/v1.0/nothing", b"{}"), "/personalizer/v1.0/nothing", 2),
        (build("/personalizer/v1.0/events/a%2Fb/reward", b"{}"), None, 2),
        (build(RANK, b"{}", version="1.0"), RANK, 2),
        (build(RANK, b"{}", "connection: close"), RANK, 2),
        (build(RANK, b"{}", "expect: 100-continue"), RANK, 2),
        (build(RANK, b" " * (HIGH_WATER_LIMIT + 1)), RANK, HIGH_WATER_LIMIT + 1),
    ],
)
def test_other_and_unusual_requests_go_through_asgi(
    request_: bytes, path: str | None, size: int
) -> None:
    async def scenario(connection: Connection) -> None:
        sent = await connection.send(request_)
        expected = path or "/personalizer/v1.0/events/a/b/reward"
        assert connection.app.asked == [f"asgi {expected} {size}"]
        assert sent.endswith(b"asgi")
        is_last = b"HTTP/1.0" in request_ or b"connection: close" in request_
        assert connection.transport.is_closed == is_last
        if not is_last:
            await connection.send(build(RANK, b"{}"))
            assert connection.app.asked[1:] == [f"event rank {RANK} 2"]

    play(scenario)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.gate.clear()
        get = build("/healthz", b"", method="GET")
        assert await connection.send(build(RANK, b"1") + get + build(RANK, b"22")) == b""
        assert connection.app.asked == [f"event rank {RANK} 1"]
        connection.app.gate.set()
        sent = await connection.wait()
        assert connection.app.asked == [f"event rank {RANK} 1", "asgi /healthz 0", f"asgi {RANK} 2"]
        assert [part[:3] for part in sent.split(b"HTTP/1.1 ")[1:]] == [b"201", b"200", b"200"]
        assert (await connection.send(build(RANK, b"333"))).endswith(b"333")

    play(scenario)


def test_a_server_that_stops_answers_and_closes() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.gate.clear()
        await connection.send(build(RANK, b"1"))
        connection.protocol.shutdown()
        assert not connection.transport.is_closed
        connection.app.gate.set()
        sent = await connection.wait()
        assert b"\r\nconnection: close\r\n" in sent
        assert sent.endswith(b"\r\n\r\n1")
        assert connection.transport.is_closed

    play(scenario)


def test_an_answer_that_says_close_closes_the_connection() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.headers = [(b"connection", b"close")]
        sent = await connection.send(build(RANK, b"1"))
        assert sent.count(b"connection: close") == 1
        assert connection.transport.is_closed

    play(scenario)


def test_nothing_is_sent_to_a_client_that_has_gone() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.gate.clear()
        await connection.send(build(RANK, b"1"))
        connection.protocol.connection_lost(None)
        connection.app.gate.set()
        assert await connection.wait() == b""
        assert not connection.state.tasks

    play(scenario)


def test_no_header_of_an_answer_has_a_line_break() -> None:
    async def scenario(connection: Connection) -> None:
        connection.app.headers = [(b"x-host", b"a\r\nset-cookie: b")]
        assert b"\r\nx-host: aset-cookie: b\r\n" in await connection.send(build(RANK, b"1"))

    play(scenario)


def test_an_idle_connection_is_closed() -> None:
    async def scenario(connection: Connection) -> None:
        seconds = connection.protocol.timeout_keep_alive
        connection.app.gate.clear()
        await connection.send(build(RANK, b"1"))
        for _ in range(2 * seconds):  # while a request is answered, its connection is not idle
            connection.protocol.tick()
        connection.app.gate.set()
        await connection.wait()
        for _ in range(seconds):
            connection.protocol.tick()
        assert not connection.transport.is_closed
        connection.protocol.tick()
        assert connection.transport.is_closed

    play(scenario)
