"""Faults of PostgreSQL: cut connections, a read-only database, a locked table."""

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from faults.cases import Case
from faults.outcome import Outcome
from faults.promises import wait_for_choice
from faults.stage import Stage
from faults.under_traffic import Scene, run_under_traffic
from server_process import Server

if TYPE_CHECKING:
    import psycopg

FAULT_SECONDS = (0.2, 3.0)
REST_SECONDS = (0.1, 1.0)
SECOND_SERVER_SECONDS = 60.0  # in which a second server on the same log has to answer
RECOVERY_SECONDS = 60.0  # of a database whose process was killed
CUT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def connect_when_ready(database: str) -> "psycopg.Connection[Any]":
    """Connect to a database; if it recovers from a kill, wait until it is ready."""
    import psycopg

    end = time.monotonic() + RECOVERY_SECONDS
    while True:
        try:
            return psycopg.connect(database, autocommit=True, connect_timeout=5)
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def cut_connections(database: str) -> None:
    """Cut all connections to a database."""
    with connect_when_ready(database) as connection:
        connection.execute(CUT)


def run_cut_connections(stage: Stage, case: Case) -> Outcome:
    """Cut all connections to the database; sometimes a second server starts right then."""
    return run_under_traffic(stage, case, lambda scene: _cut_connections(stage, scene))


def _cut_connections(stage: Stage, scene: Scene) -> None:
    draw = scene.draw
    for number in range(scene.case.amount):
        scene.server.wait()
        time.sleep(draw.uniform(*REST_SECONDS))
        _execute(scene, CUT)
        scene.outcome.counts["connections cut"] += 1
        if number % 4 == 3:
            _start_second_service(stage, scene)


def _start_second_service(stage: Stage, scene: Scene) -> None:
    """Start a second server on the same log, which shares it for a while."""
    second = Server(stage.nursery, scene.site.data.with_name("second"), scene.site.database)
    try:
        second.wait(SECOND_SERVER_SECONDS)
        for _ in range(5):
            wait_for_choice(second, "plain")
        scene.outcome.counts["second server shared the log"] += 1
    finally:
        second.close()


def run_readonly_database(stage: Stage, case: Case) -> Outcome:
    """Let the database refuse every write for a while."""
    return run_under_traffic(stage, case, _forbid_writes)


def _forbid_writes(scene: Scene) -> None:
    for _ in range(scene.case.amount):
        time.sleep(scene.draw.uniform(*REST_SECONDS))
        for value in ("on", "off"):
            name = "current_database()"
            _execute(
                scene,
                "SET default_transaction_read_only = off",
                "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET "
                f"default_transaction_read_only = {value}', {name}); END $$",
                CUT,
            )
            if value == "on":
                time.sleep(scene.draw.uniform(*FAULT_SECONDS))
        scene.outcome.counts["read-only"] += 1


def run_locked_table(stage: Stage, case: Case) -> Outcome:
    """Let another program hold a table for a while."""
    return run_under_traffic(stage, case, _lock_table)


def _lock_table(scene: Scene) -> None:
    import psycopg

    for _ in range(scene.case.amount):
        time.sleep(scene.draw.uniform(*REST_SECONDS))
        with closing(psycopg.connect(scene.site.location)) as connection:
            connection.execute("LOCK TABLE decisions IN ACCESS EXCLUSIVE MODE")
            time.sleep(scene.draw.uniform(*FAULT_SECONDS))
        scene.outcome.counts["table locked"] += 1


def _execute(scene: Scene, *statements: str) -> None:
    import psycopg

    with psycopg.connect(scene.site.location, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
