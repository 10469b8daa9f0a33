"""SIGTERM drains: not ready at first, all that was accepted is answered, then the process ends."""

import http.client
import json
import signal
import threading
from contextlib import closing
from pathlib import Path

from server_process import BASE, DEADLINE_SECONDS, Client, read_answer, run_serve
from store_helpers import list_decisions
from waiting import wait_until
from windvane.service.store.log import LogReader

ACTIONS = {"actions": [{"id": "a", "features": [{"x": 1}]}, {"id": "b", "features": []}]}
CLIENT_COUNT = 6


class Visitor(threading.Thread):
    """Sends ranks on a connection that stays open, and obeys `Connection: close`.

    A visitor that reconnects does so until `is_out` is set, as a load balancer does that asks
    /readyz. Every request that fails after its connection was made is kept.
    """

    def __init__(self, port: int, name: str, is_out: threading.Event, reconnects: bool) -> None:
        super().__init__(daemon=True)
        self._port, self._prefix, self._is_out = port, name, is_out
        self._reconnects = reconnects
        self.events: list[str] = []
        self.failures: list[str] = []
        self.closes = 0
        self.count_after_signal = 0
        self.has_signal = threading.Event()

    def run(self) -> None:
        while not self._is_out.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            try:
                connection.connect()
            except OSError:  # the server listens no more
                if not self._is_out.is_set() and self._reconnects:
                    self.failures.append("refused although nobody said that it is not ready")
                return
            with closing(connection):
                self._talk(connection)
            if not self._reconnects:
                return

    def _talk(self, connection: http.client.HTTPConnection) -> None:
        while True:
            event = f"{self._prefix}-{len(self.events)}"
            try:
                body = json.dumps(ACTIONS | {"eventId": event})
                connection.request("POST", f"{BASE}/rank", body)
                answer = read_answer(connection.getresponse())
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{event}: {error!r}")
                return
            if answer.status != 201 or answer.json["degraded"]:
                self.failures.append(f"{event}: {answer.status} {answer.body!r}")
                return
            self.events.append(event)
            self.count_after_signal += self.has_signal.is_set()
            if answer.headers.get("connection") == "close":
                self.closes += 1
                return


def check_log(data: Path, visitors: list[Visitor]) -> None:
    """Everything that was answered is in the log."""
    with LogReader(data) as log:
        loop = log.find_loop("default")
        assert loop is not None
        events = {decision.event_id for decision in list_decisions(log, loop.id)}
    for visitor in visitors:
        assert set(visitor.events) <= events


def test_readiness_goes_first_and_no_request_fails(tmp_path: Path) -> None:
    """A load balancer that asks /readyz takes the server out before it stops listening."""
    is_out = threading.Event()
    with (
        run_serve(tmp_path, "--drain-seconds", "3") as server,
        closing(Client(server.port)) as probe,
    ):
        assert probe.call("GET", "/readyz").status == 200
        visitors = [
            Visitor(server.port, f"v{number}", is_out, True) for number in range(CLIENT_COUNT)
        ]
        for visitor in visitors:
            visitor.start()
        wait_until(lambda: sum(len(visitor.events) for visitor in visitors) > 100)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: probe.call("GET", "/readyz").status != 200)
        for visitor in visitors:
            visitor.has_signal.set()
        # It answers on while it is not ready, and closes each connection after its answer.
        assert server.process.poll() is None
        answer = probe.call("GET", "/readyz")
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["connection"] == "close"
        assert probe.rank(ACTIONS).status == 201
        wait_until(lambda: sum(visitor.count_after_signal for visitor in visitors) > 0)
        is_out.set()
        for visitor in visitors:
            visitor.join(DEADLINE_SECONDS)
        assert server.wait() == "windvane: stopped\n"
    assert [failure for visitor in visitors for failure in visitor.failures] == []
    assert all(visitor.closes for visitor in visitors)
    check_log(tmp_path, visitors)


def test_without_a_grace_open_connections_are_still_finished(tmp_path: Path) -> None:
    """Clients that keep their connection get the answer to every request that they send."""
    is_out = threading.Event()
    with run_serve(tmp_path) as server:
        visitors = [
            Visitor(server.port, f"v{number}", is_out, False) for number in range(CLIENT_COUNT)
        ]
        for visitor in visitors:
            visitor.start()
        wait_until(lambda: all(len(visitor.events) > 20 for visitor in visitors))
        server.process.send_signal(signal.SIGTERM)
        server.wait()
        for visitor in visitors:
            visitor.join(DEADLINE_SECONDS)
    assert [failure for visitor in visitors for failure in visitor.failures] == []
    assert [visitor.closes for visitor in visitors] == [1] * CLIENT_COUNT
    check_log(tmp_path, visitors)


def test_a_second_signal_ends_the_wait(tmp_path: Path) -> None:
    with run_serve(tmp_path, "--drain-seconds", "600") as server:
        with closing(Client(server.port)) as probe:
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: probe.call("GET", "/readyz").status != 200)
            server.process.send_signal(signal.SIGTERM)
        server.wait()
