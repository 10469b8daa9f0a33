"""Map the errors of the database drivers to a StoreError: one sentence, and one word, its kind."""

import errno
import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from windvane.errors import StoreError

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
