"""Logs of all older schema versions, on both databases: migrated, killed half-way, refused."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from old_schemas import (
    SCHEMAS,
    describe_tables,
    list_rows,
    make_old_log,
    read_rows,
    set_version,
)
from windvane.errors import StoreError
from windvane.service.store.database import MIGRATIONS, make_engine, resolve_url
from windvane.service.store.log import Store
from windvane.service.store.schema import SCHEMA_VERSION

OLD_VERSIONS = range(1, SCHEMA_VERSION)
each_version = pytest.mark.parametrize("version", OLD_VERSIONS)
KILLED_OPENING = """
import os, signal, sys
from windvane.service.store import database
from windvane.service.store.log import Store
where, step = sys.argv[1], int(sys.argv[2])
migrate = database.MIGRATIONS[step]
def migrate_and_die(connection):
    migrate(connection)
    os.kill(os.getpid(), signal.SIGKILL)
database.MIGRATIONS[step] = migrate_and_die
Store(where)
"""


def make_new_log(where: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new log on the same kind of database."""
    if "://" not in where:
        return str(tmp_path / "new")
    make: Callable[[], str] = request.getfixturevalue("postgresql")
    return make()


def read_version(where: str) -> int:
    engine = make_engine(resolve_url(where), writes=False)
    try:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT version FROM windvane_schema")).scalar_one())
    finally:
        engine.dispose()


def check_rows(where: str, version: int) -> None:
    """The rows of an old log are all there, and no others."""
    rows = list_rows(version)
    engine = make_engine(resolve_url(where), writes=False)
    try:
        found = read_rows(engine, rows)
    finally:
        engine.dispose()
    for table, expected in rows.items():
        names = list(expected[0])
        seen = [tuple(row[name] for name in names) for row in found[table]]
        assert sorted(map(repr, seen)) == sorted(
            repr(tuple(row.get(name) for name in names)) for row in expected
        ), table


def test_every_older_version_has_its_tables_written_out_and_a_migration() -> None:
    names = {path.name for path in SCHEMAS.glob("*.sql")}
    assert names >= {
        f"version_{version}_{backend}.sql"
        for version in OLD_VERSIONS
        for backend in ("sqlite", "postgresql")
    }
    assert list(MIGRATIONS) == list(OLD_VERSIONS)


@each_version
def test_an_old_log_gets_exactly_the_tables_of_a_new_one_and_keeps_its_rows(
    version: int, where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    make_old_log(where, version)
    with Store(where) as old, Store(make_new_log(where, request, tmp_path)) as new:
        migrated, expected = (describe_tables(store._read_engine) for store in (old, new))
    assert migrated.keys() == expected.keys()
    for table, description in expected.items():
        assert migrated[table] == description, table
    assert read_version(where) == SCHEMA_VERSION
    check_rows(where, version)


@each_version
def test_a_migration_that_is_killed_leaves_the_log_as_it_was(
    version: int, where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Killed after each of its steps in turn, the log is migrated by the next opening."""
    make_old_log(where, version)
    engine = make_engine(resolve_url(where), writes=False)
    before = describe_tables(engine)
    for step in range(version, SCHEMA_VERSION):
        command = [sys.executable, "-c", KILLED_OPENING, where, str(step)]
        assert subprocess.run(command).returncode == -signal.SIGKILL
        assert read_version(where) == version
        assert describe_tables(engine) == before
    engine.dispose()
    check_rows(where, version)
    with Store(where) as old, Store(make_new_log(where, request, tmp_path)) as new:
        assert describe_tables(old._read_engine) == describe_tables(new._read_engine)
    check_rows(where, version)


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        (SCHEMA_VERSION + 1, f"version {SCHEMA_VERSION + 1}, this Windvane reads up to"),
        (0, "version 0, this Windvane reads from version 1 on"),
    ],
    ids=["newer", "older"],
)
def test_a_server_that_is_too_old_or_too_new_says_so_and_writes_nothing(
    version: int, sentence: str, where: str, tmp_path: Path
) -> None:
    last = SCHEMA_VERSION - 1
    make_old_log(where, last)
    engine = make_engine(resolve_url(where), writes=True)
    with engine.begin() as connection:
        set_version(connection, version)
    engine.dispose()
    reader = make_engine(resolve_url(where), writes=False)
    before = describe_tables(reader)
    reader.dispose()  # SQLite moves what was written into the file when nobody has it open
    file = Path(where) / "windvane.db"
    content = file.read_bytes() if file.exists() else b""
    with pytest.raises(StoreError, match=sentence):
        Store(where)
    flag = "--database" if "://" in where else "--data"
    code = "from windvane.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "--port", "0", flag, where],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("windvane: store: ")
    assert sentence in line
    assert (file.read_bytes() if file.exists() else b"") == content
    assert describe_tables(reader) == before
    reader.dispose()
    assert read_version(where) == version
    check_rows(where, last)
