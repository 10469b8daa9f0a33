"""Copies of an SQLite log, made while others write, and made a log again."""

import os
import sqlite3
from contextlib import closing
from os import PathLike
from pathlib import Path
from uuid import uuid4

from windvane.errors import StoreError
from windvane.service.store.database import check_version, location, make_directory
from windvane.service.store.database_errors import explained
from windvane.service.store.schema import schema

REST = ("wal", "journal")  # of a database that is gone; SQLite would write it into the next one


def copy(source: Path, target: Path) -> None:
    """The log as it is at one moment; the copy is whole or not there."""
    if target.exists() and target.samefile(source):
        raise StoreError(f"store: {target} is the log itself; take another file", "refused")
    draft = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        with closing(_reading(source)) as old, closing(sqlite3.connect(draft)) as new:
            old.backup(new)  # in one step: of one moment, and no writer waits for it
            new.execute("PRAGMA journal_mode = DELETE")  # one file, that can be read where it is
        os.replace(draft, target)
    except (sqlite3.Error, OSError) as error:
        raise explained(error) from None
    finally:
        draft.unlink(missing_ok=True)


def restore(backup: str | PathLike[str], where: str | PathLike[str]) -> None:
    """Make a backup the log of a directory that has none."""
    source, url = Path(backup), location(where)
    if url.get_backend_name() != "sqlite":
        message = "store: a PostgreSQL database is restored with pg_restore or psql"
        raise StoreError(message, "unsupported")
    target = Path(url.database or "")
    if not source.is_file():
        raise StoreError(f"store: there is no backup {source}", "unreachable")
    for there in (target, *(target.with_name(f"{target.name}-{rest}") for rest in REST)):
        if there.exists():
            message = f"store: {there} exists; a backup is restored where there is no log yet"
            raise StoreError(message, "refused")
    _check(source)
    make_directory(target)
    copy(source, target)


def _check(path: Path) -> None:
    """Refuse a file that is damaged, foreign or too new."""
    try:
        with closing(_reading(path)) as connection:
            if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise StoreError(f"store: {path} is damaged", "broken")
            named = "SELECT name FROM sqlite_master WHERE name = ?"
            if connection.execute(named, (schema.name,)).fetchone() is None:
                raise StoreError(f"store: {path} is not a log of Windvane", "foreign")
            (version,) = connection.execute(f"SELECT version FROM {schema.name}").fetchone()
    except sqlite3.Error as error:
        raise explained(error) from None
    check_version(version, str(path))


def _reading(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
