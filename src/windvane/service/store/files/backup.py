"""Backup, restore and compaction of a log on SQLite.

A backup is taken while others read and write the log.
"""

import sqlite3
from contextlib import closing
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from windvane.errors import StoreError
from windvane.persistence import replace_file
from windvane.service.store.database import (
    check_version,
    make_engine,
    map_error,
    open_for_writing,
    resolve_url,
)
from windvane.service.store.files.data_directory import reset_progress
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.schema import schema_version

SIDE_FILES = ("wal", "journal")  # SQLite would apply one that is left over to a new database


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as of one moment; the target is complete or absent, never partial."""
    if not target.name or target.is_dir():
        message = f"store: {str(target)!r} is a directory; name a file to write"
        raise StoreError(message, "refused")
    if target.exists() and target.samefile(source):
        raise StoreError(f"store: {target} is the log itself; choose another file", "refused")
    try:
        with (
            replace_file(target, private=True) as draft,
            closing(_open_read_only(source)) as old,
            closing(sqlite3.connect(draft)) as new,
        ):
            old.backup(new)  # in one step: of one moment, and no writer waits for it
            new.execute("PRAGMA journal_mode = DELETE")  # a single file, readable in place
    except (sqlite3.Error, OSError) as error:
        raise map_error(error) from None


def restore_backup(backup: str | PathLike[str], location: str | PathLike[str]) -> None:
    """Copy a backup into a data directory that has no log, or has lost it.

    The directory then remembers the progress of the backup, not of a log that was lost.
    """
    source, url = Path(backup), resolve_url(location)
    if url.get_backend_name() != "sqlite":
        message = "store: a PostgreSQL database is restored with pg_restore or psql"
        raise StoreError(message, "unsupported")
    target = Path(url.database or "")
    if not source.is_file():
        raise StoreError(f"store: there is no backup {source}", "unreachable")
    _check_backup(source)
    with hold_service_lock(url, timeout_seconds=0.0):
        side_files = (target.with_name(f"{target.name}-{suffix}") for suffix in SIDE_FILES)
        for path in (target, *side_files):
            if path.exists() and path.stat().st_size:
                message = (
                    f"store: {path} exists; move it away, or restore into a directory without a log"
                )
                raise StoreError(message, "refused")
        copy_database(source, target)
        engine = make_engine(url, writes=False)
        try:
            reset_progress(engine)
        except (OSError, SQLAlchemyError) as error:
            raise map_error(error) from None
        finally:
            engine.dispose()


def _check_backup(path: Path) -> None:
    """Refuse a file that is damaged, of another program, or of a later version of Windvane."""
    table = schema_version.name
    try:
        with closing(_open_read_only(path)) as connection:
            if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise StoreError(f"store: {path} is damaged", "broken")
            find_table = "SELECT name FROM sqlite_master WHERE name = ?"
            if connection.execute(find_table, (table,)).fetchone() is None:
                raise StoreError(f"store: {path} is not a log of Windvane", "foreign")
            (version,) = connection.execute(f"SELECT version FROM {table}").fetchone()
    except sqlite3.Error as error:
        kind = map_error(error).kind
        raise StoreError(f"store: {path} cannot be read as a backup ({error})", kind) from None
    check_version(version, str(path))


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


class FileSizes(NamedTuple):
    """The size of a file in bytes, before and after."""

    before: int
    after: int


def compact_database(location: str | PathLike[str]) -> FileSizes:
    """Rewrite the file of a log without free pages, and let it shrink by itself from then on.

    No service may run on the log. The disk needs room for a second copy of what is in use.
    """
    url = resolve_url(location)
    if url.get_backend_name() != "sqlite":
        message = "store: PostgreSQL uses free space again by itself; VACUUM FULL gives it back"
        raise StoreError(message, "unsupported")
    path = Path(url.database or "")
    with hold_service_lock(url, timeout_seconds=0.0):
        open_for_writing(url).dispose()
        before = path.stat().st_size
        engine = make_engine(url, writes=False)
        try:
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA auto_vacuum = INCREMENTAL")
                connection.exec_driver_sql("VACUUM")
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
        except Exception as error:
            raise map_error(error) from None
        finally:
            engine.dispose()
        return FileSizes(before, path.stat().st_size)
