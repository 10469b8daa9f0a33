"""How fast a log is evaluated: a fixed policy on 10 million rows, and a shadow beside its peers.

Prints microseconds of CPU per row of a shadow: Windvane, the same shadow in plain NumPy, and coba's
RejectionCB with its LinUCB. Then seconds, CPU seconds and the largest memory of `windvane evaluate`
on a Parquet file. Coba has a Python of its own: `--coba PYTHON` names one in which
`pip install coba` was run; without it coba is left out.

    python benchmarks/evaluation.py --coba /path/to/venv/bin/python
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from windvane._terminal.tables import Cell, format_table
from windvane.evaluation.learners.candidates import PolicyCandidate, read_candidate
from windvane.evaluation.learners.shadow import LoggedRows, Views, view_rows
from windvane.evaluation.log_batch import LogFacts
from windvane.policy import Policy
from windvane.types import Floats, Places

ROWS_OF_FILE = 10_000_000
ROWS_OF_REPLAY = 20_000
ROWS_OF_PEERS = 2_000
SHAPES = ((10, 5), (16, 10), (50, 20))  # numbers per action, actions
SCALE = 0.3
COLUMNS = "action=action,reward=reward,probability=probability,time=time,count=4"


def write_parquet(path: Path, rows: int) -> None:
    """Write decisions among four actions."""
    import polars as pl

    rng = np.random.default_rng(1)
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    action = rng.choice(4, size=rows, p=probabilities).astype(np.int8)
    reward = (rng.random(rows) < 0.1 + 0.05 * action).astype(np.float32)
    frame = pl.DataFrame(
        {
            "action": action,
            "reward": reward,
            "probability": probabilities[action],
            "time": 1.7e9 + 0.5 * np.arange(rows),
        }
    )
    frame.write_parquet(path)


def evaluate_file(path: Path) -> dict[str, Cell]:
    """Run `windvane evaluate` in a process of its own, and measure it."""
    command = [sys.executable, "-m", "windvane", "evaluate", str(path), "--columns", COLUMNS]
    command += ["--policy", "first", "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    output = subprocess.run(command, check=True, capture_output=True).stdout
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    [policy] = json.loads(output)["policies"]
    return {
        "rows": f"{policy['rows']:,}",
        "seconds": seconds,
        "CPU seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "largest memory, MiB": after.ru_maxrss / 1024,
    }


def make_rows(rows: int, dim: int, count: int) -> LoggedRows:
    """Rows with random arms of length 1, chosen uniformly at random."""
    rng = np.random.default_rng(2)
    arms = rng.normal(size=(rows * count, dim))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    chosen = rng.integers(count, size=rows)
    theta = rng.normal(size=dim) / np.sqrt(dim)
    places = np.arange(rows) * count + chosen
    rewards = arms[places] @ theta + 0.1 * rng.normal(size=rows)
    starts: Places = np.arange(0, rows * count + 1, count)
    return LoggedRows(arms, starts, chosen, rewards, np.arange(rows, dtype=np.float64))


def time_windvane(rows: LoggedRows, dim: int, memory: str) -> float:
    """Microseconds per row of a compiled shadow."""
    text = f"full({memory} * optimism({SCALE}), dim={dim})"
    candidate = read_candidate(text)
    assert isinstance(candidate, PolicyCandidate)
    best = np.inf
    for _ in range(3):
        policy = candidate.make(LogFacts(len(rows.chosen), 2, 0.3), 1)
        assert isinstance(policy, Policy)
        views = Views(np.empty(len(rows.arms)), np.empty(len(rows.arms)))
        arrays, restart = policy.prepare_rounds(0)
        start = time.process_time()
        view_rows(arrays, rows, views, 0, 0, restart)
        best = min(best, time.process_time() - start)
    return 1e6 * best / len(rows.chosen)


def time_numpy(rows: LoggedRows, dim: int) -> float:
    """Microseconds per row of the same shadow as a Python program with NumPy, vectorised."""
    gram = np.eye(dim)
    moment: Floats = np.zeros(dim)
    total = 0.0
    start = time.process_time()
    for i in range(ROWS_OF_PEERS):
        arms = rows.arms[rows.starts[i] : rows.starts[i + 1]]
        inverse = np.linalg.inv(gram)
        means = arms @ (inverse @ moment)
        widths = np.sqrt(np.einsum("kd,de,ke->k", arms, inverse, arms))
        best = int(np.argmax(means + SCALE * widths))
        chosen, x = int(rows.chosen[i]), arms[rows.chosen[i]]
        own = len(arms) * float(best == chosen)  # π/p of a uniform log
        total += means[best] + own * (rows.rewards[i] - means[chosen])
        gram += np.outer(x, x)
        moment += x * rows.rewards[i]
    assert np.isfinite(total)
    return 1e6 * (time.process_time() - start) / ROWS_OF_PEERS


COBA = """
import json, sys, time
import coba as cb, numpy as np
rows, dim, count, scale = json.loads(sys.argv[1])
rng = np.random.default_rng(2)
theta = rng.normal(size=dim) / dim ** 0.5
class Log:
    params = {}
    def read(self):
        for _ in range(rows):
            arms = [tuple(map(float, x / np.linalg.norm(x))) for x in rng.normal(size=(count, dim))]
            chosen = int(rng.integers(count))
            yield {"context": None, "actions": arms, "action": arms[chosen],
                   "reward": float(np.dot(arms[chosen], theta)), "probability": 1 / count}
log = list(Log().read())
Log.read = lambda self: iter(log)
learner = cb.LinUCBLearner(alpha=scale, features=["a"])
start = time.process_time()
list(cb.RejectionCB(seed=1).evaluate(Log(), learner))
print(1e6 * (time.process_time() - start) / rows)
"""


def time_coba(python: str, dim: int, count: int) -> float | None:
    """Microseconds per row of coba's rejection replay of LinUCB, scoring accepted rows only."""
    if not python:
        return None
    arguments = json.dumps([ROWS_OF_PEERS, dim, count, SCALE])
    run = subprocess.run([python, "-c", COBA, arguments], check=True, capture_output=True)
    return float(run.stdout.split()[-1])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--coba", default="", help="a Python that has coba")
    parser.add_argument("--rows", type=int, default=ROWS_OF_FILE)
    options = parser.parse_args()
    table: list[dict[str, Cell]] = []
    for dim, count in SHAPES:
        rows = make_rows(ROWS_OF_REPLAY, dim, count)
        mine, peer = time_windvane(rows, dim, "keep()"), time_numpy(rows, dim)
        coba = time_coba(options.coba, dim, count)
        table.append(
            {
                "(d, K)": f"({dim}, {count})",
                "Windvane, µs": mine,
                "NumPy, µs": peer,
                "ratio": peer / mine,
                "coba, µs": coba,
                "ratio to coba": None if coba is None else coba / mine,
                "with half_life, µs": time_windvane(rows, dim, "half_life(2000)"),
            }
        )
    print(format_table(table))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.parquet")
        write_parquet(path, options.rows)
        print("\n" + format_table([evaluate_file(path)]))


if __name__ == "__main__":
    main()
