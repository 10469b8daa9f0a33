"""Finding, opening and creating the database of a store."""

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
from windvane.service.store.database_errors import explained
from windvane.service.store.schema import VERSION, metadata, schema

FILE = "windvane.db"
LOCK = "serving.lock"
ADVISORY = 0x57494E44564E45  # PostgreSQL's lock of who serves a database
PATIENCE = 500  # milliseconds to wait for a lock that someone else holds
SERVER = (
    f"-c lock_timeout={PATIENCE} -c statement_timeout=30000 -c synchronous_commit=on "
    "-c plan_cache_mode=force_custom_plan"  # one plan for every time range is a poor one for most
)


def location(where: str | PathLike[str]) -> URL:
    """The database of a directory, or of a URL."""
    text = os.fspath(where)
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text) / FILE))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError(f"store: {text.split('://')[0]}://... is not a URL", "refused") from None
    kind = url.get_backend_name()
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and url.database:
        return url
    message = f"store: a URL must start with postgresql:// or sqlite:///FILE, got {kind}://"
    raise StoreError(message, "refused")


def engine(url: URL, writes: bool) -> Engine:
    """For the writer: one connection, transactions. For readers: several, none."""
    if url.get_backend_name() == "sqlite":
        made = create_engine(
            url,
            connect_args={"timeout": PATIENCE / 1000, "check_same_thread": False},
            isolation_level=None if writes else "AUTOCOMMIT",
            **_pool(writes),
        )
        event.listen(made, "connect", _pragmas)
        if writes:
            event.listen(made, "begin", _begin_at_once)
        return made
    own = url.query.get("options", "")
    options = f"{SERVER} {own if isinstance(own, str) else ' '.join(own)}".strip()
    return create_engine(
        url,
        connect_args={"options": options, "connect_timeout": 5, "tcp_user_timeout": 10000},
        isolation_level="READ COMMITTED" if writes else "AUTOCOMMIT",
        pool_pre_ping=True,
        **_pool(writes),
    )


def opened(url: URL) -> Engine:
    """For a writer, with all tables there."""
    if url.get_backend_name() == "sqlite":
        make_directory(Path(url.database or ""))
    writing = engine(url, writes=True)
    try:
        prepare(writing)
    except Exception as error:
        writing.dispose()
        raise explained(error) from None
    return writing


@contextmanager
def alone(url: URL, patience: float) -> Iterator[None]:
    """Keep a second service off the same log: each would miss what the other learns.

    One that was killed may still be writing its last words; wait for it.
    """
    name = url.render_as_string(hide_password=True)
    if url.get_backend_name() == "sqlite":
        place = Path(url.database or "").parent
        name = str(place)
        make_directory(place / LOCK)
        with open(place / LOCK, "w") as file:
            _wait_for(partial(_flock, file), name, patience)
            yield
    else:
        holding = engine(url, writes=False)
        try:
            with holding.connect() as connection:
                ask = select(func.pg_try_advisory_lock(ADVISORY))
                _wait_for(lambda: bool(connection.scalar(ask)), name, patience)
                yield
        except SQLAlchemyError as error:
            raise explained(error) from None
        finally:
            holding.dispose()


def _wait_for(take: Callable[[], bool], name: str, patience: float) -> None:
    end = time.monotonic() + patience
    while not take():
        if time.monotonic() > end:
            raise StoreError(f"serve: another service runs on {name}", "locked")
        time.sleep(0.02)


def _flock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def prepare(writing: Engine) -> None:
    """Create what is missing; refuse a database that is newer, or someone else's."""
    shown = writing.url.render_as_string(hide_password=True)
    with writing.begin() as connection:
        there = set(inspect(connection).get_table_names())
        if schema.name in there:
            check_version(connection.scalar(select(schema.c.version)) or 0, shown)
        elif taken := sorted(there & set(metadata.tables)):
            message = f"store: {shown} has a table {taken[0]} that is not Windvane's: take another"
            raise StoreError(message, "foreign")
        else:
            metadata.create_all(connection)
            connection.execute(insert(schema), {"version": VERSION})


def make_directory(path: Path) -> None:
    """A place for the file of a database."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        message = f"store: {path.parent} cannot be made ({reason.strerror})"
        raise StoreError(message, "unreachable") from None


def check_version(version: int, shown: str) -> None:
    """Refuse a database that a later Windvane wrote."""
    if version > VERSION:
        message = f"store: {shown} has version {version}, this Windvane reads up to {VERSION}"
        raise StoreError(message, "newer")


def _pool(writes: bool) -> dict[str, int]:
    return {"pool_size": 1 if writes else 4, "max_overflow": 0 if writes else 12, "pool_timeout": 5}


def _pragmas(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",  # a commit is on disk
        "foreign_keys = ON",
        "wal_autocheckpoint = 16000",  # pages; see checkpoint.py
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
    connection.isolation_level = None  # the driver begins no transaction behind our back


def _begin_at_once(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
