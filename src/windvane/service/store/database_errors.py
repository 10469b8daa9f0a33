"""What went wrong in a database: the driver's many errors as one sentence and one word."""

import errno
import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionError

from windvane.errors import StoreError

SENTENCES = {
    "locked": "the database is locked by someone else",
    "full": "the disk is full",
    "disk": "the disk does not read or write",
    "readonly": "the database cannot be written to",
    "unreachable": "the database cannot be reached",
    "broken": "the file is damaged or not a database",
}

SQLITE = {  # primary result codes
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

POSTGRESQL = {  # SQLSTATE, whole or its class
    "53100": "full",
    "53": "unreachable",
    "55P03": "locked",
    "40": "locked",
    "57014": "locked",  # the statement's time was over
    "57": "unreachable",
    "58": "disk",
    "XX": "broken",
    "25006": "readonly",
    "08": "unreachable",
    "28": "unreachable",
    "3D": "unreachable",
}


def explained(error: Exception) -> StoreError:
    """The error as the service sees it; what is not the database's fault is `refused`."""
    if isinstance(error, StoreError):
        return error
    cause = error.orig if isinstance(error, DBAPIError) else error
    kind = _kind(error, cause)
    reason = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    sentence = SENTENCES.get(kind, "the operation fails")
    made = StoreError(f"store: {sentence} ({reason})", kind)
    made.__cause__ = error
    return made


def is_everyones(error: StoreError) -> bool:
    """Whether the database failed, and not one operation."""
    return error.kind in SENTENCES


def _kind(error: Exception, cause: BaseException | None) -> str:
    if isinstance(cause, sqlite3.Error):
        return SQLITE.get(getattr(cause, "sqlite_errorcode", 0) & 0xFF, "refused")
    if isinstance(cause, OSError):
        return "full" if cause.errno == errno.ENOSPC else "disk"
    if isinstance(error, NoConnectionError):
        return "locked"
    if not isinstance(error, SQLAlchemyError):
        return "refused"
    state = getattr(cause, "sqlstate", None)
    if state:
        return POSTGRESQL.get(state) or POSTGRESQL.get(state[:2], "refused")
    lost = isinstance(error, DBAPIError) and error.connection_invalidated
    return "unreachable" if lost or type(cause).__name__ == "OperationalError" else "refused"
