"""The service that `windvane serve` runs, in processes of its own, and a plain client of it."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

from waiting import wait_until
from windvane.service.store.database import LOCK_FILE, resolve_url
from windvane.service.store.files.service_lock import hold_service_lock

BASE = "/personalizer/v1.0"
MAIN = (sys.executable, "-c", "from windvane.cli import main; main()")
DEADLINE_SECONDS = 120.0

# Loads everything once, then forks a server for each socket that it is handed: a start takes a
# tenth of a second, and a test can afford to kill many.
RUN = """
import os, signal, socket, sys

from windvane.service.loops.learner_model import compile_kernels
from windvane.service.server import Address, serve

compile_kernels()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead
orders = socket.socket(fileno=int(sys.argv[1]))
while True:
    data, ports, _, _ = socket.recv_fds(orders, 4096, 1)
    if not data:
        sys.exit()
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        where, place = data.decode().split("\\n")
        log = os.open(place + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        orders.close()
        listening = socket.socket(fileno=ports[0])
        address = Address(*listening.getsockname())
        try:
            serve(where, address, listening=listening)
        except Exception as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    os.close(ports[0])
    orders.send(str(process).encode())
"""


class Answer(NamedTuple):
    """The response to a request."""

    status: int
    headers: dict[str, str]  # by names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection, opened when it is needed."""

    def __init__(
        self, port: int, timeout: float = 30.0, trust: ssl.SSLContext | None = None
    ) -> None:
        self._connection = (
            http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
            if trust is None
            else http.client.HTTPSConnection("localhost", port, timeout=timeout, context=trust)
        )

    def call(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request; a body that is not bytes is sent as JSON.

        The server closes a connection that was idle for some seconds: GET is then sent again.
        """
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        words = {"Content-Type": "application/json", **(headers or {})}
        is_old = self._connection.sock is not None
        try:
            self._connection.request(method, path, sent, words)
            return read_answer(self._connection.getresponse())
        except BaseException as error:
            self._connection.close()
            if is_old and method == "GET" and isinstance(error, http.client.RemoteDisconnected):
                return self.call(method, path, body, headers)
            raise

    def rank(self, body: object, loop: str = "") -> Answer:
        return self.call("POST", f"{loop}{BASE}/rank", body)

    def reward(
        self, event: str, value: object, loop: str = "", request: str | None = None
    ) -> Answer:
        headers = {"x-ms-client-request-id": request} if request else None
        return self.call("POST", f"{loop}{BASE}/events/{event}/reward", {"value": value}, headers)

    def activate(self, event: str, loop: str = "") -> Answer:
        return self.call("POST", f"{loop}{BASE}/events/{event}/activate")

    def close(self) -> None:
        self._connection.close()


def wait_for_health(client: Client, limit: float = 60.0) -> None:
    """Wait until the service says ok, some time after its last failure."""
    wait_until(lambda: client.call("GET", "/healthz").json["status"] == "ok", limit)


def read_answer(response: http.client.HTTPResponse) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, response.read())


def send_raw(port: int, request: bytes, method: str = "POST", timeout: float = 10.0) -> Answer:
    """Send bytes as they are, and read the answer."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection, method=method)
        response.begin()
        return read_answer(response)


class Nursery:
    """A process that has loaded the service and forks servers, each in a tenth of a second."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """`environment` is added to that of this process."""
        self._orders, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", RUN, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=os.environ | (environment or {}),
            )

    def start(self, where: str, data: Path, port: socket.socket) -> int:
        """The id of a new server process over a directory or a database; its words go to a file."""
        socket.send_fds(self._orders, [f"{where}\n{data}".encode()], [port.fileno()])
        return int(self._orders.recv(32))

    def close(self) -> None:
        self._orders.close()
        self._process.wait(30)


class Server:
    """A server over a directory or a database; it can be stopped, killed and started again."""

    def __init__(self, nursery: Nursery, data: Path, database: str | None = None) -> None:
        self.nursery, self.data = nursery, data
        self.where = database or str(data)
        self._socket = socket.create_server(("127.0.0.1", 0))  # held: the port stays the same
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as `serve` has it
        self.port: int = self._socket.getsockname()[1]
        self.process: int | None = None
        self.start()

    def __enter__(self) -> Self:
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill it, wait until its writer process has ended, and give the port back."""
        self.kill()
        if (self.data / LOCK_FILE).exists():  # wait until the writer process has written all
            with hold_service_lock(resolve_url(self.data), 10.0):
                pass
        self._socket.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """All output of the server."""
        return Path(f"{self.data}.log").read_text()

    @property
    def writers(self) -> list[int]:
        """The processes that write for it: one, or none while it is replaced."""
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text()
        return [int(child) for child in children.split()]

    @property
    def writer(self) -> int:
        """The process that writes for it."""
        [child] = self.writers
        return child

    def client(self, timeout: float = 30.0) -> Client:
        return Client(self.port, timeout)

    def start(self) -> None:
        """Start it; requests get 503 until `wait` returns."""
        self.process = self.nursery.start(self.where, self.data, self._socket)

    def wait(self, limit: float = 200.0) -> None:
        """Until it is ready; the first start ever compiles for a minute or two."""
        end = time.monotonic() + limit
        while not self._is_ready():
            if not self.lives() or time.monotonic() > end:
                raise RuntimeError(f"the server did not start:\n{self.log}")
            time.sleep(0.01)

    def _is_ready(self) -> bool:
        with contextlib.closing(self.client(timeout=5.0)) as client:
            try:
                return client.call("GET", "/readyz").status == 200
            except (OSError, http.client.HTTPException):
                return False

    def lives(self) -> bool:
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None:
                os.kill(self.process, 0)
                return True
        return False

    def stop(self) -> None:
        """Ask it to end, as an operator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once: no handler runs."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.process is not None:
                os.kill(self.process, how)
        wait_until(lambda: not self.lives(), 30.0)
        self.process = None


class Running(NamedTuple):
    """The command `windvane serve`, which is ready."""

    process: "subprocess.Popen[str]"
    port: int
    trust: ssl.SSLContext | None

    def ask(self, method: str, path: str, body: object = None, key: str = "") -> Answer:
        with contextlib.closing(Client(self.port, trust=self.trust)) as client:
            headers = {"Ocp-Apim-Subscription-Key": key} if key else None
            return client.call(method, path, body, headers)

    def stop(self) -> str:
        """Ask it to end, and return what it said since it was ready."""
        self.process.terminate()
        return self.wait()

    def wait(self) -> str:
        """Wait until it has ended as it should, and return what it said since it was ready."""
        said = self.process.communicate(timeout=DEADLINE_SECONDS)[1]
        assert self.process.returncode == 0, said
        return said


@contextmanager
def run_serve(
    data: Path,
    *words: str | Path,
    main: tuple[str, ...] = MAIN,
    environment: Mapping[str, str] | None = None,
    trust: ssl.SSLContext | None = None,
) -> Iterator[Running]:
    """Run `windvane serve` on a free port; `environment` is added to that of this process."""
    command = [*main, "serve", "--port", "0", "--data", str(data), *map(str, words)]
    everything = os.environ | (environment or {})
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=everything) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            match = re.search(r"serving on https?://.*:(\d+)$", line.strip())
            assert match, line + process.stderr.read()
            yield Running(process, int(match[1]), trust)
        finally:
            process.kill()
