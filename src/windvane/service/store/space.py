"""Give the space of deleted rows back to the file system, on SQLite.

SQLite keeps the pages of deleted rows for new ones. A log in the mode `auto_vacuum = INCREMENTAL`
can give them back in small steps beside the traffic; the file itself becomes smaller at the next
checkpoint that no commit overtakes. Logs of release 0.1.0 have another mode, which
`compact_database` changes. PostgreSQL uses the space again by itself (autovacuum).
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import ClassVar, NamedTuple

from sqlalchemy import Connection

from windvane.errors import StoreError
from windvane.service.store.database import make_engine, open_for_writing, resolve_url
from windvane.service.store.database_errors import map_error
from windvane.service.store.group_commit import Operation, Transaction
from windvane.service.store.service_lock import hold_service_lock

INCREMENTAL = 2  # the value of the pragma auto_vacuum
STEP_PAGES = 64  # 256 kB: a step takes a few milliseconds
USED_PAGES_PER_SPARE_PAGE = 20  # spare pages are kept, so that a steady log does not move pages


class FileSizes(NamedTuple):
    """The size of a file in bytes, before and after."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class ReclaimSpace(Operation[bool]):
    """Give some free pages back to the file system; returns whether more are left to give."""

    result: ClassVar[type] = bool

    limit: int = STEP_PAGES

    def run(self, transaction: Transaction) -> bool:
        connection = transaction.connection
        if connection.dialect.name != "sqlite":
            return False
        if _read_pragma(connection, "auto_vacuum") != INCREMENTAL:
            return False
        free_pages = _read_pragma(connection, "freelist_count")
        used_pages = _read_pragma(connection, "page_count") - free_pages
        excess = free_pages - used_pages // USED_PAGES_PER_SPARE_PAGE
        if excess <= 0:
            return False
        cursor = connection.connection.cursor()
        for _ in range(min(excess, self.limit)):  # Python's driver stops after the first page
            cursor.execute("PRAGMA incremental_vacuum(1)")
        cursor.close()
        return excess > self.limit


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


def _read_pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
