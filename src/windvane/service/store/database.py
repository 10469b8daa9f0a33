"""The database of a log: its URL, its engines, its creation and migration, and its errors."""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

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
    text,
    update,
)
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from sqlalchemy.pool import ConnectionPoolEntry

from windvane.errors import StoreError
from windvane.service.clock import MICROSECONDS_PER_SECOND, read_wall_us
from windvane.service.store.files.data_directory import (
    PROGRESS_SUFFIX,
    check_file,
    check_progress,
    make_private_directory,
    narrow_permissions,
    open_private_file,
    save_progress,
)
from windvane.service.store.schema import (
    SCHEMA_VERSION,
    metadata,
    schema_version,
)

DATABASE_FILE = "windvane.db"
WITHDRAWALS_SUFFIX = "-withdrawals"  # after the name of the database
LOCK_FILE = "serving.lock"  # locked by the service that runs on the log
FILE_SUFFIXES = ("", "-wal", "-shm", "-journal", PROGRESS_SUFFIX, WITHDRAWALS_SUFFIX)
UNFINISHED_COPY = -1  # the schema version of a log while it is copied
LOCK_TIMEOUT_MS = 500  # longest wait for a lock of another connection
POSTGRESQL_OPTIONS = (
    f"-c lock_timeout={LOCK_TIMEOUT_MS} -c statement_timeout=30000 -c synchronous_commit=on "
    "-c plan_cache_mode=force_custom_plan "  # a plan for all time ranges is slow for most of them
    # A server that was cut off must not keep its locks: the others wait for them.
    "-c idle_in_transaction_session_timeout=5000 -c tcp_user_timeout=5000 "
    "-c tcp_keepalives_idle=2 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=3"
)
POSTGRESQL_CONNECTION = {  # seconds, except the user timeout: a cut is noticed, and a retry is soon
    "connect_timeout": 2,
    "tcp_user_timeout": 2000,  # milliseconds
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
}
CREATION_LOCK_KEY = 0x57494E4443524541  # the PostgreSQL lock of the server that creates the tables


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
        if url.database.endswith((LOCK_FILE, *FILE_SUFFIXES[1:])):
            message = f"store: {url.database} is a file that belongs to a log; name the log itself"
            raise StoreError(message, "refused")
        return url
    message = f"store: a URL must start with postgresql:// or sqlite:///FILE, got {backend}://"
    raise StoreError(message, "refused")


def make_engine(url: URL, writes: bool, application_name: str | None = None) -> Engine:
    """Make the engine of the writer (one connection, transactions) or of readers (a pool, none).

    PostgreSQL shows the name of the application to its operators.
    """
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
        connect_args={
            **POSTGRESQL_CONNECTION,
            "options": options,
            "application_name": application_name or "windvane",
        },
        isolation_level="READ COMMITTED" if writes else "AUTOCOMMIT",
        pool_pre_ping=True,
        **_pool_settings(writes),
    )


@contextmanager
def open_engine(url: URL, writes: bool, application_name: str | None = None) -> Iterator[Engine]:
    """Make an engine as `make_engine` does, and close its connections at the end."""
    engine = make_engine(url, writes, application_name)
    try:
        yield engine
    finally:
        engine.dispose()


def open_for_writing(url: URL) -> Engine:
    """Open a database for the writer; create the tables, or migrate those of an older version."""
    if url.get_backend_name() == "sqlite":
        prepare_file(Path(url.database or ""))
    engine = make_engine(url, writes=True)
    try:
        create_or_migrate_tables(engine)
        save_progress(engine)
    except Exception as error:
        engine.dispose()
        raise map_error(error) from None
    return engine


def may_have_log(url: URL) -> bool:
    """Whether a database may have a log: False if it is an SQLite database without a file."""
    if url.get_backend_name() != "sqlite":
        return True
    database = Path(url.database or "")
    check_file(database)
    return database.exists()


def check_output(url: URL, target: Path) -> None:
    """Refuse a path to write to that is a file of this log, or of the log in its directory."""
    databases = [Path(url.database or "")] if url.get_backend_name() == "sqlite" else []
    if (target.parent / LOCK_FILE).exists():
        databases.append(target.parent / DATABASE_FILE)
    for database in databases:
        for name in _list_names(database):
            path = database.with_name(name)
            is_same = target.name == name and (
                os.path.realpath(target.parent) == os.path.realpath(path.parent)
            )
            if is_same or (path.exists() and target.exists() and path.samefile(target)):
                message = f"store: {target} is a file of the log itself; name another file"
                raise StoreError(message, "refused")


def _list_names(database: Path) -> list[str]:
    """The names of all files in the directory of a database that belong to its log."""
    return [LOCK_FILE, *(database.name + end for end in FILE_SUFFIXES)]


def prepare_file(database: Path) -> None:
    """Create the file of an SQLite database if there is none; only its owner can read it."""
    directory = database.parent
    make_private_directory(directory)
    check_file(database)
    os.close(open_private_file(database))
    narrow_permissions(directory, _list_names(database))


def create_or_migrate_tables(engine: Engine) -> None:
    """Create or migrate the tables; refuse those of a later version or another program."""
    shown = engine.url.render_as_string(hide_password=True)
    with engine.begin() as connection:
        if engine.url.get_backend_name() == "sqlite":
            check_progress(Path(engine.url.database or ""), connection)
        else:  # one server creates the tables, however long that takes, and the others find them
            connection.execute(text("SET LOCAL lock_timeout = 0"))
            connection.execute(select(func.pg_advisory_xact_lock(CREATION_LOCK_KEY)))
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


MIGRATIONS: dict[int, Callable[[Connection], None]] = {}  # by the version before
OLDEST_VERSION = 1  # a log of an older version is refused


def migrate(connection: Connection) -> None:
    """Apply every migration that the database lacks, inside the caller's transaction.

    A migration only adds tables, columns and indexes. Rows of decisions, rewards and lessons stay
    as they are, so it takes the same short time for a log of any size.
    """
    # The row lock lets a second process wait here, and then find nothing left to do.
    version = connection.scalar(select(schema_version.c.version).with_for_update()) or 0
    for source in range(version, SCHEMA_VERSION):
        MIGRATIONS[source](connection)
        connection.execute(update(schema_version).values(version=source + 1))


def check_version(version: int, shown: str) -> None:
    """Refuse a database of a version that this Windvane neither reads nor migrates."""
    if version == UNFINISHED_COPY:
        message = f"store: {shown} has an unfinished copy of a log; run windvane migrate again"
        raise StoreError(message, "older")
    if version > SCHEMA_VERSION:
        message = (
            f"store: {shown} has version {version}, this Windvane reads up to {SCHEMA_VERSION}; "
            "use the Windvane that wrote it, or a later one"
        )
        raise StoreError(message, "newer")
    if version < OLDEST_VERSION:
        message = (
            f"store: {shown} has version {version}, this Windvane reads from version "
            f"{OLDEST_VERSION} on; use the Windvane that wrote it"
        )
        raise StoreError(message, "older")


def explain_old_version(connection: Connection) -> StoreError | None:
    """Make the error of a reader of tables that are not migrated yet; None if they are."""
    version = connection.scalar(select(schema_version.c.version)) or 0
    if version >= SCHEMA_VERSION:
        return None
    shown = connection.engine.url.render_as_string(hide_password=True)
    try:
        check_version(version, shown)
    except StoreError as error:
        return error
    message = (
        f"store: {shown} has version {version} and this Windvane needs {SCHEMA_VERSION}: start the "
        "service on it once, which migrates it"
    )
    return StoreError(message, "older")


_READ_POSTGRESQL_US = text(
    f"SELECT (extract(epoch FROM clock_timestamp()) * {MICROSECONDS_PER_SECOND})::bigint"
)


def read_database_us(connection: Connection) -> int:
    """The clock of the database: on SQLite, where all processes are on one machine, the wall clock.

    Times of two servers can be compared only by one clock.
    """
    if connection.dialect.name == "sqlite":
        return read_wall_us()
    return int(connection.scalar(_READ_POSTGRESQL_US) or 0)


def _pool_settings(writes: bool) -> dict[str, int]:
    return {"pool_size": 1 if writes else 4, "max_overflow": 0 if writes else 12, "pool_timeout": 5}


def _set_pragmas(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA page_count")
    is_new = cursor.fetchone() == (0,)
    if is_new:  # later it changes nothing, but writes and waits for other writers
        cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",  # a commit returns when it is on disk
        "foreign_keys = ON",
        # Pages. The writer's `CheckpointThread` has copied most of them by then, but only a writer
        # can start the file again under steady traffic; a larger file could fill a small disk.
        "wal_autocheckpoint = 1000",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
    connection.isolation_level = None  # the driver must not begin transactions by itself


def _begin_immediate(connection: Connection) -> None:
    driver: sqlite3.Connection | None = connection.connection.driver_connection
    assert driver is not None
    driver.execute("BEGIN IMMEDIATE")  # SQLAlchemy would take longer than SQLite for it


SENTENCES = {  # by kind; other kinds are not failures of the database
    "locked": "another connection has locked the database",
    "full": "the disk is full",
    "disk": "reading or writing the disk failed",
    "readonly": "the database is read-only",
    "unreachable": "the database cannot be reached",
    "broken": "the file is damaged or not a database",
}

SQLITE_KINDS = {  # by primary result code
    5: "locked",
    6: "locked",
    8: "readonly",
    10: "disk",
    11: "broken",
    13: "full",
    14: "unreachable",
    23: "unreachable",
    26: "broken",
}

POSTGRESQL_KINDS = {  # by SQLSTATE, or by its first two characters, its class
    "53100": "full",
    "53": "unreachable",
    "55P03": "locked",
    "40": "locked",
    "57014": "locked",  # statement_timeout
    "57": "unreachable",
    "58": "disk",
    "XX": "broken",
    "25006": "readonly",
    "08": "unreachable",
    "28": "unreachable",
    "3D": "unreachable",
}


def map_error(error: Exception) -> StoreError:
    """Make a StoreError of any error; its kind is `refused` if the database did not fail."""
    if isinstance(error, StoreError):
        return error
    cause = error.orig if isinstance(error, DBAPIError) else error
    kind = _find_kind(error, cause)
    reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    sentence = SENTENCES.get(kind, "the operation failed")
    store_error = StoreError(f"store: {sentence} ({reason})", kind)
    store_error.__cause__ = error
    return store_error


def is_database_failure(error: StoreError) -> bool:
    """Whether the database failed, and not a single operation."""
    return error.kind in SENTENCES


def _find_kind(error: Exception, cause: BaseException | None) -> str:
    if isinstance(cause, sqlite3.Error):
        return SQLITE_KINDS.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF, "refused")
    if isinstance(cause, OSError):
        return "full" if cause.errno == errno.ENOSPC else "disk"
    if isinstance(error, NoConnectionError):
        return "locked"
    if not isinstance(error, SQLAlchemyError):
        return "refused"
    state = getattr(cause, "sqlstate", None)
    if state:
        return POSTGRESQL_KINDS.get(state) or POSTGRESQL_KINDS.get(state[:2], "refused")
    is_lost = isinstance(error, DBAPIError) and error.connection_invalidated
    return "unreachable" if is_lost or type(cause).__name__ == "OperationalError" else "refused"
