"""Seconds until the first answer: with an empty cache of compiled code, and with a filled one.

Every row is a new process. With an empty cache it has a new folder for compiled code; with a
filled one, the folder of an earlier run of the same row. Python's bytecode is on disk in both, as
after an installation.

`python benchmarks/first_use.py` prints the table (about two minutes on two quiet cores). Processor
seconds are those of the process and its children, and a busy machine changes them less than the
time on the clock. `--against OTHER/src` runs the rows with another version beside this one, in
turn, and prints the ratio. `--rows default,service` runs some rows only.
"""

import argparse
import compileall
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from windvane._terminal.tables import Cell, format_table

SOURCE = Path(__file__).parent.parent / "src"
CHOOSE = """
import numpy as np, windvane as wv
policy = wv.Policy(3{parts}, seed=7)
policy.learn(policy.choose(np.eye(3)), 1.0)
"""
RANK = """
import windvane as wv
learner = wv.Learner(seed=1)
decision = learner.rank({"device": "phone"}, [{"id": "news", "topic": "politics"}, "match"])
learner.reward(decision, 1.0)
"""


class Cost(NamedTuple):
    """What one process took."""

    seconds: float  # on the clock
    processor_seconds: float  # of the process and its children


Environment = Mapping[str, str]


def run_python(*words: str) -> Callable[[Environment, Path], None]:
    """Return what runs Python with these arguments to its end."""

    def run(environment: Environment, folder: Path) -> None:
        command = [sys.executable, *words]
        subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True)

    return run


def start_service(environment: Environment, folder: Path) -> None:
    """Run the service until it is ready."""
    words = ["-m", "windvane", "serve", "--port", "0", "--data", str(folder / "data")]
    command = [sys.executable, *words]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "serving on" in line:
                process.send_signal(signal.SIGTERM)


def choose_with(parts: str) -> Callable[[Environment, Path], None]:
    """Return what makes a policy, chooses once and learns once."""
    return run_python("-c", CHOOSE.format(parts=parts))


PANEL = ("-m", "windvane", "reproduce", "--panels", "10x10", "--replications", "2")
ROWS = {
    "default": choose_with(""),
    "discount × thompson": choose_with(', "discount(0.99)", "thompson(0.5)"'),
    "window × perturbed_history": choose_with(', "window(50)", "perturbed_history(0.5)"'),
    "keep × optimism": choose_with(', "keep()", "optimism(1)"'),
    "kalman × thompson": choose_with(', "kalman(0.99, 0.5)", "thompson(0.5)"'),
    "learner": run_python("-c", RANK),
    "reproduce a panel": run_python(*PANEL),
    "service": start_service,
}
QUICK_ROWS = {
    "import windvane": run_python("-c", "import windvane"),
    "windvane --help": run_python("-m", "windvane", "--help"),
}


def measure(run: Callable[[Environment, Path], None], source: Path, cache: Path) -> Cost:
    """Run a row with a version and a cache folder."""
    environment = os.environ | {"PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # of this process, but of few users
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        run(environment, Path(folder))
    seconds = perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, used)


def measure_row(name: str, sources: list[Path]) -> dict[str, Cell]:
    """Run a row with an empty cache and then with a filled one, each version in turn."""
    run, costs = (ROWS | QUICK_ROWS)[name], []
    with tempfile.TemporaryDirectory() as folder:
        caches = [Path(folder) / str(i) for i in range(len(sources))]
        for source, cache in zip(sources, caches, strict=True):
            costs.append([measure(run, source, cache) for _ in range(2)])
    empty, filled = costs[0]
    cells: dict[str, Cell] = {
        "first use": name,
        "empty: seconds": round(empty.seconds, 1),
        "empty: processor": round(empty.processor_seconds, 1),
        "filled: seconds": round(filled.seconds, 2),
        "filled: processor": round(filled.processor_seconds, 2),
    }
    for other, other_filled in costs[1:]:
        cells["before: seconds"] = round(other.seconds, 1)
        cells["before: processor"] = round(other.processor_seconds, 1)
        cells["before / now"] = round(other.processor_seconds / empty.processor_seconds, 2)
        ratio = other_filled.processor_seconds / filled.processor_seconds
        cells["filled: before / now"] = round(ratio, 2)
    return cells


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the folder src of another version")
    parser.add_argument("--rows", help="names of rows, with commas between them")
    options = parser.parse_args()
    names = options.rows.split(",") if options.rows else [*ROWS, *QUICK_ROWS]
    sources = [SOURCE] + ([options.against.resolve()] if options.against else [])
    for source in sources:
        compileall.compile_dir(source, quiet=1)
    print(format_table([measure_row(name, sources) for name in names]))


if __name__ == "__main__":
    main()
