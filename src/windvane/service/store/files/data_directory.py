"""The data directory of a log on SQLite: private files, and what it remembers of its log.

The log holds contexts of people, event ids and hashes of keys, so only the user who runs the
service can read it, its lock and its backups. Every file is created with its final permissions:
there is no moment at which another user could open it. SQLite gives the files that it makes beside
a database the permissions of the database.

SQLite opens a database file that is missing or has zero bytes as a new database. The service would
then run without its loops, and without the keys that it asked for before. Therefore a small file
beside the database remembers the last id of every table. A log that has fewer rows than the
directory remembers is refused until the operator says how to go on.
"""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec
from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from windvane.errors import StoreError
from windvane.persistence import replace_file

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
_OTHERS = 0o077  # the permissions of the group and of all others
WAL_SUFFIX = "-wal"


class OpenedFiles:
    """The files of an SQLite database as a process opened them, to notice if they are gone.

    A process goes on writing to a file that was deleted or moved, and nobody would ever read it.
    """

    def __init__(self, url: URL) -> None:
        is_sqlite = url.get_backend_name() == "sqlite"
        database = url.database or ""
        self._paths = (database, database + WAL_SUFFIX) if is_sqlite else ()
        self._opened = [_identify(path) for path in self._paths]

    def check(self) -> None:
        """Raise a StoreError if a file was deleted, moved or replaced; takes some microseconds."""
        for place, path in enumerate(self._paths):
            identity = _identify(path)
            if self._opened[place] is None:  # SQLite had not made it yet
                self._opened[place] = identity
            if identity != self._opened[place]:
                message = (
                    f"store: {path} was deleted, moved or replaced under the running service; "
                    "move it back, or stop the service and restore a backup"
                )
                raise StoreError(message, "disk")


def _identify(path: str) -> tuple[int, int] | None:
    """The device and the number of a file; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def make_private_directory(directory: Path) -> None:
    """Create a directory for one user, if it does not exist."""
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    except FileExistsError:
        message = f"store: {directory} is a file; name a directory"
        raise StoreError(message, "unreachable") from None
    except OSError as error:
        message = f"store: {directory} cannot be created ({error.strerror})"
        raise StoreError(message, "unreachable") from None


def open_private_file(path: Path) -> int:
    """Open a file for reading and writing, and create it for one user if it does not exist.

    Returns the file descriptor, which child processes do not inherit.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        message = (
            f"store: {path} cannot be opened for writing ({error.strerror}); the service needs a "
            "directory that it can write"
        )
        raise StoreError(message, "unreachable") from None


def narrow_permissions(directory: Path, own_names: Iterable[str]) -> None:
    """Let only the owner read and write the files of the log, also those that were copied there.

    The directory is narrowed too, unless it also contains files of somebody else. What another user
    owns stays as it is, and so does what a link leads to: it may be a device.
    """
    names = set(own_names)
    entries = list(directory.iterdir())
    for path in entries:
        if path.name in names:
            _narrow(path, FILE_MODE)
    if all(path.name in names for path in entries):
        _narrow(directory, DIRECTORY_MODE)


def _narrow(path: Path, mode: int) -> None:
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return
        if status.st_mode & _OTHERS and status.st_uid == os.geteuid():
            path.chmod(mode)


PROGRESS_SUFFIX = "-progress"  # after the name of the database
TABLES = ("loops", "settings_log", "decisions", "rewards", "lessons", "snapshots", "keys")


class LogProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The last id of every table; SQLite counts on after rows were deleted."""

    last_ids: dict[str, int] = {}
    version: int = 1


def get_progress_path(database: Path) -> Path:
    """The path of the file that remembers the progress of a log."""
    return database.with_name(database.name + PROGRESS_SUFFIX)


def check_file(database: Path) -> None:
    """Refuse a database file that is missing or empty although there was a log; opens nothing.

    SQLite would delete a write-ahead log beside an empty database.
    """
    try:
        if database.stat().st_size:
            return
    except FileNotFoundError:
        pass
    except OSError as error:
        message = f"store: {database} cannot be opened ({error.strerror})"
        raise StoreError(message, "unreachable") from None
    state = "has zero bytes" if database.exists() else "is missing"
    path = get_progress_path(database)
    if path.exists():
        raise StoreError(f"store: {database} {state}, but there was a log. {_advise(path)}", "lost")
    wal = database.with_name(database.name + WAL_SUFFIX)
    if wal.exists() and wal.stat().st_size:
        message = (
            f"store: {database} {state}, but {wal} holds writes to it. Restore a backup with: "
            f"windvane restore FILE --data {database.parent}, after you have moved {wal} away"
        )
        raise StoreError(message, "lost")


def check_progress(database: Path, connection: Connection) -> None:
    """Refuse a log that has less than its directory remembers."""
    path = get_progress_path(database)
    progress = _read_progress(path)
    if progress is None:
        return
    last_ids = _read_last_ids(connection)
    missing = [
        f"{table} up to {last_id}, the log has {last_ids.get(table, 0)}"
        for table, last_id in progress.last_ids.items()
        if last_ids.get(table, 0) < last_id
    ]
    if missing or not last_ids:
        remembered = f" (it remembers {missing[0]})" if missing else ""
        message = f"store: {database} has less than {path} remembers{remembered}. {_advise(path)}"
        raise StoreError(message, "lost")


def save_progress(engine: Engine) -> None:
    """Remember how far a log on SQLite has got; a directory that cannot be written is left out."""
    if engine.url.get_backend_name() != "sqlite":
        return
    path = get_progress_path(Path(engine.url.database or ""))
    with contextlib.suppress(OSError, SQLAlchemyError, StoreError):
        with engine.connect() as connection:
            last_ids = _read_last_ids(connection)
        saved = _read_progress(path)
        if saved is not None:  # another process may have saved a later state
            pairs = {name: (last_ids.get(name, 0), saved.last_ids.get(name, 0)) for name in TABLES}
            last_ids = {name: max(pair) for name, pair in pairs.items()}
        if saved is None or last_ids != saved.last_ids:
            _write_progress(path, last_ids)


def reset_progress(engine: Engine) -> None:
    """Remember the log as it is now, and forget what was remembered before."""
    with engine.connect() as connection:
        last_ids = _read_last_ids(connection)
    _write_progress(get_progress_path(Path(engine.url.database or "")), last_ids)


def _advise(path: Path) -> str:
    directory = path.parent
    return (
        f"Restore a backup with: windvane restore FILE --data {directory}; or, to go on with the "
        f"log as it is and without what is lost, its keys included, delete {path}"
    )


def _read_progress(path: Path) -> LogProgress | None:
    """Read what is remembered; None if nothing is, and no ids if the file is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LogProgress)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        return LogProgress()
    except OSError as error:
        message = f"store: {path} cannot be read ({error.strerror})"
        raise StoreError(message, "unreachable") from None


def _write_progress(path: Path, last_ids: dict[str, int]) -> None:
    with replace_file(path, private=True) as draft, open(draft, "wb") as file:
        file.write(msgspec.json.encode(LogProgress(last_ids)))
        file.flush()
        os.fsync(file.fileno())


def _read_last_ids(connection: Connection) -> dict[str, int]:
    """Read the last id of every table; no ids if the database has no tables."""
    tables = "SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_sequence'"
    if not connection.exec_driver_sql(tables).scalar():
        return {}
    rows = connection.exec_driver_sql("SELECT name, seq FROM sqlite_sequence").all()
    last_ids = {str(name): int(last_id) for name, last_id in rows}
    return {table: last_ids.get(table, 0) for table in TABLES}
