"""The one connection of the writer process to SQLite, which stays open between transactions.

To check a connection out of SQLAlchemy's pool and in again costs as much as several decisions.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine


class KeptConnection:
    """Begins transactions on a connection that is opened once, and again after a failure.

    Another database than SQLite gets a connection from the pool each time: the pool finds out
    whether the database still answers.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._is_kept = engine.dialect.name == "sqlite"
        self._connection: Connection | None = None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Run a transaction: it is committed at the end, or rolled back after an error."""
        if not self._is_kept:
            with self._engine.begin() as connection:
                yield connection
            return
        if self._connection is None:
            self._connection = self._engine.connect()
        try:
            with self._connection.begin():
                yield self._connection
        except BaseException:
            self.close()  # the pool resets it: a commit that has failed may leave it open
            raise

    def close(self) -> None:
        """Give the connection back to the pool."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
