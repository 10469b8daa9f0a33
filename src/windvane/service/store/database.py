"""The database of a log: its URL, its engines, its creation, and the lock of a running service."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import IO

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    func,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from windvane.errors import StoreError
from windvane.service.store.database_errors import map_error
from windvane.service.store.migrations import migrate
from windvane.service.store.schema import SCHEMA_VERSION, metadata, schema_version

DATABASE_FILE = "windvane.db"
LOCK_FILE = "serving.lock"
ADVISORY_LOCK_KEY = 0x57494E44564E45  # the PostgreSQL lock of the service that serves a database
LOCK_TIMEOUT_MS = 500  # to wait for a lock that another connection holds
LOCK_RETRY_SECONDS = 0.02
POSTGRESQL_OPTIONS = (
    f"-c lock_timeout={LOCK_TIMEOUT_MS} -c statement_timeout=30000 -c synchronous_commit=on "
    "-c plan_cache_mode=force_custom_plan"  # a plan for all time ranges is slow for most of them
)


def resolve_url(location: str | PathLike[str]) -> URL:
    """Make the URL of a database from a data directory or from a URL as text."""
    text = os.fspath(location)
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text) / DATABASE_FILE))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(f"store: {text.split('://')[0]}://... is not a URL", "refused") from None
    backend = url.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database:
        return url
    message = f"store: a URL must start with postgresql:// or sqlite:///FILE, got {backend}://"
    raise StoreError(message, "refused")


def make_engine(url: URL, writes: bool) -> Engine:
    """Make the engine of the writer (one connection, transactions) or of readers (a pool, none)."""
    if url.get_backend_name() == "sqlite":
        engine = create_engine(
            url,
            connect_args={"timeout": LOCK_TIMEOUT_MS / 1000, "check_same_thread": False},
            isolation_level=None if writes else "AUTOCOMMIT",
            **_pool_settings(writes),
        )
        event.listen(engine, "connect", _set_pragmas)
        if writes:
            event.listen(engine, "begin", _begin_immediate)
        return engine
    url_options = url.query.get("options", "")
    if not isinstance(url_options, str):
        url_options = " ".join(url_options)
    options = f"{POSTGRESQL_OPTIONS} {url_options}".strip()
    return create_engine(
        url,
        connect_args={"options": options, "connect_timeout": 5, "tcp_user_timeout": 10000},
        isolation_level="READ COMMITTED" if writes else "AUTOCOMMIT",
        pool_pre_ping=True,
        **_pool_settings(writes),
    )


def open_for_writing(url: URL) -> Engine:
    """Open a database for the writer; create the tables, or migrate those of an older version."""
    if url.get_backend_name() == "sqlite":
        make_directory_of(Path(url.database or ""))
    engine = make_engine(url, writes=True)
    try:
        _prepare_tables(engine)
    except Exception as error:
        engine.dispose()
        raise map_error(error) from None
    return engine


@contextmanager
def hold_service_lock(url: URL, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock that lets only one service run on a log.

    Two services on one log would each miss what the other learns. The writer process of a service
    that was killed may still be writing, so this waits for the lock.
    """
    shown = url.render_as_string(hide_password=True)
    if url.get_backend_name() == "sqlite":
        directory = Path(url.database or "").parent
        shown = str(directory)
        make_directory_of(directory / LOCK_FILE)
        with open(directory / LOCK_FILE, "w") as file:
            _wait_for_lock(partial(_try_flock, file), shown, timeout_seconds)
            yield
    else:
        engine = make_engine(url, writes=False)
        try:
            with engine.connect() as connection:
                query = select(func.pg_try_advisory_lock(ADVISORY_LOCK_KEY))
                _wait_for_lock(lambda: bool(connection.scalar(query)), shown, timeout_seconds)
                yield
        except SQLAlchemyError as error:
            raise map_error(error) from None
        finally:
            engine.dispose()


def _wait_for_lock(try_lock: Callable[[], bool], shown: str, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not try_lock():
        if time.monotonic() > deadline:
            raise StoreError(f"serve: another service runs on {shown}", "locked")
        time.sleep(LOCK_RETRY_SECONDS)


def _try_flock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _prepare_tables(engine: Engine) -> None:
    """Create or migrate the tables; refuse those of a later version or another program."""
    shown = engine.url.render_as_string(hide_password=True)
    with engine.begin() as connection:
        tables = set(inspect(connection).get_table_names())
        if schema_version.name in tables:
            version = connection.scalar(select(schema_version.c.version)) or 0
            check_version(version, shown)
            if version < SCHEMA_VERSION:
                migrate(connection)
        elif foreign := sorted(tables & set(metadata.tables)):
            message = (
                f"store: {shown} has a table {foreign[0]} that is not Windvane's: use another "
                "database"
            )
            raise StoreError(message, "foreign")
        else:
            metadata.create_all(connection)
            connection.execute(insert(schema_version), {"version": SCHEMA_VERSION})


def make_directory_of(path: Path) -> None:
    """Create the directory that contains a file, if it does not exist."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"store: {path.parent} cannot be created ({error.strerror})"
        raise StoreError(message, "unreachable") from None


def check_version(version: int, shown: str) -> None:
    """Refuse a database that a later version of Windvane wrote."""
    if version > SCHEMA_VERSION:
        message = (
            f"store: {shown} has version {version}, this Windvane reads up to {SCHEMA_VERSION}"
        )
        raise StoreError(message, "newer")


def explain_old_version(connection: Connection) -> StoreError | None:
    """Make the error of a reader of tables that are not migrated yet; None if they are."""
    version = connection.scalar(select(schema_version.c.version)) or 0
    if version >= SCHEMA_VERSION:
        return None
    shown = connection.engine.url.render_as_string(hide_password=True)
    message = (
        f"store: {shown} has version {version} and this Windvane needs {SCHEMA_VERSION}: start the "
        "service on it once, which migrates it"
    )
    return StoreError(message, "older")


def _pool_settings(writes: bool) -> dict[str, int]:
    return {"pool_size": 1 if writes else 4, "max_overflow": 0 if writes else 12, "pool_timeout": 5}


def _set_pragmas(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",  # a commit returns when it is on disk
        "foreign_keys = ON",
        "wal_autocheckpoint = 16000",  # pages; wal_checkpoint.py does it earlier, beside the writer
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
    connection.isolation_level = None  # the driver must not begin transactions by itself


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
