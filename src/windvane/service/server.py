"""Run the application: listen, serve, and stop without losing a request."""

import asyncio
import contextlib
import ctypes
import errno
import ipaddress
import math
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import uvicorn

from windvane.errors import SettingError
from windvane.persistence import check_regular
from windvane.service.api.application import Application
from windvane.service.api.auth import is_valid
from windvane.service.api.request_limits import Connection
from windvane.service.app import DEFAULT_EDGE, EdgeOptions, create_app
from windvane.service.clock import ServiceClock
from windvane.service.json_logging import log_to_stderr
from windvane.service.store.database import may_have_log, resolve_url
from windvane.service.store.log import Store
from windvane.service.traces import open_tracing

SHUTDOWN_SECONDS = 10  # until requests in flight are cancelled
LINGER_SECONDS = 0.1  # for requests that are on their way when listening ends
BACKLOG_CONNECTIONS = 2048
M_ARENA_MAX = -8  # a parameter of glibc's `mallopt`
MAX_ARENAS = 2  # all threads run Python, so they hardly ever allocate at the same time


class Address(NamedTuple):
    """Where to listen, and with which certificate and private key."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only localhost can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def build_url(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{port}"


class Server(uvicorn.Server):
    """A server that calls `on_ready` when the loops are loaded.

    It listens before the loops are loaded. If they cannot be loaded, it ends; `failure` says why.
    After SIGTERM it is not ready any more, and goes on answering for `drain_seconds`: in this time
    a load balancer stops sending requests. A second signal ends the wait.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: Application,
        on_ready: Callable[[], None],
        drain_seconds: float = 0.0,
    ) -> None:
        super().__init__(config)
        self._app = app
        self._on_ready = on_ready
        self._drain_seconds = drain_seconds
        self.stop_at = math.inf  # of the monotonic clock
        self.failure: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        def finish(loading: "asyncio.Task[None]") -> None:
            self.failure = None if loading.cancelled() else loading.exception()
            if self.failure is not None:
                self.should_exit = True
            elif not loading.cancelled():
                self._on_ready()

        await super().startup(sockets)
        self._app.state.loading.add_done_callback(finish)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain after the first SIGTERM; stop after any other signal, or if nothing is loaded."""
        can_drain = sig == signal.SIGTERM and not self._app.is_draining and self._app.is_loaded
        self._app.is_draining = True
        if can_drain and self._drain_seconds > 0:
            self.stop_at = time.monotonic() + self._drain_seconds
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer what is on its way, then close all connections.

        Every answer from now on says that its connection is closed, so that no client sends a
        further request on a connection that the server is about to close.
        """
        self._app.is_draining = True
        for listener in self.servers:
            listener.close()
        await asyncio.sleep(LINGER_SECONDS)
        if (service := getattr(self._app.state, "service", None)) is not None:
            service.decision_stream.close()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        if time.monotonic() >= self.stop_at:
            self.should_exit = True
        return await super().on_tick(counter)


def check_keys(where: str, address: Address) -> None:
    """Refuse to listen for other hosts while the log has no valid key."""
    if address.is_loopback:
        return
    keys = []
    latest = 0
    if may_have_log(resolve_url(where)):
        with Store(where) as store:
            keys = store.list_keys()
            latest = ServiceClock(store.find_newest_time()).latest_us()
    if not any(is_valid(key, latest) for key in keys):
        # A database URL may hold a password: the message does not repeat it.
        flag = "--database URL" if "://" in where else f"--data {where}"
        raise SettingError(
            f"serve: other hosts can connect to {address.host}, and there is no valid key; "
            f"make one with: windvane key create --role admin {flag}"
        )


def listen(address: Address) -> socket.socket:
    """A socket that listens at an address; port 0 takes a free port."""
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, _, _, _, place = infos[0]
        return socket.create_server(place[:2], family=family, backlog=BACKLOG_CONNECTIONS)
    except (OSError, OverflowError) as reason:
        message = f"serve: cannot listen on {address.host} port {address.port}"
        if getattr(reason, "errno", None) == errno.EADDRINUSE:
            raise SettingError(f"{message}: another program does; choose a --port") from None
        cause = getattr(reason, "strerror", None) or str(reason)
        raise SettingError(f"{message} ({cause})") from None


def limit_arenas() -> None:
    """Let all threads share a few arenas of memory: each keeps what a burst of requests took.

    Other C libraries than glibc have no such parameter.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, MAX_ARENAS)


def serve(
    where: str,
    address: Address,
    edge: EdgeOptions = DEFAULT_EDGE,
    believes_wall_clock: bool = False,
    drain_seconds: float = 0.0,
    listening: socket.socket | None = None,
) -> None:
    """Do what `windvane serve` does once its flags are checked, until SIGTERM or Ctrl-C.

    `where` is a data directory or the URL of a database. `listening` is a socket that listens
    already.
    """
    limit_arenas()
    edge = edge._replace(answers_while_loading=True, tracing=open_tracing())
    app = create_app(where, believes_wall_clock=believes_wall_clock, edge=edge)
    messages = log_to_stderr()

    def announce(url: str) -> None:
        messages.write(f"windvane: serving on {url}")

    try:
        run(app, address, announce, None, listening, drain_seconds)
        messages.write("windvane: stopped")
    finally:
        messages.flush()


def run(
    app: Application,
    address: Address,
    on_ready: Callable[[str], None],
    seconds: float | None = None,
    listening: socket.socket | None = None,
    drain_seconds: float = 0.0,
) -> None:
    """Serve until SIGTERM or Ctrl-C, or for some seconds; then finish the requests in flight.

    `app` must answer while it loads. `on_ready` gets the URL of the service once all loops are
    loaded, and must not wait for anything. `listening` is a socket that listens already. For
    `drain_seconds` after SIGTERM the server answers on and says that it is not ready.
    """
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=Connection,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # uvicorn would believe them of localhost; `api/auth.py` reads them
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        ssl_certfile=address.certificate,
        ssl_keyfile=address.key,
    )
    try:
        for path in filter(None, (address.certificate, address.key)):
            check_regular(path)
        config.load()
    except (OSError, ssl.SSLError) as reason:
        message = f"serve: {address.certificate} and {address.key} are no certificate and its key"
        raise SettingError(f"{message} ({reason})") from None
    with listening or listen(address) as listening:
        url = address.build_url(listening.getsockname()[1])

        def announce() -> None:
            on_ready(url)
            if seconds is not None:
                server.stop_at = time.monotonic() + seconds

        server = Server(config, app, announce, drain_seconds)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)  # uvicorn raises them again after it has stopped
        server.run(sockets=[listening])
        if server.failure is not None:
            raise server.failure
