"""Running the service: where it listens, what it refuses, how it stops without losing anything."""

import ipaddress
import signal
import socket
import ssl
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvicorn

from windvane.errors import SettingError
from windvane.service import json_logging
from windvane.service.api.auth import is_valid
from windvane.service.api.middleware import Edge
from windvane.service.clock import now_us
from windvane.service.http_protocol import Protocol
from windvane.service.store.database import resolve_url
from windvane.service.store.log import Store

GRACE = 10  # seconds that requests under way have to end
WAITING = 2048  # connections
SLOWEST = 30  # seconds that a request may take to arrive
MOST_BESIDE = 1 << 16  # bytes of a request that are not its body: its first line and its headers


class Address(NamedTuple):
    """Where to listen, and with which certificate."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def url(self, port: int) -> str:
        """How to reach it from here."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{port}"


class Bounded(Protocol):
    """Hangs up on headers without end and on requests that take for ever to arrive.

    Both come before any key, and whoever sends them could take all memory and all connections.
    """

    beside = 0
    whole = False  # whether no part of a request is awaited
    late = 0  # seconds for which it is

    def data_received(self, data: bytes) -> None:
        self.whole = False
        self.beside += len(data)
        super().data_received(data)
        if self.beside > MOST_BESIDE:
            self.send_400_response(f"The headers must have at most {MOST_BESIDE} bytes.")

    def on_body(self, body: bytes) -> None:
        self.beside -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.whole, self.late, self.beside = True, 0, 0
        super().on_message_complete()

    def tick(self) -> None:
        """Called every second."""
        self.late = 0 if self.whole else self.late + 1
        if self.late > SLOWEST:
            self.transport.close()


class Server(uvicorn.Server):
    """Says when it is ready, and counts the seconds of its connections."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # it is called ten times a second
            for connection in list(self.server_state.connections):
                if isinstance(connection, Bounded):
                    connection.tick()
        return await super().on_tick(counter)


def check_keys(where: str, address: Address) -> None:
    """Refuse to be reached by others while there is no key that they would need."""
    if address.is_loopback:
        return
    url, known = resolve_url(where), []
    if url.get_backend_name() != "sqlite" or Path(url.database or "").exists():
        with Store(where) as store:
            known = store.list_keys()
    now = now_us()
    if not any(is_valid(key, now) for key in known):
        raise SettingError(
            f"serve: {address.host} can be reached by others, and there is no valid key; "
            f"make one with: windvane key create --role admin {_place(where)}"
        )


def _place(where: str) -> str:
    return "--database URL" if "://" in where else f"--data {where}"  # a URL may hold a password


def listen(address: Address) -> socket.socket:
    """A socket at the address; port 0 takes any that is free."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, _, _, _, place = found[0]
        return socket.create_server(place[:2], family=family, backlog=WAITING)
    except (OSError, OverflowError) as reason:
        why = getattr(reason, "strerror", None) or str(reason)
        message = f"serve: cannot listen on {address.host} port {address.port} ({why})"
        raise SettingError(message) from None


def run(
    app: Edge, address: Address, ready: Callable[[str], None], span: float | None = None
) -> None:
    """Serve until SIGTERM or Ctrl-C; then answer what was asked, write it, and return.

    With a span, stop by itself after so many seconds.
    """
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=Bounded,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as reason:
        message = f"serve: {address.certificate} and {address.key} are no certificate and its key"
        raise SettingError(f"{message} ({reason})") from None
    json_logging.start()
    with listen(address) as listening:
        url = address.url(listening.getsockname()[1])
        server = Server(config, lambda: ready(url))
        for one in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again when it has ended
            signal.signal(one, lambda *_: None)
        end = threading.Timer(span or 0.0, partial(setattr, server, "should_exit", True))
        if span is not None:
            end.start()
        try:
            server.run(sockets=[listening])
        except SystemExit:  # it did not start
            raise getattr(app.state, "failure", None) or SystemExit(1) from None
        finally:
            end.cancel()
