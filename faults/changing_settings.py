"""Faults while settings change: the log is locked, its writer is stopped, killed or replaced.

The settings of two loops change all the time: how long decisions wait, their default reward, the
retention of the log and the learning mode. `promises.py` compares what was learned with the
settings in force by the order of the log.
"""

import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from faults.cases import Case
from faults.killed_processes import send_signal
from faults.outcome import Outcome
from faults.stage import Site, Stage
from faults.under_traffic import Scene, run_under_traffic
from windvane.service.store.database import DATABASE_FILE

SETTINGS_WEIGHT = 3.0  # of changes of settings among the requests of a visitor: a fifth
REST_SECONDS = (0.2, 1.0)
FAULT_SECONDS = (2.0, 4.0)  # so long that requests time out, and the loop is restored


def run_settings(stage: Stage, case: Case) -> Outcome:
    """Change settings while the log is locked, and while its writer or the service fails."""
    return run_under_traffic(stage, case, _disturb)


def _disturb(scene: Scene) -> None:
    server, draw = scene.server, scene.draw
    scene.visitors[0].weights["put_settings"] = SETTINGS_WEIGHT
    for number in range(scene.case.amount):
        server.wait()
        time.sleep(draw.uniform(*REST_SECONDS))
        what = ("writer stopped", "log locked", "writer killed", "service killed")[number % 4]
        if what == "log locked":
            with lock_log(scene.site):
                time.sleep(draw.uniform(*FAULT_SECONDS))
        elif what == "service killed":
            server.kill()
            server.start()
        else:
            writers = server.writers
            send_signal(writers, signal.SIGSTOP)
            time.sleep(draw.uniform(*FAULT_SECONDS))
            is_killed = what == "writer killed"
            send_signal(writers, signal.SIGKILL if is_killed else signal.SIGCONT)
        scene.outcome.counts[what] += 1
    time.sleep(REST_SECONDS[1])


@contextmanager
def lock_log(site: Site) -> Iterator[None]:
    """Let another program hold the log, so that nothing is written."""
    if site.database is None:
        with closing(sqlite3.connect(site.data / DATABASE_FILE, isolation_level=None)) as log:
            log.execute("PRAGMA busy_timeout = 10000")
            log.execute("BEGIN IMMEDIATE")
            yield
            log.execute("ROLLBACK")
        return
    import psycopg

    with closing(psycopg.connect(site.database)) as connection:
        connection.execute("LOCK TABLE positions IN ACCESS EXCLUSIVE MODE")
        yield
