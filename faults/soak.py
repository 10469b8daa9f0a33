"""A soak: an hour at half of the largest load, with memory that stays flat."""

import statistics
import threading
import time
from contextlib import closing
from pathlib import Path

from faults.cases import Case
from faults.outcome import Outcome
from faults.promises import check_promises
from faults.stage import Stage
from faults.traffic import Visitor, create_loops
from server_process import Server

MEMORY = "flat memory"  # the promise that only the soak checks
VISITORS = 2
CALIBRATION_SECONDS = 10.0
SAMPLE_SECONDS = 2.0
MAX_GROWTH = 0.05  # between the second and the last quarter of the soak
MAX_GROWTH_BYTES = 16 << 20


class PacedVisitor(Visitor):
    """A visitor that sends so many requests each second; 0: as many as are answered."""

    def __init__(self, number: int, port: int, seed: int, over: threading.Event) -> None:
        super().__init__(number, port, seed, over)
        self.requests_per_second = 0.0
        self.total = 0
        self._next = time.monotonic()

    def rank(self) -> None:
        self.pause()
        super().rank()

    def reward(self) -> None:
        self.pause()
        super().reward()

    def pause(self) -> None:
        """Wait until the next request is due."""
        self.total += 1
        if self.requests_per_second:
            self._next = max(self._next + 1 / self.requests_per_second, time.monotonic() - 1.0)
            time.sleep(max(0.0, self._next - time.monotonic()))


def run_soak(stage: Stage, case: Case) -> Outcome:
    """Find the largest load, send half of it for so many minutes, and watch the memory."""
    outcome, over = Outcome(), threading.Event()
    site = stage.make_site(case.name, case.database)
    with Server(stage.nursery, site.data, site.database) as server:
        with closing(server.client()) as client:
            create_loops(client)
        visitors = [
            PacedVisitor(number, server.port, case.seed, over) for number in range(VISITORS)
        ]
        for visitor in visitors:
            visitor.start()
        try:
            time.sleep(CALIBRATION_SECONDS)
            rate = sum(visitor.total for visitor in visitors) / CALIBRATION_SECONDS
            for visitor in visitors:
                visitor.requests_per_second = rate / 2 / VISITORS
            processes = {"service": server.process or 0, "writer": server.writer}
            samples = sample_memory(processes, 60.0 * case.amount)
        finally:
            over.set()
            for visitor in visitors:
                visitor.join()
        outcome.counts["soak requests"] = sum(visitor.total for visitor in visitors)
        outcome.counts["soak requests a second"] = round(rate / 2)
        for name, sizes in samples.items():
            check_memory(outcome, name, sizes)
        check_promises(outcome, site, server, visitors)
    return outcome


def sample_memory(processes: dict[str, int], seconds: float) -> dict[str, list[int]]:
    """Measure the resident memory of processes for a while, in bytes."""
    samples: dict[str, list[int]] = {name: [] for name in processes}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(SAMPLE_SECONDS)
        for name, process in processes.items():
            samples[name].append(measure_memory(process))
    return samples


def measure_memory(process: int) -> int:
    """The private and anonymous memory of a process in bytes: pages of files do not count."""
    status = Path(f"/proc/{process}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def check_memory(outcome: Outcome, name: str, sizes: list[int]) -> None:
    """Check that the last quarter is not larger than the second; the first warms caches."""
    quarter = len(sizes) // 4
    before = statistics.median(sizes[quarter : 2 * quarter])
    after = statistics.median(sizes[3 * quarter :])
    outcome.counts[f"MiB of the {name} in the second quarter"] = round(before / (1 << 20))
    outcome.counts[f"MiB of the {name} in the last quarter"] = round(after / (1 << 20))
    limit = max(MAX_GROWTH * before, MAX_GROWTH_BYTES)
    sentence = f"the {name} grew from {before / 2**20:.0f} to {after / 2**20:.0f} MiB"
    outcome.check(MEMORY, after - before <= limit, sentence)
