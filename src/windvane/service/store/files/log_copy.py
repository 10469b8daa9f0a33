"""Copies of a log: to another database, as a backup, and in place without free pages.

A copy goes from SQLite to PostgreSQL, back, or to another file. Rows are copied table by table in
the order of their keys, in batches, each in one transaction. A copy that was interrupted goes on
after the last key of each table. Until the copy is complete, the target has the schema version
`UNFINISHED_COPY`, so that no service starts on it.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    Text,
    delete,
    func,
    insert,
    inspect,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from windvane.errors import StoreError
from windvane.persistence import replace_file
from windvane.service.store.database import (
    UNFINISHED_COPY,
    check_output,
    check_version,
    create_or_migrate_tables,
    map_error,
    open_engine,
    open_for_writing,
    prepare_file,
    resolve_url,
)
from windvane.service.store.files.data_directory import check_file, reset_progress
from windvane.service.store.files.service_lock import hold_service_lock
from windvane.service.store.files.withdrawal_file import open_abandoned_withdrawal_files
from windvane.service.store.log import LogReader
from windvane.service.store.schema import (
    SCHEMA_VERSION,
    clock,
    counters,
    keys,
    lease,
    loops,
    metadata,
    positions,
    schema_version,
    servers,
)

BATCH_ROWS = 1000  # rows in one transaction
BATCH_BYTES = 4 << 20  # bytes of texts and blobs in one transaction
BUFFERED_ROWS = 50  # rows in one read
BUFFERED_BLOBS = 4  # rows in one read, if each has up to a megabyte
LOCK_WAIT_SECONDS = 2.0  # PostgreSQL frees the lock of a service some time after it has ended
TABLES_OF_SERVERS = (lease, servers)  # about processes that run, and none runs on the copy
SMALL_TABLES = (loops, keys, counters, positions, clock)  # every value is compared
COPIED_TABLES = [  # a table stands after those that its rows refer to
    table
    for table in metadata.sorted_tables
    if table is not schema_version and table not in TABLES_OF_SERVERS
]
KEYED_TABLES = [table for table in COPIED_TABLES if table.primary_key.columns]

copy_state = Table(  # of an unfinished copy: from which state of which log
    "windvane_copy", MetaData(), Column("source", Text, nullable=False)
)

Report = Callable[[str, int, int], None]  # the table, the rows that are done, and all rows


def copy_log(
    source: str | PathLike[str], target: str | PathLike[str], report: Report
) -> dict[str, int]:
    """Copy a log to a database without rows, or finish a copy; returns the rows of each table.

    No service may run on either of them. The source is brought to the current schema version.
    """
    source_url, target_url = resolve_url(source), resolve_url(target)
    if _is_same_database(source_url, target_url):
        raise StoreError("migrate: --from and --to name the same log", "refused")
    try:
        _check_source(source_url)
        with (
            hold_service_lock(source_url, LOCK_WAIT_SECONDS),
            hold_service_lock(target_url, LOCK_WAIT_SECONDS),
        ):
            _check_withdrawals(source_url)
            with _read_snapshot(source_url) as reader:
                if target_url.get_backend_name() == "sqlite":
                    prepare_file(Path(target_url.database or ""))
                with open_engine(target_url, writes=True) as engine:
                    return _copy_all(reader, engine, report)
    except Exception as error:
        raise map_error(error) from None


def _is_same_database(source: URL, target: URL) -> bool:
    if source.get_backend_name() != "sqlite" or target.get_backend_name() != "sqlite":
        return source == target
    return os.path.realpath(source.database or "") == os.path.realpath(target.database or "")


def _check_source(url: URL) -> None:
    """Refuse a source without a log, and migrate the tables of an older version."""
    shown = url.render_as_string(hide_password=True)
    missing = StoreError(f"migrate: there is no log in {shown}", "unreachable")
    if url.get_backend_name() == "sqlite":
        path = Path(url.database or "")
        check_file(path)
        if not path.exists():
            raise missing
    with open_engine(url, writes=False) as engine, engine.connect() as connection:
        if not inspect(connection).has_table(schema_version.name):
            raise missing
        version = connection.scalar(select(schema_version.c.version)) or 0
    check_version(version, shown)
    if version < SCHEMA_VERSION:
        with hold_service_lock(url, LOCK_WAIT_SECONDS):
            open_for_writing(url).dispose()


def _check_withdrawals(url: URL) -> None:
    """Refuse a source whose service was killed before it could withdraw decisions."""
    count = 0
    for file in open_abandoned_withdrawal_files(url):
        count += len(file.records)
        file.close()
    if count:
        message = (
            f"migrate: {count} decisions of the log are still to be withdrawn; start the service "
            "on it once and stop it"
        )
        raise StoreError(message, "refused")


@contextmanager
def _read_snapshot(url: URL) -> Iterator[Connection]:
    """A connection that sees the log as it is at one moment."""
    with open_engine(url, writes=False) as engine, engine.connect() as connection:
        if url.get_backend_name() == "sqlite":
            connection.exec_driver_sql("BEGIN")
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")
            for timeout in ("statement_timeout", "idle_in_transaction_session_timeout"):
                connection.exec_driver_sql(f"SET {timeout} = 0")  # a copy takes long
        yield connection


def _copy_all(reader: Connection, engine: Engine, report: Report) -> dict[str, int]:
    counts = _count_rows(reader)
    _begin_or_resume(engine, _compute_fingerprint(reader, counts))
    with engine.begin() as writer:
        done = sum(_count_rows(writer).values())
    total = sum(counts.values())
    report(KEYED_TABLES[0].name, done, total)
    for table in KEYED_TABLES:
        with engine.begin() as writer:
            last_key = _find_end_key(writer, table)
        for rows in _read_batches(reader, table, last_key):
            with engine.begin() as writer:
                _insert_rows(writer, table, rows)
            done += len(rows)
            report(table.name, done, total)
    with engine.begin() as writer:
        _finish(reader, writer, counts)
    if engine.url.get_backend_name() == "sqlite":
        reset_progress(engine)
    report(KEYED_TABLES[-1].name, total, total)
    return counts


def _begin_or_resume(engine: Engine, fingerprint: str) -> None:
    """Mark the target as an unfinished copy, or check that it is one of this very source."""
    shown = engine.url.render_as_string(hide_password=True)
    with engine.begin() as writer:
        if inspect(writer).has_table(copy_state.name):
            if writer.scalar(select(copy_state.c.source)) != fingerprint:
                message = (
                    f"migrate: {shown} has an unfinished copy of another log, or of this one before"
                    " it changed; name an empty database"
                )
                raise StoreError(message, "refused")
            return
    create_or_migrate_tables(engine)
    with engine.begin() as writer:
        for table in COPIED_TABLES:
            if writer.execute(select(table).limit(1)).first() is not None:
                message = f"migrate: {shown} has rows in {table.name}; name an empty database"
                raise StoreError(message, "refused")
        copy_state.create(writer)
        writer.execute(insert(copy_state), {"source": fingerprint})
        writer.execute(update(schema_version).values(version=UNFINISHED_COPY))


def _finish(reader: Connection, writer: Connection, counts: dict[str, int]) -> None:
    """Copy what has no key, check the copy, and let services start on it."""
    for table in COPIED_TABLES:
        if table not in KEYED_TABLES:
            writer.execute(delete(table))
            if rows := [dict(row._mapping) for row in reader.execute(select(table))]:
                writer.execute(insert(table), rows)
    set_last_ids(writer, COPIED_TABLES, read_last_ids(reader, COPIED_TABLES))
    copied = _count_rows(writer)
    for name, count in counts.items():
        if copied[name] != count:
            message = f"migrate: {name} has {count} rows, and its copy has {copied[name]}"
            raise StoreError(message, "broken")
    if _compute_fingerprint(writer, copied) != _compute_fingerprint(reader, counts):
        raise StoreError("migrate: the copy differs from its source", "broken")
    copy_state.drop(writer)
    writer.execute(update(schema_version).values(version=SCHEMA_VERSION))


def _count_rows(connection: Connection) -> dict[str, int]:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    return {
        table.name: int(connection.scalar(select(func.count()).select_from(table)) or 0)
        for table in COPIED_TABLES
    }


def _compute_fingerprint(connection: Connection, counts: dict[str, int]) -> str:
    """A hash of the state of a log, which any write of a service or a command changes.

    It has the number of rows and the ends of the keys of every table, and all of the small tables.
    """
    state: list[object] = [sorted(counts.items())]
    for table in KEYED_TABLES:
        for row in (_find_end_key(connection, table, last) for last in (False, True)):
            state.append(None if row is None else list(row))
    for table in SMALL_TABLES:
        rows = connection.execute(select(table).order_by(*table.columns))
        state.append([list(row) for row in rows])
    return hashlib.sha256(repr(state).encode()).hexdigest()


def _insert_rows(writer: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows; PostgreSQL takes them by COPY, with far less work for each row."""
    if writer.dialect.name != "postgresql":
        writer.execute(insert(table), rows)
        return
    quote = writer.dialect.identifier_preparer.quote
    names = ", ".join(quote(name) for name in rows[0])
    driver_connection: Any = writer.connection.driver_connection
    with (
        driver_connection.cursor() as cursor,
        cursor.copy(f"COPY {quote(table.name)} ({names}) FROM STDIN") as stream,
    ):
        for row in rows:
            stream.write_row(tuple(row.values()))


def _find_end_key(connection: Connection, table: Table, last: bool = True) -> Sequence[Any] | None:
    """The key of the last row, or of the first; None if the table has no rows."""
    key = list(table.primary_key.columns)
    order = (column.desc() if last else column for column in key)
    return connection.execute(select(*key).order_by(*order).limit(1)).first()


def _read_batches(
    reader: Connection, table: Table, after: Sequence[Any] | None
) -> Iterator[list[dict[str, Any]]]:
    """Read the rows after a key in the order of keys, in batches of bounded size."""
    key = list(table.primary_key.columns)
    query = select(table).order_by(*key)
    if after is not None:
        query = query.where(tuple_(*key) > tuple_(*after))
    buffered = BUFFERED_BLOBS if "blob" in table.c else BUFFERED_ROWS
    options = {"stream_results": True, "max_row_buffer": buffered}
    rows: list[dict[str, Any]] = []
    size = 0
    for row in reader.execute(query, execution_options=options):
        rows.append(dict(row._mapping))
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


_SEQUENCE_NAME = text("SELECT pg_get_serial_sequence(:name, :column)")
_SET_SEQUENCE = text("SELECT setval(CAST(:sequence AS regclass), :value, :is_used)")


def read_last_ids(connection: Connection, tables: Iterable[Table]) -> dict[str, int]:
    """Read the last id that every table has given to a row, also if the row was deleted since.

    A snapshot names the last lesson that it contains by its id. A copy therefore has to go on after
    the last id of its source, not after the last row.
    """
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql("SELECT name, seq FROM sqlite_sequence").all()
        counted = {str(name): int(last_id) for name, last_id in rows}
    else:
        counted = {}
        for table, sequence in _find_sequences(connection, tables):
            query = f"SELECT last_value, is_called FROM {sequence}"
            value, is_used = connection.exec_driver_sql(query).one()
            counted[table.name] = int(value) if is_used else int(value) - 1
    return {
        table.name: max(
            counted.get(table.name, 0), connection.scalar(select(func.max(column))) or 0
        )
        for table in tables
        if (column := table.autoincrement_column) is not None
    }


def set_last_ids(connection: Connection, tables: Iterable[Table], last_ids: dict[str, int]) -> None:
    """Let every table go on after its last id."""
    if connection.dialect.name == "sqlite":
        for table in tables:
            if table.name in last_ids and table.dialect_options["sqlite"]["autoincrement"]:
                name, last_id = table.name, last_ids[table.name]
                connection.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                insert = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"
                connection.exec_driver_sql(insert, (name, last_id))
        return
    for table, sequence in _find_sequences(connection, tables):
        last_id = last_ids.get(table.name, 0)
        values = {"sequence": sequence, "value": max(last_id, 1), "is_used": last_id > 0}
        connection.execute(_SET_SEQUENCE, values)


def _find_sequences(connection: Connection, tables: Iterable[Table]) -> Iterator[tuple[Table, str]]:
    """Every table with the name of its sequence in PostgreSQL."""
    for table in tables:
        column = table.autoincrement_column
        if column is None:
            continue
        names = {"name": table.name, "column": column.name}
        sequence = connection.scalar(_SEQUENCE_NAME, names)
        if sequence is not None:
            yield table, sequence


SIDE_FILES = ("wal", "journal")  # SQLite would apply one that is left over to a new database


def write_backup(log: LogReader, path: str | PathLike[str]) -> None:
    """Copy a log on SQLite to a file, as of one moment, while others read and write it."""
    database = _get_file(log.url, "a PostgreSQL database is backed up with pg_dump")
    check_output(log.url, Path(path))
    _copy_database(database, Path(path))


def _get_file(url: URL, otherwise: str) -> Path:
    """The file of a database on SQLite; another one is refused, with what to do instead."""
    if url.get_backend_name() != "sqlite":
        raise StoreError(f"store: {otherwise}", "unsupported")
    return Path(url.database or "")


def _copy_database(source: Path, target: Path) -> None:
    """Copy a database as of one moment; the target is complete or absent, never partial."""
    if not target.name or target.is_dir():
        message = f"store: {str(target)!r} is a directory; name a file to write"
        raise StoreError(message, "refused")
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
    target = _get_file(url, "a PostgreSQL database is restored with pg_restore or psql")
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
        _copy_database(source, target)
        try:
            with open_engine(url, writes=False) as engine:
                reset_progress(engine)
        except (OSError, SQLAlchemyError) as error:
            raise map_error(error) from None


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
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def compact_database(location: str | PathLike[str]) -> tuple[int, int]:
    """Rewrite the file of a log without free pages, and let it shrink by itself from then on.

    Returns the bytes before and after. No service may run on the log. The disk needs room for a
    second copy of what is in use.
    """
    url = resolve_url(location)
    path = _get_file(url, "PostgreSQL uses free space again by itself; VACUUM FULL gives it back")
    with hold_service_lock(url, timeout_seconds=0.0):
        open_for_writing(url).dispose()
        before = path.stat().st_size
        try:
            with open_engine(url, writes=False) as engine, engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA auto_vacuum = INCREMENTAL")
                connection.exec_driver_sql("VACUUM")
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
        except Exception as error:
            raise map_error(error) from None
        return before, path.stat().st_size
