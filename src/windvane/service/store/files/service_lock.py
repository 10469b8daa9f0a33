"""The lock of the services on a log.

On SQLite one writer process runs on a log. It holds a lock on a file in the data directory, which
names the processes. A service that was killed keeps the lock until its writer process has written
all that it received.

On PostgreSQL any number of servers share a log. Each holds an advisory lock, in the mode `shared`,
by the very connection that writes: if the connection is cut, the lock and the means to write are
lost together. A program that needs the log for itself takes the lock in the mode `exclusive`.
"""

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from sqlalchemy import URL, Connection, Engine, ExceptionContext, TextClause, event, text
from sqlalchemy.exc import SQLAlchemyError

from windvane.errors import StoreError
from windvane.service.store.database import (
    LOCK_FILE,
    create_or_migrate_tables,
    map_error,
    open_engine,
    open_for_writing,
)
from windvane.service.store.files.data_directory import make_private_directory, open_private_file

ADVISORY_LOCK_KEY = 0x57494E44564E45  # the PostgreSQL lock of the services on a database
LOCK_RETRY_SECONDS = 0.02

_TRY_EXCLUSIVE_LOCK = text("SELECT pg_try_advisory_lock(:key)")
_TRY_SHARED_LOCK = text("SELECT pg_try_advisory_lock_shared(:key)")
_SELECT_HOLDER = text(
    "SELECT holder.pid, activity.application_name, activity.client_addr "
    "FROM pg_locks AS holder LEFT JOIN pg_stat_activity AS activity USING (pid) "
    "WHERE holder.locktype = 'advisory' AND holder.granted AND holder.objsubid = 1 "
    "AND (holder.classid::bigint << 32) + holder.objid::bigint = :key "
    "AND holder.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@contextmanager
def hold_service_lock(url: URL, timeout_seconds: float) -> Iterator[None]:
    """Hold the lock alone, without an engine to write; waits for it at most so many seconds."""
    if url.get_backend_name() == "sqlite":
        with _hold_file_lock(Path(url.database or "").parent, timeout_seconds):
            yield
        return
    try:
        with open_engine(url, writes=False) as engine, engine.connect() as connection:
            _wait_for_advisory_lock(connection, _TRY_EXCLUSIVE_LOCK, timeout_seconds)
            yield
    except SQLAlchemyError as error:
        raise map_error(error) from None


@contextmanager
def open_as_service(
    url: URL, timeout_seconds: float, lock_is_lost: threading.Event
) -> Iterator[Engine]:
    """Hold the lock and open the database for the writer of a service.

    `lock_is_lost` is set if the lock is lost; the engine writes nothing from then on.
    """
    if url.get_backend_name() == "sqlite":
        with _hold_file_lock(Path(url.database or "").parent, timeout_seconds):
            engine = open_for_writing(url)
            try:
                yield engine
            finally:
                engine.dispose()  # before the lock is released
        return
    name = f"windvane writer process {os.getpid()} on {socket.gethostname()}"
    with open_engine(url, writes=True, application_name=name) as engine:
        try:
            with engine.begin() as connection:  # the pool keeps this connection, and its lock
                _wait_for_advisory_lock(connection, _TRY_SHARED_LOCK, timeout_seconds)
            event.listen(engine, "handle_error", partial(_note_lost_connection, lock_is_lost))
            event.listen(engine, "do_connect", partial(_refuse_to_connect, lock_is_lost))
            create_or_migrate_tables(engine)
        except Exception as error:
            raise map_error(error) from None
        yield engine


def _note_lost_connection(lock_is_lost: threading.Event, context: ExceptionContext) -> None:
    if context.is_disconnect:
        lock_is_lost.set()


def _refuse_to_connect(lock_is_lost: threading.Event, *_: object) -> NoReturn:
    """Keep the pool from opening a second connection, which would write without the lock."""
    lock_is_lost.set()
    message = "store: the connection that holds the lock of the service was lost"
    raise StoreError(message, "unreachable")


@contextmanager
def _hold_file_lock(directory: Path, timeout_seconds: float) -> Iterator[None]:
    make_private_directory(directory)
    path = directory / LOCK_FILE
    descriptor = open_private_file(path)
    with os.fdopen(descriptor, "r+") as file:
        wait_for_lock(
            partial(try_lock_file, descriptor),
            timeout_seconds,
            lambda: _describe_file_holder(path, file.read()),
        )
        file.truncate()
        file.write(f"{os.getpid()} {os.getppid()}\n")  # of the writer and of its service
        file.flush()
        yield


def wait_for_lock(
    try_lock: Callable[[], bool], timeout_seconds: float, describe_holder: Callable[[], str]
) -> None:
    """Try to take a lock again and again; `describe_holder` is the error when the time is over."""
    deadline = time.monotonic() + timeout_seconds
    while not try_lock():
        if time.monotonic() > deadline:
            raise StoreError(describe_holder(), "locked")
        time.sleep(LOCK_RETRY_SECONDS)


def try_lock_file(descriptor: int) -> bool:
    """Lock an open file until it is closed or the process ends; False if another one has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _describe_file_holder(path: Path, content: str) -> str:
    """Say which process holds the lock and how to go on."""
    sentence = f"store: another service runs on {path.parent}"
    try:
        writer, service = map(int, content.split())
    except ValueError:
        return f"{sentence}: a process has locked {path}"
    if not is_process_alive(writer):  # it is of another container, say
        return f"{sentence}: a process has locked {path}"
    if is_process_alive(service):
        return f"{sentence}: process {service}, with the writer process {writer}; stop it first"
    return (
        f"{sentence}, or what is left of it: process {service} has ended, but its writer process "
        f"{writer} holds {path} and may still be writing. If it does not end by itself, end it "
        f"with: kill -9 {writer}. Nothing that was acknowledged is lost by that"
    )


def is_process_alive(process: int) -> bool:
    """Whether a process with this id exists on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it exists and belongs to another user
        pass
    return True


def _wait_for_advisory_lock(
    connection: Connection, try_lock: TextClause, timeout_seconds: float
) -> None:
    wait_for_lock(
        lambda: bool(connection.scalar(try_lock, {"key": ADVISORY_LOCK_KEY})),
        timeout_seconds,
        lambda: _describe_session(connection),
    )


def _describe_session(connection: Connection) -> str:
    """Say which session of the PostgreSQL server holds the lock and how to go on."""
    shown = connection.engine.url.render_as_string(hide_password=True)
    sentence = f"store: another service runs on {shown}"
    holder = None
    with suppress(SQLAlchemyError):
        holder = connection.execute(_SELECT_HOLDER, {"key": ADVISORY_LOCK_KEY}).first()
    if holder is None:
        return sentence
    return (
        f"{sentence}: {holder.application_name or 'a client'}, PostgreSQL session {holder.pid} "
        f"from {holder.client_addr or 'a local socket'}. If no service runs there, end the session "
        f"with: SELECT pg_terminate_backend({holder.pid})"
    )
