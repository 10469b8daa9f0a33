"""A connection of the HTTP protocol without a network, for its tests.

The protocol talks to a transport that records what is sent, and to an application that records what
it is asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
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
