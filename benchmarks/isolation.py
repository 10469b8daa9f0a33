"""Latency of an innocent loop while another loop does something large, and the cost of many loops.

A client ranks in the loop `innocent` all the time, one request after the other with a short pause.
Meanwhile another client does one thing in another loop, or twelve clients in a process of their own
send the largest requests that are legal, one after the other, for some seconds. Each row has the
latencies of the innocent ranks, the ratio of their 99th percentile to that of a quiet service, how
many were degraded, and the memory of the serving process before it and some seconds after it.
The last rows measure /metrics, the dashboard and the processor time at rest with many loops.

`--loops N` sets how many loops there are at the end (0: none of these rows), `--only TEXT` takes
the rows with this text in their name, `--json` prints the table for machines.
"""

import http.client
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from windvane._terminal.tables import Cell, format_table

PAUSE_SECONDS = 0.002  # between two innocent ranks
QUIET_SECONDS = 5.0
REST_MILLISECONDS = 100.0  # less than a scrape takes while loops are left to follow
WIDE_FEATURES = 900  # of a context, crossed with three of each action
MANY_ACTIONS = 4_000  # as many as fit into a body
CROWD_CLIENTS = 12
CROWD_SECONDS = 10.0
REFUSED_PAUSE_SECONDS = 0.05  # of a client in a crowd: less than Retry-After says
SETTLE_SECONDS = 5.0  # until memory is measured again
LARGE_BODY_BYTES = 250_000  # of at most 2^18
BASE = "personalizer/v1.0"
BODY = {
    "contextFeatures": [{"time": "morning", "device": "phone", "age": 31}],
    "actions": [
        {"id": f"action-{k}", "features": [{"colour": "red", "price": 9.5 + k}]} for k in range(10)
    ],
}


EVALUATION = {
    "name": "largest",
    "startTime": "2000-01-01",
    "endTime": "2100-01-01",
    "policies": [
        {"name": f"p{k}", "arguments": f"diagonal(half_life({3600 + k}) * thompson(0.3))"}
        for k in range(20)
    ],
    "enableOfflineExperimentation": True,
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
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
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


def probe(port: int, process: int, name: str, work: Callable[[], object]) -> dict[str, Cell]:
    """The latencies of innocent ranks while `work` runs, how long it takes, and the memory."""
    megabytes = read_megabytes(process)
    prober = Prober(port)
    prober.start()
    time.sleep(0.1)
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    time.sleep(0.1)
    prober.stop()
    times = sorted(prober.milliseconds)
    time.sleep(SETTLE_SECONDS)
    return {
        "meanwhile": name,
        "seconds": seconds,
        "ranks": len(times),
        "p50 ms": statistics.median(times),
        "p99 ms": times[int(0.99 * (len(times) - 1))],
        "max ms": times[-1],
        "degraded": prober.degraded,
        "MB before": megabytes,
        "MB after": read_megabytes(process),
    }


def read_megabytes(process: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


class Crowd(NamedTuple):
    """Clients that send the same requests all the time."""

    port: int
    method: str
    path: str
    bodies: list[bytes | None]  # in turn

    def work(self) -> None:
        """Send requests for some seconds, from a process of their own, and say what came back."""
        child = multiprocessing.get_context("spawn").Process(target=self.run)
        child.start()
        child.join()

    def run(self) -> None:
        """Send requests from a thread for each client."""
        counts: Counter[int] = Counter()
        ends_at = time.monotonic() + CROWD_SECONDS

        def send(turn: int) -> None:
            client = Client(self.port)
            while time.monotonic() < ends_at:
                body = self.bodies[turn % len(self.bodies)]
                status, _ = client.call(self.method, self.path, body)
                counts[status] += 1
                turn += 1
                if status in (429, 503):
                    time.sleep(REFUSED_PAUSE_SECONDS)

        threads = [threading.Thread(target=send, args=(k,)) for k in range(CROWD_CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"    statuses: {dict(counts)}", file=sys.stderr)


def encode_rank(context_numbers: int, make_features: Callable[[int], object]) -> bytes:
    """A rank request with as many actions as fit into a body of the largest size."""
    context = [{f"f{k}": k for k in range(context_numbers)}]
    actions: list[object] = []
    size = len(json.dumps(context, separators=(",", ":")))
    while size < LARGE_BODY_BYTES:
        actions.append({"id": f"a{len(actions)}", "features": [make_features(len(actions))]})
        size += len(json.dumps(actions[-1], separators=(",", ":"))) + 1
    body = {"contextFeatures": context, "actions": actions[:-1]}
    return json.dumps(body, separators=(",", ":")).encode()


def make_numbers(count: int) -> list[float]:
    """Numbers of six or seven digits."""
    return [round(1 / (3 + k), 6) for k in range(count)]


def make_categories(turn: int, action: int) -> object:
    """Categories that differ between actions and between clients."""
    return {"v": [f"{turn}{action}{k}" for k in range(900)]}


def make_large_ranks() -> dict[str, list[bytes | None]]:
    """Rank requests of the largest size, by what they are full of."""
    return {
        "names": [encode_rank(6, lambda k: {f"{k}-{i}": i for i in range(1000)})],
        "actions": [encode_rank(26, lambda k: {"x": k, "c": str(k % 7)})],
        "arrays": [encode_rank(6, lambda k: {"v": make_numbers(4000)})],
        "categories": [
            encode_rank(6, partial(make_categories, turn)) for turn in range(CROWD_CLIENTS)
        ],
        "what is left out": [encode_rank(0, lambda k: {"_": [["left out of it"]] * 300})],
        "too many crossings": [encode_rank(4000, lambda k: {"v": make_numbers(4000)})],
        "too many values": [encode_rank(0, lambda k: {"_": [[]] * 300})],
    }


def make_actions(count: int) -> list[dict[str, Any]]:
    """Actions with three features each."""
    return [{"id": f"a{k}", "features": [{"x": k, "c": str(k % 7)}]} for k in range(count)]


def run_scenarios(port: int, process: int, only: str = "") -> list[dict[str, Cell]]:
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
    unknown: list[bytes | None] = [
        json.dumps(
            {"rewards": [{"eventId": f"{turn} {k}", "value": 1} for k in range(1000)]}
        ).encode()
        for turn in range(10 * CROWD_CLIENTS)
    ]
    crowds = {
        **{
            f"largest ranks: {name}": Crowd(port, "POST", f"{small}/rank", bodies)
            for name, bodies in make_large_ranks().items()
        },
        "batches of 1000 unknown rewards": Crowd(port, "POST", f"{small}/rewards", unknown),
        "pages of decisions": Crowd(port, "GET", f"{small}/decisions?limit=1000", [None]),
        "the dashboard": Crowd(port, "GET", "/board/small.json", [None]),
        "evaluations": Crowd(
            port, "POST", f"{small}/evaluations", [json.dumps(EVALUATION).encode()]
        ),
    }
    for name, crowd in crowds.items():
        works.append((f"{CROWD_CLIENTS} clients: {name}", crowd.work))
    rows = []
    for name, work in works:
        if only not in name and name != "nothing":
            continue
        rows.append(probe(port, process, name, work))
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


@contextmanager
def run_service() -> Iterator[tuple[int, int]]:
    """Run the service over an empty log; the values are its port and the id of its process."""
    with tempfile.TemporaryDirectory(prefix="windvane-", ignore_cleanup_errors=True) as folder:
        said = Path(folder) / "messages"
        command = [sys.executable, "-m", "windvane", "serve", "--port", "0"]
        with said.open("wb") as messages:
            process = subprocess.Popen([*command, "--data", f"{folder}/data"], stderr=messages)
        try:
            while not (match := re.search(r"serving on http://\S+:(\d+)", said.read_text())):
                if process.poll() is not None:
                    sys.exit(said.read_text())
                time.sleep(0.2)
            yield int(match[1]), process.pid
        finally:
            process.terminate()
            process.wait(60)


def main() -> None:
    """Print the table of latencies, then that of many loops."""
    count = int(sys.argv[sys.argv.index("--loops") + 1]) if "--loops" in sys.argv else 1000
    only = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""
    with run_service() as (port, process):
        scenarios = run_scenarios(port, process, only)
        many = measure_many_loops(port, process, count) if count else []
    if "--json" in sys.argv:
        print(json.dumps({"isolation": scenarios, "many loops": many}, indent=2))
    else:
        print(format_table(scenarios))
        if many:
            print(f"\nWith {count} loops:\n{format_table(many)}")


if __name__ == "__main__":
    main()
