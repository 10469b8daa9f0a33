"""Faults of processes: kill -9 of the service, of the writer or of both, and stopped processes."""

import contextlib
import os
import signal
import time

from faults.cases import Case
from faults.outcome import Outcome
from faults.stage import Stage
from faults.under_traffic import Scene, run_under_traffic

MAX_TRAFFIC_SECONDS = 0.5  # between two kills
DEGRADING_SECONDS = 2.5  # a stopped writer makes rank requests degraded after 2 seconds
STOP_SECONDS = (0.1, 4.0)


def run_kills(stage: Stage, case: Case) -> Outcome:
    """Kill the service, the writer or both, while they start or under traffic."""
    return run_under_traffic(stage, case, _kill)


def _kill(scene: Scene) -> None:
    server, draw = scene.server, scene.draw
    while sum(scene.outcome.counts[f"{who} killed"] for who in ("service", "writer", "both")) < (
        scene.case.amount
    ):
        if draw.random() < 0.67:
            server.wait()  # the others are killed while they start
        time.sleep(draw.uniform(0.0, MAX_TRAFFIC_SECONDS))
        who = draw.choices(["service", "writer", "both", "none"], [4, 3, 3, 1])[0]
        if who == "none":
            server.wait()
            server.stop()  # a stop writes a snapshot
            server.start()
            continue
        if who == "writer":
            server.wait()  # a service whose writer dies while both start gives up
        writers = server.writers
        if who != "service":
            if not writers:
                continue  # it is replaced at this moment
            send_signal(writers, signal.SIGKILL)
        if who != "writer":
            server.kill()
            server.start()
        scene.outcome.counts[f"{who} killed"] += 1


def run_withdrawals(stage: Stage, case: Case) -> Outcome:
    """Stop the writer until answers are degraded, kill the service, let the writer go on."""
    return run_under_traffic(stage, case, _kill_while_degraded, visitor_count=10)


def _kill_while_degraded(scene: Scene) -> None:
    server, draw = scene.server, scene.draw
    for _ in range(scene.case.amount):
        server.wait()
        time.sleep(draw.uniform(0.1, 0.5))
        writers = server.writers
        send_signal(writers, signal.SIGSTOP)
        time.sleep(DEGRADING_SECONDS + draw.uniform(0.0, 1.0))
        is_writer_first = draw.random() < 0.3
        if is_writer_first:
            send_signal(writers, signal.SIGKILL)
        server.kill()
        server.start()
        if not is_writer_first:
            time.sleep(draw.uniform(0.0, 1.0))
            send_signal(writers, signal.SIGCONT)
        scene.outcome.counts["killed while degraded"] += 1


def run_stops(stage: Stage, case: Case) -> Outcome:
    """Stop the service or the writer for a while and let it go on."""
    return run_under_traffic(stage, case, _stop)


def _stop(scene: Scene) -> None:
    server, draw = scene.server, scene.draw
    for _ in range(scene.case.amount):
        server.wait()
        time.sleep(draw.uniform(0.1, MAX_TRAFFIC_SECONDS))
        processes = list(server.writers)
        who = draw.choice(["service", "writer", "both"])
        if server.process is not None and who != "writer":
            processes = [server.process, *(processes if who == "both" else [])]
        send_signal(processes, signal.SIGSTOP)
        try:
            time.sleep(draw.uniform(*STOP_SECONDS))
        finally:
            send_signal(processes, signal.SIGCONT)
        scene.outcome.counts[f"{who} stopped"] += 1


def send_signal(processes: list[int], number: signal.Signals) -> None:
    """Send a signal to processes; those that have ended are left out."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
