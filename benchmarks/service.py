"""Requests a second of the service beside an echo on the same stack, driven by wrk on loopback.

echo     parses the same rank body with the same decoder and answers it, nothing else
rank     the service, durable: a decision is on disk before its answer leaves
pairs    a rank and its reward in turn, so that learning has to keep up with one reward a rank

The CPU columns are microseconds of a request in the process that answers and in the process that
writes. On a busy machine they say more than requests a second. A body has 10 actions of 5 features
and a context of 5.

A rank cannot be faster than the disk, so the disk is measured in the same run: how long fdatasync
takes after a small append to a file in the data directory. Two laws bound the median of a rank by
it, with one connection by 2 fdatasyncs and 1 ms, with 32 by 3 fdatasyncs and 2 ms; further aims are
shares of the echo.

Needs wrk: apt-get install wrk. `--json` prints the tables for machines, `--seconds N` measures
longer, `--data DIRECTORY` measures another disk, and `--busy-neighbour` keeps one core busy with
another process meanwhile.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from windvane._terminal.tables import Cell, format_table

CONNECTIONS = (1, 32)
PROBES = 200  # of the disk, before and after the service
PROBE_BYTES = 4096
AIMS = {"rank": 0.65, "pairs": 0.6}  # shares of the echo's requests a second, 32 connections
MAX_CPU_TO_ECHO = 110 / 60  # of a rank in both processes, 32 connections
MAX_P99_MS = 15.0  # of a rank, 32 connections
SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
while True:
    pass
"""
WORDS = ("red", "blue", "green", "small", "large", "new", "old", "plain")
BODY = {
    "contextFeatures": [
        {"time": "morning", "device": "phone", "weather": {"sunny": True, "temp": 23.5}, "age": 31}
    ],
    "actions": [
        {
            "id": f"action-{k}",
            "features": [
                {
                    "colour": WORDS[k % 3],
                    "size": WORDS[3 + k % 2],
                    "state": WORDS[5 + k % 3],
                    "price": 9.5 + k,
                    "rank": k,
                }
            ],
        }
        for k in range(10)
    ],
}
ECHO = """
import msgspec, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from windvane.service.schemas import RankRequest, RankResponse, Ranked
read = msgspec.json.Decoder(RankRequest).decode
async def rank(request):
    body = read(await request.body())
    ranking = [Ranked(action.id, 0.1) for action in body.actions]
    answer = RankResponse(ranking, "event", ranking[0].id)
    return Response(msgspec.json.encode(answer), 201, media_type="application/json")
app = Starlette(routes=[Route("/personalizer/v1.0/rank", rank, methods=["POST"])])
uvicorn.run(app, host="127.0.0.1", port={port}, log_level="error", access_log=False)
"""
SERVICE = """
import sys
from windvane.cli import main
sys.argv[1:] = ["serve", "--port", "{port}", "--data", {data!r}]
main()
"""
RANKS = """
wrk.method = "POST"
wrk.path = "/personalizer/v1.0/rank"
wrk.headers["Content-Type"] = "application/json"
wrk.body = [==[{body}]==]
"""
PAIRS = (
    RANKS
    + """
local event = nil
request = function()
  if event then
    local path = "/personalizer/v1.0/events/" .. event .. "/reward"
    event = nil
    return wrk.format("POST", path, nil, '{{"value":0.5}}')
  end
  return wrk.format()
end
response = function(status, headers, body)
  event = status == 201 and string.match(body, '"eventId":"([^"]+)"') or nil
end
"""
)


class Server(NamedTuple):
    """A server in a process of its own."""

    address: str
    process: int  # id

    def read_cpu(self) -> tuple[float, float]:
        """CPU seconds of the process so far, and of its children, such as the one that writes."""
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text().split()
        return read_cpu_seconds(self.process), sum(read_cpu_seconds(int(each)) for each in children)


def read_cpu_seconds(process: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def find_free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def run_server(code: str, **fields: object) -> Iterator[Server]:
    """Run a server in its own process; yield it once it answers."""
    port = find_free_port()
    command = [sys.executable, "-c", code.format(port=port, **fields)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(build_rank(address), timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        yield Server(address, process.pid)
    finally:
        process.terminate()
        process.wait(20)


def build_rank(address: str) -> urllib.request.Request:
    """One rank request."""
    url = f"{address}/personalizer/v1.0/rank"
    return urllib.request.Request(url, json.dumps(BODY).encode(), method="POST")


def measure(server: Server, script: str, connections: int, seconds: int) -> dict[str, Cell]:
    """Rate and latencies of a server, measured by wrk, and its CPU time for a request."""
    before = server.read_cpu()
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script.format(body=json.dumps(BODY)))
        file.flush()
        flags = ["-t", "1", "-c", str(connections), "-d", f"{seconds}s", "--latency"]
        command = ["wrk", *flags, "-s", file.name, server.address]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    count = int(re.search(r"(\d+) requests in", output)[1])  # type: ignore[index]
    answering, writing = (
        round(1e6 * (now - then) / count)
        for now, then in zip(server.read_cpu(), before, strict=True)
    )
    failures = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    return {
        "requests/s": float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1]),  # type: ignore[index]
        "p50 ms": parse_milliseconds(output, "50%"),
        "p99 ms": parse_milliseconds(output, "99%"),
        "CPU µs": answering,
        "writer µs": writing,
        "failed": int(failures[1]) if failures else 0,
    }


def parse_milliseconds(output: str, percentile: str) -> float:
    """A latency that wrk prints as 850us, 1.2ms or 1.1s."""
    match = re.search(rf"{percentile}\s+([\d.]+)(us|ms|s)", output)
    if match is None:
        return float("nan")
    return float(match[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[match[2]]


def probe_disk(directory: str) -> list[float]:
    """Milliseconds of fdatasync after each of many small appends to a file."""
    times = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(PROBES):
            file.write(bytes(PROBE_BYTES))
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            times.append(1e3 * (time.perf_counter() - begin))
    return times


@contextmanager
def keep_core_busy() -> Iterator[None]:
    """Keep the last core that this process may use busy with another process."""
    core = max(os.sched_getaffinity(0))
    process = subprocess.Popen([sys.executable, "-c", SPIN, str(core)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def judge(rows: list[dict[str, Cell]], fdatasync_ms: float) -> list[dict[str, Cell]]:
    """Compare the rows with the two laws and with the aims."""
    by_name = {(row["server"], row["connections"]): row for row in rows}

    def read(server: str, connections: int, column: str) -> float:
        return float(by_name[server, connections][column] or 0)

    def sum_cpu(server: str) -> float:
        return read(server, 32, "CPU µs") + read(server, 32, "writer µs")

    verdicts: list[dict[str, Cell]] = []

    def add(law: str, measured: float, bound: float, is_upper: bool = True) -> None:
        is_kept = measured <= bound if is_upper else measured >= bound
        verdicts.append(
            {
                "law or aim": law,
                "measured": round(measured, 2),
                "bound": round(bound, 2),
                "": "pass" if is_kept else "miss",
            }
        )

    p50 = "rank p50 ms, {} connection{}: at most {} fdatasync + {} ms"
    add(p50.format(1, "", 2, 1), read("rank", 1, "p50 ms"), 2 * fdatasync_ms + 1)
    add(p50.format(32, "s", 3, 2), read("rank", 32, "p50 ms"), 3 * fdatasync_ms + 2)
    add("rank p99 ms, 32 connections", read("rank", 32, "p99 ms"), MAX_P99_MS)
    for name, share in AIMS.items():
        ratio = read(name, 32, "to the echo")
        add(f"{name} to the echo, 32 connections: at least", ratio, share, is_upper=False)
    ratio = sum_cpu("rank") / sum_cpu("echo")
    add("rank CPU of both processes to the echo's, 32 connections", ratio, MAX_CPU_TO_ECHO)
    return verdicts


def measure_all(seconds: int, directory: str | None) -> dict[str, list[dict[str, Cell]]]:
    """The tables: all rows, the disk, and what the laws and aims say."""
    rows: list[dict[str, Cell]] = []
    echo: dict[int, float] = {}
    times: list[float] = []
    with run_server(ECHO) as server:
        measure(server, RANKS, 1, 1)
        for count in CONNECTIONS:
            numbers = measure(server, RANKS, count, seconds)
            echo[count] = float(numbers["requests/s"] or 0)
            rows.append({"server": "echo", "connections": count, **numbers, "to the echo": 1.0})
    for name, script in (("rank", RANKS), ("pairs", PAIRS)):
        with (
            tempfile.TemporaryDirectory(
                prefix="windvane-", dir=directory, ignore_cleanup_errors=True
            ) as data,
            run_server(SERVICE, data=data) as server,
        ):
            measure(server, RANKS, 1, 2)
            for count in CONNECTIONS:
                times += probe_disk(data)
                numbers = measure(server, script, count, seconds)
                ratio = round(float(numbers["requests/s"] or 0) / echo[count], 2)
                rows.append({"server": name, "connections": count, **numbers, "to the echo": ratio})
            times += probe_disk(data)
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    disk: dict[str, Cell] = {"disk": "fdatasync", "p50 ms": round(p50, 2), "p99 ms": round(p99, 2)}
    return {"rows": rows, "disk": [disk], "laws": judge(rows, p50)}


def main() -> None:
    """Print requests a second, latencies, ratios to the echo, the disk, and the laws."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement")
    parser.add_argument("--data", help="the directory in which the service keeps its log")
    parser.add_argument("--busy-neighbour", action="store_true", help="keep one core busy")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("benchmarks/service.py needs wrk: apt-get install wrk")
    with keep_core_busy() if options.busy_neighbour else nullcontext():
        tables = measure_all(options.seconds, options.data)
    if options.json:
        print(json.dumps(tables, indent=2))
    else:
        print("\n\n".join(map(format_table, tables.values())))


if __name__ == "__main__":
    main()
