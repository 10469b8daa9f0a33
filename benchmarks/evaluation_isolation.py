"""Latency of ranks while an evaluation runs beside them, compared with a quiet service.

One client ranks all the time. Turns with an evaluation and turns without one follow each other, so
that other work of the machine disturbs both alike. An evaluation compares 13 policies on the log of
another loop. The table has the latencies of all ranks of each kind, and their ratio.

`--turns N` sets how many turns there are of each kind, `--seconds N` how long one lasts, and
`--decisions N` how many decisions are evaluated: enough that an evaluation outlasts its turn.
"""

import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.isolation import BASE, BODY, Client, Prober, run_service
from windvane._terminal.tables import Cell, format_table

EVALUATION = {
    "name": "benchmark",
    "startTime": "2000-01-01",
    "endTime": "2100-01-01",
    "policies": [],
    "enableOfflineExperimentation": True,
}
LOOP = f"/loops/evaluated/{BASE}"


def read_flag(name: str, default: float) -> float:
    """The number after a flag of the command line."""
    return float(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def play(client: Client, decisions: int) -> None:
    """Decisions and rewards in the loop that is evaluated."""
    client.call("POST", "/loops", {"name": "evaluated", "settings": {}})
    for k in range(decisions):
        client.call("POST", f"{LOOP}/rank", {**BODY, "eventId": f"e{k}"})
        client.call("POST", f"{LOOP}/events/e{k}/reward", {"value": float(k % 3 == 0)})


def probe(port: int, seconds: float) -> list[float]:
    """Milliseconds of ranks for some time."""
    prober = Prober(port)
    prober.start()
    time.sleep(seconds)
    prober.stop()
    if prober.degraded:
        print(f"{prober.degraded} ranks were degraded: the machine is busy", file=sys.stderr)
    return prober.milliseconds


def probe_evaluation(client: Client, port: int, seconds: float) -> list[float]:
    """Milliseconds of ranks while an evaluation runs, which is ended afterwards."""
    status, answer = client.call("POST", f"{LOOP}/evaluations", EVALUATION)
    assert status == 201, answer
    path = f"{LOOP}/evaluations/{json.loads(answer)['id']}"
    times = probe(port, seconds)
    is_running = json.loads(client.call("GET", path)[1])["status"] == "pending"
    assert is_running, "the evaluation has ended too early"
    client.call("DELETE", path)
    return times


def describe(kind: str, times: list[float]) -> dict[str, Cell]:
    """The latencies of the ranks of one kind."""
    ordered = sorted(times)
    return {
        "beside": kind,
        "ranks": len(ordered),
        "mean ms": statistics.fmean(ordered),
        "p50 ms": statistics.median(ordered),
        "p90 ms": ordered[int(0.9 * (len(ordered) - 1))],
        "p99 ms": ordered[int(0.99 * (len(ordered) - 1))],
    }


def main() -> None:
    """Print the latencies with and without an evaluation."""
    turns, seconds = int(read_flag("--turns", 6)), read_flag("--seconds", 10.0)
    quiet: list[float] = []
    evaluating: list[float] = []
    with run_service() as (port, _):
        client = Client(port)
        client.call("POST", "/loops", {"name": "innocent", "settings": {}})
        play(client, int(read_flag("--decisions", 4000)))
        probe(port, 1.0)
        for _ in range(turns):
            quiet += probe(port, seconds)
            evaluating += probe_evaluation(client, port, seconds)
    rows = [describe("nothing", quiet), describe("an evaluation", evaluating)]
    ratio: dict[str, Cell] = {"beside": "ratio", "ranks": None}
    for name in ("mean ms", "p50 ms", "p90 ms", "p99 ms"):
        ratio[name] = float(rows[1][name] or 0) / float(rows[0][name] or 1)
    print(format_table([*rows, ratio]))


if __name__ == "__main__":
    main()
