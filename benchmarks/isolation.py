"""Latency of an innocent loop while another loop does something large, and the cost of many loops.

A client ranks in the loop `innocent` all the time, one request after the other with a short pause.
Meanwhile another client does one thing in another loop. Each row has the latencies of the innocent
ranks, the ratio of their 99th percentile to that of a quiet service, and how many were degraded.
The last rows measure /metrics, the dashboard and the processor time at rest with many loops.

`--loops N` sets how many loops there are at the end, `--json` prints the table for machines.
"""

import contextlib
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windvane._terminal.tables import Cell, format_table

PAUSE_SECONDS = 0.002  # between two innocent ranks
QUIET_SECONDS = 5.0
REST_MILLISECONDS = 100.0  # less than a scrape takes while loops are left to follow
WIDE_FEATURES = 900  # of a context, crossed with three of each action
MANY_ACTIONS = 10_000
BASE = "personalizer/v1.0"
BODY = {
    "contextFeatures": [{"time": "morning", "device": "phone", "age": 31}],
    "actions": [
        {"id": f"action-{k}", "features": [{"colour": "red", "price": 9.5 + k}]} for k in range(10)
    ],
}


class Client:
    """One connection to the service."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def call(
        self, method: str, path: str, body: object = None, request_id: str = ""
    ) -> tuple[int, bytes]:
        """Status and body of a response."""
        headers = {"Content-Type": "application/json"}
        if request_id:
            headers["x-ms-client-request-id"] = request_id
        sent = None if body is None else json.dumps(body).encode()
        try:
            self._connection.request(method, path, sent, headers)
            response = self._connection.getresponse()
        except (BrokenPipeError, http.client.RemoteDisconnected):  # it was idle for too long
            self._connection.close()
            self._connection.request(method, path, sent, headers)
            response = self._connection.getresponse()
        return response.status, response.read()


class Prober(threading.Thread):
    """Ranks in the loop `innocent` until it is stopped."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._client = Client(port)
        self._stopping = threading.Event()
        self.milliseconds: list[float] = []
        self.degraded = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            started = time.perf_counter()
            status, answer = self._client.call("POST", f"/loops/innocent/{BASE}/rank", BODY)
            self.milliseconds.append(1e3 * (time.perf_counter() - started))
            self.degraded += status != 201 or json.loads(answer)["degraded"]
            time.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        """End after the current request."""
        self._stopping.set()
        self.join()


def probe(port: int, name: str, work: Callable[[], object]) -> dict[str, Cell]:
    """The latencies of innocent ranks while `work` runs, and how long it takes."""
    prober = Prober(port)
    prober.start()
    time.sleep(0.1)
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    time.sleep(0.1)
    prober.stop()
    times = sorted(prober.milliseconds)
    return {
        "meanwhile": name,
        "seconds": seconds,
        "ranks": len(times),
        "p50 ms": statistics.median(times),
        "p99 ms": times[int(0.99 * (len(times) - 1))],
        "max ms": times[-1],
        "degraded": prober.degraded,
    }


def make_actions(count: int) -> list[dict[str, Any]]:
    """Actions with three features each."""
    return [{"id": f"a{k}", "features": [{"x": k, "c": str(k % 7)}]} for k in range(count)]


def run_scenarios(port: int) -> list[dict[str, Cell]]:
    """One row for each thing that another loop does."""
    client = Client(port)

    def call(method: str, path: str, body: object = None, request_id: str = "") -> bytes:
        status, answer = client.call(method, path, body, request_id)
        assert status < 300 or status == 429, (status, answer[:300])
        return answer

    for name in ("innocent", "small", "large"):
        call("POST", "/loops", {"name": name})
    large, small = f"/loops/large/{BASE}", f"/loops/small/{BASE}"
    many = {"actions": make_actions(MANY_ACTIONS)}
    wide = [{f"f{k}": k for k in range(WIDE_FEATURES)}]
    wide_body = {"contextFeatures": wide, "actions": make_actions(100)}

    def learn(count: int) -> None:
        for k in range(count):
            call("POST", f"{large}/rank", {**wide_body, "eventId": f"e{k}"})
            call("POST", f"{large}/events/e{k}/reward", {"value": 0.5})

    def reward_one_event(count: int) -> None:
        for k in range(count):
            call("POST", f"{small}/events/one/reward", {"value": 0.5}, f"r{k}")

    def rank_wide() -> None:
        for _ in range(50):
            call("POST", f"{small}/rank", wide_body)

    works: list[tuple[str, Callable[[], object]]] = [
        ("nothing", lambda: time.sleep(QUIET_SECONDS)),
        (f"100 lessons with {WIDE_FEATURES} features", lambda: learn(100)),
        ("a snapshot after them", lambda: call("DELETE", f"{large}/logs")),
        (f"{MANY_ACTIONS} actions", lambda: call("POST", f"{small}/rank", many)),
        ("3000 early rewards of one event", lambda: reward_one_event(3000)),
        (
            "their decision comes",
            lambda: call("POST", f"{small}/rank", {**BODY, "eventId": "one"}),
        ),
        (f"50 ranks with {WIDE_FEATURES} features", rank_wide),
        ("the dashboard after them", lambda: call("GET", "/board/small.json")),
        (
            "a change of the half-life",
            lambda: call("PUT", f"{large}/configurations/service", {"halfLife": "1 day"}),
        ),
    ]
    rows = []
    for name, work in works:
        rows.append(probe(port, name, work))
        rows[-1]["p99 to quiet"] = float(rows[-1]["p99 ms"] or 0) / float(rows[0]["p99 ms"] or 1)
        print(f"{name}: {rows[-1]}", file=sys.stderr)
    return rows


def read_processor_seconds(process: int) -> float:
    """Processor time of a process and its children, in seconds."""
    tasks = [process]
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    tasks += map(int, children)
    ticks = 0
    for task in tasks:
        fields = Path(f"/proc/{task}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure_many_loops(port: int, process: int, count: int) -> list[dict[str, Cell]]:
    """Milliseconds of /metrics and the dashboard, and the cost at rest, with many loops."""
    client = Client(port)
    for k in range(count):
        name = f"l{k}"
        client.call("POST", "/loops", {"name": name, "settings": {"rewardWaitTime": "PT1S"}})
        client.call("POST", f"/loops/{name}/{BASE}/rank", {**BODY, "eventId": "e"})
        client.call("POST", f"/loops/{name}/{BASE}/events/e/reward", {"value": 1})
    time.sleep(3.0)  # until nothing waits

    def take_time(path: str) -> float:
        started = time.perf_counter()
        status, _ = client.call("GET", path)
        assert status == 200, status
        return 1e3 * (time.perf_counter() - started)

    rows: list[dict[str, Cell]] = [{"of": "/metrics at first, ms", "value": take_time("/metrics")}]
    for _ in range(count):  # until all loops are followed
        if take_time("/metrics") < REST_MILLISECONDS:
            break
    at_rest = statistics.median(take_time("/metrics") for _ in range(5))
    rows.append({"of": "/metrics at rest, ms", "value": at_rest})
    rows.append({"of": "dashboard at first, ms", "value": take_time("/board/l5.json")})
    dashboard = statistics.median(take_time(f"/board/l{k}.json") for k in range(10, 20))
    rows.append({"of": "dashboard, ms", "value": dashboard})
    before = read_processor_seconds(process)
    time.sleep(10.0)
    idle = (read_processor_seconds(process) - before) / 10.0
    rows.append({"of": "share of a core at rest", "value": idle})
    return rows


def main() -> None:
    """Print the table of latencies, then that of many loops."""
    count = int(sys.argv[sys.argv.index("--loops") + 1]) if "--loops" in sys.argv else 1000
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        port = int(probe_socket.getsockname()[1])
    data = tempfile.mkdtemp(prefix="windvane-")
    command = [sys.executable, "-m", "windvane", "serve", "--port", str(port), "--data", data]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                if Client(port).call("GET", "/readyz")[0] == 200:
                    break
            time.sleep(0.2)
        scenarios = run_scenarios(port)
        many = measure_many_loops(port, process.pid, count)
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(data, ignore_errors=True)
    if "--json" in sys.argv:
        print(json.dumps({"isolation": scenarios, "many loops": many}, indent=2))
    else:
        print(f"{format_table(scenarios)}\n\nWith {count} loops:\n{format_table(many)}")


if __name__ == "__main__":
    main()
